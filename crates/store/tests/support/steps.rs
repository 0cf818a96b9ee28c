//! The steps that a test takes on the oracle and on a store.

use proptest::prelude::*;
use store::Ending;

/// A step that is done to both stores.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    Ingest { count: usize, lane: usize, once: bool, due_in: i64, expires_in: Option<i64> },
    Keyed { key: usize, content: u8 },
    Broadcast { count: usize, sealed: bool },
    Claim,
    Begin { which: usize, through: usize },
    Settle { which: usize, every: usize, outcome: usize, wait: i64 },
    Cancel { position: usize },
    CancelBroadcast { which: usize },
    Reschedule { which: usize, of_broadcast: bool, due_in: i64 },
    Requeue { first: usize, count: usize },
    Pause { scope: usize, paused: bool },
    Suppress { recipient: u8, listed: bool, registered: i64 },
    Wait { millis: i64 },
    Crash(Ending),
}

/// Any of them.
pub(crate) fn step() -> impl Strategy<Value = Step> {
    let number = 0usize..1_000;
    prop_oneof![
        4 => (1usize..40, 0usize..4, any::<bool>(), 0i64..200, prop::option::of(0i64..90_000))
            .prop_map(|(count, lane, once, due_in, expires_in)| {
                Step::Ingest { count, lane, once, due_in, expires_in }
            }),
        1 => (0usize..3, 0u8..2).prop_map(|(key, content)| Step::Keyed { key, content }),
        1 => (0usize..40, any::<bool>()).prop_map(|(count, sealed)| Step::Broadcast { count, sealed }),
        5 => Just(Step::Claim),
        3 => (number.clone(), 0usize..40).prop_map(|(which, through)| Step::Begin { which, through }),
        8 => (number.clone(), 1usize..4, 0usize..8, 0i64..500)
            .prop_map(|(which, every, outcome, wait)| Step::Settle { which, every, outcome, wait }),
        2 => number.clone().prop_map(|position| Step::Cancel { position }),
        1 => number.clone().prop_map(|which| Step::CancelBroadcast { which }),
        2 => (number.clone(), any::<bool>(), -100i64..500).prop_map(|(which, of_broadcast, due_in)| {
            Step::Reschedule { which, of_broadcast, due_in }
        }),
        1 => (number, 1usize..40).prop_map(|(first, count)| Step::Requeue { first, count }),
        1 => (0usize..5, any::<bool>()).prop_map(|(scope, paused)| Step::Pause { scope, paused }),
        2 => (0u8..40, any::<bool>(), 0i64..500).prop_map(|(recipient, listed, registered)| {
            Step::Suppress { recipient, listed, registered }
        }),
        3 => (0i64..70_000).prop_map(|millis| Step::Wait { millis }),
        2 => prop_oneof![Just(Ending::Killed), Just(Ending::Faulted)].prop_map(Step::Crash),
    ]
}

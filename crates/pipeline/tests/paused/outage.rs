//! The cost to a provider of being away for ten minutes, at full load, and the time until all goes on.

use std::time::Duration;

use channel::Attempt;
use notification::{Answer, Guarantee, limits};
use pipeline::RetryPolicy;
use store::ReadStore as _;

use crate::rig::{Rig, name, on_one_thread};
use crate::script::Script;

/// Sixty-four at a time, two seconds each: thirty-two a second.
const LATENCY: Duration = Duration::from_secs(2);
const PLACES: usize = 64;
const RATE: usize = 32;
const OUTAGE: Duration = Duration::from_mins(10);
/// Notifications for a minute before and two after it. Those that wait meanwhile are not tried, so more of them change nothing.
const NOTIFICATIONS: usize = 4_000;
/// The notifications that come in during the outage, at full load.
const MEANWHILE: usize = RATE * 600;
/// Lanes of one destination, as several tenants have them.
const LANES: usize = 2;

/// The requests that an outage costs, beside one for each notification, and what went through in the ten seconds that begin five seconds
/// after it.
async fn outage_of(attempt: Attempt, guarantee: Guarantee) -> (usize, usize) {
    let mut rig = Rig::new(Script::new(LATENCY, PLACES));
    rig.policy = RetryPolicy::default();
    let running = rig.start();
    let draft = |number: usize| {
        let mut draft = rig.draft(&number.to_string(), guarantee);
        draft.envelope.lane.tenant = name(&format!("tenant{}", number % LANES));
        draft
    };
    rig.accept_drafts((0..NOTIFICATIONS).map(draft).collect()).await;
    tokio::time::sleep(Duration::from_mins(1)).await;
    rig.script.set_outage(Some(attempt));
    for _ in 0..OUTAGE.as_secs() / 60 {
        tokio::time::sleep(Duration::from_mins(1)).await;
        let held: u64 =
            rig.store.lanes().await.unwrap().lanes.iter().map(|lane| lane.claimed).sum();
        assert!(held <= limits::BATCH_ITEMS as u64, "{held} are held for who does not answer");
    }
    rig.script.set_outage(None);
    let ended = rig.clock.monotonic();
    while rig.store.totals().await.unwrap().pending > 0 {
        tokio::time::sleep(Duration::from_secs(10)).await;
    }
    running.stop().await;
    let account = rig.account().await;
    assert_eq!(account.delivered, NOTIFICATIONS as u64, "nothing is dead: {account:?}");
    let after = ended + Duration::from_secs(5)..ended + Duration::from_secs(15);
    let accepted = rig.script.accepted_at();
    let resumed = accepted.iter().filter(|at| after.contains(at)).count();
    (rig.script.attempts().len() - NOTIFICATIONS, resumed)
}

#[test]
fn ten_minutes_cost_few_requests_and_five_seconds_later_all_goes_on() {
    on_one_thread(async || {
        let refused = || Attempt::unsent("connection refused", None);
        let busy = || Attempt::pushed_back(Answer::deferred(503, None, "busy"));
        for (attempt, guarantee) in
            [(refused(), Guarantee::AtLeastOnce), (busy(), Guarantee::AtMostOnce)]
        {
            let what = format!("{guarantee}, {attempt:?}");
            let (more, resumed) = outage_of(attempt, guarantee).await;
            assert!(more <= MEANWHILE / 10, "{what}: {more} requests more");
            assert!(resumed >= 9 * RATE, "{what}: {resumed} in ten seconds");
        }
    });
}

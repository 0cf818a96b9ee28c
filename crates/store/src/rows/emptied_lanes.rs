//! Tests of the removal of lanes, for every store: a lane goes when nothing is in it, and comes back with its next notification.

use std::time::Duration;

use notification::{Disposition, State, Timestamp};

use crate::conformance::{Shape, at, claim_all, indexes, part, the_books_balance};
use crate::{Lifetimes, Removed, Retention, Store, TenantRetention};

const DAY: Duration = Duration::from_hours(24);

/// A store of which the test reads the lanes.
pub(crate) trait LaneStore {
    fn store(&self) -> &dyn Store;
    /// Destinations of the lanes that are stored, in order.
    async fn destinations(&self) -> Vec<String>;
    /// Gives the following batches numbers that are further on than a lane is kept for.
    async fn skip_numbers(&mut self);
}

pub(crate) fn day(day: u32) -> Timestamp {
    at(0).plus(DAY * day)
}

/// Outcomes and all else for 90 days.
fn retention() -> Retention {
    let lifetime = Some(DAY * 90);
    let lifetimes = Lifetimes { content: lifetime, recipient: lifetime, outcome: lifetime };
    let by_state = std::collections::BTreeMap::new();
    Retention { default: TenantRetention { lifetimes, by_state }, ..Retention::for_ever() }
}

/// Removes until nothing is left to do at `now`.
pub(crate) async fn prune(store: &dyn Store, now: Timestamp) -> Removed {
    let mut removed = Removed::default();
    loop {
        let step = store.prune(&retention(), now).await.unwrap();
        removed.add(&step.removed);
        if !step.goes_on {
            return removed;
        }
    }
}

/// Sends one notification to `destination`, and delivers it.
pub(crate) async fn send(store: &dyn Store, destination: &'static str, now: Timestamp) {
    let due_at = now.millis();
    let draft = Shape { destination, due_at, ..Shape::default() }.draft("recipient");
    store.ingest(vec![draft], now).await.unwrap();
    assert_eq!(deliver(store, now).await, [destination]);
}

/// Delivers all that is due; returns where that went.
pub(crate) async fn deliver(store: &dyn Store, now: Timestamp) -> Vec<String> {
    let mut destinations = Vec::new();
    for chunk in claim_all(store, now.millis()).await {
        let delivered = Disposition::Ended(State::Delivered);
        let mut settlement = part(&chunk, &indexes(&chunk), delivered);
        settlement.at = now;
        store.settle(vec![settlement]).await.unwrap();
        destinations.push(chunk.envelope.lane.destination.to_string());
    }
    destinations
}

/// Lanes of which one is used no more, one is used again, and one has a notification that waits.
pub(crate) async fn lanes_go_when_nothing_is_in_them(lanes: &mut impl LaneStore) {
    for destination in ["gone", "kept"] {
        send(lanes.store(), destination, day(0)).await;
    }
    let waits = Shape { destination: "waits", due_at: day(1_000).millis(), ..Shape::default() };
    waits.ingest(lanes.store(), 1).await;
    send(lanes.store(), "young", day(100)).await;
    let removed = prune(lanes.store(), day(150)).await;
    assert_eq!((removed.outcomes, removed.lanes), (2, 0), "batches may come with the next numbers");
    lanes.skip_numbers().await;
    send(lanes.store(), "kept", day(200)).await;
    send(lanes.store(), "last", day(300)).await;
    let removed = prune(lanes.store(), day(350)).await;
    assert_eq!((removed.outcomes, removed.lanes), (2, 2));
    assert_eq!(lanes.destinations().await, ["kept", "last", "waits"]);
    assert_eq!(prune(lanes.store(), day(350)).await, Removed::default(), "once a day");
    send(lanes.store(), "gone", day(360)).await;
    assert_eq!(deliver(lanes.store(), day(1_000)).await, ["waits"]);
    assert_eq!(lanes.destinations().await, ["gone", "kept", "last", "waits"]);
    the_books_balance(lanes.store()).await;
}

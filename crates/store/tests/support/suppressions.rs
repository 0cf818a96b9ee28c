//! The suppression list, as the oracle compares it.

use std::collections::BTreeMap;

use notification::Timestamp;
use store::conformance::{at, name};
use store::{EventPosition, Store, Suppression};

/// Times at which the provider saw recipients gone: `wait` before `now`, for every third index.
pub(crate) fn gone_since(indexes: &[u16], wait: i64, now: i64) -> BTreeMap<u16, Timestamp> {
    indexes.iter().filter(|index| *index % 3 == 0).map(|&index| (index, at(now - wait))).collect()
}

/// The list, and everything that ever happened to it, in an order that does not depend on the store.
pub(crate) async fn suppressions(
    store: &dyn Store,
) -> (Vec<Suppression>, Vec<impl PartialEq + std::fmt::Debug>) {
    let listed = store.reader().suppressions(name("channel"), None, 1_000).await.unwrap();
    let (mut events, mut position) = (Vec::new(), EventPosition::default());
    loop {
        let page = store.reader().suppression_events(position, 7).await.unwrap();
        if page.next == position {
            break;
        }
        position = page.next;
        events.extend(page.events.into_iter().map(|it| (it.recipient, it.at, it.change)));
    }
    // Within a transaction each store has an order of its own, but for what happened to one recipient.
    events.sort_by(|one, other| one.0.cmp(&other.0));
    (listed, events)
}

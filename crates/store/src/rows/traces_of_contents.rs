//! A test of when traces are removed, for every store.

use std::collections::BTreeMap;
use std::time::Duration;

use notification::{Disposition, Draft, State, TraceContext};

use crate::conformance::{Shape, at, claim_all, name, settle_all};
use crate::{Admission, Erased, Lifetimes, Retention, Store, TenantRetention};

/// One that is erased, and one whose content retention removes, cannot be sent again, and lose their traces. `stored` is the number of
/// batches with traces.
pub(crate) async fn traces_go_with_contents(store: &dyn Store, stored: impl AsyncFn() -> i64) {
    let mut ids = Vec::new();
    for number in [1, 2] {
        let trace = TraceContext::from_bytes(&[number; 24]);
        let drafts = vec![Draft { trace, ..Shape::default().draft("recipient") }];
        ids.extend(store.ingest(drafts, at(0)).await.unwrap());
    }
    for chunk in claim_all(store, 0).await {
        settle_all(store, &chunk, Disposition::Ended(State::Delivered)).await;
    }
    let [Admission::Accepted(first), _] = ids[..] else { panic!("{ids:?}") };
    assert_eq!(stored().await, 2);
    assert_eq!(store.erase(vec![first], name("tenant")).await.unwrap(), [Erased::Erased]);
    assert_eq!(stored().await, 1);
    let content = Some(Duration::from_hours(1));
    let lifetimes = Lifetimes { content, recipient: None, outcome: None };
    let default = TenantRetention { lifetimes, by_state: BTreeMap::new() };
    let retention = Retention { default, ..Retention::for_ever() };
    while store.prune(&retention, at(0).plus(Duration::from_hours(24))).await.unwrap().goes_on {}
    assert_eq!(stored().await, 0);
}

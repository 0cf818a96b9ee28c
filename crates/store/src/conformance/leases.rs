//! The holder of a lease and its end.

use notification::{ChunkId, Disposition, Epoch, Guarantee, State};

use super::support::{
    DELIVERED, LEASE, Shape, at, claim_all, claim_one, find, indexes, part, settle_all, settle_one,
};
use crate::{Mark, MarkAnswer, Settled, Store};

#[expect(clippy::cast_possible_truncation, reason = "a minute")]
const LEASE_MILLIS: i64 = LEASE.as_millis() as i64;

pub(super) async fn a_lease_that_ended_is_claimed_again_with_a_new_epoch(store: &dyn Store) {
    let ids = Shape::default().ingest(store, 3).await;
    let first = claim_one(store, 0).await;
    assert_eq!(find(store, ids[0]).await.state, State::Claimed);
    assert!(claim_all(store, LEASE_MILLIS - 1).await.is_empty());
    let second = claim_one(store, LEASE_MILLIS).await;
    assert_eq!((second.id, second.epoch), (first.id, Epoch(first.epoch.0 + 1)));
    assert_eq!((second.attempt, second.deliveries), (1, first.deliveries));
    assert_eq!(find(store, ids[0]).await.attempts, [], "nobody knows of an attempt");
}

pub(super) async fn a_late_settlement_is_stale(store: &dyn Store) {
    Shape::default().ingest(store, 2).await;
    let late = claim_one(store, 0).await;
    let current = claim_one(store, LEASE_MILLIS).await;
    assert_eq!(settle_one(store, part(&late, &[0, 1], DELIVERED)).await, Settled::Stale);
    assert_eq!(store.reader().totals().await.unwrap().delivered, 0);
    settle_all(store, &current, DELIVERED).await;
    assert_eq!(settle_one(store, part(&current, &[0], DELIVERED)).await, Settled::Stale);
}

pub(super) async fn at_most_once_that_began_is_in_doubt_when_its_lease_ends(store: &dyn Store) {
    let once = Shape { guarantee: Guarantee::AtMostOnce, ..Shape::default() };
    let ids = once.ingest(store, 4).await;
    let chunk = claim_one(store, 0).await;
    let mark = |through| Mark { chunk: chunk.id, epoch: chunk.epoch, through };
    let answers = store.begin(vec![mark(2), mark(1)]).await.unwrap();
    assert_eq!(answers, [MarkAnswer::Granted, MarkAnswer::Stale], "a mark only rises");
    assert_eq!(
        store.begin(vec![mark(2)]).await.unwrap(),
        [MarkAnswer::Stale],
        "nothing begins twice"
    );
    assert_eq!(
        settle_one(store, part(&chunk, &[0], DELIVERED)).await,
        Settled::Applied { remaining: 3 }
    );
    let states = async || {
        let mut states = Vec::new();
        for &id in &ids {
            states.push(find(store, id).await.state);
        }
        states
    };
    assert_eq!(states().await, [State::Delivered, State::Begun, State::Begun, State::Claimed]);
    let rest = claim_one(store, LEASE_MILLIS).await;
    assert_eq!(indexes(&rest), [3]);
    assert_eq!(states().await, [State::Delivered, State::InDoubt, State::InDoubt, State::Claimed]);
    let history = find(store, ids[2]).await;
    assert_eq!((history.attempts[0].attempt, &*history.attempts[0].detail), (1, "lease ended"));
    assert!(claim_all(store, 2 * LEASE_MILLIS).await.len() == 1, "what had not begun is sent");
}

pub(super) async fn a_mark_needs_the_current_claim(store: &dyn Store) {
    Shape { guarantee: Guarantee::AtMostOnce, ..Shape::default() }.ingest(store, 1).await;
    let least = Shape { destination: "elsewhere", ..Shape::default() };
    let late = claim_one(store, 0).await;
    let current = claim_one(store, LEASE_MILLIS).await;
    least.ingest(store, 1).await;
    let at_least_once = claim_one(store, LEASE_MILLIS).await;
    let mark = |chunk: ChunkId, epoch| Mark { chunk, epoch, through: 0 };
    let marks = vec![
        mark(late.id, late.epoch),
        mark(current.id, current.epoch),
        mark(at_least_once.id, at_least_once.epoch),
        mark(ChunkId(999_999), Epoch(1)),
    ];
    let expect = [MarkAnswer::Stale, MarkAnswer::Granted, MarkAnswer::Granted, MarkAnswer::Stale];
    assert_eq!(store.begin(marks.clone()).await.unwrap(), expect);
    settle_all(store, &current, Disposition::HandedBack { at: at(0) }).await;
    assert_eq!(store.begin(marks).await.unwrap()[1], MarkAnswer::Stale);
    let again = claim_one(store, LEASE_MILLIS).await;
    assert_eq!(find(store, again.notification_id(0)).await.state, State::Claimed);
}

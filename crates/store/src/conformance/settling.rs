//! Outcomes are written once.

use notification::{Account, Disposition, Guarantee, Settlement, State};

use super::support::{
    DELIVERED, Shape, at, claim_all, claim_one, find, indexes, part, settle_all, settle_one,
};
use crate::{Mark, MarkAnswer, Settled, Store};

pub(super) async fn every_outcome_is_logged_and_counted(store: &dyn Store) {
    let once = Shape { guarantee: Guarantee::AtMostOnce, ..Shape::default() };
    let ids = once.ingest(store, 6).await;
    let chunk = claim_one(store, 0).await;
    let mark = Mark { chunk: chunk.id, epoch: chunk.epoch, through: 5 };
    assert_eq!(store.begin(vec![mark]).await.unwrap(), [MarkAnswer::Granted]);
    let ends = [
        (State::Delivered, 200),
        (State::Refused, 410),
        (State::Expired, 0),
        (State::InDoubt, 0),
        (State::Dead, 503),
    ];
    let group = |(index, (state, status)): (u16, (State, u16))| {
        let mut groups = part(&chunk, &[index], Disposition::Ended(state)).groups;
        (groups[0].status, groups[0].detail) = (status, state.as_str().into());
        groups
    };
    let groups = (0..).zip(ends).flat_map(group).collect();
    let settlement = Settlement { groups, ..part(&chunk, &[], DELIVERED) };
    assert_eq!(settle_one(store, settlement).await, Settled::Applied { remaining: 1 });
    for (id, (state, status)) in ids.iter().zip(ends) {
        let history = find(store, *id).await;
        assert_eq!((history.state, history.next_attempt_at), (state, None));
        let [line] = &history.attempts[..] else { panic!("{history:?}") };
        assert_eq!((line.at, line.state, line.status), (at(7), state, status));
        assert_eq!(line.attempt, u16::from(state != State::Expired), "expiry is no attempt");
        assert_eq!(line.detail, state.as_str());
    }
    let account = Account {
        accepted: 6,
        delivered: 1,
        refused: 1,
        expired: 1,
        in_doubt: 1,
        dead: 1,
        pending: 1,
        ..Account::default()
    };
    assert_eq!(store.reader().totals().await.unwrap(), account);
}

pub(super) async fn a_chunk_is_settled_in_parts_and_no_part_twice(store: &dyn Store) {
    Shape::default().ingest(store, 5).await;
    let chunk = claim_one(store, 0).await;
    for (part_of_it, expect) in [
        (vec![0, 2], Settled::Applied { remaining: 3 }),
        (vec![2], Settled::Stale),
        (vec![1, 2], Settled::Stale),
        (vec![7], Settled::Stale),
        (vec![1, 3, 4], Settled::Applied { remaining: 0 }),
        (vec![1], Settled::Stale),
    ] {
        assert_eq!(settle_one(store, part(&chunk, &part_of_it, DELIVERED)).await, expect);
    }
    assert_eq!(store.reader().totals().await.unwrap().delivered, 5);
    assert!(claim_all(store, i64::from(u32::MAX)).await.is_empty());
}

pub(super) async fn a_retry_is_due_again_with_the_next_attempt(store: &dyn Store) {
    let ids = Shape::default().ingest(store, 3).await;
    let chunk = claim_one(store, 0).await;
    settle_one(store, part(&chunk, &[0, 2], Disposition::Retry { at: at(100) })).await;
    settle_one(store, part(&chunk, &[1], DELIVERED)).await;
    let waiting = find(store, ids[2]).await;
    assert_eq!((waiting.state, waiting.next_attempt_at), (State::Pending, Some(at(100))));
    assert_eq!((waiting.attempts[0].state, waiting.attempts[0].attempt), (State::Pending, 1));
    assert!(claim_all(store, 99).await.is_empty());
    let again = claim_one(store, 100).await;
    assert_eq!((again.attempt, again.batch, indexes(&again)), (2, chunk.batch, vec![0, 2]));
    assert_eq!(again.deliveries[1], chunk.deliveries[2]);
    settle_all(store, &again, DELIVERED).await;
    let attempts = find(store, ids[2]).await.attempts;
    let seen: Vec<_> = attempts.iter().map(|line| (line.attempt, line.state)).collect();
    assert_eq!(seen, [(1, State::Pending), (2, State::Delivered)]);
}

pub(super) async fn retries_of_one_instant_are_one_chunk_whatever_was_answered(store: &dyn Store) {
    let ids = Shape::default().ingest(store, 6).await;
    let chunk = claim_one(store, 0).await;
    let retry = |instant, words: &str, indexes: &[u16]| {
        let mut groups = part(&chunk, indexes, Disposition::Retry { at: at(instant) }).groups;
        groups[0].detail = words.to_owned().into();
        groups
    };
    let groups = [
        retry(100, "busy 5", &[5]),
        part(&chunk, &[2], Disposition::HandedBack { at: at(100) }).groups,
        retry(100, "busy 1", &[1]),
        retry(200, "much later", &[0]),
        retry(100, "busy 3", &[3]),
        part(&chunk, &[4], DELIVERED).groups,
    ];
    let settlement = Settlement { groups: groups.concat(), ..part(&chunk, &[], DELIVERED) };
    assert_eq!(settle_one(store, settlement).await, Settled::Applied { remaining: 0 });
    let mut again: Vec<_> = claim_all(store, 200).await;
    again.sort_by_key(indexes);
    let seen: Vec<_> = again.iter().map(|chunk| (indexes(chunk), chunk.attempt)).collect();
    assert_eq!(seen, [(vec![0], 2), (vec![1, 3, 5], 2), (vec![2], 1)]);
    assert_eq!(find(store, ids[3]).await.attempts[0].detail, "busy 3");
}

pub(super) async fn retries_of_one_instant_are_one_chunk_whenever_they_were_settled(
    store: &dyn Store,
) {
    let ids = Shape::default().ingest(store, 9).await;
    let other = Shape { due_at: 1, ..Shape::default() };
    other.ingest(store, 2).await;
    let mut chunks = claim_all(store, 1).await;
    chunks.sort_by_key(|chunk| chunk.envelope.due_at);
    let [chunk, other] = &chunks[..] else { panic!("{chunks:?}") };
    let retry = |chunk, instant, indexes: &[u16]| {
        part(chunk, indexes, Disposition::Retry { at: at(instant) })
    };
    let handed_back = part(chunk, &[8], Disposition::HandedBack { at: at(100) });
    // Two of them in one call.
    let together = vec![retry(chunk, 100, &[6]), retry(chunk, 100, &[1]), retry(other, 100, &[1])];
    let settled = store.settle(together).await.expect("settle");
    assert!(settled.iter().all(|settled| *settled != Settled::Stale), "{settled:?}");
    for settlement in
        [retry(chunk, 100, &[4, 5]), retry(chunk, 200, &[0]), handed_back, retry(other, 100, &[0])]
    {
        assert_ne!(settle_one(store, settlement).await, Settled::Stale);
    }
    let mut again = claim_all(store, 100).await;
    again.sort_by_key(|chunk| (chunk.batch, chunk.attempt));
    let seen: Vec<_> = again.iter().map(|chunk| (indexes(chunk), chunk.attempt)).collect();
    assert_eq!(seen, [(vec![8], 1), (vec![1, 4, 5, 6], 2), (vec![0, 1], 2)]);
    // What is claimed by now is a chunk of its own.
    settle_all(store, &again[0], DELIVERED).await;
    assert_ne!(settle_one(store, retry(chunk, 100, &[2, 3])).await, Settled::Stale);
    let late = claim_one(store, 100).await;
    assert_eq!((indexes(&late), late.attempt), (vec![2, 3], 2));
    assert_eq!(
        settle_one(store, part(&again[1], &[1, 4], DELIVERED)).await,
        Settled::Applied { remaining: 2 }
    );
    assert_eq!(find(store, ids[4]).await.state, State::Delivered);
}

pub(super) async fn what_would_be_tried_too_late_has_expired_with_its_attempt(store: &dyn Store) {
    for guarantee in [Guarantee::AtLeastOnce, Guarantee::AtMostOnce] {
        let ids = Shape { guarantee, ..Shape::default() }.ingest(store, 2).await;
        let chunk = claim_one(store, 0).await;
        let mark = Mark { chunk: chunk.id, epoch: chunk.epoch, through: 1 };
        assert_eq!(store.begin(vec![mark]).await.unwrap(), [MarkAnswer::Granted]);
        settle_one(store, part(&chunk, &[1], Disposition::TooLate)).await;
        settle_one(store, part(&chunk, &[0], DELIVERED)).await;
        let expired = find(store, ids[1]).await;
        assert_eq!((expired.state, expired.next_attempt_at), (State::Expired, None));
        let [line] = &expired.attempts[..] else { panic!("{expired:?}") };
        assert_eq!((line.attempt, line.state, line.status), (1, State::Expired, 200));
        assert!(claim_all(store, i64::from(u32::MAX)).await.is_empty());
    }
    assert_eq!(store.reader().totals().await.unwrap().expired, 2);
}

pub(super) async fn what_is_handed_back_keeps_its_attempt_and_is_not_logged(store: &dyn Store) {
    let ids = Shape { guarantee: Guarantee::AtMostOnce, ..Shape::default() }.ingest(store, 2).await;
    let chunk = claim_one(store, 0).await;
    settle_all(store, &chunk, Disposition::HandedBack { at: at(30) }).await;
    let waiting = find(store, ids[1]).await;
    assert_eq!((waiting.state, waiting.next_attempt_at), (State::Pending, Some(at(30))));
    assert_eq!(waiting.attempts, []);
    assert!(claim_all(store, 29).await.is_empty());
    let again = claim_one(store, 30).await;
    assert_eq!((again.attempt, again.deliveries), (1, chunk.deliveries));
}

pub(super) async fn a_stale_part_leaves_the_others_alone(store: &dyn Store) {
    Shape::default().ingest(store, 4).await;
    let chunk = claim_one(store, 0).await;
    let one = |index| part(&chunk, &[index], DELIVERED);
    let settled = store.settle(vec![one(0), one(0), one(9), one(1)]).await.unwrap();
    let applied = |remaining| Settled::Applied { remaining };
    assert_eq!(settled, [applied(3), Settled::Stale, Settled::Stale, applied(2)]);
}

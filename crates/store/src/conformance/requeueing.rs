//! Requeueing: notifications that ended undelivered can be sent again, and no other ones.

use notification::{Disposition, Guarantee, NotificationId, State};

use super::support::{
    BroadcastShape, DELIVERED, Shape, at, cancel_scope, claim_all, claim_one, find, indexes, name,
    part, settle_all, settle_one,
};
use crate::{CancelTarget, Filter, Mark, MarkAnswer, Requeued, Store};

const DEAD: Disposition = Disposition::Ended(State::Dead);

pub(super) async fn requeue(
    store: &dyn Store,
    ids: &[NotificationId],
    millis: i64,
) -> Vec<Requeued> {
    requeue_from(store, &[State::Dead], ids, millis).await
}

async fn requeue_from(
    store: &dyn Store,
    states: &[State],
    ids: &[NotificationId],
    millis: i64,
) -> Vec<Requeued> {
    let states = states.iter().copied().collect();
    store.requeue(ids.to_vec(), states, name("tenant"), at(millis)).await.expect("requeue")
}

pub(super) async fn a_dead_one_is_sent_again_as_itself(store: &dyn Store) {
    let keyed = Shape { key: Some(("key", 1)), ..Shape::default() };
    let id = keyed.ingest(store, 1).await[0];
    settle_all(store, &claim_one(store, 0).await, DEAD).await;
    assert_eq!(requeue(store, &[id], 9).await, [Requeued::Requeued]);
    let history = find(store, id).await;
    assert_eq!((history.state, history.next_attempt_at), (State::Pending, Some(at(9))));
    let account = store.reader().totals().await.unwrap();
    assert_eq!((account.accepted, account.dead, account.pending), (1, 0, 1));
    let again = claim_one(store, 9).await;
    assert_eq!((again.notification_id(0), again.attempt), (id, 1));
    assert_eq!(Some(&again.deliveries[0].recipient), history.recipient.as_ref());
    settle_all(store, &again, DELIVERED).await;
    let history = find(store, id).await;
    let attempts: Vec<(u16, State, &str)> = history
        .attempts
        .iter()
        .map(|attempted| (attempted.attempt, attempted.state, &*attempted.detail))
        .collect();
    let expect = [(1, State::Dead, ""), (0, State::Pending, "requeued"), (1, State::Delivered, "")];
    assert_eq!(attempts, expect);
    let replayed = store.ingest(vec![keyed.draft("0")], at(10)).await.unwrap();
    assert_eq!(replayed, [crate::Admission::Replayed(id)], "its key is still its own");
    let account = store.reader().totals().await.unwrap();
    assert_eq!((account.accepted, account.dead, account.delivered), (1, 0, 1));
}

pub(super) async fn what_is_not_dead_stays_as_it_is(store: &dyn Store) {
    let ids = Shape::default().ingest(store, 4).await;
    assert_eq!(requeue(store, &ids[..1], 1).await, [Requeued::OtherState], "pending");
    let chunk = claim_one(store, 0).await;
    assert_eq!(requeue(store, &ids[..1], 1).await, [Requeued::OtherState], "claimed");
    settle_one(store, part(&chunk, &[0], DELIVERED)).await;
    settle_one(store, part(&chunk, &[1], Disposition::Ended(State::Refused))).await;
    settle_one(store, part(&chunk, &[2, 3], DEAD)).await;
    let other = Shape { destination: "later", due_at: 900, ..Shape::default() };
    let cancelled = other.ingest(store, 1).await[0];
    store.cancel(CancelTarget::Notification(cancelled), name("tenant"), at(2)).await.unwrap();
    let once = Shape { guarantee: Guarantee::AtMostOnce, ..Shape::default() };
    let once = once.ingest(store, 2).await;
    let chunk = claim_one(store, 0).await;
    store.begin(vec![Mark { chunk: chunk.id, epoch: chunk.epoch, through: 1 }]).await.unwrap();
    settle_one(store, part(&chunk, &[0], Disposition::Ended(State::InDoubt))).await;
    settle_one(store, part(&chunk, &[1], DEAD)).await;
    let stranger = Shape { tenant: "stranger", ..Shape::default() };
    let strange = stranger.ingest(store, 1).await[0];
    settle_all(store, &claim_one(store, 0).await, DEAD).await;
    let asked = [ids[0], ids[1], cancelled, once[0], once[1], strange, ids[3], ids[2], ids[3]];
    let expect = [
        Requeued::OtherState,
        Requeued::OtherState,
        Requeued::OtherState,
        Requeued::OtherState,
        Requeued::Requeued,
        Requeued::Unknown,
        Requeued::Requeued,
        Requeued::Requeued,
        Requeued::OtherState,
    ];
    assert_eq!(requeue(store, &asked, 3).await, expect);
    assert_eq!(requeue(store, &asked[6..], 3).await, [Requeued::OtherState; 3], "they are pending");
    let mut claimed: Vec<u16> = claim_all(store, 3).await.iter().flat_map(indexes).collect();
    claimed.sort_unstable();
    assert_eq!(claimed, [1, 2, 3]);
}

pub(super) async fn a_cancelled_one_is_sent_again_as_itself(store: &dyn Store) {
    let once = Shape { guarantee: Guarantee::AtMostOnce, ..Shape::default() };
    let (ids, soon) = (once.ingest(store, 3).await, Some(50));
    let expires = Shape { expires_at: soon, ..Shape::default() }.ingest(store, 1).await;
    // One was begun once, and the provider had not taken it.
    let chunk = claim_all(store, 0).await.into_iter().find(|it| it.deliveries.len() == 3).unwrap();
    store.begin(vec![Mark { chunk: chunk.id, epoch: chunk.epoch, through: 0 }]).await.unwrap();
    settle_one(store, part(&chunk, &[0], Disposition::Retry { at: at(8) })).await;
    settle_one(store, part(&chunk, &[1, 2], Disposition::HandedBack { at: at(8) })).await;
    let cancelled = cancel_scope(store, "tenant", "tenant").await;
    assert_eq!((cancelled.cancelled, cancelled.under_way), (3, 1));
    assert_eq!(requeue(store, &ids, 9).await, [Requeued::OtherState; 3], "dead ones were meant");
    let both = [State::Dead, State::Cancelled];
    let twice = [ids[0], ids[1], ids[1]];
    let expect = [Requeued::Requeued, Requeued::Requeued, Requeued::OtherState];
    assert_eq!(requeue_from(store, &both, &twice, 9).await, expect);
    assert_eq!(requeue_from(store, &both, &expires, 9).await, [Requeued::OtherState]);
    let account = store.reader().totals().await.unwrap();
    assert_eq!((account.accepted, account.cancelled, account.pending), (4, 1, 3));
    let history = find(store, ids[0]).await;
    assert_eq!((history.state, history.next_attempt_at), (State::Pending, Some(at(9))));
    let mut again = Vec::new();
    for chunk in claim_all(store, 9).await {
        assert_eq!(chunk.attempt, 1);
        again.extend(indexes(&chunk).into_iter().map(|index| chunk.notification_id(index)));
        let mark = Mark { chunk: chunk.id, epoch: chunk.epoch, through: 2 };
        assert_eq!(store.begin(vec![mark]).await.unwrap(), [MarkAnswer::Granted]);
        settle_all(store, &chunk, DELIVERED).await;
    }
    again.sort_unstable();
    assert_eq!(again, ids[..2]);
    let lines = find(store, ids[1]).await.attempts;
    let lines: Vec<(u16, State, &str)> =
        lines.iter().map(|it| (it.attempt, it.state, &*it.detail)).collect();
    let back = (0, State::Pending, "requeued, after it was cancelled");
    assert_eq!(lines, [(0, State::Cancelled, ""), back, (1, State::Delivered, "")]);
    assert_eq!(requeue_from(store, &both, &ids[..2], 9).await, [Requeued::OtherState; 2]);
    let states = [State::Cancelled].into();
    let left =
        store.reader().list(Filter { states, ..Filter::default() }, None, 9).await.unwrap().items;
    assert_eq!(left.iter().map(|it| it.id).collect::<Vec<_>>(), ids[2..]);
}

pub(super) async fn what_is_cancelled_and_dead_in_turn_is_counted_where_it_stands(
    store: &dyn Store,
) {
    let broadcast = BroadcastShape::default().open(store, 3).await;
    store.seal_broadcast(broadcast, at(0)).await.unwrap();
    let page = store.reader().list(Filter::default(), None, 3).await.unwrap();
    let ids: Vec<NotificationId> = page.items.iter().map(|history| history.id).collect();
    let account = async || {
        let account = store.reader().broadcast(broadcast).await.unwrap().unwrap().account;
        assert_eq!(account, store.reader().totals().await.unwrap());
        (account.dead, account.cancelled, account.pending)
    };
    for round in 0..3 {
        let target = CancelTarget::Broadcast(broadcast);
        let cancelled = store.cancel(target, name("tenant"), at(round)).await.unwrap().unwrap();
        assert_eq!((cancelled.cancelled, cancelled.ended), (3, 0));
        assert_eq!(account().await, (0, 3, 0));
        let again = store.cancel(target, name("tenant"), at(round)).await.unwrap().unwrap();
        assert_eq!((again.cancelled, again.ended), (0, 3));
        let requeued = requeue_from(store, &[State::Cancelled], &ids, round).await;
        assert_eq!(requeued, [Requeued::Requeued; 3]);
        assert_eq!(account().await, (0, 0, 3));
        for chunk in claim_all(store, round).await {
            settle_all(store, &chunk, DEAD).await;
        }
        assert_eq!(account().await, (3, 0, 0));
        let wrong = requeue_from(store, &[State::Cancelled], &ids, round).await;
        assert_eq!(wrong, [Requeued::OtherState; 3]);
        assert_eq!(requeue(store, &ids, round).await, [Requeued::Requeued; 3]);
        assert_eq!(find(store, ids[0]).await.state, State::Pending);
    }
}

pub(super) async fn what_expired_meanwhile_is_not_sent_again(store: &dyn Store) {
    let ids = Shape { expires_at: Some(100), ..Shape::default() }.ingest(store, 1).await;
    settle_all(store, &claim_one(store, 0).await, DEAD).await;
    assert_eq!(requeue(store, &ids, 100).await, [Requeued::Expired]);
    assert_eq!(find(store, ids[0]).await.state, State::Dead);
    assert_eq!(requeue(store, &ids, 99).await, [Requeued::Requeued]);
    cancel_scope(store, "tenant", "channel/channel").await;
    let cancelled = [State::Cancelled];
    assert_eq!(requeue_from(store, &cancelled, &ids, 100).await, [Requeued::Expired]);
}

pub(super) async fn two_who_requeue_the_same_requeue_it_once(store: &dyn Store) {
    let ids = Shape::default().ingest(store, 50).await;
    settle_all(store, &claim_one(store, 0).await, DEAD).await;
    let backwards: Vec<NotificationId> = ids.iter().rev().copied().collect();
    let (one, other) = tokio::join!(requeue(store, &ids, 1), requeue(store, &backwards, 1));
    let done = |answers: &[Requeued]| {
        answers.iter().filter(|answer| **answer == Requeued::Requeued).count()
    };
    assert_eq!(done(&one) + done(&other), 50);
    assert_eq!(store.reader().totals().await.unwrap().pending, 50);
}

pub(super) async fn a_broadcast_counts_what_was_requeued_and_died_again(store: &dyn Store) {
    let broadcast = BroadcastShape::default().open(store, 4).await;
    store.seal_broadcast(broadcast, at(0)).await.unwrap();
    let dead = Filter { states: [State::Dead].into(), ..Filter::default() };
    for _ in 0..3 {
        for chunk in claim_all(store, 0).await {
            settle_all(store, &chunk, DEAD).await;
        }
        let status = store.reader().broadcast(broadcast).await.unwrap().unwrap().account;
        assert_eq!((status.accepted, status.dead, status.pending), (4, 4, 0));
        let page = store.reader().list(dead.clone(), None, 10).await.unwrap();
        let ids: Vec<NotificationId> = page.items.iter().map(|history| history.id).collect();
        assert_eq!(requeue(store, &ids, 0).await, [Requeued::Requeued; 4]);
        let status = store.reader().broadcast(broadcast).await.unwrap().unwrap().account;
        assert_eq!((status.accepted, status.dead, status.pending), (4, 0, 4));
        assert_eq!(store.reader().list(dead.clone(), None, 10).await.unwrap().items, []);
    }
    let target = CancelTarget::Broadcast(broadcast);
    let cancelled = store.cancel(target, name("tenant"), at(1)).await.unwrap().unwrap();
    assert_eq!((cancelled.cancelled, cancelled.ended), (4, 0));
}

pub(super) async fn refused_ones_and_those_in_doubt_are_sent_again_when_they_are_meant(
    store: &dyn Store,
) {
    let once = Shape { guarantee: Guarantee::AtMostOnce, ..Shape::default() };
    let ids = once.ingest(store, 4).await;
    let ends = [State::Refused, State::InDoubt, State::Dead, State::Delivered];
    let end = async |ends: &[State]| {
        for chunk in claim_all(store, 9).await {
            store
                .begin(vec![Mark { chunk: chunk.id, epoch: chunk.epoch, through: 3 }])
                .await
                .unwrap();
            for index in indexes(&chunk) {
                let end = Disposition::Ended(ends[usize::from(index)]);
                settle_one(store, part(&chunk, &[index], end)).await;
            }
        }
    };
    end(&ends).await;
    let both = [State::Refused, State::InDoubt];
    assert_eq!(
        requeue(store, &ids[..2], 9).await,
        [Requeued::OtherState; 2],
        "dead ones were meant"
    );
    let expect =
        [Requeued::Requeued, Requeued::Requeued, Requeued::OtherState, Requeued::OtherState];
    assert_eq!(requeue_from(store, &both, &ids, 9).await, expect);
    let account = store.reader().totals().await.unwrap();
    assert_eq!((account.refused, account.in_doubt, account.pending), (0, 0, 2));
    let words = async |id| find(store, id).await.attempts[1].detail.clone();
    assert_eq!(words(ids[0]).await, "requeued, after it was refused");
    assert_eq!(words(ids[1]).await, "requeued, although it may have arrived");
    // The other way round.
    end(&[State::InDoubt, State::Refused, State::Dead, State::Dead]).await;
    assert_eq!(find(store, ids[0]).await.state, State::InDoubt);
    assert_eq!(find(store, ids[1]).await.state, State::Refused);
    assert_eq!(
        requeue_from(store, &[State::InDoubt], &ids, 9).await[..2],
        [Requeued::Requeued, Requeued::OtherState]
    );
    end(&[State::Delivered; 4]).await;
    let account = store.reader().totals().await.unwrap();
    assert_eq!((account.delivered, account.refused, account.dead, account.pending), (2, 1, 1, 0));
}

//! Resolution by hand: what is in doubt ends as an operator found out, without being sent, and nothing else does.

use std::collections::BTreeSet;

use notification::{Chunk, Disposition, Guarantee, NotificationId, State};

use super::support::{
    BroadcastShape, DELIVERED, Shape, at, claim_all, find, groups_in_turn, indexes, name, part,
    settle_one, whole_log,
};
use crate::{
    BroadcastDraft, BroadcastOpened, CancelTarget, DeliveryFilter, Erased, EventPosition, Filter,
    Mark, MarkAnswer, Requeued, Resolution, Resolved, Store,
};

const DEAD: Disposition = Disposition::Ended(State::Dead);
pub(super) const IN_DOUBT: Disposition = Disposition::Ended(State::InDoubt);

fn as_is(state: State, note: &str) -> Resolution {
    Resolution::new(state, note).expect("a resolution")
}

async fn resolve(
    store: &dyn Store,
    resolution: Resolution,
    ids: &[NotificationId],
) -> Vec<Resolved> {
    store.resolve(ids.to_vec(), resolution, name("tenant"), at(9)).await.expect("resolve")
}

async fn requeue(store: &dyn Store, state: State, ids: &[NotificationId]) -> Vec<Requeued> {
    let states = BTreeSet::from([state]);
    store.requeue(ids.to_vec(), states, name("tenant"), at(9)).await.expect("requeue")
}

/// Claims everything, begins it, and settles it alike; the chunks.
pub(super) async fn end_all(store: &dyn Store, disposition: Disposition) -> Vec<Chunk> {
    let chunks = claim_all(store, 9).await;
    for chunk in &chunks {
        let through = indexes(chunk).into_iter().max().unwrap();
        let mark = Mark { chunk: chunk.id, epoch: chunk.epoch, through };
        assert_eq!(store.begin(vec![mark]).await.unwrap(), [MarkAnswer::Granted]);
        settle_one(store, part(chunk, &indexes(chunk), disposition)).await;
    }
    chunks
}

fn once() -> Shape {
    Shape { guarantee: Guarantee::AtMostOnce, ..Shape::default() }
}

pub(super) async fn what_is_in_doubt_ends_as_an_operator_found_out(store: &dyn Store) {
    let ids = once().ingest(store, 4).await;
    end_all(store, IN_DOUBT).await;
    let answers = resolve(store, as_is(State::Delivered, "they have it"), &ids[..2]).await;
    assert_eq!(answers, [Resolved::Resolved; 2]);
    let twice = [ids[2], ids[1], ids[2]];
    let answers = resolve(store, as_is(State::Dead, ""), &twice).await;
    assert_eq!(answers, [Resolved::Resolved, Resolved::OtherState, Resolved::OtherState]);
    let account = store.reader().totals().await.unwrap();
    let of_ended = (account.delivered, account.dead, account.in_doubt);
    assert_eq!((account.accepted, of_ended, account.pending), (4, (2, 1, 1), 0));
    assert_eq!(claim_all(store, 99).await, [], "nothing is sent");
    let lines = async |id| {
        let history = find(store, id).await;
        assert_eq!(history.attempts.last().map(|it| it.state), Some(history.state));
        let lines = history.attempts.into_iter();
        lines.map(|it| (it.attempt, it.state, it.detail)).collect::<Vec<_>>()
    };
    let end = |state, words: &str| {
        let doubt = (1, State::InDoubt, String::new());
        [doubt, (0, State::Pending, "no longer in doubt".to_owned()), (0, state, words.to_owned())]
    };
    assert_eq!(lines(ids[1]).await, end(State::Delivered, "resolved by hand: they have it"));
    assert_eq!(lines(ids[2]).await, end(State::Dead, "resolved by hand"));
    assert_eq!(whole_log(store, 100).await.len(), 4 + 2 * 3);
    let states = async |states: &[State]| {
        let filter = Filter { states: states.iter().copied().collect(), ..Filter::default() };
        let items = store.reader().list(filter, None, 9).await.unwrap().items;
        items.into_iter().map(|it| it.id).collect::<Vec<_>>()
    };
    assert_eq!(states(&[State::Delivered]).await, ids[..2]);
    assert_eq!(states(&[State::InDoubt]).await, ids[3..]);
}

pub(super) async fn an_end_by_hand_is_an_event_and_the_doubt_taken_back_is_none(store: &dyn Store) {
    let ids = once().ingest(store, 2).await;
    end_all(store, IN_DOUBT).await;
    let filter = DeliveryFilter::ends_of(name("tenant"));
    let events =
        async |from| store.reader().delivery_events(filter.clone(), from, 9).await.unwrap();
    let before = events(EventPosition::default()).await;
    assert_eq!(before.events.len(), 2);
    resolve(store, as_is(State::Delivered, "seen"), &ids[1..]).await;
    let [event] = &events(before.next).await.events[..] else { panic!("one event") };
    assert_eq!((event.id, event.recipient.as_deref()), (ids[1], Some("1")));
    assert_eq!((event.attempted.state, event.attempted.at), (State::Delivered, at(9)));
    assert_eq!(event.attempted.detail, "resolved by hand: seen");
}

pub(super) async fn what_is_not_in_doubt_stays_as_it_is(store: &dyn Store) {
    let ids = once().ingest(store, 3).await;
    let delivered = || as_is(State::Delivered, "");
    assert_eq!(resolve(store, delivered(), &ids[..1]).await, [Resolved::OtherState], "pending");
    let chunk = claim_all(store, 0).await.remove(0);
    assert_eq!(resolve(store, delivered(), &ids[..1]).await, [Resolved::OtherState], "claimed");
    let mark = Mark { chunk: chunk.id, epoch: chunk.epoch, through: 2 };
    store.begin(vec![mark]).await.unwrap();
    assert_eq!(resolve(store, delivered(), &ids[..1]).await, [Resolved::OtherState], "begun");
    settle_one(store, part(&chunk, &[0], DEAD)).await;
    settle_one(store, part(&chunk, &[1], DELIVERED)).await;
    settle_one(store, part(&chunk, &[2], IN_DOUBT)).await;
    let account = store.reader().totals().await.unwrap();
    let strange = store.resolve(ids.clone(), delivered(), name("stranger"), at(9)).await.unwrap();
    assert_eq!(strange, [Resolved::Unknown; 3]);
    let dead = as_is(State::Dead, "");
    assert_eq!(resolve(store, dead, &ids[..2]).await, [Resolved::OtherState; 2]);
    let never = NotificationId::new(at(1), 0, ids[0].batch(), 0);
    assert_eq!(resolve(store, delivered(), &[never]).await, [Resolved::Unknown]);
    assert_eq!(store.reader().totals().await.unwrap(), account);
    assert_eq!(resolve(store, delivered(), &ids[2..]).await, [Resolved::Resolved]);
}

pub(super) async fn one_that_did_not_arrive_may_be_sent_again_and_be_in_doubt_again(
    store: &dyn Store,
) {
    let draft =
        BroadcastDraft { guarantee: Guarantee::AtMostOnce, ..BroadcastShape::default().draft() };
    let opened = store.open_broadcast(draft, at(0)).await.unwrap();
    let BroadcastOpened::Opened(broadcast) = opened else { panic!("{opened:?}") };
    store.add_recipients(broadcast, groups_in_turn(3), at(0)).await.unwrap();
    store.seal_broadcast(broadcast, at(0)).await.unwrap();
    let page = store.reader().list(Filter::default(), None, 3).await.unwrap();
    let ids: Vec<NotificationId> = page.items.iter().map(|history| history.id).collect();
    let account = async || {
        let account = store.reader().broadcast(broadcast).await.unwrap().unwrap().account;
        assert_eq!(account, store.reader().totals().await.unwrap());
        (account.delivered, account.dead, account.in_doubt, account.pending)
    };
    for _ in 0..3 {
        end_all(store, IN_DOUBT).await;
        assert_eq!(account().await, (0, 0, 3, 0));
        let answers = resolve(store, as_is(State::Dead, "not there"), &ids).await;
        assert_eq!(answers, [Resolved::Resolved; 3]);
        assert_eq!(account().await, (0, 3, 0, 0));
        assert_eq!(requeue(store, State::InDoubt, &ids).await, [Requeued::OtherState; 3]);
        let target = CancelTarget::Broadcast(broadcast);
        let cancelled = store.cancel(target, name("tenant"), at(9)).await.unwrap().unwrap();
        assert_eq!((cancelled.cancelled, cancelled.ended), (0, 3));
        assert_eq!(requeue(store, State::Dead, &ids).await, [Requeued::Requeued; 3]);
        assert_eq!(account().await, (0, 0, 0, 3));
        assert_eq!(find(store, ids[0]).await.state, State::Pending);
    }
    end_all(store, IN_DOUBT).await;
    let answers = resolve(store, as_is(State::Delivered, ""), &ids[..2]).await;
    assert_eq!(answers, [Resolved::Resolved; 2]);
    assert_eq!(account().await, (2, 0, 1, 0));
    for state in [State::Delivered, State::Dead, State::InDoubt] {
        assert_eq!(requeue(store, state, &ids[..2]).await, [Requeued::OtherState; 2]);
    }
}

pub(super) async fn one_of_which_nothing_is_left_to_send_is_resolved(store: &dyn Store) {
    let ids = Shape { expires_at: Some(9), ..once() }.ingest(store, 3).await;
    let chunk = claim_all(store, 0).await.remove(0);
    let mark = Mark { chunk: chunk.id, epoch: chunk.epoch, through: 2 };
    store.begin(vec![mark]).await.unwrap();
    settle_one(store, part(&chunk, &[0, 1, 2], IN_DOUBT)).await;
    let erase = async |ids: &[NotificationId]| store.erase(ids.to_vec(), name("tenant")).await;
    assert_eq!(erase(&ids[..1]).await.unwrap(), [Erased::Erased]);
    let resolution = as_is(State::Dead, "0 and 1 say so");
    assert_eq!(resolve(store, resolution, &ids).await, [Resolved::Resolved; 3], "it has expired");
    let words = async |id| find(store, id).await.attempts.pop().unwrap().detail;
    assert_eq!(erase(&ids[1..2]).await.unwrap(), [Erased::Erased]);
    assert_eq!(words(ids[2]).await, "resolved by hand: 0 and (erased) say so");
    assert_eq!(erase(&ids[2..]).await.unwrap(), [Erased::Erased]);
    assert_eq!(words(ids[2]).await, "resolved by hand", "Belfry's own words stay");
    assert_eq!(requeue(store, State::Dead, &ids[..1]).await, [Requeued::ContentRemoved]);
    assert_eq!(store.reader().totals().await.unwrap().dead, 3);
}

pub(super) async fn of_calls_about_the_same_one_does(store: &dyn Store) {
    let ids = once().ingest(store, 50).await;
    end_all(store, IN_DOUBT).await;
    let backwards: Vec<NotificationId> = ids.iter().rev().copied().collect();
    let (one, other, third) = tokio::join!(
        resolve(store, as_is(State::Delivered, ""), &ids),
        resolve(store, as_is(State::Dead, ""), &backwards),
        requeue(store, State::InDoubt, &ids),
    );
    let resolved = |answers: &[Resolved]| {
        answers.iter().filter(|answer| **answer == Resolved::Resolved).count() as u64
    };
    let requeued = third.iter().filter(|answer| **answer == Requeued::Requeued).count() as u64;
    let account = store.reader().totals().await.unwrap();
    let said = (resolved(&one), resolved(&other), requeued);
    assert_eq!((account.delivered, account.dead, account.pending), said);
    assert_eq!(said.0 + said.1 + said.2, 50);
}

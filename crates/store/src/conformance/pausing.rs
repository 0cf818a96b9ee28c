//! Pausing: paused notifications are not claimed, and wait.

use std::sync::Arc;

use notification::{Disposition, Pause, Scope, State};

use super::support::{
    DELIVERED, Shape, at, claim_all, find, indexes, name, part, settle_all, settle_one,
};
use crate::{CancelTarget, Paused, Store};

fn there() -> Shape {
    Shape { destination: "there", ..Shape::default() }
}

fn scope(text: &str) -> Scope {
    text.parse().unwrap()
}

/// Pauses at 3; since when it is paused.
async fn pause(store: &dyn Store, text: &str) -> notification::Timestamp {
    let pause = Pause { tenant: name("tenant"), scope: scope(text), since: at(3) };
    let paused = store.pause(pause).await.unwrap();
    let Paused::InForce { since, is_everywhere: true } = paused else { panic!("{paused:?}") };
    since
}

async fn resume(store: &dyn Store, text: &str) -> bool {
    store.resume(name("tenant"), scope(text)).await.unwrap()
}

/// Claims all and delivers it: destinations and tenants of the claimed chunks.
async fn deliver_all(store: &dyn Store) -> Vec<(String, String)> {
    let chunks = claim_all(store, 5).await;
    for chunk in &chunks {
        settle_all(store, chunk, DELIVERED).await;
    }
    let lanes = chunks.iter().map(|chunk| &chunk.envelope.lane);
    let mut lanes: Vec<_> =
        lanes.map(|lane| (lane.destination.to_string(), lane.tenant.to_string())).collect();
    lanes.sort_unstable();
    lanes
}

fn lane(destination: &str, tenant: &str) -> (String, String) {
    (destination.to_owned(), tenant.to_owned())
}

pub(super) async fn what_is_paused_waits_until_it_is_resumed(store: &dyn Store) {
    let scopes = [
        ("lane/channel/normal/there", vec![lane("here", "other"), lane("here", "tenant")]),
        ("channel/channel", vec![lane("here", "other")]),
        ("tenant", vec![lane("here", "other")]),
        (
            "channel/another",
            vec![lane("here", "other"), lane("here", "tenant"), lane("there", "tenant")],
        ),
    ];
    for (text, others) in scopes {
        // A notification from before the pause, and others that come meanwhile.
        there().ingest(store, 2).await;
        assert_eq!(pause(store, text).await, at(3));
        Shape::default().ingest(store, 1).await;
        Shape { tenant: "other", ..Shape::default() }.ingest(store, 1).await;
        let mut sent = deliver_all(store).await;
        assert_eq!(sent, others, "{text}");
        assert_eq!(deliver_all(store).await, []);
        assert!(resume(store, text).await);
        sent.extend(deliver_all(store).await);
        sent.sort_unstable();
        assert_eq!(sent, [lane("here", "other"), lane("here", "tenant"), lane("there", "tenant")]);
    }
}

pub(super) async fn to_pause_or_resume_twice_is_to_do_it_once(store: &dyn Store) {
    assert!(!resume(store, "tenant").await, "nothing was paused");
    assert_eq!(pause(store, "tenant").await, at(3));
    let later = Pause { tenant: name("tenant"), scope: Scope::Tenant, since: at(9) };
    let again = store.pause(later).await.unwrap();
    assert_eq!(again, Paused::InForce { since: at(3), is_everywhere: true });
    pause(store, "channel/channel").await;
    let pauses = store.reader().pauses().await.unwrap();
    assert_eq!(pauses.len(), 2);
    assert_eq!(pauses.since(&name("tenant"), &scope("tenant")), Some(at(3)));
    there().ingest(store, 1).await;
    assert!(resume(store, "tenant").await);
    assert!(!resume(store, "tenant").await);
    assert_eq!(deliver_all(store).await, [], "the channel is paused yet");
    assert!(resume(store, "channel/channel").await);
    assert_eq!(deliver_all(store).await, [lane("there", "tenant")]);
    assert!(store.reader().pauses().await.unwrap().is_empty());
}

pub(super) async fn the_view_of_deliver_is_as_new_as_the_answer(store: &dyn Store) {
    let view = store.watch_pauses();
    let envelope = there().draft("0").envelope;
    assert!(!view.borrow().covers(&envelope));
    pause(store, "lane/channel/normal/there").await;
    assert!(view.borrow().covers(&envelope), "nothing of it is begun any more");
    let before = Arc::clone(&view.borrow());
    pause(store, "tenant").await;
    assert!(!Arc::ptr_eq(&before, &view.borrow()));
}

pub(super) async fn what_is_claimed_and_handed_back_waits_with_the_rest(store: &dyn Store) {
    let ids = there().ingest(store, 3).await;
    let chunk = claim_all(store, 1).await.remove(0);
    pause(store, "channel/channel").await;
    // One was under way, and is tried again; one was not begun.
    settle_one(store, part(&chunk, &[0], DELIVERED)).await;
    settle_one(store, part(&chunk, &[1], Disposition::Retry { at: at(2) })).await;
    settle_one(store, part(&chunk, &[2], Disposition::HandedBack { at: at(2) })).await;
    assert_eq!(deliver_all(store).await, []);
    assert_eq!(find(store, ids[0]).await.state, State::Delivered);
    let lanes = store.reader().lanes().await.unwrap().lanes;
    assert_eq!(lanes.iter().map(|lane| lane.claimed).collect::<Vec<_>>(), [0]);
    assert!(resume(store, "channel/channel").await);
    let mut again = claim_all(store, 5).await;
    again.sort_unstable_by_key(|chunk| chunk.attempt);
    assert_eq!(
        again.iter().map(|it| (it.attempt, indexes(it))).collect::<Vec<_>>(),
        [(1, vec![2]), (2, vec![1])]
    );
}

pub(super) async fn what_is_paused_is_cancelled_and_expires(store: &dyn Store) {
    let ids = there().ingest(store, 1).await;
    let soon = Shape { expires_at: Some(4), ..there() }.ingest(store, 1).await;
    pause(store, "tenant").await;
    let target = CancelTarget::Notification(ids[0]);
    let cancelled = store.cancel(target, name("tenant"), at(3)).await.unwrap().unwrap();
    assert_eq!(cancelled.cancelled, 1);
    assert!(resume(store, "tenant").await);
    assert_eq!(deliver_all(store).await, [], "its time was over");
    assert_eq!(find(store, soon[0]).await.state, State::Expired);
}

pub(super) async fn a_resumed_lane_is_told_of(store: &dyn Store) {
    pause(store, "tenant").await;
    there().ingest(store, 1).await;
    assert_eq!(deliver_all(store).await, []);
    let mut changes = store.changes();
    changes.mark_unchanged();
    assert!(resume(store, "tenant").await);
    changes.changed().await.unwrap();
    assert_eq!(deliver_all(store).await, [lane("there", "tenant")]);
}

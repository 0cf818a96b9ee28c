//! Delivery events.

use std::collections::BTreeSet;

use notification::{Disposition, Idempotency, State};

use super::support::{
    BroadcastShape, DELIVERED, Shape, at, claim_one, name, part, settle_all, settle_one,
};
use crate::{DeliveryEvent, DeliveryFilter, EventPosition, FeedCursor, Store};

fn filter() -> DeliveryFilter {
    DeliveryFilter::ends_of(name("tenant"))
}

/// The events behind `position`, read `events_max` at a time.
pub(super) async fn events_from(
    store: &dyn Store,
    filter: &DeliveryFilter,
    mut position: EventPosition,
    events_max: usize,
) -> Vec<DeliveryEvent> {
    let mut events = Vec::new();
    loop {
        let page =
            store.reader().delivery_events(filter.clone(), position, events_max).await.unwrap();
        assert!(page.events.len() <= events_max, "a page is bounded");
        assert!(page.events.iter().all(|event| event.position > position));
        assert!(page.events.iter().all(|event| event.position <= page.next));
        assert!(page.events.is_sorted_by(|one, other| one.position < other.position));
        if page.next == position {
            assert!(page.events.is_empty());
            return events;
        }
        assert!(page.next > position, "positions rise");
        position = page.next;
        events.extend(page.events);
    }
}

async fn all_events(store: &dyn Store, filter: &DeliveryFilter) -> Vec<DeliveryEvent> {
    events_from(store, filter, EventPosition::default(), 1_000).await
}

fn recipients(events: &[DeliveryEvent]) -> Vec<&str> {
    events.iter().map(|event| event.recipient.as_deref().unwrap_or_default()).collect()
}

pub(super) async fn every_end_is_an_event_and_attempts_on_request(store: &dyn Store) {
    assert!(all_events(store, &filter()).await.is_empty());
    let ids = Shape::default().ingest(store, 4).await;
    let chunk = claim_one(store, 0).await;
    settle_one(store, part(&chunk, &[1, 3], Disposition::Retry { at: at(9) })).await;
    settle_one(store, part(&chunk, &[0, 2], DELIVERED)).await;
    settle_all(store, &claim_one(store, 9).await, Disposition::Ended(State::Refused)).await;
    let ends = all_events(store, &filter()).await;
    assert_eq!(recipients(&ends), ["0", "2", "1", "3"]);
    let first = &ends[0];
    assert_eq!((first.id, &first.channel, first.broadcast), (ids[0], &name("channel"), None));
    assert_eq!((first.attempted.state, first.attempted.attempt), (State::Delivered, 1));
    assert_eq!((ends[2].attempted.state, ends[2].attempted.attempt), (State::Refused, 2));
    let with_attempts = DeliveryFilter { attempts: true, ..filter() };
    let all = all_events(store, &with_attempts).await;
    assert_eq!(recipients(&all), ["1", "3", "0", "2", "1", "3"]);
    assert_eq!(all[0].attempted.state, State::Pending);
    let states = BTreeSet::from([State::Refused]);
    let refused = all_events(store, &DeliveryFilter { states, ..filter() }).await;
    assert_eq!(recipients(&refused), ["1", "3"]);
    let channels = BTreeSet::from([name("another")]);
    assert!(all_events(store, &DeliveryFilter { channels, ..filter() }).await.is_empty());
}

pub(super) async fn a_reader_resumes_within_what_was_settled_together(store: &dyn Store) {
    Shape::default().ingest(store, 700).await;
    settle_all(store, &claim_one(store, 0).await, DELIVERED).await;
    let all = all_events(store, &filter()).await;
    assert_eq!(all.len(), 700);
    for events_max in [1, 7, 699, 700, 701] {
        let paged = events_from(store, &filter(), EventPosition::default(), events_max).await;
        assert_eq!(paged, all, "in pages of {events_max}");
    }
    for place in [0, 1, 350, 698, 699] {
        let position: EventPosition = all[place].position.to_string().parse().unwrap();
        let rest = events_from(store, &filter(), position, 100).await;
        assert_eq!(rest, all[place + 1..], "after {position}");
    }
}

pub(super) async fn events_are_those_of_one_tenant_and_a_broadcast_is_named(store: &dyn Store) {
    Shape { tenant: "another", ..Shape::default() }.ingest(store, 3).await;
    settle_all(store, &claim_one(store, 0).await, DELIVERED).await;
    let broadcast = BroadcastShape::default().open(store, 2).await;
    store.seal_broadcast(broadcast, at(0)).await.unwrap();
    settle_all(store, &claim_one(store, 0).await, DELIVERED).await;
    let events = all_events(store, &filter()).await;
    assert_eq!(recipients(&events), ["0", "1"]);
    assert!(events.iter().all(|event| event.broadcast == Some(broadcast)));
    let another = DeliveryFilter::ends_of(name("another"));
    assert_eq!(all_events(store, &another).await.len(), 3);
    assert!(all_events(store, &DeliveryFilter::ends_of(name("third"))).await.is_empty());
}

pub(super) async fn a_feeds_own_notifications_are_no_events(store: &dyn Store) {
    let mut own = Shape::default().draft("own");
    own.idempotency = Some(Idempotency::of_feed("outcomes 0-0 0-1 0"));
    let mut like_it = Shape::default().draft("with a key");
    like_it.idempotency =
        Shape { key: Some(("feed 1", 1)), ..Shape::default() }.draft("").idempotency;
    // One request with all three, which have one envelope: the feed's is told from the others all the same.
    let drafts = vec![Shape::default().draft("a"), own, like_it];
    store.ingest(drafts, at(0)).await.unwrap();
    for chunk in super::claim_all(store, 0).await {
        settle_all(store, &chunk, DELIVERED).await;
    }
    let events = all_events(store, &DeliveryFilter { attempts: true, ..filter() }).await;
    assert_eq!(recipients(&events), ["a", "with a key"]);
}

pub(super) async fn a_feed_that_starts_at_the_end_misses_nothing_later(store: &dyn Store) {
    let empty = store.reader().events_end().await.unwrap();
    assert!(empty > EventPosition::default(), "a feed that started is told from one that did not");
    Shape::default().ingest(store, 2).await;
    settle_all(store, &claim_one(store, 0).await, DELIVERED).await;
    assert_eq!(events_from(store, &filter(), empty, 10).await.len(), 2);
    let end = store.reader().events_end().await.unwrap();
    assert!(end > empty && events_from(store, &filter(), end, 10).await.is_empty());
    // A cursor keeps every position as it is.
    let cursor = FeedCursor { position: end, until: None, tries: 0 };
    store.move_feed(name("outcomes"), FeedCursor::default(), cursor).await.unwrap();
    let kept = store.reader().feed(name("outcomes")).await.unwrap();
    assert_eq!(kept.position, end);
    Shape::default().ingest(store, 3).await;
    settle_all(store, &claim_one(store, 0).await, DELIVERED).await;
    assert_eq!(events_from(store, &filter(), kept.position, 2).await.len(), 3);
}

pub(super) async fn a_settlement_wakes_those_who_follow(store: &dyn Store) {
    Shape { expires_at: Some(5), ..Shape::default() }.ingest(store, 2).await;
    let mut changes = store.changes();
    changes.mark_unchanged();
    // A claim ends what has expired.
    super::claim_all(store, 9).await;
    changes.changed().await.unwrap();
    assert_eq!(all_events(store, &filter()).await.len(), 2);
    Shape::default().ingest(store, 1).await;
    let chunk = claim_one(store, 9).await;
    changes.mark_unchanged();
    settle_all(store, &chunk, DELIVERED).await;
    changes.changed().await.unwrap();
}

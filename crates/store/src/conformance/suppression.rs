//! Recipients that must not be tried again.

use std::collections::BTreeMap;

use notification::{Chunk, Disposition, State};

use super::support::{
    Shape, at, claim_all, claim_one, find, indexes, name, part, settle_one, suppression,
};
use crate::{Change, EventPosition, FeedCursor, Lift, Store, Suppression, SuppressionEvent};

fn lift(recipient: &str, registered_at: Option<i64>) -> Lift {
    let registered_at = registered_at.map(at);
    Lift { channel: name("channel"), recipient: recipient.into(), registered_at }
}

pub(super) async fn a_suppressed_recipient_is_not_sent_to(store: &dyn Store) {
    let elsewhere = Suppression { channel: name("other"), ..suppression("2", "another channel") };
    store.suppress(vec![suppression("1", "asked us"), elsewhere], at(4)).await.unwrap();
    let ids = Shape::default().ingest(store, 3).await;
    let chunk = claim_one(store, 5).await;
    assert_eq!(indexes(&chunk), [0, 2]);
    let history = find(store, ids[1]).await;
    assert_eq!(history.state, State::Suppressed);
    let end = &history.attempts[0];
    let expect = "suppressed: asked us, since 1970-01-01T00:00:00.001Z";
    assert_eq!((end.attempt, end.at, end.detail.as_str()), (0, at(5), expect));
    let alone = Shape { destination: "elsewhere", ..Shape::default() };
    store.ingest(vec![alone.draft("1")], at(0)).await.unwrap();
    assert!(claim_all(store, 5).await.is_empty());
    assert_eq!(store.reader().totals().await.unwrap().suppressed, 2);
}

pub(super) async fn a_gone_recipient_joins_the_list(store: &dyn Store) {
    Shape::default().ingest(store, 3).await;
    let chunk = claim_one(store, 0).await;
    let mut gone = part(&chunk, &[2], Disposition::Ended(State::Refused));
    gone.groups[0].suppress = true;
    gone.groups[0].detail = "Unregistered".into();
    settle_one(store, gone).await;
    let listed = store.reader().suppressions(name("channel"), None, 9).await.unwrap();
    let expect = Suppression { since: at(7), status: 200, ..suppression("2", "Unregistered") };
    assert_eq!(listed, [expect]);
    Shape { destination: "elsewhere", ..Shape::default() }.ingest(store, 3).await;
    assert_eq!(indexes(&claim_one(store, 0).await), [0, 1]);
}

pub(super) async fn the_list_is_kept_in_order_and_taken_back(store: &dyn Store) {
    let all = ["b", "a", "c"].map(|recipient| suppression(recipient, "first"));
    store.suppress(all.to_vec(), at(2)).await.unwrap();
    store.suppress(vec![suppression("b", "second")], at(2)).await.unwrap();
    let first = store.reader().suppressions(name("channel"), None, 2).await.unwrap();
    assert_eq!(first, [suppression("a", "first"), suppression("b", "second")]);
    let rest = store.reader().suppressions(name("channel"), Some("b".into()), 2).await.unwrap();
    assert_eq!(rest, [suppression("c", "first")]);
    let lifts = ["a", "x", "a"].map(|recipient| lift(recipient, None));
    assert_eq!(store.lift(lifts.to_vec(), at(3)).await.unwrap(), [true, false, false]);
    let draft = Shape::default().draft("a");
    store.ingest(vec![draft], at(0)).await.unwrap();
    assert_eq!(claim_one(store, 0).await.deliveries.len(), 1);
}

/// Has the provider refuse `recipient` as gone, with the time `gone_since` by its own clock if there is one.
async fn refuse(store: &dyn Store, recipient: &str, gone_since: Option<i64>) {
    let chunk = under_way(store, recipient).await;
    end_as_gone(store, &chunk, gone_since).await;
}

/// Claimed chunk of one notification for `recipient`.
async fn under_way(store: &dyn Store, recipient: &str) -> Chunk {
    store.ingest(vec![Shape::default().draft(recipient)], at(0)).await.unwrap();
    claim_one(store, 0).await
}

async fn end_as_gone(store: &dyn Store, chunk: &Chunk, gone_since: Option<i64>) {
    let mut gone = part(chunk, &indexes(chunk), Disposition::Ended(State::Refused));
    gone.groups[0].suppress = true;
    gone.groups[0].status = 410;
    gone.groups[0].detail = "Unregistered".into();
    let gone_since = gone_since.map(|since| (indexes(chunk)[0], at(since)));
    gone.groups[0].gone_since = BTreeMap::from_iter(gone_since);
    settle_one(store, gone).await;
}

async fn is_listed(store: &dyn Store, recipient: &str) -> bool {
    let listed = store.reader().suppressions(name("channel"), None, 99).await.unwrap();
    listed.iter().any(|one| &*one.recipient == recipient)
}

/// All changes of the list, read one by one.
async fn all_events(store: &dyn Store) -> Vec<SuppressionEvent> {
    let (mut events, mut position) = (Vec::new(), EventPosition::default());
    loop {
        let page = store.reader().suppression_events(position, 1).await.unwrap();
        if page.next == position {
            assert!(page.events.is_empty());
            return events;
        }
        assert!(page.next > position && page.events.len() == 1);
        position = page.next;
        events.extend(page.events);
    }
}

pub(super) async fn the_providers_own_time_is_kept(store: &dyn Store) {
    Shape::default().ingest(store, 3).await;
    let chunk = claim_one(store, 0).await;
    let mut gone = part(&chunk, &[0, 1, 2], Disposition::Ended(State::Refused));
    gone.groups[0].suppress = true;
    gone.groups[0].gone_since = [(0, at(3)), (2, at(5))].into();
    settle_one(store, gone).await;
    let listed = store.reader().suppressions(name("channel"), None, 9).await.unwrap();
    let since: Vec<i64> = listed.iter().map(|one| one.since.millis()).collect();
    assert_eq!(since, [3, 7, 5], "where the provider did not say, it is when it was settled");
}

pub(super) async fn who_registered_anew_is_not_suppressed_for_what_was_before(store: &dyn Store) {
    refuse(store, "a", Some(50)).await;
    assert!(is_listed(store, "a").await);
    // A registration before the provider saw the recipient gone is the one that it saw.
    assert_eq!(store.lift(vec![lift("a", Some(49))], at(90)).await.unwrap(), [false]);
    assert_eq!(store.lift(vec![lift("a", Some(60))], at(90)).await.unwrap(), [true]);
    assert_eq!(store.lift(vec![lift("a", Some(55))], at(95)).await.unwrap(), [false]);
    for out_of_date in [50, 60] {
        refuse(store, "a", Some(out_of_date)).await;
        assert!(!is_listed(store, "a").await, "gone since {out_of_date}, back since 60");
    }
    refuse(store, "a", Some(61)).await;
    assert!(is_listed(store, "a").await);
    // Known to be back before the provider's word arrives.
    assert_eq!(store.lift(vec![lift("b", Some(60))], at(90)).await.unwrap(), [false]);
    refuse(store, "b", Some(60)).await;
    assert!(!is_listed(store, "b").await);
    refuse(store, "b", None).await;
    assert!(is_listed(store, "b").await, "without the provider's time, the refusal is news");
    assert_eq!(store.lift(vec![lift("b", None)], at(90)).await.unwrap(), [true]);
    refuse(store, "b", Some(90)).await;
    assert!(!is_listed(store, "b").await, "lifted at 90");
    store.suppress(vec![suppression("b", "asked us")], at(91)).await.unwrap();
    assert!(is_listed(store, "b").await, "an operator's word is no provider's");
}

pub(super) async fn an_operators_word_yields_to_a_plain_lift_only(store: &dyn Store) {
    let chunk = under_way(store, "a").await;
    let by_operator = Suppression { since: at(30), ..suppression("a", "opted out") };
    store.suppress(vec![by_operator.clone()], at(30)).await.unwrap();
    let listed = async || store.reader().suppressions(name("channel"), None, 9).await.unwrap();
    assert_eq!(store.lift(vec![lift("a", Some(60))], at(61)).await.unwrap(), [false]);
    assert_eq!(listed().await, std::slice::from_ref(&by_operator), "to register is not to consent");
    end_as_gone(store, &chunk, Some(90)).await;
    assert_eq!(listed().await, [Suppression { since: at(90), ..by_operator }]);
    assert_eq!(store.lift(vec![lift("a", Some(99))], at(99)).await.unwrap(), [false]);
    assert_eq!(store.lift(vec![lift("a", None)], at(99)).await.unwrap(), [true]);
    assert!(listed().await.is_empty());
}

pub(super) async fn the_latest_that_anybody_said_counts(store: &dyn Store) {
    let mut chunks = Vec::new();
    for _ in 0..4 {
        chunks.push(under_way(store, "a").await);
    }
    let check = async |reason: &str, status, since| {
        let expect = Suppression { status, since: at(since), ..suppression("a", reason) };
        assert_eq!(store.reader().suppressions(name("channel"), None, 9).await.unwrap(), [expect]);
    };
    end_as_gone(store, &chunks[0], Some(50)).await;
    end_as_gone(store, &chunks[1], Some(70)).await;
    check("Unregistered", 410, 70).await;
    assert_eq!(store.lift(vec![lift("a", Some(60))], at(75)).await.unwrap(), [false]);
    end_as_gone(store, &chunks[2], Some(65)).await;
    check("Unregistered", 410, 70).await;
    let by_operator =
        |reason, since| vec![Suppression { since: at(since), ..suppression("a", reason) }];
    store.suppress(by_operator("opted out", 80), at(81)).await.unwrap();
    check("opted out", 0, 80).await;
    end_as_gone(store, &chunks[3], Some(90)).await;
    store.suppress(by_operator("opted out", 85), at(86)).await.unwrap();
    check("opted out", 0, 90).await;
    store.suppress(by_operator("for good", 100), at(101)).await.unwrap();
    let words = [by_operator("one", 102), by_operator("two", 101), by_operator("for good", 99)];
    store.suppress(words.concat(), at(103)).await.unwrap();
    check("for good", 0, 102).await;
    // A change of `since` alone is no event.
    let told = |event: SuppressionEvent| match event.change {
        Change::Suppressed { reason, since, .. } => (reason, since.millis(), event.at.millis()),
        Change::Lifted => ("lifted".to_owned(), 0, event.at.millis()),
    };
    let told: Vec<_> = all_events(store).await.into_iter().map(told).collect();
    let expect = [
        ("Unregistered", 50, 7),
        ("opted out", 80, 81),
        ("for good", 100, 101),
        ("one", 102, 103),
        ("two", 102, 103),
        ("for good", 102, 103),
    ];
    assert_eq!(told, expect.map(|(reason, since, at)| (reason.to_owned(), since, at)));
}

pub(super) async fn every_change_of_the_list_is_an_event(store: &dyn Store) {
    assert!(all_events(store).await.is_empty());
    refuse(store, "a", Some(4)).await;
    store
        .suppress(vec![suppression("b", "asked"), suppression("a", "again")], at(8))
        .await
        .unwrap();
    store.suppress(vec![suppression("b", "asked")], at(8)).await.unwrap();
    store.lift(vec![lift("a", None), lift("x", None), lift("y", Some(1))], at(9)).await.unwrap();
    refuse(store, "a", Some(9)).await;
    refuse(store, "a", Some(10)).await;
    let events = all_events(store).await;
    let suppressed = |reason: &str, status, since| Change::Suppressed {
        reason: reason.to_owned(),
        status,
        since: at(since),
    };
    let told: Vec<_> = events
        .iter()
        .map(|event| (&*event.recipient, event.at.millis(), event.change.clone()))
        .collect();
    let expect = [
        ("a", 7, suppressed("Unregistered", 410, 4)),
        ("b", 8, suppressed("asked", 0, 1)),
        ("a", 8, suppressed("again", 0, 4)),
        ("a", 9, Change::Lifted),
        ("a", 7, suppressed("Unregistered", 410, 10)),
    ];
    assert_eq!(told, expect);
    let page = store.reader().suppression_events(events[0].position, 2).await.unwrap();
    assert_eq!((page.events.as_slice(), page.next), (&events[1..3], events[2].position));
}

pub(super) async fn channels_with_a_list_are_named_in_order(store: &dyn Store) {
    let on = |channel| Suppression { channel: name(channel), ..suppression("a", "") };
    store.suppress(vec![on("b"), on("c"), on("a")], at(1)).await.unwrap();
    let check = async |after: Option<&str>, expect: Option<&str>| {
        let found = store.reader().suppressed_channel(after.map(name)).await.unwrap();
        assert_eq!(found, expect.map(name));
    };
    check(None, Some("a")).await;
    check(Some("a"), Some("b")).await;
    check(Some("bb"), Some("c")).await;
    check(Some("c"), None).await;
}

pub(super) async fn a_feed_moves_only_from_where_it_is(store: &dyn Store) {
    let feed = || name("hooks");
    let start = FeedCursor::default();
    assert_eq!(store.reader().feed(feed()).await.unwrap(), start);
    let place = |transaction, event| EventPosition { transaction, event };
    // A store without concurrent transactions needs no numbers of them.
    let until = Some(place(0, 5));
    let first = FeedCursor { position: place(0, 0), until, tries: 0 };
    assert_eq!(store.move_feed(feed(), start, first).await.unwrap(), first);
    let other = FeedCursor { until: Some(place(0, 7)), ..first };
    assert_eq!(store.move_feed(feed(), start, other).await.unwrap(), first, "somebody was first");
    let again = FeedCursor { tries: 1, ..first };
    assert_eq!(store.move_feed(feed(), first, again).await.unwrap(), again);
    assert_eq!(store.move_feed(feed(), first, other).await.unwrap(), again);
    let done = FeedCursor { position: place(0, 5), until: None, tries: 0 };
    assert_eq!(store.move_feed(feed(), again, done).await.unwrap(), done);
    assert_eq!(store.move_feed(feed(), first, done).await.unwrap(), done);
    assert_eq!(store.reader().feed(feed()).await.unwrap(), done);
    assert_eq!(store.reader().feed(name("another")).await.unwrap(), start);
}

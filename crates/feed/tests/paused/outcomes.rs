//! Delivery of outcomes to an application, in order, whatever it answers; and no event about its own notifications.
#![expect(
    clippy::indexing_slicing,
    reason = "all of it is test code: a failure here fails the test"
)]

use std::collections::BTreeSet;
use std::sync::Arc;

use feed::{Feed, FeedPlan, FeedProgress, FeedSource};
use notification::{Answer, Guarantee, State};
use pipeline::{Channels, Intake};
use serde_json::Value;
use store::{
    Claims, DeliveryFilter, EventPosition, FeedCursor, Filter, Operations as _, ReadStore as _,
};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::rig::{Rig, name, on_one_thread};
use crate::{MS, rig};

/// The feed of every outcome from the start on.
fn every() -> FeedSource {
    let filter = DeliveryFilter::ends_of(name("default"));
    FeedSource::Deliveries { filter, from_start: true }
}

/// Tells the recipient `app` of `source`, by the same channel as all notifications go.
fn start(rig: &Rig, source: FeedSource) -> (watch::Sender<bool>, JoinHandle<()>) {
    let (stop, stopping) = watch::channel(false);
    let mut channels = Channels::default();
    channels.insert(name("script"), Arc::new(rig.script.clone()));
    let store = Arc::clone(&rig.store);
    let feed = Feed {
        name: name("outcomes"),
        source,
        reads: Arc::clone(&store) as _,
        operations: Arc::clone(&store) as _,
        changes: Claims::<notification::Chunk>::changes(&*store),
        is_shared: false,
        intake: Arc::new(Intake::new(store as _, Arc::new(channels), rig.clock)),
        tenant: name("default"),
        channel: name("script"),
        recipient: "app".into(),
    };
    (stop, tokio::task::spawn_local(async move { feed.run(stopping).await.unwrap() }))
}

/// The requests that the application accepted, checked to follow each other from `after` on.
async fn taken(rig: &Rig, after: EventPosition) -> Vec<Value> {
    let (mut events, mut position) = (Vec::new(), Value::from(after.to_string()));
    for history in rig.store.list(Filter::default(), None, 20_000).await.unwrap().items {
        if history.recipient.as_deref() != Some("app") || history.state != State::Delivered {
            continue;
        }
        let content: Value = serde_json::from_slice(&history.content.unwrap().payload).unwrap();
        assert_eq!(
            (&content["type"], &content["feed"]),
            (&"deliveries".into(), &"outcomes".into())
        );
        assert_eq!(content["after"], position);
        position = content["until"].clone();
        events.extend(content["events"].as_array().unwrap().iter().cloned());
    }
    events
}

async fn progress(rig: &Rig, source: FeedSource) -> FeedProgress {
    let plan = FeedPlan { name: name("outcomes"), source };
    FeedProgress::read(&*rig.store, &plan).await.unwrap()
}

async fn up_to_date(rig: &Rig, source: &FeedSource) {
    while progress(rig, source.clone()).await.waiting_since.is_some() {
        tokio::time::sleep(100 * MS).await;
    }
}

fn recipients(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["to"].as_str().unwrap()).collect()
}

/// Waits until everything is told, and checks that it was told of `count` recipients, of each once.
async fn told_once(rig: &Rig, count: usize) {
    tokio::time::sleep(2_000 * MS).await;
    up_to_date(rig, &every()).await;
    let events = taken(rig, EventPosition::default()).await;
    let told: BTreeSet<&str> = recipients(&events).into_iter().collect();
    assert_eq!((events.len(), told.len()), (count, count), "each of them once");
    assert!(!told.contains("app"), "an event about the feed's own notification is never one");
}

#[test]
fn outcomes_are_told_once_and_in_order_however_many_feeds_and_crashes_there_are() {
    on_one_thread(async || {
        let rig = rig();
        let running = rig.start();
        let (mut one, two) = (start(&rig, every()), start(&rig, every()));
        for round in 0..20_u32 {
            let to: Vec<String> = (0..150).map(|n| format!("{:05}", round * 150 + n)).collect();
            let to: Vec<&str> = to.iter().map(String::as_str).collect();
            rig.accept(&to, Guarantee::AtLeastOnce).await;
            // Somewhere in the middle of things, each time elsewhere.
            tokio::time::sleep((950 + 17 * round) * MS).await;
            one.1.abort();
            one = start(&rig, every());
        }
        told_once(&rig, 3_000).await;
        one.1.abort();
        two.1.abort();
        running.stop().await;
    });
}

#[test]
fn a_feed_that_has_nothing_to_tell_rests() {
    on_one_thread(async || {
        let rig = rig();
        let (running, feeding) = (rig.start(), start(&rig, every()));
        rig.accept(&["a"], Guarantee::AtLeastOnce).await;
        tokio::time::sleep(600_000 * MS).await;
        // One for `a`, one that tells of it; with a loop there would be hundreds.
        assert_eq!(rig.script.attempts().len(), 2);
        feeding.1.abort();
        running.stop().await;
    });
}

#[test]
fn a_new_feed_begins_where_it_was_seen_first_and_stays_with_that() {
    on_one_thread(async || {
        let rig = rig();
        let filter = DeliveryFilter::ends_of(name("default"));
        let source = FeedSource::Deliveries { filter, from_start: false };
        let running = rig.start();
        rig.accept(&["before"], Guarantee::AtLeastOnce).await;
        tokio::time::sleep(1_000 * MS).await;
        let feeding = start(&rig, source.clone());
        tokio::time::sleep(100 * MS).await;
        let begins = progress(&rig, source.clone()).await.position;
        // While it does not run.
        feeding.1.abort();
        rig.accept(&["after"], Guarantee::AtLeastOnce).await;
        tokio::time::sleep(1_000 * MS).await;
        let feeding = start(&rig, source.clone());
        tokio::time::sleep(3_000 * MS).await;
        up_to_date(&rig, &source).await;
        assert_eq!(recipients(&taken(&rig, begins).await), ["after"]);
        feeding.1.abort();
        running.stop().await;
    });
}

#[test]
fn a_feed_tells_of_the_ends_that_it_is_asked_for_and_of_attempts_on_request() {
    for (states, attempts, expect) in [
        (&[State::Refused][..], false, &["bad refused"][..]),
        (&[], true, &["good delivered", "bad refused", "late pending", "late delivered"]),
    ] {
        on_one_thread(async || {
            let rig = rig();
            rig.script.answers("bad", [Answer::refused(400, false, "no")]);
            rig.script.answers("late", [Answer::deferred(500, None, "")]);
            let states = states.iter().copied().collect();
            let filter =
                DeliveryFilter { states, attempts, ..DeliveryFilter::ends_of(name("default")) };
            let source = FeedSource::Deliveries { filter, from_start: true };
            let (running, feeding) = (rig.start(), start(&rig, source.clone()));
            rig.accept(&["good", "bad", "late"], Guarantee::AtLeastOnce).await;
            tokio::time::sleep(60_000 * MS).await;
            up_to_date(&rig, &source).await;
            let events = taken(&rig, EventPosition::default()).await;
            let text = |event: &Value| {
                format!("{} {}", event["to"].as_str().unwrap(), event["state"].as_str().unwrap())
            };
            let told: BTreeSet<String> = events.iter().map(text).collect();
            assert_eq!(told, expect.iter().map(|&text| text.to_owned()).collect());
            feeding.1.abort();
            running.stop().await;
        });
    }
}

#[test]
fn what_the_application_refuses_is_handed_on_again_and_nothing_is_skipped() {
    on_one_thread(async || {
        let rig = rig();
        let failed = || Answer::deferred(500, None, "");
        rig.script.answers("app", [failed(), failed(), failed(), failed()]);
        rig.script.answers("app", [Answer::refused(400, false, ""), failed()]);
        let (running, feeding) = (rig.start(), start(&rig, every()));
        rig.accept(&["a", "b"], Guarantee::AtLeastOnce).await;
        tokio::time::sleep(2_000 * MS).await;
        rig.accept(&["c"], Guarantee::AtLeastOnce).await;
        tokio::time::sleep(1_000 * MS).await;
        up_to_date(&rig, &every()).await;
        let events = taken(&rig, EventPosition::default()).await;
        assert_eq!(recipients(&events), ["a", "b", "c"]);
        feeding.1.abort();
        running.stop().await;
    });
}

/// Delivers to so many recipients of whom each takes as much of a notification of the feed as a device token does: about a thousand
/// fit. Returns them.
async fn deliver_to(rig: &Rig, count: usize) -> Vec<String> {
    let all: Vec<String> = (0..count).map(|number| format!("{number:064}")).collect();
    for some in all.chunks(500) {
        let to: Vec<&str> = some.iter().map(String::as_str).collect();
        rig.accept(&to, Guarantee::AtLeastOnce).await;
    }
    tokio::time::sleep(10_000 * MS).await;
    all
}

#[test]
fn what_waits_is_handed_on_in_full_notifications_also_across_crashes() {
    on_one_thread(async || {
        let rig = rig();
        let running = rig.start();
        let all = deliver_to(&rig, 9_000).await;
        let (mut one, two) = (start(&rig, every()), start(&rig, every()));
        for round in 0..8_u32 {
            // At most some notifications later, each time elsewhere.
            tokio::time::sleep((31 + 17 * round) * MS).await;
            one.1.abort();
            one = start(&rig, every());
        }
        told_once(&rig, all.len()).await;
        let full = rig.script.attempts().iter().filter(|to| *to == "app").count();
        assert!((9..=12).contains(&full), "{full} notifications");
        one.1.abort();
        two.1.abort();
        running.stop().await;
    });
}

/// The events of what was refused.
fn refused() -> DeliveryFilter {
    let ends = DeliveryFilter::ends_of(name("default"));
    DeliveryFilter { states: [State::Refused].into(), ..ends }
}

/// Delivers to 2,999 recipients, and then to `last`, who refuses; returns the position of that event.
async fn deliver_but_one(rig: &Rig) -> EventPosition {
    rig.script.answers("last", [Answer::refused(400, false, "no")]);
    deliver_to(rig, 2_999).await;
    rig.accept(&["last"], Guarantee::AtLeastOnce).await;
    tokio::time::sleep(1_000 * MS).await;
    let page = rig.store.delivery_events(refused(), EventPosition::default(), 2).await.unwrap();
    assert_eq!(page.events.len(), 1);
    page.events[0].position
}

#[test]
fn a_range_that_holds_more_with_another_filter_is_handed_on_in_parts() {
    on_one_thread(async || {
        let rig = rig();
        let running = rig.start();
        let until = deliver_but_one(&rig).await;
        // As the feed of what was refused leaves it that is stopped then: of that feed the range has one event.
        let begin = FeedCursor::default();
        let to = FeedCursor { until: Some(until), ..begin };
        assert_eq!(rig.store.move_feed(name("outcomes"), begin, to).await.unwrap(), to);
        let feeding = start(&rig, every());
        told_once(&rig, 3_000).await;
        feeding.1.abort();
        running.stop().await;
    });
}

#[test]
fn a_notification_that_was_submitted_before_the_filter_changed_is_followed() {
    on_one_thread(async || {
        let rig = rig();
        let running = rig.start();
        deliver_but_one(&rig).await;
        rig.script.answers("app", [Answer::deferred(503, Some(5_000 * MS), "")]);
        let source = FeedSource::Deliveries { filter: refused(), from_start: true };
        let feeding = start(&rig, source);
        while !rig.script.attempts().iter().any(|to| to == "app") {
            tokio::time::sleep(10 * MS).await;
        }
        feeding.1.abort();
        let feeding = start(&rig, every());
        rig.accept(&["later"], Guarantee::AtLeastOnce).await;
        tokio::time::sleep(20_000 * MS).await;
        up_to_date(&rig, &every()).await;
        let events = taken(&rig, EventPosition::default()).await;
        assert_eq!(recipients(&events), ["last", "later"], "each once, and in one chain");
        feeding.1.abort();
        running.stop().await;
    });
}

#[test]
fn what_was_erased_while_the_application_was_away_is_not_handed_on() {
    on_one_thread(async || {
        let rig = rig();
        let running = rig.start();
        deliver_to(&rig, 3_000).await;
        let ids: Vec<_> = (rig.store.list(Filter::default(), None, 9_000).await.unwrap().items)
            .into_iter()
            .map(|history| history.id)
            .collect();
        rig.script.answers("app", [Answer::deferred(503, Some(5_000 * MS), "")]);
        let feeding = start(&rig, every());
        tokio::time::sleep(1_500 * MS).await;
        // The first notification is under way, and the events of the second were read with its.
        rig.store.erase(ids, name("default")).await.unwrap();
        tokio::time::sleep(20_000 * MS).await;
        up_to_date(&rig, &every()).await;
        let events = taken(&rig, EventPosition::default()).await;
        let told: Vec<&str> = events.iter().filter_map(|event| event["to"].as_str()).collect();
        assert_eq!(events.len(), 3_000);
        assert!((800..1_200).contains(&told.len()), "{} of the first notification", told.len());
        feeding.1.abort();
        running.stop().await;
    });
}

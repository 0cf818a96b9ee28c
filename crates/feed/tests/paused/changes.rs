//! Delivery of every change to an application, in order, whatever it answers.
#![expect(
    clippy::indexing_slicing,
    reason = "all of it is test code: a failure here fails the test"
)]

use std::sync::Arc;
use std::time::Duration;

use feed::{Feed, FeedPlan, FeedProgress, FeedSource};
use notification::{Answer, State};
use pipeline::{Channels, Intake};
use serde_json::Value;
use store::{
    CancelTarget, Claims, Filter, History, Lift, Operations as _, ReadStore as _, Suppression,
};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::rig::{Rig, name, on_one_thread};
use crate::script::Script;
use crate::{MS, rig};

/// Tells the recipient `app`, until it is dropped or crashed.
struct Feeding {
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Feeding {
    fn start(rig: &Rig) -> Self {
        let (stop, stopping) = watch::channel(false);
        let mut channels = Channels::default();
        channels.insert(name("script"), Arc::new(rig.script.clone()));
        let feed = Feed {
            name: name("feed"),
            source: FeedSource::Suppressions,
            reads: Arc::clone(&rig.store) as _,
            operations: Arc::clone(&rig.store) as _,
            changes: Claims::<notification::Chunk>::changes(&*rig.store),
            is_shared: false,
            intake: Arc::new(Intake::new(
                Arc::clone(&rig.store) as _,
                Arc::new(channels),
                rig.clock,
            )),
            tenant: name("default"),
            channel: name("script"),
            recipient: "app".into(),
        };
        let task = tokio::task::spawn_local(async move { feed.run(stopping).await.unwrap() });
        Self { stop, task }
    }

    async fn crash(self) {
        self.task.abort();
        assert!(self.task.await.unwrap_err().is_cancelled());
        drop(self.stop);
    }
}

async fn suppress(rig: &Rig, numbers: std::ops::Range<u32>) {
    let suppression = |number: u32| Suppression {
        channel: name("script"),
        recipient: format!("gone-{number:05}").into(),
        reason: "asked".to_owned(),
        status: 0,
        since: rig.now(),
    };
    rig.store.suppress(numbers.map(suppression).collect(), rig.now()).await.unwrap();
}

/// Every notification of the feed, in the order in which they were taken in.
async fn notifications(rig: &Rig) -> Vec<History> {
    rig.store.list(Filter::default(), None, 1_000).await.unwrap().items
}

/// The changes that the application took, checked to be in order: recipient and change.
async fn told(rig: &Rig) -> Vec<(String, String)> {
    let (mut told, mut position) = (Vec::new(), Value::from("0-0"));
    for history in notifications(rig).await {
        if history.state == State::Delivered {
            let content: Value = serde_json::from_slice(&history.content.unwrap().payload).unwrap();
            assert_eq!(content["after"], position);
            position = content["until"].clone();
            for event in content["events"].as_array().unwrap() {
                let text = |field: &str| event[field].as_str().unwrap().to_owned();
                told.push((text("to"), text("change")));
            }
        }
    }
    told
}

/// Lets paused time pass until the application has everything.
async fn up_to_date(rig: &Rig) {
    while progress(rig).await.waiting_since.is_some() {
        tokio::time::sleep(100 * MS).await;
    }
}

async fn progress(rig: &Rig) -> FeedProgress {
    let plan = FeedPlan { name: name("feed"), source: FeedSource::Suppressions };
    FeedProgress::read(&*rig.store, &plan).await.unwrap()
}

#[test]
fn changes_are_told_once_and_in_order_however_many_feeds_and_crashes_there_are() {
    on_one_thread(async || {
        let rig = rig();
        let running = rig.start();
        let (mut one, two) = (Feeding::start(&rig), Feeding::start(&rig));
        for round in 0..20 {
            suppress(&rig, round * 300..(round + 1) * 300).await;
            // Somewhere in the middle of things, each time elsewhere.
            tokio::time::sleep((950 + 17 * round) * MS).await;
            one.crash().await;
            one = Feeding::start(&rig);
        }
        up_to_date(&rig).await;
        let expect =
            (0..6_000).map(|number| (format!("gone-{number:05}"), "suppressed".to_owned()));
        assert_eq!(told(&rig).await, expect.collect::<Vec<_>>());
        assert_eq!(rig.script.attempts().len(), notifications(&rig).await.len());
        one.crash().await;
        two.crash().await;
        running.stop().await;
    });
}

#[test]
fn what_the_application_refuses_is_handed_on_again_and_nothing_overtakes_it() {
    on_one_thread(async || {
        let rig = rig();
        // Four attempts are all there are: the first notification ends as dead.
        let failed = || Answer::deferred(500, None, "");
        rig.script.answers("app", [failed(), failed(), failed(), failed()]);
        rig.script.answers("app", [Answer::refused(400, false, ""), failed()]);
        let (running, feeding) = (rig.start(), Feeding::start(&rig));
        suppress(&rig, 0..3).await;
        tokio::time::sleep(1_500 * MS).await;
        suppress(&rig, 3..5).await;
        assert!(progress(&rig).await.lag(rig.now()) >= Duration::from_millis(1_500));
        up_to_date(&rig).await;
        let states: Vec<State> = notifications(&rig).await.iter().map(|it| it.state).collect();
        assert_eq!(states, [State::Dead, State::Refused, State::Delivered, State::Delivered]);
        let whom: Vec<String> = told(&rig).await.into_iter().map(|(to, _)| to).collect();
        assert_eq!(whom, ["gone-00000", "gone-00001", "gone-00002", "gone-00003", "gone-00004"]);
        feeding.crash().await;
        running.stop().await;
    });
}

#[test]
fn what_an_operator_cancels_is_handed_on_anew() {
    on_one_thread(async || {
        let rig = rig();
        let away = Answer::deferred(503, Some(Duration::from_hours(1)), "");
        rig.script.answers("app", [away]);
        let (running, feeding) = (rig.start(), Feeding::start(&rig));
        suppress(&rig, 0..3).await;
        tokio::time::sleep(Duration::from_mins(5)).await;
        let id = notifications(&rig).await[0].id;
        let target = CancelTarget::Notification(id);
        let cancelled = rig.store.cancel(target, name("default"), rig.now()).await.unwrap();
        assert_eq!(cancelled.unwrap().cancelled, 1);
        let cancelled_at = rig.now();
        up_to_date(&rig).await;
        assert!(rig.now().since(cancelled_at) < Duration::from_mins(2));
        assert_eq!(told(&rig).await.len(), 3);
        feeding.crash().await;
        running.stop().await;
    });
}

#[test]
fn an_endpoint_that_is_gone_stops_the_feed_until_it_is_lifted() {
    on_one_thread(async || {
        let rig = Rig::new(Script::new(5 * MS, 2));
        rig.script.answers("app", [Answer::refused(410, true, "Gone")]);
        let (running, feeding) = (rig.start(), Feeding::start(&rig));
        suppress(&rig, 0..1).await;
        tokio::time::sleep(Duration::from_hours(1)).await;
        assert_eq!(rig.script.attempts_for("app"), 1, "it is left alone");
        let tries = notifications(&rig).await.len();
        assert!((15..30).contains(&tries), "{tries} in an hour");
        let lift = Lift { channel: name("script"), recipient: "app".into(), registered_at: None };
        assert_eq!(rig.store.lift(vec![lift], rig.now()).await.unwrap(), [true]);
        up_to_date(&rig).await;
        let told = told(&rig).await;
        let told: Vec<(&str, &str)> = told.iter().map(|(to, change)| (&**to, &**change)).collect();
        assert_eq!(told, [("gone-00000", "suppressed"), ("app", "suppressed"), ("app", "lifted")]);
        feeding.crash().await;
        running.stop().await;
    });
}

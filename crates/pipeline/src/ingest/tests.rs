//! The rules of time, keys and broadcasts, against the in-memory store.

use std::sync::Arc;
use std::time::Duration;

use channel::{
    Channel, ChannelError, Concurrency, Invalid, LearnedBounds, SendBounds, Sender, Tools,
};
use flow::Clock;
use notification::{
    Account, ByteString, Bytes, Draft, Guarantee, LatePolicy, Name, Priority, Timestamp, limits,
};
use store::{Admission, Memory, ReadStore};

use super::{
    BroadcastOpening, BroadcastRecipient, IngestError, Intake, InvalidField, Renderer, Submission,
};
use crate::Channels;
use crate::ingest::limits::SCHEDULE_AHEAD;

/// A channel that accepts everything; the text before an `@` is the token, the text after it the destination.
#[derive(Debug)]
pub(super) struct Anything;

/// An instant that is not at the beginning of a second.
pub(super) const NOW: Duration = Duration::from_millis(1_000_700);

impl Channel for Anything {
    fn destination(&self, recipient: &str) -> Result<Arc<str>, Invalid> {
        match recipient.split_once('@') {
            Some((_, host)) => Ok(host.into()),
            None => Err(Invalid::new("must have an @")),
        }
    }

    fn check_content(&self, _: &[u8], _: &[u8]) -> Result<(), Invalid> {
        Ok(())
    }

    fn bounds(&self) -> SendBounds {
        SendBounds::new(Concurrency::Fixed(1), LearnedBounds::SMALL, 0)
    }

    fn open(&self, _: Tools) -> Result<Box<dyn Sender>, ChannelError> {
        Err(ChannelError::setting("kind", "nothing is sent here"))
    }
}

fn intake() -> (Arc<Intake>, Arc<Memory>) {
    let store = Arc::new(Memory::new());
    let mut channels = Channels::default();
    channels.insert("a".parse().unwrap(), Arc::new(Anything));
    let clock = Clock::starting_at(NOW);
    let intake = Intake::new(Arc::clone(&store) as _, Arc::new(channels), clock);
    (Arc::new(intake), store)
}

fn tenant() -> Name {
    "t".parse().unwrap()
}

fn submission() -> Submission<'static> {
    Submission { channel: "a".into(), content: Bytes::from_static(b"{}"), ..Submission::default() }
}

fn check(submission: &Submission<'_>) -> Result<Draft, InvalidField> {
    let (intake, _) = intake();
    intake.check(&tenant(), submission, "x@h".into(), intake.now())
}

fn whom(to: &str) -> BroadcastRecipient {
    BroadcastRecipient { to: to.into(), ..BroadcastRecipient::default() }
}

/// The submission with times in milliseconds before or after now.
fn at(send: Option<i64>, expires: Option<i64>, late: LatePolicy) -> Submission<'static> {
    let text = |offset: i64| Timestamp::from_millis(1_000_700 + offset).to_string().into();
    let (send_at, expires_at) = (send.map(text), expires.map(text));
    Submission { send_at, expires_at, late: Some(late.as_str().into()), ..submission() }
}

#[tokio::test(start_paused = true)]
async fn times_become_a_due_time_and_an_end() {
    use LatePolicy::{Send, Skip};
    let late = i64::try_from(limits::LATE_AFTER.as_millis()).unwrap();
    for (submission, due, ends) in [
        (at(None, None, Send), -700, None),
        (at(None, None, Skip), -700, None),
        (at(None, Some(5), Skip), -700, Some(5)),
        (at(Some(-1_000), None, Send), -1_000, None),
        (at(Some(9_000), None, Skip), 9_000, Some(9_000 + late)),
        (at(Some(9_000), Some(9_001), Skip), 9_000, Some(9_001)),
        (at(Some(9_000), Some(9_000 + late + 1), Skip), 9_000, Some(9_000 + late)),
        (at(Some(9_000), Some(9_000 + late + 1), Send), 9_000, Some(9_000 + late + 1)),
    ] {
        let envelope = check(&submission).unwrap().envelope;
        assert_eq!(envelope.due_at.millis() - 1_000_700, due, "{submission:?}");
        let end = envelope.expires_at.map(|end| end.millis() - 1_000_700);
        assert_eq!(end, ends, "{submission:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn times_that_cannot_be_are_refused_at_their_bounds() {
    let tolerance = i64::try_from(limits::CLOCK_TOLERANCE.as_millis()).unwrap();
    let ahead = i64::try_from(SCHEDULE_AHEAD.as_millis()).unwrap();
    let check = |send, expires, expect: Option<&str>| {
        let invalid = check(&at(send, expires, LatePolicy::Send)).err();
        assert_eq!(invalid.as_ref().map(|invalid| &*invalid.pointer), expect, "{invalid:?}");
    };
    check(Some(-tolerance), None, None);
    check(Some(-tolerance - 1), None, Some("/send_at"));
    check(Some(ahead), None, None);
    check(Some(ahead + 1), None, Some("/send_at"));
    check(None, Some(1), None);
    check(None, Some(0), Some("/expires_at"));
    check(Some(50), Some(50), Some("/expires_at"));
    check(Some(50), Some(51), None);
}

#[tokio::test(start_paused = true)]
async fn a_fingerprint_tells_apart_what_was_asked_for_and_nothing_else() {
    let keyed = |submission: Submission<'static>, key: &str| {
        let submission = Submission { idempotency_key: Some(key.into()), ..submission };
        check(&submission).unwrap().idempotency.unwrap().fingerprint
    };
    let words = |guarantee: Guarantee, priority: Priority| Submission {
        guarantee: Some(guarantee.as_str().into()),
        priority: Some(priority.as_str().into()),
        ..submission()
    };
    let plain = keyed(submission(), "k");
    assert_eq!(plain, keyed(submission(), "other"));
    assert_eq!(plain, keyed(words(Guarantee::default(), Priority::default()), "k"));
    let others = [
        words(Guarantee::AtMostOnce, Priority::Normal),
        words(Guarantee::AtLeastOnce, Priority::Bulk),
        Submission { content: Bytes::from_static(b"{ }"), ..submission() },
        Submission { options: Bytes::from_static(b"{}"), ..submission() },
        at(Some(5), None, LatePolicy::Send),
        at(None, Some(5), LatePolicy::Send),
        at(None, None, LatePolicy::Skip),
    ];
    let mut all: Vec<_> = others.into_iter().map(|submission| keyed(submission, "k")).collect();
    all.push(plain);
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 8);
}

#[tokio::test(start_paused = true)]
async fn of_many_drafts_those_with_a_used_key_are_refused_alone() {
    let (intake, store) = intake();
    let draft = |key: Option<&str>, to: &str| {
        let submission = Submission { idempotency_key: key.map(Into::into), ..submission() };
        intake.check(&tenant(), &submission, to.into(), intake.now()).unwrap()
    };
    intake.accept_all(vec![draft(Some("used"), "x@h")]).await.unwrap();
    let drafts = vec![
        draft(None, "1@h"),
        draft(Some("used"), "y@h"),
        draft(Some("used"), "z@h"),
        draft(Some("used"), "x@h"),
        draft(Some("new"), "2@h"),
        draft(Some("new"), "3@h"),
    ];
    let answers = intake.accept_each(drafts).await.unwrap();
    let shown: Vec<_> = answers
        .iter()
        .map(|answer| match answer {
            Ok(Admission::Accepted(_)) => "accepted",
            Ok(Admission::Replayed(_)) => "replayed",
            Err(_) => "refused",
        })
        .collect();
    assert_eq!(shown, ["accepted", "refused", "refused", "replayed", "accepted", "refused"]);
    assert_eq!(store.totals().await.unwrap().accepted, 3);
}

#[tokio::test(start_paused = true)]
async fn a_message_that_comes_again_after_its_times_have_passed_is_the_one_that_was_stored() {
    let (intake, _) = intake();
    let end = intake.now().plus(Duration::from_mins(1)).to_string();
    let draft = |key: &'static str| {
        let message_key = Some(ByteString::from_static(key));
        let submission =
            Submission { message_key, expires_at: Some(end.as_str().into()), ..submission() };
        intake.check(&tenant(), &submission, "x@h".into(), intake.now()).unwrap()
    };
    let first = intake.accept_each(vec![draft("\u{1}1")]).await.unwrap();
    let Ok(Admission::Accepted(id)) = first[0] else { panic!("{first:?}") };
    tokio::time::advance(Duration::from_mins(2)).await;
    let again = intake.accept_each(vec![draft("\u{1}2"), draft("\u{1}1")]).await.unwrap();
    assert_eq!(again[0].as_ref().unwrap_err().pointer, "/expires_at");
    assert_eq!(again[1], Ok(Admission::Replayed(id)));
}

#[tokio::test(start_paused = true)]
async fn a_broadcast_counts_when_it_is_sealed_and_never_when_it_is_dropped() {
    let (intake, store) = intake();
    let open = async || match intake.open_broadcast(&tenant(), submission()).await.unwrap() {
        BroadcastOpening::Open(upload) => upload,
        BroadcastOpening::Replayed(id) => panic!("{id} has no key"),
    };
    let mut upload = open().await;
    for index in 0..2 * limits::STREAM_RECIPIENTS {
        let added = upload.add(vec![whom(&format!("{index}@h{}", index % 3))]).await;
        assert_eq!(added.unwrap(), [Ok(())]);
        if upload.is_full() {
            upload.flush().await.unwrap();
        }
    }
    let added = upload.add(vec![whom("nowhere")]).await.unwrap();
    assert_eq!(added[0].as_ref().unwrap_err().pointer, "/to");
    assert_eq!(store.totals().await.unwrap(), Account::default());
    drop(upload);
    let empty = open().await.seal().await.unwrap_err();
    assert!(matches!(empty, IngestError::Invalid(_)), "{empty}");
    assert!(intake.left_open().is_empty());
    let audit = store.audit().await.unwrap();
    assert_eq!((audit.account, audit.problem_count), (Account::default(), 0));

    let mut upload = open().await;
    let added = upload.add(vec![whom("1@h"), whom("2@g")]).await.unwrap();
    assert_eq!(added, [Ok(()), Ok(())]);
    assert_eq!(upload.seal().await, Ok(2));
    let lanes = store.lanes().await.unwrap().lanes;
    let destinations: Vec<_> = lanes.iter().map(|lane| &*lane.lane.destination).collect();
    assert_eq!(destinations, ["g", "h"]);
}

#[tokio::test]
async fn a_template_waits_for_the_threads_for_templates_and_nothing_else_does() {
    let (intake, _) = intake();
    let renderer = Renderer::start(1).unwrap();
    let intake = Arc::into_inner(intake).unwrap().with_renderer(renderer.clone());
    let (tenant, now) = (tenant(), intake.now());
    let (go, gone) = std::sync::mpsc::sync_channel::<()>(0);
    let busy = renderer.run(&tenant, move || gone.recv().unwrap());
    tokio::pin!(busy);
    assert!(futures_util::poll!(&mut busy).is_pending());

    let template = Submission {
        content: Bytes::from_static(br#"{"a":"{{ name }}"}"#),
        variables: Some(Bytes::from_static(br#"{"name":"Ann"}"#)),
        ..submission()
    };
    let checked = intake.check_in_turn(&tenant, template.clone(), "x@h".into(), now);
    let shown = intake.preview(&tenant, template, "x@h".into());
    tokio::pin!(checked, shown);
    assert!(futures_util::poll!(&mut checked).is_pending());
    assert!(futures_util::poll!(&mut shown).is_pending());
    let plain = intake.check_in_turn(&tenant, submission(), "x@h".into(), now);
    assert!(plain.await.is_ok(), "while the thread is busy");

    go.send(()).unwrap();
    busy.await.unwrap();
    assert_eq!(&*checked.await.unwrap().content.payload, br#"{"a":"Ann"}"#);
    assert_eq!(&*shown.await.unwrap().content.payload, br#"{"a":"Ann"}"#);
}

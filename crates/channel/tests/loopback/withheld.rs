//! A delivery that may not be sent any more when its connection or stream is there is not sent, however often it may be: the deadline of the
//! worker passes while a server takes its time.

use std::rc::Rc;
use std::time::Duration;

use channel::webhook::WebhookChannel;
use channel::{Channel as _, Sender, Tools};
use flow::{Clock, WorkerDeadline};
use notification::{Report, Verdict, limits};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::apns::{PLENTY, Rig as Apns};
use crate::support::TlsListener;
use crate::support::frames::{HEADERS, Peer};
use crate::support::jobs::{NOW, beside, chunk, send_until, tokens, verdicts};
use crate::support::mail::{CONTENT, MailServer};
use crate::webhook;

/// Handed back as by a worker that may be dead: due again when it knows better.
const WITHHELD: Report = Report::HandedBack { after: limits::WORKER_BEAT };

/// A deadline of the worker of all chunks, far away until it is passed.
fn deadline(clock: Clock) -> WorkerDeadline {
    let deadline = WorkerDeadline::passed();
    deadline.extend(0, clock.boot(), Duration::from_hours(1));
    deadline
}

async fn check(
    (sender, clock): (&dyn Sender, Clock),
    deadline: &WorkerDeadline,
    (payload, recipient): (&str, String),
) {
    let chunk = chunk(clock, payload, [recipient]);
    assert_eq!(send_until(deadline, sender, clock, &chunk).await, [WITHHELD]);
}

#[tokio::test]
async fn a_webhook_is_not_sent_when_its_time_passed_while_it_was_connected() {
    let listener = TlsListener::bind(b"http/1.1").await;
    let settings = webhook::settings(&serde_json::json!({ "ca_file": listener.ca_file.path() }));
    let clock = Clock::starting_at(NOW);
    let channel = WebhookChannel::new(&settings).unwrap();
    let sender = channel.open(Tools::new(clock, 1)).unwrap();
    let (url, deadline) = (format!("{}/hook", listener.endpoint()), deadline(clock));
    let passing = deadline.clone();
    let server = async move {
        let stream = listener.accept_plain().await;
        passing.pass();
        let mut stream = listener.encrypt(stream).await.unwrap();
        assert!(webhook::read(&mut stream).await.is_none(), "it was sent");
    };
    beside(server, check((&*sender, clock), &deadline, ("{}", url))).await;
}

#[tokio::test]
async fn a_request_that_was_refused_is_not_repeated_when_its_time_has_passed() {
    let listener = TlsListener::bind(b"h2").await;
    let rig = Apns::new(&listener);
    let deadline = deadline(rig.clock);
    let (listener, passing) = (Rc::clone(&listener), deadline.clone());
    let server = async move {
        let mut peer = Peer::welcome(listener.accept().await, PLENTY).await;
        let (stream, _) = peer.request().await.unwrap();
        passing.pass();
        peer.refuse(stream).await;
        while let Some(frame) = peer.read().await {
            assert_ne!(frame.kind, HEADERS, "it was sent again");
        }
    };
    let device = tokens(1).next().unwrap();
    beside(server, check((&*rig.sender, rig.clock), &deadline, (r#"{"aps":{}}"#, device))).await;
}

#[tokio::test]
async fn a_request_is_not_sent_when_its_time_passed_while_it_waited_for_a_stream() {
    let listener = TlsListener::bind(b"h2").await;
    let rig = Apns::with(&listener, &serde_json::json!({ "connections_max": 1 }));
    let deadline = deadline(rig.clock);
    let (listener, passing) = (Rc::clone(&listener), deadline.clone());
    let server = async move {
        let mut peer = Peer::welcome(listener.accept().await, 1).await;
        let (stream, _) = peer.request().await.unwrap();
        passing.pass();
        peer.answer(stream, 200).await;
        while let Some(frame) = peer.read().await {
            assert_ne!(frame.kind, HEADERS, "another one was sent");
        }
    };
    beside(server, async {
        let chunk = chunk(rig.clock, r#"{"aps":{}}"#, tokens(3));
        let reports = send_until(&deadline, &*rig.sender, rig.clock, &chunk).await;
        assert_eq!(verdicts(&reports[..1]), [Verdict::Accepted]);
        assert_eq!(reports[1..], [WITHHELD, WITHHELD]);
    })
    .await;
}

#[tokio::test]
async fn a_mail_is_not_begun_when_its_time_passed_before_the_greeting() {
    let server = MailServer::bind().await;
    let rig = server.rig();
    let deadline = deadline(rig.clock);
    let (listener, passing) = (Rc::clone(&server.listener), deadline.clone());
    let greeting = async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        passing.pass();
        stream.write_all(b"220 test ESMTP\r\n").await.unwrap();
        // EHLO.
        assert_ne!(stream.read(&mut [0; 512]).await.unwrap(), 0);
        stream.write_all(b"250 test\r\n").await.unwrap();
        let mut next = [0; 4];
        let read = stream.read(&mut next).await.unwrap();
        assert_ne!(&next[..read], b"MAIL");
    };
    let recipient = "r@example.org".to_owned();
    beside(greeting, check((&*rig.sender, rig.clock), &deadline, (CONTENT, recipient))).await;
}

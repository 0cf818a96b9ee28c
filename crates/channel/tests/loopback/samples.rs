//! The time of a sample is that of the answered try on the wire. Waits for a stream, a connection, a session or a mark, and tries
//! that were refused, are not in it. The clock stands still but for the spans that servers let pass.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use async_trait::async_trait;
use channel::webhook::WebhookChannel;
use channel::{Channel as _, Fence, Tools};
use flow::{Clock, Sample, Signal};
use notification::{Guarantee, Report, Verdict, limits};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::oneshot;
use tokio::time::advance;

use crate::apns::{PLENTY, Rig};
use crate::support::TlsListener;
use crate::support::frames::Peer;
use crate::support::jobs::{NOW, beside, chunk, sample, send, tokens, verdicts};
use crate::support::mail::{CONTENT, MailServer, Manner, PIPELINING};
use crate::webhook::{OK, listen, read, settings};

const SECOND: Duration = Duration::from_secs(1);
const PAYLOAD: &str = r#"{"aps":{}}"#;

/// Keeps the paused clock from running ahead to the next timer while bytes are on their way, until it is dropped: the runtime
/// does not do so beside a blocking task.
pub(crate) fn still() -> oneshot::Sender<()> {
    let (still, over) = oneshot::channel();
    tokio::task::spawn_blocking(move || drop(over.blocking_recv()));
    still
}

/// A store that takes three seconds to write a mark.
#[derive(Debug)]
struct SlowMark;

#[async_trait(?Send)]
impl Fence for SlowMark {
    fn is_begun(&self, _index: u16) -> bool {
        false
    }

    async fn begin(&self, _index: u16) -> Result<(), Report> {
        advance(3 * SECOND).await;
        Ok(())
    }
}

/// Of each sample the waits and the time on the wire, in seconds.
fn seconds(samples: &[Sample]) -> Vec<(u64, u64)> {
    let timing = |sample: &Sample| {
        assert_eq!(sample.signal, Signal::Answered, "{sample:?}");
        sample.timing.map(|timing| (timing.waited.as_secs(), timing.on_wire.as_secs())).unwrap()
    };
    samples.iter().map(timing).collect()
}

#[tokio::test(start_paused = true)]
async fn a_wait_for_a_stream_is_not_in_the_latency() {
    let _still = still();
    let listener = TlsListener::bind(b"h2").await;
    let rig = Rig::with(&listener, &serde_json::json!({ "connections_max": 1 }));
    let server = async move {
        let mut peer = Peer::welcome(listener.accept().await, 1).await;
        for latency in [7, 1] {
            let (stream, _) = peer.request().await.unwrap();
            advance(latency * SECOND).await;
            peer.answer(stream, 200).await;
        }
        while peer.read().await.is_some() {}
    };
    beside(server, async {
        let chunk = chunk(rig.clock, PAYLOAD, tokens(2));
        let samples = sample((&*rig.sender, rig.clock), &chunk, 2, None).await;
        assert_eq!(seconds(&samples), [(0, 7), (7, 1)]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn all_waits_for_streams_of_one_request_end_with_the_first() {
    let _still = still();
    let listener = TlsListener::bind(b"h2").await;
    let rig = Rig::with(&listener, &serde_json::json!({ "connections_max": 1 }));
    let late = Rc::new(Cell::new(false));
    let is_late = Rc::clone(&late);
    let server = async move {
        let mut peer = Peer::welcome(listener.accept().await, 1).await;
        let (stream, _) = peer.request().await.unwrap();
        advance(14 * SECOND).await;
        peer.answer(stream, 200).await;
        let (stream, _) = peer.request().await.unwrap();
        peer.grant(0).await;
        peer.refuse(stream).await;
        assert!(peer.settle().await.is_empty());
        advance(2 * SECOND).await;
        assert!(peer.settle().await.is_empty());
        late.set(true);
        advance(20 * SECOND).await;
        while peer.read().await.is_some() {}
    };
    beside(server, async {
        let chunk = chunk(rig.clock, PAYLOAD, tokens(2));
        let reports = send(&*rig.sender, rig.clock, &chunk, 2).await;
        assert!(!is_late.get(), "it waits for longer than fifteen seconds in all");
        assert_eq!(verdicts(&reports[..1]), [Verdict::Accepted]);
        assert!(matches!(reports[1], Report::HandedBack { .. }), "{reports:?}");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_try_that_was_refused_is_not_in_the_latency_of_the_next() {
    let _still = still();
    let listener = TlsListener::bind(b"h2").await;
    let rig = Rig::new(&listener);
    let server = async move {
        let mut peer = Peer::welcome(listener.accept().await, PLENTY).await;
        let (stream, _) = peer.request().await.unwrap();
        advance(5 * SECOND).await;
        peer.refuse(stream).await;
        let (stream, _) = peer.request().await.unwrap();
        advance(2 * SECOND).await;
        // The last byte counts, not the head.
        peer.head(stream, 200, 0).await;
        advance(SECOND).await;
        peer.write(0, 1, stream, b"{}").await;
        while peer.read().await.is_some() {}
    };
    beside(server, async {
        let chunk = chunk(rig.clock, PAYLOAD, tokens(1));
        let samples = sample((&*rig.sender, rig.clock), &chunk, 1, None).await;
        assert_eq!(seconds(&samples), [(5, 3)]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn the_mark_of_an_at_most_once_delivery_is_not_in_the_latency() {
    let _still = still();
    let listener = TlsListener::bind(b"h2").await;
    let rig = Rig::new(&listener);
    let server = async move {
        let mut peer = Peer::welcome(listener.accept().await, PLENTY).await;
        let (stream, _) = peer.request().await.unwrap();
        advance(2 * SECOND).await;
        peer.answer(stream, 200).await;
        while peer.read().await.is_some() {}
    };
    beside(server, async {
        let mut chunk = chunk(rig.clock, PAYLOAD, tokens(1));
        chunk.envelope.guarantee = Guarantee::AtMostOnce;
        let samples = sample((&*rig.sender, rig.clock), &chunk, 1, Some(&SlowMark)).await;
        assert_eq!(seconds(&samples), [(3, 2)]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_attempt_without_an_answer_has_no_latency() {
    let _still = still();
    let listener = TlsListener::bind(b"h2").await;
    let rig = Rig::new(&listener);
    let server = async move {
        let mut peer = Peer::welcome(listener.accept().await, PLENTY).await;
        peer.request().await.unwrap();
        advance(limits::ATTEMPT_TIMEOUT).await;
        while peer.read().await.is_some() {}
    };
    beside(server, async {
        let chunk = chunk(rig.clock, PAYLOAD, tokens(1));
        let samples = sample((&*rig.sender, rig.clock), &chunk, 1, None).await;
        let found: Vec<_> = samples.iter().map(|sample| (sample.signal, sample.timing)).collect();
        assert_eq!(found, [(Signal::Dropped, None)]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn the_making_of_a_connection_is_not_in_the_latency_of_a_webhook() {
    let _still = still();
    let listener = TlsListener::bind(b"http/1.1").await;
    let url = format!("{}/hook", listener.endpoint());
    let ca_file = listener.ca_file.path().to_owned();
    let server = async move {
        let stream = listener.accept_plain().await;
        advance(4 * SECOND).await;
        let mut stream = listener.encrypt(stream).await.unwrap();
        for latency in [2, 1] {
            read(&mut stream).await.unwrap();
            advance(latency * SECOND).await;
            stream.write_all(OK.as_bytes()).await.unwrap();
        }
        std::future::pending::<()>().await;
    };
    let channel =
        WebhookChannel::new(&settings(&serde_json::json!({ "ca_file": ca_file }))).unwrap();
    let clock = Clock::starting_at(NOW);
    let sender = channel.open(Tools::new(clock, 1)).unwrap();
    beside(server, async {
        let chunk = chunk(clock, "{}", [url.clone(), url]);
        let samples = sample((&*sender, clock), &chunk, 1, None).await;
        assert_eq!(seconds(&samples), [(4, 2), (0, 1)]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn the_time_lost_on_a_dead_connection_is_a_wait() {
    let _still = still();
    let (listener, url) = listen().await;
    let server = async move {
        let (mut busy, _) = listener.accept().await.unwrap();
        // Answered before it is read: the connection is kept, and still has the rest to write.
        busy.read_u8().await.unwrap();
        busy.write_all(OK.as_bytes()).await.unwrap();
        let (mut stream, _) = listener.accept().await.unwrap();
        read(&mut stream).await.unwrap();
        advance(3 * SECOND).await;
        stream.write_all(OK.as_bytes()).await.unwrap();
        std::future::pending::<()>().await;
    };
    let channel = WebhookChannel::new(&settings(&serde_json::json!({}))).unwrap();
    let clock = Clock::starting_at(NOW);
    let sender = channel.open(Tools::new(clock, 1)).unwrap();
    beside(server, async {
        let long = chunk(clock, &format!("\"{}\"", "x".repeat(16 << 20)), [url.clone()]);
        assert_eq!(seconds(&sample((&*sender, clock), &long, 1, None).await), [(0, 0)]);
        let short = chunk(clock, "{}", [url]);
        let (samples, ()) =
            tokio::join!(sample((&*sender, clock), &short, 1, None), advance(SECOND));
        assert_eq!(seconds(&samples), [(1, 3)]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_wait_for_a_session_is_not_in_the_latency_of_a_mail() {
    let _still = still();
    let server = MailServer::bind().await;
    let rig = server.rig_with(&serde_json::json!({ "connections_max": 1 }));
    let manner = Manner { offers: PIPELINING, time_passes: 7 * SECOND, ..Manner::default() };
    let chunk = chunk(rig.clock, CONTENT, (0..2).map(|number| format!("r{number}@example.org")));
    let samples = Rc::new(std::cell::RefCell::default());
    beside(server.serve(move |_| manner.clone()), async {
        samples.replace(sample((&*rig.sender, rig.clock), &chunk, 2, None).await);
    })
    .await;
    assert_eq!(seconds(&samples.take()), [(0, 7), (7, 7)]);
}

//! At-most-once deliveries are begun when they have the stream they are sent over, and not before.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;

use async_trait::async_trait;
use channel::webhook::WebhookChannel;
use channel::{Channel as _, Fence, Job, Sender, Tools};
use flow::{Clock, Fixed, Gate};
use notification::{Chunk, Guarantee, Report, Verdict};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::apns::Rig as Apns;
use crate::support::TlsListener;
use crate::support::frames::Peer;
use crate::support::jobs::{NOW, Reported, beside, chunk, send_behind, tokens, verdicts};
use crate::webhook;

/// Begins what it is asked for, and keeps which that was.
#[derive(Debug, Clone, Default)]
struct Begun(Rc<RefCell<BTreeSet<u16>>>);

#[async_trait(?Send)]
impl Fence for Begun {
    fn is_begun(&self, index: u16) -> bool {
        self.0.borrow().contains(&index)
    }

    async fn begin(&self, index: u16) -> Result<(), Report> {
        // A mark takes a while.
        tokio::task::yield_now().await;
        self.0.borrow_mut().insert(index);
        Ok(())
    }
}

impl Begun {
    fn count(&self) -> usize {
        self.0.borrow().len()
    }
}

/// A chunk of 1,000 that is under way while `server` runs, and ends with it.
async fn under_way_beside(
    (sender, clock): (&dyn Sender, Clock),
    begun: &Begun,
    server: impl Future<Output = ()>,
) {
    let mut chunk: Chunk = chunk(clock, r#"{"aps":{}}"#, tokens(1_000));
    chunk.envelope.guarantee = Guarantee::AtMostOnce;
    let (gate, reports) = (Gate::new(Box::new(Fixed(1_000))), Reported::default());
    let (_running, stopping) = tokio::sync::watch::channel(false);
    let job = Job {
        chunk: &chunk,
        deliveries: &chunk.deliveries,
        gate: &gate,
        quota: None,
        fence: Some(begun),
        reports: &reports,
        clock,
        stopping: &stopping,
        pauses: &tokio::sync::watch::channel(Arc::default()).1,
        worker_deadline: &flow::worker_deadline::UNLIMITED,
    };
    let local = tokio::task::LocalSet::new();
    let both = async {
        tokio::select! {
            () = sender.send(job) => panic!("nothing ends the attempts"),
            () = server => {}
        }
    };
    local.run_until(Box::pin(both)).await;
}

/// A server that closes each connection after its first answer, without a word, when the next request is on its way already.
async fn close_in_silence(listener: TcpListener, received: Rc<Cell<usize>>) {
    loop {
        let (mut stream, _) = listener.accept().await.unwrap();
        let received = Rc::clone(&received);
        tokio::task::spawn_local(async move {
            webhook::read(&mut stream).await?;
            received.set(received.get() + 1);
            stream.write_all(webhook::OK.as_bytes()).await.ok()?;
            // Closed as the next request arrives, which is not read.
            stream.peek(&mut [0]).await.ok()
        });
    }
}

#[tokio::test]
async fn no_webhook_goes_over_a_connection_that_may_be_closing() {
    let (listener, url) = webhook::listen().await;
    let channel = WebhookChannel::new(&webhook::settings(&serde_json::json!({}))).unwrap();
    let clock = Clock::starting_at(NOW);
    let sender = channel.open(Tools::new(clock, 1)).unwrap();
    let mut chunk = chunk(clock, "{}", (0..300).map(|_| url.clone()));
    chunk.envelope.guarantee = Guarantee::AtMostOnce;
    let (begun, received) = (Begun::default(), Rc::new(Cell::new(0)));
    let mut reports = Vec::new();
    beside(close_in_silence(listener, Rc::clone(&received)), async {
        reports = send_behind(&begun, &*sender, clock, &chunk).await;
    })
    .await;
    let verdicts = verdicts(&reports);
    let in_doubt = verdicts.iter().filter(|verdict| **verdict == Verdict::Unknown).count();
    assert_eq!((in_doubt, received.get()), (0, 300));
}

async fn apns(server: impl AsyncFnOnce(Rc<TlsListener>, Begun)) {
    let listener = TlsListener::bind(b"h2").await;
    let (rig, begun) = (Apns::new(&listener), Begun::default());
    let serving = server(Rc::clone(&listener), begun.clone());
    Box::pin(under_way_beside((&*rig.sender, rig.clock), &begun, Box::pin(serving))).await;
}

/// The streams of the next `count` requests, after which none comes: none of them is answered.
async fn silent(peer: &mut Peer, count: u32) -> Vec<u32> {
    let mut streams = Vec::new();
    for _ in 0..count {
        streams.push(peer.request().await.unwrap().0);
    }
    assert!(peer.settle().await.is_empty(), "more requests than streams");
    streams
}

#[tokio::test]
async fn as_much_is_begun_as_has_a_stream() {
    for granted in [1, 100] {
        apns(async |listener, begun| {
            let mut peer = Peer::welcome(listener.accept().await, granted).await;
            let (first, _) = peer.request().await.unwrap();
            assert_eq!(begun.count(), 1, "one stream until the credential is accepted");
            peer.answer(first, 200).await;
            silent(&mut peer, granted).await;
            assert_eq!(begun.count(), 1 + granted as usize, "{granted} streams");
        })
        .await;
    }
}

#[tokio::test]
async fn nothing_is_begun_while_no_stream_is_granted() {
    apns(async |listener, begun| {
        let mut peer = Peer::welcome(listener.accept().await, 5).await;
        let (first, _) = peer.request().await.unwrap();
        peer.grant(0).await;
        peer.answer(first, 200).await;
        assert!(peer.settle().await.is_empty());
        assert_eq!(begun.count(), 1);
        peer.grant(7).await;
        silent(&mut peer, 7).await;
        peer.grant(0).await;
        assert!(peer.settle().await.is_empty());
        assert_eq!(begun.count(), 8);
    })
    .await;
}

#[tokio::test]
async fn nothing_is_begun_on_a_connection_whose_server_says_nothing() {
    apns(async |listener, begun| {
        let mut stream = listener.accept().await;
        // The preface, and the head of SETTINGS.
        let mut beginning = [0; 33];
        stream.read_exact(&mut beginning).await.unwrap();
        assert!(beginning.starts_with(b"PRI * HTTP/2.0"));
        assert_eq!(begun.count(), 0);
    })
    .await;
}

#[tokio::test]
async fn a_goaway_has_no_more_begun_than_its_successor_grants() {
    apns(async |listener, begun| {
        let mut peer = Peer::welcome(listener.accept().await, 100).await;
        let (first, _) = peer.request().await.unwrap();
        peer.answer(first, 200).await;
        let last = silent(&mut peer, 100).await[49];
        assert_eq!(begun.count(), 101);
        peer.go_away(last).await;
        let mut next = Peer::welcome(listener.accept().await, 50).await;
        let (first, _) = next.request().await.unwrap();
        assert_eq!(begun.count(), 101, "the repeated one was begun before");
        next.answer(first, 200).await;
        silent(&mut next, 50).await;
        // 51 requests, of which some were begun before.
        assert!(begun.count() <= 101 + 51, "{}", begun.count());
    })
    .await;
}

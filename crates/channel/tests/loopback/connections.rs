//! The counts of connections, for the metrics.

use std::sync::Arc;

use channel::apns::{ApnsChannel, ProviderTokens};
use channel::smtp::SmtpChannel;
use channel::webhook::WebhookChannel;
use channel::{Channel as _, ConnectFault, ConnectionCounts, Tools};
use flow::Clock;
use notification::Verdict;
use serde_json::json;
use tokio::net::TcpListener;

use crate::support::TlsListener;
use crate::support::frames::Peer;
use crate::support::jobs::{NOW, beside, chunk, send, tokens, verdicts};
use crate::support::mail::{self, CONTENT, MailServer, Manner};
use crate::{apns, webhook};

fn tools() -> (Tools, Arc<ConnectionCounts>) {
    let tools = Tools::new(Clock::starting_at(NOW), 1);
    let counts = Arc::clone(&tools.connections);
    (tools, counts)
}

/// How many failed by each cause, in the order of [`ConnectFault::ALL`].
fn failed(counts: &ConnectionCounts) -> [u64; 6] {
    ConnectFault::ALL.map(|fault| counts.failed(fault))
}

#[tokio::test]
async fn connections_are_counted_while_they_are_open_and_when_their_server_ends_them() {
    let listener = TlsListener::bind(b"h2").await;
    let settings = apns::settings(&listener, &json!({}));
    let channel = ApnsChannel::new(&settings, &ProviderTokens::default()).unwrap();
    let (tools, counts) = tools();
    let clock = tools.clock;
    let sender = channel.open(tools).unwrap();
    let server = async move {
        for is_last in [false, true] {
            let mut peer = Peer::welcome(listener.accept().await, 100).await;
            let (stream, _) = peer.request().await.unwrap();
            if !is_last {
                peer.go_away(stream).await;
            }
            peer.answer(stream, 200).await;
            while peer.request().await.is_some() {}
        }
    };
    beside(server, async move {
        for open in [0, 1] {
            let chunk = chunk(clock, apns::PAYLOAD, tokens(1));
            assert_eq!(verdicts(&send(&*sender, clock, &chunk, 1).await), [Verdict::Accepted]);
            assert!(counts.open_now() >= open);
        }
        sender.close().await;
        assert_eq!((counts.opened(), counts.open_now(), counts.gone_away()), (2, 0, 1));
        assert_eq!(failed(&counts), [0; 6]);
    })
    .await;
}

#[tokio::test]
async fn what_cannot_be_connected_is_counted_by_its_cause() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let channel = WebhookChannel::new(&webhook::settings(&json!({}))).unwrap();
    let (tools, counts) = tools();
    let clock = tools.clock;
    let sender = channel.open(tools).unwrap();
    let server = async move {
        loop {
            // Says nothing, and so no TLS.
            drop(listener.accept().await.unwrap());
        }
    };
    beside(server, async move {
        // Nothing listens at port 1.
        let urls = ["http://127.0.0.1:1/".to_owned(), format!("https://127.0.0.1:{port}/")];
        send(&*sender, clock, &chunk(clock, "{}", urls), 2).await;
        assert_eq!(failed(&counts), [0, 0, 1, 1, 0, 0]);
        assert_eq!((counts.opened(), counts.open_now()), (0, 0));
    })
    .await;
}

#[tokio::test]
async fn sessions_of_mail_are_connections() {
    let server = MailServer::bind().await;
    let serving = server.serve(|_| Manner::default());
    beside(serving, async move {
        // Nothing listens at port 1.
        for (port, expect) in [(server.port(), (1, [0; 6])), (1, (0, [0, 0, 1, 0, 0, 0]))] {
            let channel = SmtpChannel::new(&mail::settings(port, &json!({}))).unwrap();
            let (tools, counts) = tools();
            let clock = tools.clock;
            let sender = channel.open(tools).unwrap();
            let recipients = ["r@example.org".to_owned()];
            send(&*sender, clock, &chunk(clock, CONTENT, recipients), 1).await;
            assert_eq!((counts.open_now(), failed(&counts)), expect);
            sender.close().await;
            assert_eq!((counts.opened(), counts.open_now()), (expect.0, 0));
        }
    })
    .await;
}

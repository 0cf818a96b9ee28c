//! The channels that speak to a network pass the suite against servers on loopback.

use std::rc::Rc;

use channel::Channel;
use channel::apns::ApnsChannel;
use channel::conformance::{Provider, Subject, exercise};
use channel::webhook::WebhookChannel;
use flow::Clock;
use notification::{Bytes, Content};

use crate::support::TlsListener;
use crate::support::frames::Peer;
use crate::support::jobs::{NOW, beside};
use crate::{apns, webhook};

struct Apns {
    accepts: Rc<TlsListener>,
    cuts_off: Rc<TlsListener>,
}

struct Webhook {
    accepts: String,
    cuts_off: String,
}

impl Subject for Apns {
    fn channel(&self, provider: Provider) -> Option<Box<dyn Channel>> {
        let listener = match provider {
            Provider::Accepts => &self.accepts,
            Provider::CutsOff => &self.cuts_off,
        };
        let settings = apns::settings(listener, &serde_json::json!({}));
        Some(Box::new(ApnsChannel::new(&settings).unwrap()))
    }

    fn recipient(&self, _provider: Provider, number: u16) -> String {
        format!("{number:064x}")
    }

    fn content(&self) -> Content {
        let payload = Bytes::from_static(br#"{"aps":{"alert":"hello"}}"#);
        Content { payload, options: Bytes::from_static(br#"{"collapse_id":"x"}"#), fallback: None }
    }
}

impl Subject for Webhook {
    fn channel(&self, _provider: Provider) -> Option<Box<dyn Channel>> {
        let settings = webhook::settings(&serde_json::json!({}));
        Some(Box::new(WebhookChannel::new(&settings).unwrap()))
    }

    fn recipient(&self, provider: Provider, number: u16) -> String {
        let url = match provider {
            Provider::Accepts => &self.accepts,
            Provider::CutsOff => &self.cuts_off,
        };
        format!("{url}&number={number}")
    }

    fn content(&self) -> Content {
        let options = Bytes::from_static(br#"{"headers":{"x-tenant":"a"}}"#);
        Content { payload: Bytes::from_static(b"[1, 2]"), options, fallback: None }
    }
}

async fn cut_off_all(listener: Rc<TlsListener>) {
    loop {
        let mut peer = Peer::welcome(listener.accept().await, 100).await;
        peer.request().await;
    }
}

#[tokio::test]
async fn apns_is_a_channel() {
    let accepts = TlsListener::bind(b"h2").await;
    let cuts_off = TlsListener::bind(b"h2").await;
    let subject = Apns { accepts: Rc::clone(&accepts), cuts_off: Rc::clone(&cuts_off) };
    let servers = async move {
        tokio::join!(apns::answer_all(accepts, 16, 200, ""), cut_off_all(cuts_off));
    };
    beside(servers, exercise(&subject, Clock::starting_at(NOW))).await;
}

#[tokio::test]
async fn the_webhook_is_a_channel() {
    let (accepts, accepts_url) = webhook::listen().await;
    let (cuts_off, cuts_off_url) = webhook::listen().await;
    let subject = Webhook { accepts: accepts_url, cuts_off: cuts_off_url };
    let servers = async move {
        tokio::join!(webhook::accept_all(accepts), webhook::cut_all_off(cuts_off));
    };
    beside(servers, exercise(&subject, Clock::starting_at(NOW))).await;
}

//! The channels that speak to a network pass the suite against servers on loopback.

use std::rc::Rc;

use channel::Channel;
use channel::apns::{ApnsChannel, ProviderTokens};
use channel::conformance::{Behaviour, TestedChannel, exercise};
use channel::fcm::FcmChannel;
use channel::webhook::WebhookChannel;
use channel::webpush::WebPushChannel;
use flow::Clock;
use notification::{Bytes, Content};

use crate::support::TlsListener;
use crate::support::frames::Peer;
use crate::support::jobs::{NOW, beside};
use crate::support::tokens::TokenEndpoint;
use crate::{apns, fcm, webhook, webpush};

struct Apns {
    accepts: Rc<TlsListener>,
    cuts_off: Rc<TlsListener>,
}

struct Fcm {
    accepts: Rc<TlsListener>,
    cuts_off: Rc<TlsListener>,
    tokens: Rc<TokenEndpoint>,
}

struct Webhook {
    accepts: String,
    cuts_off: String,
}

struct WebPush {
    accepts: Rc<TlsListener>,
    cuts_off: Rc<TlsListener>,
}

impl TestedChannel for Apns {
    fn channel(&self, provider: Behaviour) -> Option<Box<dyn Channel>> {
        let listener = match provider {
            Behaviour::Accepts => &self.accepts,
            Behaviour::CutsOff => &self.cuts_off,
        };
        let settings = apns::settings(listener, &serde_json::json!({}));
        Some(Box::new(ApnsChannel::new(&settings, &ProviderTokens::default()).unwrap()))
    }

    fn recipient(&self, _provider: Behaviour, number: u16) -> String {
        format!("{number:064x}")
    }

    fn content(&self) -> Content {
        let payload = Bytes::from_static(br#"{"aps":{"alert":"hello"}}"#);
        Content { payload, options: Bytes::from_static(br#"{"collapse_id":"x"}"#), fallback: None }
    }
}

impl TestedChannel for Fcm {
    fn channel(&self, provider: Behaviour) -> Option<Box<dyn Channel>> {
        let listener = match provider {
            Behaviour::Accepts => &self.accepts,
            Behaviour::CutsOff => &self.cuts_off,
        };
        let ca_file = fcm::both(listener, &self.tokens);
        let more = serde_json::json!({});
        let settings = fcm::settings(listener, &self.tokens, ca_file.path(), &more);
        Some(Box::new(FcmChannel::new(&settings).unwrap()))
    }

    fn recipient(&self, _provider: Behaviour, number: u16) -> String {
        format!("token:{number}")
    }

    fn content(&self) -> Content {
        let payload = Bytes::from_static(br#"{"notification":{"title":"hello"}}"#);
        Content {
            payload,
            options: Bytes::from_static(br#"{"validate_only":true}"#),
            fallback: None,
        }
    }
}

impl TestedChannel for Webhook {
    fn channel(&self, _provider: Behaviour) -> Option<Box<dyn Channel>> {
        let settings = webhook::settings(&serde_json::json!({}));
        Some(Box::new(WebhookChannel::new(&settings).unwrap()))
    }

    fn recipient(&self, provider: Behaviour, number: u16) -> String {
        let url = match provider {
            Behaviour::Accepts => &self.accepts,
            Behaviour::CutsOff => &self.cuts_off,
        };
        format!("{url}&number={number}")
    }

    fn content(&self) -> Content {
        let options = Bytes::from_static(br#"{"headers":{"x-tenant":"a"}}"#);
        Content { payload: Bytes::from_static(b"[1, 2]"), options, fallback: None }
    }
}

impl TestedChannel for WebPush {
    fn channel(&self, provider: Behaviour) -> Option<Box<dyn Channel>> {
        let listener = match provider {
            Behaviour::Accepts => &self.accepts,
            Behaviour::CutsOff => &self.cuts_off,
        };
        let settings = webpush::settings(Some(listener), &serde_json::json!({}));
        Some(Box::new(WebPushChannel::new(&settings).unwrap()))
    }

    fn recipient(&self, provider: Behaviour, number: u16) -> String {
        let listener = match provider {
            Behaviour::Accepts => &self.accepts,
            Behaviour::CutsOff => &self.cuts_off,
        };
        webpush::Browser::new(1).recipient(&format!("{}/push/{number}", listener.endpoint()))
    }

    fn content(&self) -> Content {
        let options = Bytes::from_static(br#"{"ttl":60,"urgency":"low","topic":"x"}"#);
        Content { payload: Bytes::from_static(b"\"hello\""), options, fallback: None }
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
async fn fcm_is_a_channel() {
    let accepts = TlsListener::bind(b"h2").await;
    let cuts_off = TlsListener::bind(b"h2").await;
    let tokens = TokenEndpoint::bind().await;
    let subject = Fcm {
        accepts: Rc::clone(&accepts),
        cuts_off: Rc::clone(&cuts_off),
        tokens: Rc::clone(&tokens),
    };
    let servers = async move {
        let accepting = fcm::answer_all(accepts, 200, fcm::NAME);
        tokio::join!(accepting, cut_off_all(cuts_off), tokens.grant_all());
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

#[tokio::test]
async fn web_push_is_a_channel() {
    let accepts = TlsListener::bind(b"h2").await;
    let cuts_off = TlsListener::bind(b"h2").await;
    let subject = WebPush { accepts: Rc::clone(&accepts), cuts_off: Rc::clone(&cuts_off) };
    let servers = async move {
        tokio::join!(webpush::answer_all(accepts, 201), cut_off_all(cuts_off));
    };
    beside(servers, exercise(&subject, Clock::starting_at(NOW))).await;
}

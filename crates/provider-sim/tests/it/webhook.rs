//! The webhook provider, over both versions of HTTP.

use crate::support::{PAYLOAD, Sim, id, now_s, tls};
use aws_lc_rs::hmac;
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use provider_sim::journal::JournalStatus;
use provider_sim::{Error, Simulator, SimulatorOptions, is_dead};
use tokio::task::JoinSet;

const SECRET: &[u8] = b"a secret of twenty-four bytes or more";

fn secret() -> String {
    format!("whsec_{}", BASE64_STANDARD.encode(SECRET))
}

fn signature(secret: &[u8], id: &str, timestamp: u64, body: &str) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
    let tag = hmac::sign(&key, format!("{id}.{timestamp}.{body}").as_bytes());
    format!("v1,{}", BASE64_STANDARD.encode(tag))
}

fn hook(path: &str, id: &str) -> http::request::Builder {
    Request::post(format!("https://localhost{path}")).header("webhook-id", id)
}

/// An HTTP/1.1 client on one connection.
struct Client {
    send: SendRequest<Full<Bytes>>,
    connection: JoinSet<hyper::Result<()>>,
}

impl Client {
    async fn connect(sim: &Sim) -> Self {
        let tls = tls(sim.running.webhook, &sim.running.ca, "http/1.1").await;
        let (send, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(tls)).await.unwrap();
        let mut tasks = JoinSet::new();
        tasks.spawn(connection);
        Self { send, connection: tasks }
    }

    async fn ask<Body: Into<Bytes>>(
        &mut self,
        request: http::request::Builder,
        body: Body,
    ) -> hyper::Result<Response<()>> {
        self.send.ready().await?;
        let request = request.header("host", "localhost").body(Full::new(body.into())).unwrap();
        Ok(self.send.send_request(request).await?.map(drop))
    }
}

#[tokio::test]
async fn a_signature_must_be_ours_and_of_this_minute() {
    let sim = Sim::start(|options| options.webhook_secret = Some(secret()));
    let mut client = Client::connect(&sim).await;
    let now = now_s();
    let good = signature(SECRET, "msg_1", now, PAYLOAD);
    let other_key = signature(b"some other secret of 24 bytes", "msg_1", now, PAYLOAD);
    let old = signature(SECRET, "msg_1", now - 600, PAYLOAD);
    let cases = [
        (now, good.clone(), PAYLOAD, 200),
        (now, format!("{other_key} {good}"), PAYLOAD, 200),
        (now, format!("v1a,AAAA {good}"), PAYLOAD, 200),
        (now, other_key, PAYLOAD, 401),
        (now, good.clone(), "{}", 401),
        (now - 1, good.clone(), PAYLOAD, 401),
        (now - 600, old, PAYLOAD, 401),
        (now, String::new(), PAYLOAD, 401),
        (now, good.replace("v1,", ""), PAYLOAD, 401),
    ];
    for (timestamp, signature, body, status) in cases {
        let request = hook("/hook", "msg_1")
            .header("webhook-timestamp", timestamp)
            .header("webhook-signature", &signature);
        let answer = client.ask(request, body).await.unwrap();
        assert_eq!(answer.status().as_u16(), status, "{timestamp} {signature} {body}");
    }
    assert_eq!(sim.summary().accepted(), 3);
}

#[tokio::test]
async fn an_ed25519_signature_must_be_there_when_its_key_is_given() {
    let pair = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap();
    let public = format!("whpk_{}", BASE64_STANDARD.encode(pair.public_key()));
    let sim = Sim::start(|options| {
        options.webhook_secret = Some(secret());
        options.webhook_public_key = Some(public);
    });
    let mut client = Client::connect(&sim).await;
    let now = now_s();
    let symmetric = signature(SECRET, "msg_1", now, PAYLOAD);
    let signed = format!("msg_1.{now}.{PAYLOAD}");
    let asymmetric = format!("v1a,{}", BASE64_STANDARD.encode(pair.sign(signed.as_bytes())));
    let other = format!("v1a,{}", BASE64_STANDARD.encode(pair.sign(b"something else")));
    for (signatures, status) in [
        (format!("{symmetric} {asymmetric}"), 200),
        (format!("{other} {asymmetric} {symmetric}"), 200),
        (symmetric.clone(), 401),
        (asymmetric.clone(), 401),
        (format!("{symmetric} {other}"), 401),
        (format!("{symmetric} {}", asymmetric.replace("v1a", "v1")), 401),
    ] {
        let request = hook("/hook", "msg_1")
            .header("webhook-timestamp", now)
            .header("webhook-signature", &signatures);
        let answer = client.ask(request, PAYLOAD).await.unwrap();
        assert_eq!(answer.status().as_u16(), status, "{signatures}");
    }
}

#[tokio::test]
async fn every_path_is_an_endpoint_and_is_recorded() {
    let sim = Sim::start(|_| {});
    let mut client = Client::connect(&sim).await;
    for (path, id) in [("/a", "msg_1"), ("/b/c?d=e", "msg_2"), ("/", "msg_3")] {
        let answer = client.ask(hook(path, id), PAYLOAD).await.unwrap();
        assert_eq!(answer.status().as_u16(), 200);
        assert_eq!(sim.journal().last().unwrap().id, id);
    }
    let recipients: Vec<String> = sim.journal().into_iter().map(|line| line.recipient).collect();
    assert_eq!(recipients, ["/a", "/b/c", "/"]);
}

#[tokio::test]
async fn malformed_requests_are_rejected() {
    let sim = Sim::start(|_| {});
    let mut client = Client::connect(&sim).await;
    let without_id = Request::post("https://localhost/hook");
    assert_eq!(client.ask(without_id, PAYLOAD).await.unwrap().status().as_u16(), 400);
    let dotted = hook("/hook", "msg.1");
    assert_eq!(client.ask(dotted, PAYLOAD).await.unwrap().status().as_u16(), 400);
    let get = hook("/hook", "msg_1").method("GET");
    assert_eq!(client.ask(get, Bytes::new()).await.unwrap().status().as_u16(), 405);
    let long = client.ask(hook("/hook", "msg_1"), vec![b' '; (1 << 20) + 1]).await.unwrap();
    assert_eq!(long.status().as_u16(), 413);
    assert_eq!(sim.summary().accepted(), 0);
}

#[tokio::test]
async fn http2_is_spoken_when_the_client_asks_for_it() {
    let sim = Sim::start(|_| {});
    let mut client = sim.webhook().await;
    let long = format!("{{{}}}", " ".repeat(500_000));
    for body in [PAYLOAD.to_owned(), long] {
        let answer = client.ask(hook("/hook", &id(1)).body(()).unwrap(), body).await.unwrap();
        assert_eq!((answer.status.as_u16(), answer.body.as_str()), (200, ""));
        assert!(!answer.headers.contains_key("apns-id"));
    }
    assert_eq!(sim.summary().ids.accepted_twice, 1);
}

#[tokio::test]
async fn a_dropped_request_is_recorded_and_the_connection_closed() {
    let sim = Sim::start(|options| options.faults.drop_rate = 1.0);
    let mut client = Client::connect(&sim).await;
    client.ask(hook("/hook", "msg_1"), PAYLOAD).await.unwrap_err();
    client.connection.join_next().await.unwrap().unwrap().ok();
    assert_eq!(sim.journal()[0].status, JournalStatus::Drop);
}

#[tokio::test]
async fn a_connection_is_closed_after_its_count() {
    let sim = Sim::start(|options| options.faults.goaway_every = 2.try_into().ok());
    let mut client = Client::connect(&sim).await;
    let first = client.ask(hook("/hook", "msg_1"), PAYLOAD).await.unwrap();
    assert!(!first.headers().contains_key("connection"));
    let second = client.ask(hook("/hook", "msg_2"), PAYLOAD).await.unwrap();
    assert_eq!(
        (second.status().as_u16(), &second.headers()["connection"]),
        (200, &"close".parse().unwrap())
    );
    client.connection.join_next().await.unwrap().unwrap().unwrap();
}

#[tokio::test]
async fn a_dead_endpoint_is_gone_every_time() {
    let sim = Sim::start(|options| options.faults.dead_tokens = 0.5);
    let mut client = Client::connect(&sim).await;
    for number in 0..20 {
        let path = format!("/hook/{number}");
        let expect = if is_dead(&path, 0.5) { 410 } else { 200 };
        let answer = client.ask(hook(&path, "msg_1"), PAYLOAD).await.unwrap();
        assert_eq!(answer.status().as_u16(), expect, "{path}");
    }
}

#[test]
fn a_malformed_secret_is_refused_at_the_start() {
    let directory = tempfile::tempdir().unwrap();
    for secret in ["", "whsec_", "whsec_c2hvcnQ=", "plain"] {
        let mut options = SimulatorOptions::default();
        options.apns.set_port(0);
        options.webhook.set_port(0);
        options.journal = directory.path().join("journal");
        options.tls_dir = directory.path().join("tls");
        options.webhook_secret = Some(secret.to_owned());
        let started = Simulator::start(options);
        assert!(matches!(started, Err(Error::WebhookSecret)), "{secret:?}");
    }
}

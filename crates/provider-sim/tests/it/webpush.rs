//! The push service, to a client that encrypts and signs with libraries of others.

use std::time::Duration;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{EcdsaKeyPair, KeyPair as _};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use http::Request;
use provider_sim::journal::JournalStatus;
use provider_sim::{Error, Simulator, SimulatorOptions, is_dead, subscription};
use serde_json::{Value, json};
use web_push_native::p256::PublicKey;
use web_push_native::{Auth, encrypt};

use crate::support::{Answer, Client, Sim, now_s, signing_key, tls};

/// A push service with this change of its options.
fn start(change: impl FnOnce(&mut SimulatorOptions)) -> Sim {
    Sim::start(|options| {
        options.web_push = Some("127.0.0.1:0".parse().unwrap());
        change(options);
    })
}

async fn connect(sim: &Sim) -> Client {
    Client::over(tls(sim.running.web_push.unwrap(), &sim.running.ca, "h2").await).await
}

fn origin(sim: &Sim) -> String {
    format!("https://{}", sim.running.web_push.unwrap())
}

fn encode(bytes: impl AsRef<[u8]>) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(bytes)
}

/// The `authorization` header of a sender.
fn authorization(key: &EcdsaKeyPair, claims: &Value) -> String {
    let header = encode(r#"{"typ":"JWT","alg":"ES256"}"#);
    let signed = format!("{header}.{}", encode(claims.to_string()));
    let signature = encode(key.sign(&SystemRandom::new(), signed.as_bytes()).unwrap());
    format!("vapid t={signed}.{signature}, k={}", encode(key.public_key()))
}

fn claims(sim: &Sim) -> Value {
    json!({ "aud": origin(sim), "exp": now_s() + 3600, "sub": "mailto:a@b.c" })
}

fn sealed(number: u64, plaintext: &[u8]) -> Vec<u8> {
    let subscription = subscription("127.0.0.1:1".parse().unwrap(), number);
    let read = |name: &str| {
        let value = subscription.pointer(&format!("/keys/{name}")).and_then(Value::as_str);
        BASE64_URL_SAFE_NO_PAD.decode(value.unwrap()).unwrap()
    };
    let key = PublicKey::from_sec1_bytes(&read("p256dh")).unwrap();
    encrypt(plaintext.to_vec(), &key, &Auth::clone_from_slice(&read("auth"))).unwrap()
}

/// A request to subscription `number`, with these headers beside the usual ones, or instead of them.
fn request(sim: &Sim, number: &str, headers: &[(&str, &str)]) -> Request<()> {
    let token = authorization(&signing_key(), &claims(sim));
    let usual =
        [("authorization", token.as_str()), ("ttl", "60"), ("content-encoding", "aes128gcm")];
    let mut request = Request::post(format!("{}/push/{number}", origin(sim)));
    let is_given = |name: &str| headers.iter().any(|(given, _)| *given == name);
    for (name, value) in usual.iter().filter(|(name, _)| !is_given(name)).chain(headers) {
        if !value.is_empty() {
            request = request.header(*name, *value);
        }
    }
    request.body(()).unwrap()
}

async fn ask(sim: &Sim, number: &str, headers: &[(&str, &str)], body: Vec<u8>) -> Answer {
    connect(sim).await.ask(request(sim, number, headers), body).await.unwrap()
}

#[tokio::test]
async fn a_message_that_its_subscriber_can_read_is_created() {
    let sim = start(|_| {});
    for (number, plaintext) in
        [("0", b"hello".to_vec()), ("7", Vec::new()), ("18446744073709551615", vec![1; 3_993])]
    {
        let body = sealed(number.parse().unwrap(), &plaintext);
        let answer = ask(&sim, number, &[("urgency", "high"), ("topic", "a-b_C9")], body).await;
        assert_eq!(answer.status, 201, "{}", answer.body);
        assert!(answer.headers["location"].to_str().unwrap().starts_with("/message/"));
    }
    // The same words again are another message on the wire, and the same notification.
    ask(&sim, "0", &[], sealed(0, b"hello")).await;
    let summary = sim.summary();
    assert_eq!((summary.accepted(), summary.ids.accepted, summary.ids.accepted_twice), (4, 3, 1));
    assert_eq!(sim.journal()[0].recipient, "/push/0");
}

#[tokio::test]
async fn what_a_push_service_or_a_browser_refuses_is_refused() {
    let sim = start(|_| {});
    let key = signing_key();
    let with = |name: &str, value: Value| {
        let mut claims = claims(&sim);
        claims[name] = value;
        authorization(&key, &claims)
    };
    let good = sealed(1, b"x");
    let check = async |number: &str, headers: &[(&str, &str)], body: &[u8], status: u16| {
        let answer = ask(&sim, number, headers, body.to_vec()).await;
        assert_eq!(answer.status.as_u16(), status, "{number} {headers:?} {}", answer.body);
        assert!(!answer.body.is_empty());
    };
    check("x", &[], &good, 404).await;
    check("1", &[], &[0; 4_097], 413).await;
    check("2", &[], &good, 400).await;
    check("1", &[], &good[..good.len() - 1], 400).await;
    check("1", &[("content-encoding", "aesgcm")], &good, 415).await;
    check("1", &[("ttl", "")], &good, 400).await;
    check("1", &[("ttl", "soon")], &good, 400).await;
    check("1", &[("urgency", "now")], &good, 400).await;
    check("1", &[("topic", "a b")], &good, 400).await;
    check("1", &[("topic", &"x".repeat(33))], &good, 400).await;
    check("1", &[("authorization", "")], &good, 401).await;
    check("1", &[("authorization", "bearer x")], &good, 401).await;
    check("1", &[("authorization", "vapid t=a.b.c, k=d")], &good, 403).await;
    check("1", &[("authorization", &with("aud", json!("https://other.example")))], &good, 403)
        .await;
    check("1", &[("authorization", &with("exp", json!(now_s() - 1)))], &good, 403).await;
    check("1", &[("authorization", &with("exp", json!(now_s() + 90_000)))], &good, 403).await;
    check("1", &[("authorization", &with("sub", json!("me")))], &good, 403).await;
    let forged = with("sub", json!("mailto:a@b.c"));
    let forged = forged.replace(&encode(key.public_key()), &encode(signing_key().public_key()));
    check("1", &[("authorization", &forged)], &good, 403).await;
    assert_eq!(sim.summary().accepted(), 0);
}

#[tokio::test]
async fn a_subscription_can_belong_to_one_key() {
    let key = signing_key();
    let sim = start(|options| options.web_push_key = Some(encode(key.public_key())));
    let token = authorization(&key, &claims(&sim));
    assert_eq!(ask(&sim, "1", &[("authorization", &token)], sealed(1, b"x")).await.status, 201);
    let answer = ask(&sim, "1", &[], sealed(1, b"x")).await;
    assert_eq!((answer.status.as_u16(), answer.body.contains("do not correspond")), (403, true));
}

#[tokio::test]
async fn some_are_gone_and_some_have_to_wait() {
    let sim = start(|options| options.faults.dead_tokens = 0.5);
    for number in 0..12 {
        let expect = if is_dead(&format!("/push/{number}"), 0.5) { 410 } else { 201 };
        let answer = ask(&sim, &number.to_string(), &[], sealed(number, b"x")).await;
        assert_eq!(answer.status.as_u16(), expect, "{number}");
    }
    let sim = start(|options| {
        options.faults.throttle_rate = 1.0;
        options.faults.retry_after = 9;
        options.faults.latency = Duration::from_millis(5);
    });
    let answer = ask(&sim, "1", &[], sealed(1, b"x")).await;
    assert_eq!(
        (answer.status.as_u16(), &answer.headers["retry-after"]),
        (429, &"9".parse().unwrap())
    );
    assert_eq!(sim.journal()[0].status, JournalStatus::Answered(429));
}

#[test]
fn a_subscription_is_the_same_in_every_run_and_unlike_every_other() {
    let address = "127.0.0.1:8444".parse().unwrap();
    let one = subscription(address, 1);
    assert_eq!(one, subscription(address, 1));
    assert_ne!(one["keys"], subscription(address, 2)["keys"]);
    assert_eq!(one["endpoint"], "https://127.0.0.1:8444/push/1");
}

#[test]
fn a_key_that_is_none_is_refused_at_the_start() {
    let directory = tempfile::tempdir().unwrap();
    let mut options = SimulatorOptions::default();
    options.apns.set_port(0);
    options.webhook.set_port(0);
    options.web_push = Some("127.0.0.1:0".parse().unwrap());
    options.journal = directory.path().join("journal");
    options.tls_dir = directory.path().join("tls");
    options.web_push_key = Some("c2hvcnQ".to_owned());
    assert!(matches!(Simulator::start(options), Err(Error::WebPushKey)));
}

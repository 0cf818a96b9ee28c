//! The FCM provider and its token endpoint.

use crate::support::{Answer, Client, Sim, now_s, tls};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{RSA_PKCS1_SHA256, RsaKeyPair};
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use http::Request;
use provider_sim::journal::JournalStatus;
use provider_sim::{SimulatorOptions, is_dead};
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::pki_types::pem::PemObject;
use serde_json::{Value, json};

const MESSAGE: &str = r#"{"message":{"token":"abc:1","notification":{"title":"hello"}}}"#;

fn start(change: impl FnOnce(&mut SimulatorOptions)) -> Sim {
    Sim::start(|options| {
        options.fcm = Some("127.0.0.1:0".parse().unwrap());
        change(options);
    })
}

async fn connect(sim: &Sim) -> Client {
    Client::over(tls(sim.running.fcm.unwrap(), &sim.running.ca, "h2").await).await
}

fn account(sim: &Sim) -> Value {
    serde_json::from_slice(&std::fs::read(&sim.running.fcm_account).unwrap()).unwrap()
}

fn key(sim: &Sim) -> RsaKeyPair {
    let account = account(sim);
    let der =
        PrivatePkcs8KeyDer::from_pem_slice(account["private_key"].as_str().unwrap().as_bytes());
    RsaKeyPair::from_pkcs8(der.unwrap().secret_pkcs8_der()).unwrap()
}

/// An assertion with some claims changed.
fn assertion(key: &RsaKeyPair, change: &Value) -> String {
    let mut claims = json!({
        "iss": "push@provider-sim.iam.gserviceaccount.com",
        "scope": "https://www.googleapis.com/auth/firebase.messaging",
        "aud": "https://127.0.0.1/token",
        "iat": now_s(),
        "exp": now_s() + 3600,
    });
    for (name, value) in change.as_object().unwrap() {
        claims[name] = value.clone();
    }
    let part = |json: Value| BASE64_URL_SAFE_NO_PAD.encode(json.to_string());
    let signed = format!("{}.{}", part(json!({ "alg": "RS256", "kid": "1" })), part(claims));
    let mut signature = vec![0; key.public_modulus_len()];
    key.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), signed.as_bytes(), &mut signature).unwrap();
    format!("{signed}.{}", BASE64_URL_SAFE_NO_PAD.encode(signature))
}

async fn exchange(client: &mut Client, assertion: &str) -> Answer {
    let form = format!(
        "grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Ajwt-bearer&assertion={assertion}"
    );
    let request = Request::post("https://localhost/token").body(()).unwrap();
    client.ask(request, form).await.unwrap()
}

async fn token(sim: &Sim, client: &mut Client) -> String {
    let answer = exchange(client, &assertion(&key(sim), &json!({}))).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    let body: Value = serde_json::from_str(&answer.body).unwrap();
    assert_eq!((&body["token_type"], &body["expires_in"]), (&json!("Bearer"), &json!(3600)));
    body["access_token"].as_str().unwrap().to_owned()
}

async fn send(client: &mut Client, token: &str, body: &str) -> (u16, Value) {
    let request = Request::post("https://localhost/v1/projects/shop/messages:send")
        .header("authorization", format!("Bearer {token}"))
        .body(())
        .unwrap();
    let answer = client.ask(request, body.to_owned()).await.unwrap();
    (answer.status.as_u16(), serde_json::from_str(&answer.body).unwrap())
}

#[tokio::test]
async fn a_message_with_a_token_of_the_account_is_accepted_and_written_down() {
    let sim = start(|_| {});
    let mut client = connect(&sim).await;
    let token = token(&sim, &mut client).await;
    let (status, body) = send(&mut client, &token, MESSAGE).await;
    assert_eq!(status, 200);
    let name = body["name"].as_str().unwrap().to_owned();
    assert!(name.starts_with("projects/shop/messages/0:"), "{name}");
    let journal = sim.journal();
    assert_eq!((journal[0].id.as_str(), journal[0].recipient.as_str()), ("access-token", "-"));
    assert_eq!((&journal[1].id, journal[1].recipient.as_str()), (&name, "abc:1"));
    assert_eq!(journal[1].status, JournalStatus::Answered(200));
}

#[tokio::test]
async fn an_assertion_that_google_would_refuse_gets_no_token() {
    let sim = start(|_| {});
    let mut client = connect(&sim).await;
    let key = key(&sim);
    for change in [
        json!({ "scope": "email" }),
        json!({ "aud": "https://127.0.0.1/other" }),
        json!({ "iss": "" }),
        json!({ "exp": now_s() + 7200 }),
        json!({ "iat": now_s() - 9000, "exp": now_s() - 5400 }),
        json!({ "iat": now_s() + 900, "exp": now_s() + 1800 }),
    ] {
        let answer = exchange(&mut client, &assertion(&key, &change)).await;
        assert_eq!(answer.status, 400, "{change}");
        assert!(answer.body.contains("invalid_grant"), "{}", answer.body);
    }
    let other = RsaKeyPair::generate(aws_lc_rs::rsa::KeySize::Rsa2048).unwrap();
    for wrong in [assertion(&other, &json!({})), "x".to_owned(), "a.b.c".to_owned()] {
        assert_eq!(exchange(&mut client, &wrong).await.status, 400);
    }
}

#[tokio::test]
async fn a_message_that_fcm_would_refuse_is_refused_with_its_reason() {
    let sim = start(|_| {});
    let mut client = connect(&sim).await;
    let token = token(&sim, &mut client).await;
    let (status, body) = send(&mut client, "ya29.other", MESSAGE).await;
    assert_eq!((status, &body["error"]["status"]), (401, &json!("UNAUTHENTICATED")));
    let mut check = async |body: &str, kind: &str| {
        let (status, answer) = send(&mut client, &token, body).await;
        assert_eq!(
            (status, &answer["error"]["status"]),
            (400, &json!("INVALID_ARGUMENT")),
            "{body}"
        );
        let found = answer["error"]["details"][0]["@type"].as_str().unwrap();
        assert!(found.ends_with(kind), "{body}: {found}");
    };
    check("{", "BadRequest").await;
    check(r#"{"message":{}}"#, "BadRequest").await;
    check(r#"{"message":{"token":"a","topic":"b"}}"#, "BadRequest").await;
    check(r#"{"message":{"token":"a","sound":"b"}}"#, "BadRequest").await;
    check(r#"{"message":{"token":"a","data":{"n":1}}}"#, "BadRequest").await;
    check(r#"{"message":{"token":""}}"#, "FcmError").await;
}

#[tokio::test]
async fn a_token_ends() {
    let sim = start(|options| options.fcm_token_lifetime = std::time::Duration::ZERO);
    let mut client = connect(&sim).await;
    let answer = exchange(&mut client, &assertion(&key(&sim), &json!({}))).await;
    let body: Value = serde_json::from_str(&answer.body).unwrap();
    let token = body["access_token"].as_str().unwrap();
    assert_eq!(send(&mut client, token, MESSAGE).await.0, 401);
}

#[tokio::test]
async fn a_quota_that_is_used_up_is_the_projects() {
    let sim = start(|options| options.fcm_quota = std::num::NonZeroU64::new(2));
    let mut client = connect(&sim).await;
    let token = token(&sim, &mut client).await;
    for expect in [200, 200, 429, 429] {
        let (status, body) = send(&mut client, &token, MESSAGE).await;
        assert_eq!(status, expect);
        if expect == 429 {
            let details = &body["error"]["details"];
            assert_eq!(details[0]["errorCode"], "QUOTA_EXCEEDED");
            assert_eq!(details[1]["violations"][0]["subject"], "project");
        }
    }
}

#[tokio::test]
async fn the_dead_are_unregistered_and_faults_have_fcms_words() {
    let sim = start(|options| {
        (options.faults.dead_tokens, options.faults.throttle_rate) = (0.5, 1.0);
    });
    let mut client = connect(&sim).await;
    let token = token(&sim, &mut client).await;
    for number in 0..20 {
        let recipient = format!("device-{number}");
        let body = json!({ "message": { "token": recipient } }).to_string();
        let (status, answer) = send(&mut client, &token, &body).await;
        let code = &answer["error"]["details"][0]["errorCode"];
        if is_dead(&recipient, 0.5) {
            assert_eq!((status, code), (404, &json!("UNREGISTERED")));
        } else {
            assert_eq!((status, code), (429, &json!("QUOTA_EXCEEDED")));
            assert_eq!(answer["error"]["details"][1]["violations"][0]["subject"], "device");
        }
    }
}

//! As whom the APNs channel speaks: with a token that is kept, or with a certificate; and what an environment that is not
//! the devices' costs.

use std::path::Path;
use std::rc::Rc;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

use crate::apns::{PAYLOAD, PLENTY, Rig, answer_all, settings};
use crate::support::TlsListener;
use crate::support::frames::Peer;
use crate::support::jobs::{NOW, answer, beside, chunk, send, tokens, verdicts};
use channel::apns::{ApnsChannel, ProviderTokens};
use flow::Clock;
use notification::{Content, Timestamp, Verdict};

/// A certificate that `name` signs, with its key.
struct Made {
    authority: rcgen::Certificate,
    pem: String,
}

fn make() -> Made {
    let mut authority = CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority_key = KeyPair::generate().unwrap();
    let authority_certificate = authority.self_signed(&authority_key).unwrap();
    let key = KeyPair::generate().unwrap();
    let ours = CertificateParams::new(vec!["com.example.app".to_owned()]).unwrap();
    let ours = ours.signed_by(&key, &Issuer::new(authority, &authority_key)).unwrap();
    Made { authority: authority_certificate, pem: ours.pem() + &key.serialize_pem() }
}

fn with_certificate(pem: &str, directory: &Path) -> serde_json::Value {
    let file = directory.join("apns.pem");
    std::fs::write(&file, pem).unwrap();
    let none = serde_json::Value::Null;
    serde_json::json!({ "key": none, "key_id": none, "team_id": none, "certificate_file": file })
}

#[tokio::test]
async fn a_certificate_says_who_we_are_and_no_answer_has_to_be_waited_for() {
    let (made, directory) = (make(), tempfile::tempdir().unwrap());
    let listener = TlsListener::bind_asking(b"h2", made.authority.der().clone()).await;
    let rig = Rig::with(&listener, &with_certificate(&made.pem, directory.path()));
    let server = async move {
        let stream = listener.accept().await;
        assert!(stream.get_ref().1.peer_certificates().is_some());
        let mut peer = Peer::welcome(stream, PLENTY).await;
        let open = peer.settle().await;
        assert_eq!(open.len(), 5);
        for stream in open {
            peer.answer(stream, 200).await;
        }
        std::future::pending::<()>().await;
    };
    beside(server, async move {
        assert_eq!(verdicts(&rig.send(5).await), vec![Verdict::Accepted; 5]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_certificate_that_apns_does_not_know_reaches_nothing() {
    let (known, ours, directory) = (make(), make(), tempfile::tempdir().unwrap());
    let listener = TlsListener::bind_asking(b"h2", known.authority.der().clone()).await;
    let rig = Rig::with(&listener, &with_certificate(&ours.pem, directory.path()));
    let server = async move {
        loop {
            drop(listener.try_accept().await);
        }
    };
    beside(server, async move {
        assert_eq!(verdicts(&rig.send(1).await), [Verdict::Deferred { after: None }]);
    })
    .await;
}

#[tokio::test]
async fn a_young_token_is_not_sent_again_however_many_contents_there_are() {
    let listener = TlsListener::bind(b"h2").await;
    let clock = Clock::starting_at(NOW);
    let rig = Rig::at(clock, &listener, &serde_json::json!({}));
    let server = async move {
        let mut peer = Peer::welcome(listener.accept().await, PLENTY).await;
        for _ in 0..20 {
            let (stream, _) = peer.request().await.unwrap();
            peer.answer_with(stream, 403, r#"{"reason":"ExpiredProviderToken"}"#).await;
        }
        assert!(peer.request().await.is_none(), "the refused token was sent again");
    };
    beside(server, async {
        let mut chunk = chunk(clock, PAYLOAD, tokens(20));
        let content = chunk.content.take().unwrap();
        for delivery in &mut chunk.deliveries {
            // Each has a head of its own, more than are kept.
            let options = format!(r#"{{"collapse_id":"{}"}}"#, delivery.index).into();
            delivery.content = Some(Box::new(Content { options, ..content.clone() }));
        }
        let reports = send(&*rig.sender, clock, &chunk, 1000).await;
        assert_eq!(verdicts(&reports), [Verdict::Deferred { after: None }; 20]);
    })
    .await;
}

#[tokio::test]
async fn a_certificate_without_its_key_is_refused_by_its_file() {
    let (made, directory) = (make(), tempfile::tempdir().unwrap());
    let listener = TlsListener::bind(b"h2").await;
    let check = |pem: &str, expect: &str| {
        let settings = settings(&listener, &with_certificate(pem, directory.path()));
        let error =
            ApnsChannel::new(&settings, &ProviderTokens::default()).unwrap_err().to_string();
        assert!(error.contains("apns.pem") && error.contains(expect), "{error}");
    };
    let (certificate, key) = made.pem.split_at(made.pem.find("-----BEGIN PRIVATE KEY").unwrap());
    check(certificate, "the key cannot be read");
    check(key, "holds no certificate");
    check(
        &(certificate.to_owned() + &KeyPair::generate().unwrap().serialize_pem()),
        "cannot be used with its key",
    );
}

#[tokio::test]
async fn a_certificate_may_stand_in_the_settings_and_is_refused_without_being_shown() {
    let (made, listener) = (make(), TlsListener::bind(b"h2").await);
    let none = serde_json::Value::Null;
    let build = |certificate: &str, key: &serde_json::Value| {
        let more = serde_json::json!({
            "key": none, "key_id": none, "team_id": none, "certificate": certificate, "certificate_key": key,
        });
        ApnsChannel::new(&settings(&listener, &more), &ProviderTokens::default())
            .map(drop)
            .map_err(|error| error.to_string())
    };
    let (certificate, key) = made.pem.split_at(made.pem.find("-----BEGIN PRIVATE KEY").unwrap());
    assert_eq!(build(&made.pem, &none), Ok(()));
    assert_eq!(build(certificate, &key.into()), Ok(()));
    let error = build(key, &none).unwrap_err();
    assert_eq!(error, "certificate: holds no certificate");
    let line = key.replace('\n', "");
    let error = build(certificate, &line.as_str().into()).unwrap_err();
    assert!(
        error.starts_with("certificate_key: the key cannot be read: -----BEGIN ...----- and"),
        "{error}"
    );
    assert!(!error.contains(line.get(40..60).unwrap()) && !error.contains("45, 45"), "{error}");
}

#[tokio::test]
async fn a_token_that_apns_repeats_is_not_kept() {
    let (listener, directory) = (TlsListener::bind(b"h2").await, tempfile::tempdir().unwrap());
    let rig = Rig::with(&listener, &serde_json::json!({ "state_directory": directory.path() }));
    let path = directory.path().to_owned();
    let kept = move || {
        let file = std::fs::read_dir(&path).unwrap().next().unwrap().unwrap();
        std::fs::read_to_string(file.path()).unwrap().trim().replace("bearer ", "")
    };
    let kept_by_server = kept.clone();
    let server = async move {
        let mut peer = Peer::welcome(listener.accept().await, PLENTY).await;
        let (stream, _) = peer.request().await.unwrap();
        let body = serde_json::json!({ "reason": format!("bad: bearer {}!", kept_by_server()) });
        peer.answer_with(stream, 403, &body.to_string()).await;
        std::future::pending::<()>().await;
    };
    beside(server, async {
        let reports = rig.send(1).await;
        assert_eq!(answer(&reports[0]).detail, "bad: [hidden]!");
        assert_eq!(kept().split('.').count(), 3);
    })
    .await;
}

#[tokio::test]
async fn a_channel_to_the_wrong_environment_retires_no_device() {
    let listener = TlsListener::bind(b"h2").await;
    let rig = Rig::new(&listener);
    let server = async move {
        let mut peer = Peer::welcome(listener.accept().await, PLENTY).await;
        for status in [400, 200, 400] {
            let (stream, _) = peer.request().await.unwrap();
            let body = if status == 200 { "" } else { r#"{"reason":"BadDeviceToken"}"# };
            peer.answer_with(stream, status, body).await;
        }
        std::future::pending::<()>().await;
    };
    beside(server, async move {
        assert_eq!(verdicts(&rig.send(1).await), [Verdict::Refused { gone: false }]);
        assert_eq!(verdicts(&rig.send(1).await), [Verdict::Accepted]);
        assert_eq!(verdicts(&rig.send(1).await), [Verdict::Refused { gone: true }]);
    })
    .await;
}

#[tokio::test]
async fn since_when_a_device_is_gone_reaches_the_report() {
    let listener = TlsListener::bind(b"h2").await;
    let rig = Rig::new(&listener);
    let body = r#"{"reason":"Unregistered","timestamp":1700000000123}"#;
    beside(answer_all(Rc::clone(&listener), PLENTY, 410, body), async move {
        let reports = rig.send(1).await;
        let since = Some(Timestamp::from_millis(1_700_000_000_123));
        assert_eq!(answer(&reports[0]).gone_since, since);
    })
    .await;
}

#[tokio::test]
async fn a_restart_goes_on_with_the_token_of_before() {
    let directory = tempfile::tempdir().unwrap();
    let key = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap().serialize_pem();
    let more = serde_json::json!({ "key": key, "state_directory": directory.path().join("state") });
    let kept = || {
        let file = std::fs::read_dir(directory.path().join("state")).unwrap().next().unwrap();
        std::fs::read_to_string(file.unwrap().path()).unwrap()
    };
    let mut tokens = Vec::new();
    for _ in 0..3 {
        let listener = TlsListener::bind(b"h2").await;
        let rig = Rig::with(&listener, &more);
        beside(answer_all(listener, PLENTY, 200, ""), async {
            assert_eq!(verdicts(&rig.send(1).await), [Verdict::Accepted]);
        })
        .await;
        tokens.push(kept());
    }
    tokens.dedup();
    assert_eq!(tokens.len(), 1, "a crash loop must not mint tokens");
}

#[tokio::test]
async fn a_token_that_expires_within_a_job_costs_no_delivery_an_attempt() {
    let listener = TlsListener::bind(b"h2").await;
    let (clock, steering) = Clock::starting_at(NOW).steered();
    let rig = Rig::at(clock, &listener, &serde_json::json!({}));
    let server = async move {
        let mut peer = Peer::welcome(listener.accept().await, PLENTY).await;
        let (stream, _) = peer.request().await.unwrap();
        // Old enough to be renewed; as old as this one was out of a file, it is too old for APNs.
        steering.step(25 * 60_000);
        peer.answer(stream, 200).await;
        for status in [403, 200, 200] {
            let (stream, _) = peer.request().await.unwrap();
            peer.answer_with(stream, status, r#"{"reason":"ExpiredProviderToken"}"#).await;
        }
        assert!(peer.request().await.is_none(), "one more than is needed");
    };
    beside(server, async {
        let chunk = chunk(clock, PAYLOAD, tokens(3));
        let reports = send(&*rig.sender, clock, &chunk, 1).await;
        assert_eq!(verdicts(&reports), [Verdict::Accepted; 3]);
    })
    .await;
}

#[tokio::test]
async fn a_young_token_that_is_called_expired_is_not_sent_again() {
    let listener = TlsListener::bind(b"h2").await;
    let rig = Rig::new(&listener);
    let body = r#"{"reason":"ExpiredProviderToken"}"#;
    beside(answer_all(listener, PLENTY, 403, body), async {
        assert_eq!(verdicts(&rig.send(1).await), [Verdict::Deferred { after: None }]);
    })
    .await;
}

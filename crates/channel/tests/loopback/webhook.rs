//! The webhook channel against servers that behave, and against servers that do not. They read and write
//! HTTP/1.1 by hand.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use channel::webhook::{Settings, WebhookChannel};
use channel::{Channel as _, Sender, Tools};
use flow::Clock;
use notification::{Report, Verdict};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::support::TlsListener;
use crate::support::jobs::{NOW, answer, beside, chunk, send, verdicts};

const PAYLOAD: &str = "{ \"spaced\" :  [1,2] }\n";
const SECRET: &[u8; 32] = b"0123456789abcdef0123456789abcdef";
pub(crate) const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";

struct Rig {
    sender: Box<dyn Sender>,
    clock: Clock,
}

impl Rig {
    fn new(more: &serde_json::Value) -> Self {
        Self::at(Clock::starting_at(NOW), more)
    }

    fn at(clock: Clock, more: &serde_json::Value) -> Self {
        let settings = settings(more);
        let channel = WebhookChannel::new(&settings).unwrap();
        Self { sender: channel.open(Tools::new(clock, 1)).unwrap(), clock }
    }

    fn plain() -> Self {
        Self::new(&serde_json::json!({}))
    }

    async fn send(&self, urls: &[&str]) -> Vec<Report> {
        let chunk = chunk(self.clock, PAYLOAD, urls.iter().map(|&url| url.to_owned()));
        send(&*self.sender, self.clock, &chunk, 1).await
    }
}

/// The settings of a channel to loopback.
pub(crate) fn settings(more: &serde_json::Value) -> Settings {
    let mut settings = serde_json::json!({
        "secrets": [format!("whsec_{}", BASE64_STANDARD.encode(SECRET))],
        "allow_http": true,
        "allow_networks": ["127.0.0.0/8"],
    });
    for (name, value) in more.as_object().unwrap() {
        settings[name] = value.clone();
    }
    serde_json::from_value(settings).unwrap()
}

#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Received {
    fn header(&self, name: &str) -> &str {
        let values: Vec<_> = self
            .head
            .lines()
            .filter_map(|line| line.split_once(": "))
            .filter(|(other, _)| other.eq_ignore_ascii_case(name))
            .collect();
        assert_eq!(values.len(), 1, "{name} in {}", self.head);
        values[0].1
    }
}

/// Reads one request; `None` when the client has closed.
pub(crate) async fn read(stream: &mut (impl AsyncRead + Unpin)) -> Option<Received> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    let mut received = Received { head: String::from_utf8(head).unwrap(), body: Vec::new() };
    received.body = vec![0; received.header("content-length").parse().unwrap()];
    stream.read_exact(&mut received.body).await.unwrap();
    Some(received)
}

async fn write(stream: &mut (impl AsyncWrite + Unpin), text: &str) {
    stream.write_all(text.as_bytes()).await.unwrap();
    stream.flush().await.unwrap();
}

/// A plain listener and the URL of its endpoint.
pub(crate) async fn listen() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/hook?x=1", listener.local_addr().unwrap());
    (listener, url)
}

/// Accepts everything.
pub(crate) async fn accept_all(listener: TcpListener) {
    loop {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.set_nodelay(true).unwrap();
        tokio::task::spawn_local(async move {
            while read(&mut stream).await.is_some() {
                if stream.write_all(OK.as_bytes()).await.is_err() {
                    return;
                }
            }
        });
    }
}

/// Reads requests and closes their connections without a word.
pub(crate) async fn cut_all_off(listener: TcpListener) {
    loop {
        let (mut stream, _) = listener.accept().await.unwrap();
        read(&mut stream).await;
    }
}

/// Answers each connection's first request with what comes next, and closes.
async fn answer_each(listener: TcpListener, answers: Vec<String>) {
    for answer in answers {
        let (mut stream, _) = listener.accept().await.unwrap();
        read(&mut stream).await.unwrap();
        write(&mut stream, &answer).await;
    }
    std::future::pending::<()>().await;
}

async fn check(answers: &[&str], expect: &[Verdict]) {
    let (listener, url) = listen().await;
    let rig = Rig::plain();
    let answers = answers.iter().map(|&answer| answer.to_owned()).collect();
    beside(answer_each(listener, answers), async {
        for expect in expect {
            assert_eq!(verdicts(&rig.send(&[&url]).await), [*expect]);
        }
    })
    .await;
}

#[tokio::test]
async fn a_request_is_signed_and_carries_the_payload_byte_for_byte() {
    let listener = TlsListener::bind(b"http/1.1").await;
    let rig = Rig::new(&serde_json::json!({ "ca_file": listener.ca_file.path() }));
    let url = format!("{}/hook?x=1", listener.endpoint());
    let authority = listener.endpoint().replace("https://", "");
    let seen = Rc::new(RefCell::new(None));
    let slot = Rc::clone(&seen);
    let server = async move {
        let mut stream = listener.accept().await;
        slot.replace(read(&mut stream).await);
        write(&mut stream, OK).await;
        std::future::pending::<()>().await;
    };
    beside(server, async {
        assert_eq!(verdicts(&rig.send(&[&url]).await), [Verdict::Accepted]);
    })
    .await;
    let received = seen.take().unwrap();
    assert!(received.head.starts_with("POST /hook?x=1 HTTP/1.1\r\n"), "{}", received.head);
    assert_eq!(received.body, PAYLOAD.as_bytes());
    assert_eq!(received.header("host"), authority);
    assert_eq!(received.header("content-type"), "application/json");
    assert!(received.header("user-agent").starts_with("Belfry/"));
    assert_eq!(received.header("webhook-timestamp"), NOW.as_secs().to_string());
    let id = received.header("webhook-id");
    assert_eq!(id.len(), 36);
    let signed = format!("{id}.{}.{PAYLOAD}", NOW.as_secs());
    let signature = received.header("webhook-signature").strip_prefix("v1,").unwrap();
    hmac::verify(
        &hmac::Key::new(hmac::HMAC_SHA256, SECRET),
        signed.as_bytes(),
        &BASE64_STANDARD.decode(signature).unwrap(),
    )
    .unwrap();
}

#[tokio::test]
async fn the_reference_library_verifies_what_is_signed_with_either_secret() {
    let new = format!("whsec_{}", BASE64_STANDARD.encode([7; 64]));
    let old = format!("whsec_{}", BASE64_STANDARD.encode(SECRET));
    let key = format!("whsk_{}", BASE64_STANDARD.encode([9; 32]));
    let (listener, url) = listen().await;
    // The library goes by the time of the machine.
    let clock = Clock::system();
    let rig = Rig::at(clock, &serde_json::json!({ "secrets": [key, new, old] }));
    let seen = Rc::new(RefCell::new(None));
    let slot = Rc::clone(&seen);
    let server = async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        slot.replace(read(&mut stream).await);
        write(&mut stream, OK).await;
        std::future::pending::<()>().await;
    };
    beside(server, async {
        assert_eq!(verdicts(&rig.send(&[&url]).await), [Verdict::Accepted]);
    })
    .await;
    let received = seen.take().unwrap();
    let mut headers = http::HeaderMap::new();
    for name in ["webhook-id", "webhook-timestamp", "webhook-signature"] {
        headers.insert(name, received.header(name).parse().unwrap());
    }
    let verify = |secret: &str, body: &[u8]| {
        standardwebhooks::Webhook::new(secret).unwrap().verify(body, &headers)
    };
    verify(&old, &received.body).unwrap();
    verify(&new, &received.body).unwrap();
    verify(&old, b"{}").unwrap_err();
    verify(&format!("whsec_{}", BASE64_STANDARD.encode([8; 32])), &received.body).unwrap_err();
    // The library knows no keys of the other kind: a library of that kind does.
    let signatures: Vec<_> = received.header("webhook-signature").split(' ').collect();
    let signature = BASE64_STANDARD.decode(signatures[0].strip_prefix("v1a,").unwrap()).unwrap();
    let signature = ed25519_dalek::Signature::from_slice(&signature).unwrap();
    let (id, timestamp) = (received.header("webhook-id"), received.header("webhook-timestamp"));
    let signed = format!("{id}.{timestamp}.{PAYLOAD}");
    let public = ed25519_dalek::SigningKey::from_bytes(&[9; 32]).verifying_key();
    public.verify_strict(signed.as_bytes(), &signature).unwrap();
}

#[tokio::test]
async fn some_endpoints_have_their_own_headers_and_secrets() {
    let (listener, url) = listen().await;
    let own = format!("whsec_{}", BASE64_STANDARD.encode([7; 32]));
    let rig = Rig::new(&serde_json::json!({
        "endpoints": [{
            "url": url.replace("hook?x=1", "own"),
            "secrets": [own],
            "headers": { "authorization": "Bearer x", "x-tenant": "theirs" },
        }],
    }));
    let seen = Rc::new(RefCell::new(Vec::new()));
    let log = Rc::clone(&seen);
    let server = async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        while let Some(received) = read(&mut stream).await {
            log.borrow_mut().push(received);
            write(&mut stream, OK).await;
        }
    };
    beside(server, async {
        let own = url.replace("hook?x=1", "own/1");
        let mut chunk = chunk(rig.clock, PAYLOAD, [url.clone(), own]);
        let options = br#"{"headers":{"x-tenant":"ours"}}"#;
        chunk.content.as_mut().unwrap().options = notification::Bytes::from_static(options);
        let reports = send(&*rig.sender, rig.clock, &chunk, 1).await;
        assert_eq!(verdicts(&reports), [Verdict::Accepted; 2]);
    })
    .await;
    let seen = seen.borrow();
    assert!(!seen[0].head.to_lowercase().contains("authorization"), "{}", seen[0].head);
    assert_eq!(seen[1].header("authorization"), "Bearer x");
    assert_eq!(seen[1].header("x-tenant"), "ours", "a notification's own header comes first");
    for (received, secret) in [(&seen[0], SECRET.as_slice()), (&seen[1], &[7; 32])] {
        let signed = format!("{}.{}.{PAYLOAD}", received.header("webhook-id"), NOW.as_secs());
        let tag = received.header("webhook-signature").strip_prefix("v1,").unwrap();
        let tag = BASE64_STANDARD.decode(tag).unwrap();
        let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
        hmac::verify(&key, signed.as_bytes(), &tag).unwrap();
    }
}

#[tokio::test]
async fn who_wants_to_know_us_is_shown_a_certificate() {
    let ours = rcgen::generate_simple_self_signed(["belfry".to_owned()]).unwrap();
    let files = tempfile::tempdir().unwrap();
    let (certificate, key) = (files.path().join("client.pem"), files.path().join("key.pem"));
    std::fs::write(&certificate, ours.cert.pem()).unwrap();
    std::fs::write(&key, ours.signing_key.serialize_pem()).unwrap();
    let listener = TlsListener::bind_asking(b"http/1.1", ours.cert.der().clone()).await;
    let endpoint = listener.endpoint();
    let rig = Rig::new(&serde_json::json!({
        "ca_file": listener.ca_file.path(),
        "endpoints": [{
            "url": format!("{endpoint}/known"), "certificate_file": certificate, "key_file": key,
        }],
    }));
    let server = async move {
        loop {
            let Ok(mut stream) = listener.try_accept().await else { continue };
            tokio::task::spawn_local(async move {
                while read(&mut stream).await.is_some() {
                    write(&mut stream, OK).await;
                }
            });
        }
    };
    beside(server, async {
        let (known, unknown) = (format!("{endpoint}/known/1"), format!("{endpoint}/other"));
        assert_eq!(verdicts(&rig.send(&[&known]).await), [Verdict::Accepted]);
        // The same origin, and still not over the connection on which we are known.
        let reports = rig.send(&[&unknown]).await;
        assert_ne!(verdicts(&reports), [Verdict::Accepted]);
        assert_eq!(verdicts(&rig.send(&[&known]).await), [Verdict::Accepted]);
    })
    .await;
}

#[tokio::test]
async fn the_first_words_of_a_refusal_are_kept_and_escaped() {
    let (listener, url) = listen().await;
    let rig = Rig::plain();
    let body = format!("no such\ttenant\u{1b}[2J{}", "x".repeat(5_000));
    let refusal = format!("HTTP/1.1 422 x\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    beside(answer_each(listener, vec![refusal]), async {
        let reports = rig.send(&[&url]).await;
        assert_eq!(verdicts(&reports), [Verdict::Refused { gone: false }]);
        let detail = &answer(&reports[0]).detail;
        let expect = r"Unprocessable Entity: no such\ttenant\u{1b}[2Jxxx";
        assert!(detail.starts_with(expect), "{detail}");
        assert_eq!(detail.len(), notification::limits::DETAIL_BYTES);
    })
    .await;
}

#[tokio::test]
async fn a_connection_is_kept_and_used_again() {
    let (listener, url) = listen().await;
    let rig = Rig::plain();
    let server = async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.set_nodelay(true).unwrap();
        while read(&mut stream).await.is_some() {
            // The body comes after the head, as it does from real servers.
            write(&mut stream, "HTTP/1.1 201 Created\r\ncontent-length: 2\r\n\r\n").await;
            tokio::task::yield_now().await;
            write(&mut stream, "ok").await;
        }
    };
    beside(server, async {
        assert_eq!(verdicts(&rig.send(&[url.as_str(); 20]).await), [Verdict::Accepted; 20]);
    })
    .await;
}

#[tokio::test]
async fn a_kept_connection_that_was_closed_meanwhile_costs_nothing() {
    check(&[OK, OK, OK], &[Verdict::Accepted; 3]).await;
}

#[tokio::test]
async fn a_connection_cut_after_the_request_leaves_it_unknown_and_sends_it_once() {
    let (listener, url) = listen().await;
    let rig = Rig::plain();
    let requests = Rc::new(Cell::new(0));
    let counter = Rc::clone(&requests);
    let server = async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            while read(&mut stream).await.is_some() {
                counter.set(counter.get() + 1);
                if counter.get() != 1 {
                    break;
                }
                write(&mut stream, OK).await;
            }
        }
    };
    beside(server, async {
        assert_eq!(verdicts(&rig.send(&[&url]).await), [Verdict::Accepted]);
        let reports = rig.send(&[&url]).await;
        assert_eq!(verdicts(&reports), [Verdict::Unknown], "over the kept connection");
        assert_eq!(requests.get(), 2);
    })
    .await;
}

#[tokio::test]
async fn statuses_become_verdicts_and_redirects_are_not_followed() {
    let refused = Verdict::Refused { gone: false };
    check(&["HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\n\r\n"], &[refused]).await;
    check(&["HTTP/1.1 410 Gone\r\n\r\n"], &[Verdict::Refused { gone: true }]).await;
    let after = Some(Duration::from_secs(7));
    let deferred = Verdict::Deferred { after };
    check(&["HTTP/1.1 503 Service Unavailable\r\nretry-after: 7\r\n\r\n"], &[deferred]).await;
}

#[tokio::test]
async fn hostile_answers_are_judged_by_their_status_or_unknown() {
    let endless =
        format!("HTTP/1.1 200 OK\r\ncontent-length: 9000000\r\n\r\n{}", "x".repeat(60_000));
    check(&[&endless, OK], &[Verdict::Accepted; 2]).await;
    let many_headers = format!("HTTP/1.1 200 OK\r\n{}\r\n", "a: b\r\n".repeat(20_000));
    for garbage in ["", "\0\0\0\0", "SSH-2.0-x\r\n", "HTTP/1.1 999999 x\r\n\r\n", &many_headers] {
        check(&[garbage], &[Verdict::Unknown]).await;
    }
    let broken = "HTTP/1.1 400 Bad Request\r\ntransfer-encoding: chunked\r\n\r\nzzz\r\n";
    check(&[broken], &[Verdict::Refused { gone: false }]).await;
}

#[tokio::test]
async fn an_endpoint_that_is_not_there_defers() {
    let (listener, url) = listen().await;
    drop(listener);
    let rig = Rig::plain();
    beside(std::future::pending(), async {
        let reports = rig.send(&[&url]).await;
        assert_eq!(verdicts(&reports), [Verdict::Deferred { after: None }]);
        assert!(answer(&reports[0]).detail.starts_with("cannot connect to http://127.0.0.1"));
    })
    .await;
}

#[tokio::test]
async fn a_name_that_leads_inside_is_refused_when_it_is_connected_to() {
    let (listener, _) = listen().await;
    let port = listener.local_addr().unwrap().port();
    let rig = Rig::new(&serde_json::json!({ "allow_networks": [] }));
    let server = async move {
        listener.accept().await.unwrap();
        panic!("it was connected to");
    };
    beside(server, async {
        let reports = rig.send(&[&format!("http://localhost:{port}/")]).await;
        assert_eq!(verdicts(&reports), [Verdict::Refused { gone: false }]);
        let detail = &answer(&reports[0]).detail;
        assert!(detail.contains("is not a public address"), "{detail}");
    })
    .await;
}

#[test]
fn a_recipient_is_refused_before_it_is_stored() {
    let settings = serde_json::json!({
        "secrets": [format!("whsec_{}", BASE64_STANDARD.encode(SECRET))],
        "allow_ports": [443, 8443],
    });
    let settings: Settings = serde_json::from_value(settings).unwrap();
    let channel = WebhookChannel::new(&settings).unwrap();
    let check = |recipient: &str, expect: Result<&str, &str>| match channel.destination(recipient) {
        Ok(destination) => assert_eq!(Ok(&*destination), expect),
        Err(invalid) => assert!(invalid.message.contains(expect.unwrap_err()), "{invalid}"),
    };
    check("https://Example.com/a", Ok("https://example.com:443"));
    check("https://example.com:8443/a", Ok("https://example.com:8443"));
    check("https://example.com:80/", Err("has port 80, which is not allowed"));
    check("http://example.com/", Err("must start with https://"));
    check("https://10.0.0.1/", Err("10.0.0.1 is not a public address (private)"));
    check("https://[::ffff:10.0.0.1]/", Err("is not a public address"));
    check("https://0x7f.1/", Err("looks like an address"));
}

#[tokio::test]
async fn an_idle_connection_is_closed_after_a_minute() {
    let (listener, url) = listen().await;
    let rig = Rig::plain();
    let (closed, is_closed) = tokio::sync::oneshot::channel();
    let server = async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        read(&mut stream).await.unwrap();
        write(&mut stream, OK).await;
        tokio::time::pause();
        assert!(read(&mut stream).await.is_none());
        closed.send(()).unwrap();
    };
    beside(server, async {
        let started = rig.clock.monotonic();
        assert_eq!(verdicts(&rig.send(&[&url]).await), [Verdict::Accepted]);
        is_closed.await.unwrap();
        let took = rig.clock.monotonic() - started;
        assert!(took >= Duration::from_mins(1) && took <= Duration::from_mins(2), "{took:?}");
    })
    .await;
}

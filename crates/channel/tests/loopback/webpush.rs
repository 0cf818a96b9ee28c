//! The Web Push channel against push services that behave. The browsers behind them read with a library that is not
//! ours.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use channel::webpush::{Settings, VapidKey, WebPushChannel};
use channel::{Channel as _, Resolve, Sender, Tools};
use flow::Clock;
use http::{Request, Response, StatusCode};
use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use notification::{Priority, Report, Verdict};
use tokio::io::AsyncWriteExt as _;
use web_push_native::p256::SecretKey;
use web_push_native::{Auth, decrypt};

use crate::support::TlsListener;
use crate::support::frames::{HTTP_1_1_REQUIRED, Peer};
use crate::support::jobs::{NOW, beside, chunk, send, verdicts};
use crate::support::ssrf::Book;
use crate::webhook;

const PAYLOAD: &str = r#"{"title":"hello"}"#;
pub(crate) const PLENTY: u32 = 100;
pub(crate) const GONE: Verdict = Verdict::Refused { gone: true };

/// A browser that has subscribed.
pub(crate) struct Browser {
    secret: SecretKey,
    auth: [u8; 16],
}

impl Browser {
    /// The one with this number.
    pub(crate) fn new(number: u8) -> Self {
        let secret = SecretKey::from_slice(&[number.max(1); 32]).unwrap();
        Self { secret, auth: [number; 16] }
    }

    /// Its subscription at `endpoint`.
    pub(crate) fn recipient(&self, endpoint: &str) -> String {
        let point = BASE64_URL_SAFE_NO_PAD.encode(self.secret.public_key().to_sec1_bytes());
        let auth = BASE64_URL_SAFE_NO_PAD.encode(self.auth);
        format!("{endpoint}#p256dh={point}&auth={auth}")
    }

    fn read(&self, body: &[u8]) -> String {
        let auth = Auth::clone_from_slice(&self.auth);
        String::from_utf8(decrypt(body.to_vec(), &self.secret, &auth).unwrap()).unwrap()
    }
}

/// The settings of a channel to loopback, which trusts `listener`.
pub(crate) fn settings(listener: Option<&TlsListener>, more: &serde_json::Value) -> Settings {
    let mut settings = serde_json::json!({
        "key": VapidKey::generate().unwrap().private.expose(),
        "subject": "mailto:ops@example.com",
        "ca_file": listener.map(|listener| listener.ca_file.path()),
        "allow_networks": ["127.0.0.0/8"],
    });
    for (name, value) in more.as_object().unwrap() {
        settings[name] = value.clone();
    }
    serde_json::from_value(settings).unwrap()
}

pub(crate) struct Rig {
    sender: Box<dyn Sender>,
    clock: Clock,
    endpoint: String,
}

impl Rig {
    pub(crate) fn new(listener: &TlsListener) -> Self {
        Self::with(listener, &serde_json::json!({}))
    }

    pub(crate) fn with(listener: &TlsListener, more: &serde_json::Value) -> Self {
        let channel = WebPushChannel::new(&settings(Some(listener), more)).unwrap();
        let clock = Clock::starting_at(NOW);
        let sender = channel.open(Tools::new(clock, 1)).unwrap();
        Self { sender, clock, endpoint: format!("{}/push?x=1", listener.endpoint()) }
    }

    pub(crate) async fn send(&self, count: u8) -> Vec<Report> {
        let recipients = (0..count).map(|number| Browser::new(number).recipient(&self.endpoint));
        let chunk = chunk(self.clock, PAYLOAD, recipients);
        send(&*self.sender, self.clock, &chunk, 1000).await
    }
}

/// Answers every request on every connection with `status`, over HTTP/2.
pub(crate) async fn answer_all(listener: Rc<TlsListener>, status: u16) {
    loop {
        let stream = listener.accept().await;
        tokio::task::spawn_local(async move {
            let mut peer = Peer::welcome(stream, PLENTY).await;
            while let Some((stream, _)) = peer.request().await {
                peer.answer(stream, status).await;
            }
        });
    }
}

/// Answers every request on every connection with `text`, over HTTP/1.1.
pub(crate) async fn answer_all_http1(listener: Rc<TlsListener>, text: String) {
    loop {
        // A client that wanted HTTP/2 goes away.
        let Ok(mut stream) = listener.try_accept().await else { continue };
        let text = text.clone();
        tokio::task::spawn_local(async move {
            while webhook::read(&mut stream).await.is_some() {
                if stream.write_all(text.as_bytes()).await.is_err() {
                    return;
                }
                stream.flush().await.unwrap_or_default();
            }
        });
    }
}

/// Requests with their bodies.
type Kept = Rc<RefCell<Vec<(Request<()>, Vec<u8>)>>>;

/// A push service with a library's HTTP/2: keeps what it gets.
async fn keep_all(listener: Rc<TlsListener>, kept: Kept) {
    loop {
        let mut connection = h2::server::handshake(listener.accept().await).await.unwrap();
        let kept = Rc::clone(&kept);
        tokio::task::spawn_local(async move {
            while let Some(Ok((request, mut respond))) = connection.accept().await {
                let kept = Rc::clone(&kept);
                tokio::task::spawn_local(async move {
                    let (head, mut stream) = request.into_parts();
                    let mut body = Vec::new();
                    while let Some(Ok(piece)) = stream.data().await {
                        body.extend_from_slice(&piece);
                    }
                    kept.borrow_mut().push((Request::from_parts(head, ()), body));
                    let mut response = Response::new(());
                    *response.status_mut() = StatusCode::CREATED;
                    respond.send_response(response, true).unwrap();
                });
            }
        });
    }
}

/// The claims of the token in `authorization`, once its signature is verified.
fn claims(authorization: &str) -> serde_json::Value {
    let (token, public) =
        authorization.strip_prefix("vapid t=").unwrap().split_once(", k=").unwrap();
    let point = BASE64_URL_SAFE_NO_PAD.decode(public).unwrap();
    let [x, y] = [&point[1..33], &point[33..]].map(|part| BASE64_URL_SAFE_NO_PAD.encode(part));
    let mut validation = Validation::new(Algorithm::ES256);
    validation.validate_aud = false;
    validation.validate_exp = false;
    let key = DecodingKey::from_ec_components(&x, &y).unwrap();
    jsonwebtoken::decode(token, &key, &validation).unwrap().claims
}

#[tokio::test]
async fn a_message_says_who_sends_it_and_only_its_browser_can_read_it() {
    let listener = TlsListener::bind(b"h2").await;
    let rig = Rig::with(&listener, &serde_json::json!({ "ttl": "90s" }));
    let kept = Rc::new(RefCell::new(Vec::new()));
    let origin = listener.endpoint();
    beside(keep_all(listener, Rc::clone(&kept)), async {
        let mut chunk = chunk(rig.clock, PAYLOAD, [Browser::new(3).recipient(&rig.endpoint)]);
        chunk.envelope.lane.priority = Priority::Urgent;
        let reports = send(&*rig.sender, rig.clock, &chunk, 1).await;
        assert_eq!(verdicts(&reports), [Verdict::Accepted]);
        rig.sender.close().await;
    })
    .await;
    let kept = kept.borrow();
    let (request, body) = &kept[0];
    assert_eq!(request.uri().to_string(), format!("{origin}/push?x=1"));
    let header = |name: &str| request.headers()[name].to_str().unwrap();
    let found = ["ttl", "urgency", "content-encoding", "content-length"].map(header);
    let length = body.len().to_string();
    assert_eq!(found, ["90", "high", "aes128gcm", &length]);
    let claims = claims(header("authorization"));
    assert_eq!(
        (&claims["aud"], &claims["sub"]),
        (&origin.into(), &"mailto:ops@example.com".into())
    );
    let life = claims["exp"].as_u64().unwrap() - NOW.as_secs();
    assert!((12 * 3600..13 * 3600).contains(&life), "{life}");
    assert_eq!(body.len(), 86 + 128 + 17, "the length says nothing");
    assert_eq!(Browser::new(3).read(body), PAYLOAD);
}

#[tokio::test]
async fn a_hundred_messages_are_a_hundred_secrets_over_one_connection() {
    let listener = TlsListener::bind(b"h2").await;
    let rig = Rig::new(&listener);
    let kept = Rc::new(RefCell::new(Vec::new()));
    beside(keep_all(listener, Rc::clone(&kept)), async {
        assert_eq!(verdicts(&rig.send(100).await), [Verdict::Accepted; 100]);
        rig.sender.close().await;
    })
    .await;
    let kept = kept.borrow();
    let mut keys: Vec<_> = kept.iter().map(|(_, body)| body[..86].to_vec()).collect();
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), 100, "a key or a salt was used twice");
    let tokens: Vec<_> =
        kept.iter().map(|(request, _)| &request.headers()["authorization"]).collect();
    assert!(tokens.iter().all(|token| *token == tokens[0]), "one token serves an origin");
}

#[tokio::test]
async fn statuses_become_verdicts_over_both_versions_of_http() {
    let refused = Verdict::Refused { gone: false };
    let again = Verdict::Deferred { after: None };
    let mended_first = Verdict::Deferred { after: Some(Duration::from_mins(15)) };
    for (status, expect) in [
        (201, Verdict::Accepted),
        (202, Verdict::Accepted),
        (204, Verdict::Accepted),
        (301, refused),
        (307, refused),
        (400, refused),
        (401, mended_first),
        (403, mended_first),
        (404, GONE),
        (406, again),
        (410, GONE),
        (413, refused),
        (429, again),
        (500, again),
        (503, again),
    ] {
        let listener = TlsListener::bind(b"h2").await;
        let rig = Rig::new(&listener);
        beside(answer_all(listener, status), async {
            assert_eq!(verdicts(&rig.send(2).await), [expect; 2], "{status}");
        })
        .await;
        let listener = TlsListener::bind(b"http/1.1").await;
        let rig = Rig::new(&listener);
        let text = format!("HTTP/1.1 {status} Said\r\ncontent-length: 0\r\n\r\n");
        beside(answer_all_http1(listener, text), async {
            assert_eq!(verdicts(&rig.send(2).await), [expect; 2], "{status} over HTTP/1.1");
        })
        .await;
    }
}

#[tokio::test]
async fn a_key_that_no_subscription_knows_refuses_none_and_a_subscription_of_another_key_only_itself()
 {
    let mismatch = r#"{"code":401,"errno":109,"message":"VAPID public key mismatch"}"#;
    let listener = TlsListener::bind(b"h2").await;
    let rig = Rig::new(&listener);
    let server = async move {
        let mut peer = Peer::welcome(listener.accept().await, PLENTY).await;
        for (status, body) in [(401, mismatch), (401, mismatch), (201, ""), (401, mismatch)] {
            let (stream, _) = peer.request().await.unwrap();
            peer.answer_with(stream, status, body).await;
        }
        while peer.read().await.is_some() {}
    };
    let waits = Verdict::Deferred { after: Some(Duration::from_mins(15)) };
    let refused = Verdict::Refused { gone: false };
    beside(server, async {
        for expect in [waits, waits, Verdict::Accepted, refused] {
            assert_eq!(verdicts(&rig.send(1).await), [expect]);
        }
    })
    .await;
}

#[tokio::test]
async fn who_speaks_no_http2_is_spoken_to_in_http1_and_asked_once() {
    for protocol in [b"http/1.1".as_slice(), b""] {
        let listener = TlsListener::bind(protocol).await;
        let rig = Rig::new(&listener);
        let connections = Rc::new(Cell::new(0));
        let counter = Rc::clone(&connections);
        let heads = Rc::new(RefCell::new(Vec::new()));
        let log = Rc::clone(&heads);
        let server = async move {
            loop {
                let mut stream = listener.accept().await;
                counter.set(counter.get() + 1);
                while let Some(received) = webhook::read(&mut stream).await {
                    assert_eq!(Browser::new(0).read(&received.body), PAYLOAD);
                    log.borrow_mut().push(received.head);
                    stream
                        .write_all(b"HTTP/1.1 201 Created\r\ncontent-length: 0\r\n\r\n")
                        .await
                        .unwrap();
                    stream.flush().await.unwrap();
                }
            }
        };
        beside(server, async {
            for _ in 0..3 {
                assert_eq!(verdicts(&rig.send(1).await), [Verdict::Accepted]);
            }
        })
        .await;
        assert_eq!(connections.get(), 2, "one to find out, one for all messages");
        let head = heads.borrow()[0].to_ascii_lowercase();
        assert!(head.starts_with("post /push?x=1 http/1.1\r\n"), "{head}");
        assert_eq!(
            (heads.borrow().len(), head.matches("content-length").count()),
            (3, 1),
            "{head}"
        );
    }
}

#[tokio::test]
async fn who_wants_a_request_over_http1_gets_it_so() {
    let listener = TlsListener::bind(b"h2,http/1.1").await;
    let rig = Rig::new(&listener);
    let server = async move {
        let mut peer = Peer::welcome(listener.accept().await, PLENTY).await;
        let (stream, _) = peer.request().await.unwrap();
        peer.reset(stream, HTTP_1_1_REQUIRED).await;
        let mut stream = listener.accept().await;
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(b"http/1.1".as_slice()));
        webhook::read(&mut stream).await.unwrap();
        stream.write_all(b"HTTP/1.1 201 Created\r\ncontent-length: 0\r\n\r\n").await.unwrap();
        stream.flush().await.unwrap();
        std::future::pending::<()>().await;
    };
    beside(server, async {
        assert_eq!(verdicts(&rig.send(1).await), [Verdict::Accepted]);
    })
    .await;
}

#[tokio::test]
async fn a_service_that_speaks_only_http1_gets_few_connections() {
    let listener = TlsListener::bind(b"http/1.1").await;
    let rig = Rig::new(&listener);
    let connections = Rc::new(Cell::new(0));
    let counter = Rc::clone(&connections);
    let server = async move {
        loop {
            let mut stream = listener.accept().await;
            counter.set(counter.get() + 1);
            tokio::task::spawn_local(async move {
                while webhook::read(&mut stream).await.is_some() {
                    let answer = b"HTTP/1.1 201 Created\r\ncontent-length: 0\r\n\r\n";
                    stream.write_all(answer).await.unwrap();
                    stream.flush().await.unwrap();
                }
            });
        }
    };
    beside(server, async {
        assert_eq!(verdicts(&rig.send(200).await), [Verdict::Accepted; 200]);
    })
    .await;
    assert!(connections.get() <= 1 + 16, "{} connections", connections.get());
}

#[tokio::test]
async fn the_services_with_connections_are_bounded_and_the_idle_ones_go() {
    let listener = TlsListener::bind(b"h2").await;
    let open = Rc::new(Cell::new(0_usize));
    let opened = Rc::clone(&open);
    let port = listener.endpoint().rsplit_once(':').unwrap().1.to_owned();
    let book = Arc::new(Book::default());
    let channel = WebPushChannel::new(&settings(Some(&listener), &serde_json::json!({}))).unwrap();
    let clock = Clock::starting_at(NOW);
    let channel = channel.with_resolver(Arc::clone(&book) as Arc<dyn Resolve>);
    let sender = channel.open(Tools::new(clock, 1)).unwrap();
    let server = async move {
        loop {
            let stream = listener.accept().await;
            let opened = Rc::clone(&opened);
            tokio::task::spawn_local(async move {
                opened.set(opened.get() + 1);
                let mut peer = Peer::welcome(stream, PLENTY).await;
                while let Some((stream, _)) = peer.request().await {
                    peer.answer(stream, 201).await;
                }
                opened.set(opened.get() - 1);
            });
        }
    };
    beside(server, async {
        for number in 0..140 {
            let name = format!("s{number}.push.test");
            book.add(&name, &["127.0.0.1"]);
            let recipient = Browser::new(1).recipient(&format!("https://{name}:{port}/push"));
            let chunk = chunk(clock, PAYLOAD, [recipient]);
            assert_eq!(verdicts(&send(&*sender, clock, &chunk, 1).await), [Verdict::Accepted]);
            assert!(open.get() <= 129, "{} connections", open.get());
        }
        assert!(open.get() >= 127, "{} connections", open.get());
        sender.close().await;
    })
    .await;
}

#[test]
fn a_recipient_is_checked_and_spelled_in_one_way_before_it_is_stored() {
    let settings =
        settings(None, &serde_json::json!({ "allow_networks": [], "allow_ports": [443] }));
    let channel = WebPushChannel::new(&settings).unwrap();
    let browser = Browser::new(1);
    let canonical = browser.recipient("https://push.example/a");
    assert_eq!(
        channel.canonical(&browser.recipient("https://PUSH.example:443/a")),
        Ok(canonical.clone().into())
    );
    assert_eq!(channel.canonical(&canonical), Ok(canonical.as_str().into()));
    assert_eq!(&*channel.destination(&canonical).unwrap(), "https://push.example:443");
    let check = |recipient: &str, expect: &str| {
        let invalid = channel.destination(recipient).unwrap_err();
        assert!(invalid.message.contains(expect), "{recipient}: {invalid}");
    };
    check(&browser.recipient("https://push.example:8443/a"), "has port 8443, which is not allowed");
    check(&browser.recipient("https://10.0.0.1/a"), "10.0.0.1 is not a public address");
    check(&browser.recipient("http://push.example/a"), "must start with https://");
    let off_the_curve = BASE64_URL_SAFE_NO_PAD.encode([4; 65]);
    let auth = BASE64_URL_SAFE_NO_PAD.encode([1; 16]);
    check(
        &format!("https://push.example/#p256dh={off_the_curve}&auth={auth}"),
        "not a point on P-256",
    );
}

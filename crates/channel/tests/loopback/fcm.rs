//! The FCM channel against a server that behaves, and against servers that do not; with a token endpoint beside it.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use crate::support::TlsListener;
use crate::support::frames::Peer;
use crate::support::jobs::{NOW, answer, beside, chunk, send, send_within, verdicts};
use crate::support::tokens::{TokenEndpoint, account_json};
use channel::fcm::{FcmChannel, Settings};
use channel::{Channel as _, Sender, Tools};
use flow::{Clock, Quota};
use notification::{Report, Verdict};

const PAYLOAD: &str = r#"{"notification":{"title":"hello"}}"#;
pub(crate) const NAME: &str = r#"{"name":"projects/shop/messages/0:1"}"#;
const PLENTY: u32 = 100;

/// A channel to a listener, and its token endpoint.
struct Rig {
    sender: Box<dyn Sender>,
    quota: Arc<Quota>,
    clock: Clock,
    listener: Rc<TlsListener>,
    tokens: Rc<TokenEndpoint>,
}

impl Rig {
    async fn new() -> Self {
        Self::with(&serde_json::json!({})).await
    }

    async fn with(more: &serde_json::Value) -> Self {
        let listener = TlsListener::bind(b"h2").await;
        let tokens = TokenEndpoint::bind().await;
        let ca_file = both(&listener, &tokens);
        let settings = settings(&listener, &tokens, ca_file.path(), more);
        let clock = Clock::starting_at(NOW);
        let channel = FcmChannel::new(&settings).unwrap();
        let sender = channel.open(Tools::new(clock, 1)).unwrap();
        let quota = Quota::new(channel.bounds().messages_per_minute);
        Self { sender, quota: Arc::new(quota), clock, listener, tokens }
    }

    async fn send(&self, count: u16) -> Vec<Report> {
        self.send_to((0..count).map(|number| format!("token-{number}"))).await
    }

    async fn send_to(&self, recipients: impl IntoIterator<Item = String>) -> Vec<Report> {
        let chunk = chunk(self.clock, PAYLOAD, recipients);
        send_within(&self.quota, &*self.sender, self.clock, &chunk).await
    }

    /// Runs `client` beside `server` and a token endpoint that grants.
    async fn run(
        &self,
        server: impl Future<Output = ()> + 'static,
        client: impl Future<Output = ()>,
    ) {
        let tokens = Rc::clone(&self.tokens);
        let servers = async move {
            tokio::join!(server, tokens.grant_all());
        };
        beside(servers, client).await;
    }
}

/// A file with the certificates of both.
pub(crate) fn both(listener: &TlsListener, tokens: &TokenEndpoint) -> tempfile::NamedTempFile {
    let read = |listener: &TlsListener| std::fs::read_to_string(listener.ca_file.path()).unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), read(listener) + &read(&tokens.listener)).unwrap();
    file
}

/// The settings of a channel to `listener`.
pub(crate) fn settings(
    listener: &TlsListener,
    tokens: &TokenEndpoint,
    ca_file: &std::path::Path,
    more: &serde_json::Value,
) -> Settings {
    let mut settings = serde_json::json!({
        "service_account": account_json(),
        "endpoint": listener.endpoint(),
        "token_uri": format!("{}/token", tokens.listener.endpoint()),
        "ca_file": ca_file,
    });
    for (name, value) in more.as_object().unwrap() {
        settings[name] = value.clone();
    }
    serde_json::from_value(settings).unwrap()
}

/// Answers every request on every connection in the same way.
pub(crate) async fn answer_all(listener: Rc<TlsListener>, status: u16, body: &'static str) {
    loop {
        let stream = listener.accept().await;
        tokio::task::spawn_local(async move {
            let mut peer = Peer::welcome(stream, PLENTY).await;
            while let Some((stream, _)) = peer.request().await {
                peer.answer_with(stream, status, body).await;
            }
        });
    }
}

fn all(verdict: Verdict, count: usize) -> Vec<Verdict> {
    vec![verdict; count]
}

#[tokio::test]
async fn a_whole_chunk_is_accepted_with_one_access_token() {
    let rig = Rig::new().await;
    rig.run(answer_all(Rc::clone(&rig.listener), 200, NAME), async {
        assert_eq!(verdicts(&rig.send(1000).await), all(Verdict::Accepted, 1000));
        assert_eq!(verdicts(&rig.send(10).await), all(Verdict::Accepted, 10));
        assert_eq!(rig.tokens.granted.get(), 1);
        rig.sender.close().await;
    })
    .await;
}

#[tokio::test]
async fn jobs_that_begin_together_ask_for_one_token() {
    let rig = Rig::new().await;
    rig.run(answer_all(Rc::clone(&rig.listener), 200, NAME), async {
        let (one, other) = tokio::join!(rig.send(5), rig.send(5));
        assert_eq!(verdicts(&one), all(Verdict::Accepted, 5));
        assert_eq!(verdicts(&other), all(Verdict::Accepted, 5));
        assert_eq!(rig.tokens.granted.get(), 1);
    })
    .await;
}

#[tokio::test]
async fn a_message_goes_out_as_the_api_wants_it() {
    let rig = Rig::new().await;
    let bodies = Rc::new(RefCell::new(Vec::new()));
    let (listener, seen) = (Rc::clone(&rig.listener), Rc::clone(&bodies));
    let server = async move {
        let mut peer = Peer::welcome(listener.accept().await, PLENTY).await;
        while let Some((stream, body)) = peer.request().await {
            seen.borrow_mut().push(body);
            peer.answer_with(stream, 200, NAME).await;
        }
    };
    rig.run(server, async {
        let to = ["a:b".to_owned(), "/topics/news".to_owned()];
        assert_eq!(verdicts(&rig.send_to(to).await), all(Verdict::Accepted, 2));
    })
    .await;
    assert_eq!(
        *bodies.borrow(),
        [
            r#"{"message":{"token":"a:b","notification":{"title":"hello"}}}"#,
            r#"{"message":{"topic":"news","notification":{"title":"hello"}}}"#,
        ]
    );
}

#[tokio::test]
async fn a_reason_reaches_the_report() {
    let rig = Rig::new().await;
    let body = r#"{"error":{"status":"NOT_FOUND","message":"x","details":[{"@type":"type.googleapis.com/google.firebase.fcm.v1.FcmError","errorCode":"UNREGISTERED"}]}}"#;
    rig.run(answer_all(Rc::clone(&rig.listener), 404, body), async {
        let reports = rig.send(3).await;
        assert_eq!(verdicts(&reports), all(Verdict::Refused { gone: true }, 3));
        assert_eq!(answer(&reports[0]).detail, "UNREGISTERED: x");
    })
    .await;
}

#[tokio::test]
async fn a_new_connection_carries_as_many_requests_as_it_grants() {
    let rig = Rig::with(&serde_json::json!({ "connections_max": 1 })).await;
    let listener = Rc::clone(&rig.listener);
    let server = async move {
        let mut peer = Peer::welcome(listener.accept().await, 20).await;
        let open = peer.settle().await;
        assert_eq!(open.len(), 20, "none waits for the first answer");
        for stream in open {
            peer.answer_with(stream, 200, NAME).await;
        }
        while let Some((stream, _)) = peer.request().await {
            peer.answer_with(stream, 200, NAME).await;
        }
    };
    rig.run(server, async {
        assert_eq!(verdicts(&rig.send(30).await), all(Verdict::Accepted, 30));
    })
    .await;
}

/// Answers the requests of one connection with `statuses`, one after the other.
async fn answer_in_turn(listener: Rc<TlsListener>, statuses: Vec<u16>) {
    let mut peer = Peer::welcome(listener.accept().await, PLENTY).await;
    for status in statuses {
        let (stream, _) = peer.request().await.unwrap();
        peer.answer_with(stream, status, "{}").await;
    }
    assert!(peer.request().await.is_none(), "one request too many");
}

#[tokio::test]
async fn a_token_that_is_not_accepted_any_more_is_renewed_and_the_message_sent_again() {
    let rig = Rig::new().await;
    rig.run(answer_in_turn(Rc::clone(&rig.listener), vec![200, 401, 200, 200]), async {
        assert_eq!(verdicts(&rig.send(1).await), [Verdict::Accepted]);
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(90)).await;
        tokio::time::resume();
        assert_eq!(verdicts(&rig.send(1).await), [Verdict::Accepted]);
        assert_eq!(verdicts(&rig.send(1).await), [Verdict::Accepted]);
        assert_eq!(rig.tokens.granted.get(), 2);
    })
    .await;
}

#[tokio::test]
async fn a_token_that_was_accepted_is_renewed_at_once_however_young_it_is() {
    let rig = Rig::new().await;
    let statuses = vec![200, 401, 200, 401, 401];
    rig.run(answer_in_turn(Rc::clone(&rig.listener), statuses), async {
        assert_eq!(verdicts(&rig.send(1).await), [Verdict::Accepted]);
        assert_eq!(verdicts(&rig.send(1).await), [Verdict::Accepted]);
        assert_eq!(rig.tokens.granted.get(), 2);
        let later = Verdict::Deferred { after: Some(Duration::from_mins(15)) };
        assert_eq!(verdicts(&rig.send(1).await), [later], "nor is the next one accepted");
        assert_eq!(rig.tokens.granted.get(), 3);
    })
    .await;
}

#[tokio::test]
async fn a_fresh_token_that_is_not_accepted_makes_the_message_wait_and_asks_for_no_other() {
    let rig = Rig::new().await;
    let later = Verdict::Deferred { after: Some(Duration::from_mins(15)) };
    rig.run(answer_in_turn(Rc::clone(&rig.listener), vec![401, 401]), async {
        assert_eq!(verdicts(&rig.send(1).await), [later]);
        assert_eq!(verdicts(&rig.send(1).await), [later]);
        assert_eq!(rig.tokens.granted.get(), 1);
    })
    .await;
}

#[tokio::test]
async fn without_a_token_nothing_is_sent_and_the_reason_is_told() {
    let check = async |status: u16, body: String, after: Option<Duration>, detail: &str| {
        let rig = Rig::new().await;
        let (listener, tokens) = (Rc::clone(&rig.listener), Rc::clone(&rig.tokens));
        let servers = async move {
            tokio::select! {
                () = tokens.answer_all(status, &body) => {}
                _ = listener.accept() => panic!("something was sent"),
            }
        };
        beside(servers, async {
            let reports = rig.send(2).await;
            assert_eq!(verdicts(&reports), all(Verdict::Deferred { after }, 2));
            let found = &answer(&reports[0]).detail;
            assert!(found.contains(detail) && found.len() <= 200, "{found}");
        })
        .await;
    };
    let said =
        r#"{"error":"invalid_grant","error_description":"Invalid JWT Signature."}"#.to_owned();
    let later = Some(Duration::from_mins(15));
    check(400, said, later, "status 400: invalid_grant Invalid JWT Signature.").await;
    check(503, String::new(), None, "status 503").await;
    check(200, "x".repeat(10_000_000), None, "length limit exceeded").await;
    check(200, "{\"access_token\":7}".to_owned(), None, "is not JSON with access_token").await;
}

#[tokio::test]
async fn a_token_endpoint_that_says_nothing_is_given_up() {
    let rig = Rig::new().await;
    let tokens = Rc::clone(&rig.tokens);
    let server = async move {
        let silent = tokens.listener.accept().await;
        tokio::time::pause();
        std::future::pending::<()>().await;
        drop(silent);
    };
    beside(server, async {
        let reports = rig.send(1).await;
        assert_eq!(verdicts(&reports), [Verdict::Deferred { after: None }]);
        assert!(answer(&reports[0]).detail.contains("no answer within 10 s"), "{reports:?}");
    })
    .await;
}

#[tokio::test]
async fn messages_over_the_quota_wait_or_go_back() {
    let rig = Rig::with(&serde_json::json!({ "messages_per_minute": 20 })).await;
    rig.run(answer_all(Rc::clone(&rig.listener), 200, NAME), async {
        assert_eq!(verdicts(&rig.send(1).await), [Verdict::Accepted]);
        tokio::time::pause();
        let started = rig.clock.monotonic();
        let reports = rig.send(3).await;
        assert_eq!(verdicts(&reports[..1]), [Verdict::Accepted]);
        let waited = rig.clock.monotonic() - started;
        assert!(waited > Duration::from_secs(3) && waited < Duration::from_secs(4), "{waited:?}");
        for report in &reports[1..] {
            assert_eq!(*report, Report::HandedBack { after: Duration::from_secs(2) });
        }
    })
    .await;
}

#[tokio::test]
async fn a_project_that_used_up_its_quota_sends_nothing_for_a_minute() {
    // With a quota of our own, and without.
    for messages_per_minute in [600_000, 0] {
        let more = serde_json::json!({ "messages_per_minute": messages_per_minute });
        let rig = Rig::with(&more).await;
        rig.run(answer_in_turn(Rc::clone(&rig.listener), vec![429]), async {
            let wait = Duration::from_mins(1);
            assert_eq!(verdicts(&rig.send(1).await), [Verdict::Deferred { after: Some(wait) }]);
            for report in rig.send(5).await {
                let is_held_back = matches!(report, Report::HandedBack { after } if after <= wait);
                assert!(is_held_back, "{messages_per_minute}: {report:?}");
            }
        })
        .await;
    }
}

#[tokio::test]
async fn a_connection_cut_at_any_point_is_unknown_where_fcm_may_have_acted() {
    // What the server still does before it cuts the connection.
    let check = async |point: &'static str, expect: Verdict| {
        let rig = Rig::new().await;
        let listener = Rc::clone(&rig.listener);
        let cut = Rc::new(Cell::new(false));
        let server = async move {
            loop {
                let mut peer = Peer::welcome(listener.accept().await, PLENTY).await;
                let (stream, _) = peer.request().await.unwrap();
                if cut.replace(true) {
                    peer.answer_with(stream, 200, NAME).await;
                    while peer.read().await.is_some() {}
                    continue;
                }
                match point {
                    "request" => {}
                    "refused" => peer.refuse(stream).await,
                    "above the last stream" => peer.go_away(0).await,
                    "at the last stream" => peer.go_away(stream).await,
                    "head" => peer.head(stream, 200, 0).await,
                    "head of an error" => peer.head(stream, 500, 0).await,
                    "garbage" => peer.write(1, 5, stream, &[0xff, 0xff, 0xff, 0xff, 0x0f]).await,
                    "endless head" => {
                        peer.write(1, 0, stream, &[b'x'; 16_000]).await;
                        for _ in 0..700 {
                            peer.write(9, 0, stream, &[b'x'; 16_000]).await;
                        }
                    }
                    _ => panic!("{point}"),
                }
            }
        };
        rig.run(server, async {
            assert_eq!(verdicts(&rig.send(1).await), [expect], "{point}");
        })
        .await;
    };
    check("request", Verdict::Unknown).await;
    check("refused", Verdict::Accepted).await;
    check("above the last stream", Verdict::Accepted).await;
    check("at the last stream", Verdict::Unknown).await;
    check("head", Verdict::Accepted).await;
    check("head of an error", Verdict::Deferred { after: Some(Duration::from_secs(10)) }).await;
    check("garbage", Verdict::Unknown).await;
    check("endless head", Verdict::Unknown).await;
}

#[tokio::test]
async fn what_a_topic_does_not_take_is_refused_before_it_is_sent() {
    let rig = Rig::new().await;
    rig.run(answer_all(Rc::clone(&rig.listener), 200, NAME), async {
        let payload = format!(r#"{{"data":{{"k":"{}"}}}}"#, "x".repeat(3000));
        let to = ["a:b".to_owned(), "/topics/news".to_owned()];
        let chunk = chunk(rig.clock, &payload, to);
        let reports = send(&*rig.sender, rig.clock, &chunk, 10).await;
        let refused = Verdict::Refused { gone: false };
        assert_eq!(verdicts(&reports), [Verdict::Accepted, refused]);
        assert!(answer(&reports[1]).detail.contains("953 more than the 2048"), "{reports:?}");
    })
    .await;
}

//! The APNs channel against a server that behaves, and against servers that do not.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::support::TlsListener;
use crate::support::frames::{INTERNAL_ERROR, Peer};
use crate::support::jobs::{NOW, answer, beside, chunk, send, tokens, verdicts};
use channel::apns::{ApnsChannel, ProviderTokens, Settings};
use channel::{Channel as _, Sender, Tools};
use flow::Clock;
use notification::{Priority, Report, Verdict};

pub(crate) const PAYLOAD: &str = r#"{"aps":{"alert":"hello"}}"#;
pub(crate) const PLENTY: u32 = 1000;

pub(crate) struct Rig {
    pub(crate) sender: Box<dyn Sender>,
    pub(crate) clock: Clock,
}

impl Rig {
    pub(crate) fn new(listener: &TlsListener) -> Self {
        Self::with(listener, &serde_json::json!({}))
    }

    pub(crate) fn with(listener: &TlsListener, more: &serde_json::Value) -> Self {
        Self::at(Clock::starting_at(NOW), listener, more)
    }

    pub(crate) fn at(clock: Clock, listener: &TlsListener, more: &serde_json::Value) -> Self {
        let settings = settings(listener, more);
        let channel = ApnsChannel::new(&settings, &ProviderTokens::default()).unwrap();
        Self { sender: channel.open(Tools::new(clock, 1)).unwrap(), clock }
    }

    pub(crate) async fn send(&self, count: u16) -> Vec<Report> {
        let chunk = chunk(self.clock, PAYLOAD, tokens(count));
        send(&*self.sender, self.clock, &chunk, 1000).await
    }
}

/// The settings of a channel to `listener`.
pub(crate) fn settings(listener: &TlsListener, more: &serde_json::Value) -> Settings {
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
    let mut settings = serde_json::json!({
        "key": key.serialize_pem(),
        "key_id": "KEY0123456",
        "team_id": "TEAM012345",
        "topic": "com.example.app",
        "endpoint": listener.endpoint(),
        "ca_file": listener.ca_file.path(),
    });
    for (name, value) in more.as_object().unwrap() {
        settings[name] = value.clone();
    }
    serde_json::from_value(settings).unwrap()
}

/// Answers every request on every connection in the same way.
pub(crate) async fn answer_all(
    listener: Rc<TlsListener>,
    streams: u32,
    status: u16,
    body: &'static str,
) {
    loop {
        let stream = listener.accept().await;
        tokio::task::spawn_local(async move {
            let mut peer = Peer::welcome(stream, streams).await;
            while let Some((stream, _)) = peer.request().await {
                peer.answer_with(stream, status, body).await;
            }
        });
    }
}

pub(crate) fn all(verdict: Verdict, count: usize) -> Vec<Verdict> {
    vec![verdict; count]
}

#[tokio::test]
async fn a_whole_chunk_is_accepted() {
    let listener = TlsListener::bind(b"h2").await;
    let rig = Rig::new(&listener);
    beside(answer_all(listener, PLENTY, 200, ""), async move {
        assert_eq!(verdicts(&rig.send(1000).await), all(Verdict::Accepted, 1000));
        rig.sender.close().await;
    })
    .await;
}

#[tokio::test]
async fn a_reason_reaches_the_report() {
    let listener = TlsListener::bind(b"h2").await;
    let rig = Rig::new(&listener);
    beside(answer_all(listener, PLENTY, 410, r#"{"reason":"Unregistered"}"#), async move {
        let reports = rig.send(3).await;
        assert_eq!(verdicts(&reports), all(Verdict::Refused { gone: true }, 3));
        assert_eq!(answer(&reports[0]).detail, "Unregistered");
    })
    .await;
}

#[tokio::test]
async fn what_a_goaway_did_not_process_goes_over_another_connection() {
    let listener = TlsListener::bind(b"h2").await;
    let rig = Rig::new(&listener);
    let resent = Rc::new(Cell::new(0));
    let counter = Rc::clone(&resent);
    let server = async move {
        let mut old = Peer::welcome(listener.accept().await, PLENTY).await;
        let (primer, _) = old.request().await.unwrap();
        old.answer(primer, 200).await;
        let mut streams = Vec::new();
        while streams.len() < 9 {
            streams.push(old.request().await.unwrap().0);
        }
        old.go_away(streams[4]).await;
        let mut new = Peer::welcome(listener.accept().await, PLENTY).await;
        for _ in 5..9 {
            let (stream, _) = new.request().await.unwrap();
            counter.set(counter.get() + 1);
            new.answer(stream, 200).await;
        }
        for &stream in &streams[..5] {
            old.answer(stream, 200).await;
        }
        assert!(old.request().await.is_none(), "the old connection takes no more");
        std::future::pending::<()>().await;
    };
    beside(server, async move {
        assert_eq!(verdicts(&rig.send(10).await), all(Verdict::Accepted, 10));
        assert_eq!(resent.get(), 4);
    })
    .await;
}

#[tokio::test]
async fn what_a_goaway_may_have_processed_is_unknown_when_its_answer_is_cut_off() {
    let listener = TlsListener::bind(b"h2").await;
    let rig = Rig::new(&listener);
    let server = async move {
        let mut peer = Peer::welcome(listener.accept().await, PLENTY).await;
        let (stream, _) = peer.request().await.unwrap();
        peer.go_away(stream).await;
        drop(peer);
        std::future::pending::<()>().await;
    };
    beside(server, async move {
        assert_eq!(verdicts(&rig.send(1).await), [Verdict::Unknown]);
    })
    .await;
}

#[tokio::test]
async fn a_connection_cut_after_the_request_leaves_it_unknown() {
    let listener = TlsListener::bind(b"h2").await;
    let rig = Rig::new(&listener);
    let server = async move {
        let mut peer = Peer::welcome(listener.accept().await, PLENTY).await;
        peer.request().await.unwrap();
        drop(peer);
        answer_all(listener, PLENTY, 200, "").await;
    };
    beside(server, async move {
        let reports = rig.send(1).await;
        assert_eq!(verdicts(&reports), [Verdict::Unknown]);
        assert!(answer(&reports[0]).detail.starts_with("no answer"), "{reports:?}");
        assert_eq!(verdicts(&rig.send(1).await), [Verdict::Accepted], "over a new connection");
    })
    .await;
}

#[tokio::test]
async fn a_refused_stream_is_tried_again_and_a_reset_one_is_not() {
    let listener = TlsListener::bind(b"h2").await;
    let rig = Rig::new(&listener);
    let server = async move {
        let mut peer = Peer::welcome(listener.accept().await, PLENTY).await;
        let (first, _) = peer.request().await.unwrap();
        peer.refuse(first).await;
        let (again, _) = peer.request().await.unwrap();
        peer.answer(again, 200).await;
        let (other, _) = peer.request().await.unwrap();
        peer.reset(other, INTERNAL_ERROR).await;
        while let Some((stream, _)) = peer.request().await {
            peer.refuse(stream).await;
        }
    };
    beside(server, async move {
        assert_eq!(verdicts(&rig.send(1).await), [Verdict::Accepted]);
        assert_eq!(verdicts(&rig.send(1).await), [Verdict::Unknown]);
        let refused = verdicts(&rig.send(1).await);
        assert_eq!(refused, [Verdict::Deferred { after: None }], "after a bounded number of tries");
    })
    .await;
}

#[tokio::test]
async fn a_new_connection_carries_one_request_until_it_is_answered() {
    let listener = TlsListener::bind(b"h2").await;
    let rig = Rig::new(&listener);
    let server = async move {
        let mut peer = Peer::welcome(listener.accept().await, PLENTY).await;
        let open = peer.settle().await;
        assert_eq!(open.len(), 1);
        peer.answer(open[0], 200).await;
        let open = peer.settle().await;
        assert_eq!(open.len(), 19);
        for stream in open {
            peer.answer(stream, 200).await;
        }
        std::future::pending::<()>().await;
    };
    beside(server, async move {
        assert_eq!(verdicts(&rig.send(20).await), all(Verdict::Accepted, 20));
    })
    .await;
}

#[tokio::test]
async fn streams_are_granted_and_withdrawn_without_a_failure() {
    let listener = TlsListener::bind(b"h2").await;
    let rig = Rig::with(&listener, &serde_json::json!({ "connections_max": 1 }));
    let server = async move {
        let mut peer = Peer::welcome(listener.accept().await, 5).await;
        let mut open = peer.settle().await;
        for granted in [5, 1, 1, 5, 500, 1, 500] {
            peer.grant(granted).await;
            for stream in open.drain(..) {
                peer.answer(stream, 200).await;
            }
            open = peer.settle().await;
            assert!(open.len() <= granted as usize, "{} of {granted}", open.len());
            assert!(!open.is_empty());
        }
        for stream in open {
            peer.answer(stream, 200).await;
        }
        while let Some((stream, _)) = peer.request().await {
            peer.answer(stream, 200).await;
        }
    };
    beside(server, async move {
        assert_eq!(verdicts(&rig.send(1000).await), all(Verdict::Accepted, 1000));
    })
    .await;
}

#[tokio::test]
async fn five_hundred_streams_that_become_one_and_five_hundred_again_are_followed() {
    let listener = TlsListener::bind(b"h2").await;
    let rig = Rig::with(&listener, &serde_json::json!({ "connections_max": 1 }));
    let server = async move {
        let mut peer = Peer::welcome(listener.accept().await, 500).await;
        for (granted, begun) in [(500, 1), (1, 500), (500, 1), (500, 498)] {
            let open = peer.settle().await;
            assert_eq!(open.len(), begun);
            peer.grant(granted).await;
            for stream in open {
                peer.answer(stream, 200).await;
            }
        }
        std::future::pending::<()>().await;
    };
    beside(server, async move {
        assert_eq!(verdicts(&rig.send(1000).await), all(Verdict::Accepted, 1000));
    })
    .await;
}

#[tokio::test]
async fn more_connections_open_when_all_streams_are_in_use_up_to_the_limit() {
    let listener = TlsListener::bind(b"h2").await;
    let rig = Rig::with(&listener, &serde_json::json!({ "connections_max": 3 }));
    let server = async move {
        let mut peers = Vec::new();
        for _ in 0..3 {
            let mut peer = Peer::welcome(listener.accept().await, 2).await;
            let (primer, _) = peer.request().await.unwrap();
            peer.answer(primer, 200).await;
            let held = peer.settle().await;
            assert_eq!(held.len(), 2);
            peers.push((peer, held));
        }
        for (mut peer, held) in peers {
            tokio::task::spawn_local(async move {
                for stream in held {
                    peer.answer(stream, 200).await;
                }
                while let Some((stream, _)) = peer.request().await {
                    peer.answer(stream, 200).await;
                }
            });
        }
        listener.accept().await;
        panic!("a fourth connection");
    };
    beside(server, async move {
        assert_eq!(verdicts(&rig.send(100).await), all(Verdict::Accepted, 100));
    })
    .await;
}

#[tokio::test]
async fn the_urgent_do_not_queue_behind_a_campaign() {
    let listener = TlsListener::bind(b"h2").await;
    let rig = Rig::with(&listener, &serde_json::json!({ "connections_max": 1 }));
    let order = Rc::new(RefCell::new(Vec::new()));
    let seen = Rc::clone(&order);
    let server = async move {
        let mut peer = Peer::welcome(listener.accept().await, 1).await;
        while let Some((stream, body)) = peer.request().await {
            seen.borrow_mut().push(body);
            peer.answer(stream, 200).await;
        }
    };
    beside(server, async move {
        let campaign = chunk(rig.clock, r#"{"aps":{},"k":"bulk"}"#, tokens(10));
        let mut urgent = chunk(rig.clock, r#"{"aps":{},"k":"urgent"}"#, tokens(2));
        urgent.envelope.lane.priority = Priority::Urgent;
        let (many, few) = tokio::join!(
            send(&*rig.sender, rig.clock, &campaign, 10),
            send(&*rig.sender, rig.clock, &urgent, 10),
        );
        assert_eq!(verdicts(&many), all(Verdict::Accepted, 10));
        assert_eq!(verdicts(&few), all(Verdict::Accepted, 2));
    })
    .await;
    let order = order.borrow();
    let place = |word: &[u8]| order.iter().rposition(|body| body.ends_with(word)).unwrap();
    assert!(place(b"\"urgent\"}") <= 2, "{order:?}");
}

#[tokio::test]
async fn a_connection_that_apns_has_spoilt_is_left() {
    let listener = TlsListener::bind(b"h2").await;
    let rig = Rig::new(&listener);
    let server = async move {
        let mut peer = Peer::welcome(listener.accept().await, PLENTY).await;
        let (stream, _) = peer.request().await.unwrap();
        peer.answer_with(stream, 429, r#"{"reason":"TooManyProviderTokenUpdates"}"#).await;
        assert!(peer.request().await.is_none());
        answer_all(listener, PLENTY, 200, "").await;
    };
    beside(server, async move {
        assert_eq!(verdicts(&rig.send(1).await), [Verdict::Deferred { after: None }]);
        assert_eq!(verdicts(&rig.send(1).await), [Verdict::Accepted]);
    })
    .await;
}

#[tokio::test]
async fn a_huge_answer_costs_its_reason_and_nothing_else() {
    let listener = TlsListener::bind(b"h2").await;
    let rig = Rig::new(&listener);
    let server = async move {
        let mut peer = Peer::welcome(listener.accept().await, PLENTY).await;
        let (stream, _) = peer.request().await.unwrap();
        peer.head(stream, 400, 0).await;
        for _ in 0..3 {
            peer.body(stream, &[b'x'; 16_000]).await;
        }
        while let Some((stream, _)) = peer.request().await {
            peer.answer(stream, 200).await;
        }
    };
    beside(server, async move {
        assert_eq!(verdicts(&rig.send(1).await), [Verdict::Refused { gone: false }]);
        assert_eq!(verdicts(&rig.send(1).await), [Verdict::Accepted]);
    })
    .await;
}

#[tokio::test]
async fn garbage_instead_of_frames_ends_in_unknown() {
    let listener = TlsListener::bind(b"h2").await;
    let rig = Rig::new(&listener);
    let server = async move {
        let mut peer = Peer::welcome(listener.accept().await, PLENTY).await;
        let (stream, _) = peer.request().await.unwrap();
        // A header block that points past the header table.
        peer.write(1, 5, stream, &[0xff, 0xff, 0xff, 0xff, 0x0f]).await;
        std::future::pending::<()>().await;
    };
    beside(server, async move {
        assert_eq!(verdicts(&rig.send(1).await), [Verdict::Unknown]);
    })
    .await;
}

//! The APNs channel and time: servers that are slow, silent, or not there. Time is paused once a connection
//! stands, and runs ahead whenever nothing is left to do.

use std::time::Duration;

use notification::{Report, Verdict};

use crate::apns::{PLENTY, Rig, all, answer_all};
use crate::support::TlsListener;
use crate::support::frames::{GOAWAY, HEADERS, Peer, RESET};
use crate::support::jobs::{answer, beside, verdicts};

#[tokio::test]
async fn an_answer_whose_body_never_ends_is_judged_by_its_status() {
    let check = async |status: u16, expect: Verdict| {
        let listener = TlsListener::bind(b"h2").await;
        let rig = Rig::new(&listener);
        let server = async move {
            let mut peer = Peer::welcome(listener.accept().await, PLENTY).await;
            let (stream, _) = peer.request().await.unwrap();
            peer.head(stream, status, 0).await;
            peer.body(stream, b"{\"reason\":").await;
            tokio::time::pause();
            while peer.read().await.is_some() {}
        };
        beside(server, async move {
            assert_eq!(verdicts(&rig.send(1).await), [expect]);
        })
        .await;
        tokio::time::resume();
    };
    check(200, Verdict::Accepted).await;
    check(400, Verdict::Refused { gone: false }).await;
}

#[tokio::test]
async fn a_connection_that_answers_pings_and_no_requests_is_replaced() {
    let listener = TlsListener::bind(b"h2").await;
    let rig = Rig::new(&listener);
    let (mute, was_mute) = tokio::sync::oneshot::channel();
    let server = async move {
        let mut peer = Peer::welcome(listener.accept().await, PLENTY).await;
        let (stream, _) = peer.request().await.unwrap();
        peer.answer(stream, 200).await;
        peer.request().await.unwrap();
        tokio::time::pause();
        let (mut requests, mut goodbye) = (1, false);
        while let Some(frame) = peer.read().await {
            requests += usize::from(frame.kind == HEADERS);
            goodbye |= frame.kind == GOAWAY;
        }
        tokio::time::resume();
        mute.send((requests, goodbye)).unwrap();
        answer_all(listener, PLENTY, 200, "").await;
    };
    beside(server, async move {
        assert_eq!(verdicts(&rig.send(1).await), [Verdict::Accepted]);
        assert_eq!(verdicts(&rig.send(1).await), [Verdict::Unknown]);
        assert_eq!(verdicts(&rig.send(1).await), [Verdict::Unknown]);
        assert_eq!(was_mute.await.unwrap(), (2, true), "two requests, then a goodbye");
        assert_eq!(verdicts(&rig.send(1).await), [Verdict::Accepted]);
    })
    .await;
}

#[tokio::test]
async fn a_first_request_without_an_answer_does_not_hold_up_the_others() {
    let listener = TlsListener::bind(b"h2").await;
    let rig = Rig::new(&listener);
    let server = async move {
        let mut mute = Peer::welcome(listener.accept().await, PLENTY).await;
        mute.request().await.unwrap();
        tokio::time::pause();
        tokio::join!(answer_all(listener, PLENTY, 200, ""), async {
            while mute.read().await.is_some() {}
        });
    };
    beside(server, async move {
        let mut verdicts = verdicts(&rig.send(5).await);
        verdicts.sort_unstable_by_key(|verdict| *verdict == Verdict::Unknown);
        assert_eq!(verdicts[..4], all(Verdict::Accepted, 4));
        assert_eq!(verdicts[4], Verdict::Unknown);
    })
    .await;
}

#[tokio::test]
async fn a_request_without_an_answer_is_unknown_after_the_attempts_time() {
    let listener = TlsListener::bind(b"h2").await;
    let rig = Rig::new(&listener);
    let server = async move {
        let mut peer = Peer::welcome(listener.accept().await, PLENTY).await;
        peer.request().await.unwrap();
        tokio::time::pause();
        while peer.read().await.is_some() {}
    };
    beside(server, async move {
        let reports = rig.send(1).await;
        assert_eq!(verdicts(&reports), [Verdict::Unknown]);
        assert_eq!(answer(&reports[0]).detail, "no answer in time");
    })
    .await;
}

#[tokio::test]
async fn requests_that_were_begun_at_once_and_have_no_answer_are_given_up_after_the_attempts_time()
{
    let listener = TlsListener::bind(b"h2").await;
    let rig = Rig::new(&listener);
    let server = async move {
        let mut peer = Peer::welcome(listener.accept().await, PLENTY).await;
        let (stream, _) = peer.request().await.unwrap();
        peer.answer(stream, 200).await;
        let mut silent = Vec::new();
        for _ in 0..3 {
            silent.push(peer.request().await.unwrap().0);
        }
        tokio::time::pause();
        let mut reset = Vec::new();
        while let Some(frame) = peer.read().await {
            if frame.kind == RESET {
                reset.push(frame.stream);
            }
        }
        reset.sort_unstable();
        assert_eq!(reset, silent);
    };
    beside(server, async move {
        assert_eq!(verdicts(&rig.send(1).await), [Verdict::Accepted]);
        // There is a connection with free streams now.
        let reports = rig.send(3).await;
        assert_eq!(verdicts(&reports), [Verdict::Unknown; 3]);
        assert_eq!(answer(&reports[0]).detail, "no answer in time");
    })
    .await;
}

#[tokio::test]
async fn who_waited_in_vain_for_a_stream_is_handed_back() {
    let listener = TlsListener::bind(b"h2").await;
    let rig = Rig::with(&listener, &serde_json::json!({ "connections_max": 1 }));
    let server = async move {
        let mut peer = Peer::welcome(listener.accept().await, 1).await;
        peer.request().await.unwrap();
        tokio::time::pause();
        while peer.read().await.is_some() {}
    };
    beside(server, async move {
        let reports = rig.send(2).await;
        assert_eq!(answer(&reports[0]).verdict, Verdict::Unknown);
        assert_eq!(reports[1], Report::HandedBack { after: Duration::from_secs(1) });
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_cannot_be_reached_defers_with_the_reason() {
    let check = async |protocol: &[u8], expect: &str| {
        let listener = TlsListener::bind(protocol).await;
        let rig = Rig::new(&listener);
        let server = async move {
            loop {
                drop(listener.try_accept().await);
            }
        };
        beside(server, async move {
            let reports = rig.send(1).await;
            assert_eq!(verdicts(&reports), [Verdict::Deferred { after: None }]);
            let detail = &answer(&reports[0]).detail;
            assert!(detail.contains(expect), "{detail}");
        })
        .await;
    };
    check(b"http/1.1", "NoApplicationProtocol").await;
    check(b"", "does not speak HTTP/2").await;
}

#[tokio::test(start_paused = true)]
async fn a_connect_that_fails_is_tried_again_within_the_attempt() {
    let listener = TlsListener::bind(b"h2").await;
    let rig = Rig::new(&listener);
    let server = async move {
        listener.reject().await;
        listener.reject().await;
        answer_all(listener, PLENTY, 200, "").await;
    };
    beside(server, async move {
        assert_eq!(verdicts(&rig.send(5).await), all(Verdict::Accepted, 5));
    })
    .await;
}

#[tokio::test]
async fn a_connection_that_fell_silent_is_replaced() {
    let listener = TlsListener::bind(b"h2").await;
    let rig = Rig::new(&listener);
    let (silent, fell_silent) = tokio::sync::oneshot::channel();
    let server = async move {
        let mut peer = Peer::welcome(listener.accept().await, PLENTY).await;
        let (stream, _) = peer.request().await.unwrap();
        peer.answer(stream, 200).await;
        peer.pongs = false;
        tokio::time::pause();
        while peer.read().await.is_some() {}
        tokio::time::resume();
        silent.send(()).unwrap();
        answer_all(listener, PLENTY, 200, "").await;
    };
    beside(server, async move {
        let started = rig.clock.monotonic();
        assert_eq!(verdicts(&rig.send(1).await), [Verdict::Accepted]);
        fell_silent.await.unwrap();
        let took = rig.clock.monotonic() - started;
        assert!(took >= Duration::from_secs(40) && took < Duration::from_secs(75), "{took:?}");
        assert_eq!(verdicts(&rig.send(1).await), [Verdict::Accepted]);
    })
    .await;
}

#[tokio::test]
async fn a_connection_without_work_says_goodbye_after_ten_minutes() {
    let listener = TlsListener::bind(b"h2").await;
    let rig = Rig::new(&listener);
    let (closed, is_closed) = tokio::sync::oneshot::channel();
    let server = async move {
        let mut peer = Peer::welcome(listener.accept().await, PLENTY).await;
        let (stream, _) = peer.request().await.unwrap();
        peer.answer(stream, 200).await;
        tokio::time::pause();
        let mut goodbye = false;
        while let Some(frame) = peer.read().await {
            goodbye |= frame.kind == GOAWAY;
        }
        closed.send(goodbye).unwrap();
        std::future::pending::<()>().await;
    };
    beside(server, async move {
        let started = rig.clock.monotonic();
        assert_eq!(verdicts(&rig.send(1).await), [Verdict::Accepted]);
        assert!(is_closed.await.unwrap(), "it did not say goodbye");
        let took = rig.clock.monotonic() - started;
        assert!(took >= Duration::from_mins(10) && took < Duration::from_mins(11), "{took:?}");
    })
    .await;
}

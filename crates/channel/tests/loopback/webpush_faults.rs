//! The Web Push channel against push services that break off, lie, or take their time.

use std::time::Duration;

use notification::Verdict;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::support::TlsListener;
use crate::support::frames::Peer;
use crate::support::jobs::{answer, beside, verdicts};
use crate::webhook;
use crate::webpush::{GONE, PLENTY, Rig, answer_all_http1};

#[tokio::test]
async fn a_connection_cut_over_http1_is_unknown_where_the_service_may_have_acted() {
    let check = async |answer: &'static str, expect: Verdict| {
        let listener = TlsListener::bind(b"http/1.1").await;
        let rig = Rig::new(&listener);
        let server = async move {
            // The first one only learns that there is no HTTP/2.
            drop(listener.accept().await);
            let mut stream = listener.accept().await;
            webhook::read(&mut stream).await.unwrap();
            stream.write_all(answer.as_bytes()).await.unwrap();
            stream.flush().await.unwrap();
            drop(stream);
            listener.accept().await;
            panic!("it was sent again");
        };
        beside(server, async {
            assert_eq!(verdicts(&rig.send(1).await), [expect], "{answer:?}");
        })
        .await;
    };
    check("", Verdict::Unknown).await;
    check("HTTP/1.1 2", Verdict::Unknown).await;
    check("HTTP/1.1 201 Created\r\nlocation: /x", Verdict::Unknown).await;
    check("HTTP/1.1 201 Created\r\n\r\n", Verdict::Accepted).await;
    check("HTTP/1.1 201 Created\r\ncontent-length: 10\r\n\r\nx", Verdict::Accepted).await;
    check("HTTP/1.1 410 Gone\r\ncontent-length: 10\r\n\r\nx", GONE).await;
}

#[tokio::test]
async fn a_connection_cut_over_http2_is_unknown_where_the_service_may_have_acted() {
    enum Cut {
        AfterRequest,
        AfterHead(u16),
        Reset,
    }
    let check = async |cut: Cut, expect: Verdict| {
        let listener = TlsListener::bind(b"h2").await;
        let rig = Rig::new(&listener);
        let server = async move {
            let mut peer = Peer::welcome(listener.accept().await, PLENTY).await;
            let (stream, _) = peer.request().await.unwrap();
            match cut {
                Cut::AfterRequest => {}
                Cut::AfterHead(status) => peer.head(stream, status, 0).await,
                Cut::Reset => peer.reset(stream, 2).await,
            }
            drop(peer);
            listener.accept().await;
            panic!("it was sent again");
        };
        beside(server, async {
            assert_eq!(verdicts(&rig.send(1).await), [expect]);
        })
        .await;
    };
    check(Cut::AfterRequest, Verdict::Unknown).await;
    check(Cut::AfterHead(201), Verdict::Accepted).await;
    check(Cut::AfterHead(410), GONE).await;
    check(Cut::Reset, Verdict::Unknown).await;
}

#[tokio::test]
async fn what_a_service_certainly_did_not_process_is_sent_again() {
    let listener = TlsListener::bind(b"h2").await;
    let rig = Rig::new(&listener);
    let server = async move {
        let mut peer = Peer::welcome(listener.accept().await, PLENTY).await;
        let (stream, first) = peer.request().await.unwrap();
        peer.refuse(stream).await;
        let (stream, second) = peer.request().await.unwrap();
        assert_eq!(first, second, "nobody has seen the key of the first");
        peer.go_away(stream - 2).await;
        let mut other = Peer::welcome(listener.accept().await, PLENTY).await;
        let (stream, _) = other.request().await.unwrap();
        other.answer(stream, 201).await;
        std::future::pending::<()>().await;
    };
    beside(server, async {
        assert_eq!(verdicts(&rig.send(1).await), [Verdict::Accepted]);
    })
    .await;
}

#[tokio::test]
async fn a_service_that_cannot_be_spoken_to_defers() {
    let listener = TlsListener::bind(b"h2").await;
    let rig = Rig::new(&listener);
    // Its certificate is no longer trusted: every handshake fails before a byte of a request.
    let other = TlsListener::bind(b"h2").await;
    let stranger = Rig::with(&listener, &serde_json::json!({ "ca_file": other.ca_file.path() }));
    let server = async move {
        listener.reject().await;
        while listener.try_accept().await.is_err() {}
        std::future::pending::<()>().await;
    };
    beside(server, async {
        tokio::time::pause();
        drop(rig);
        let reports = stranger.send(1).await;
        assert_eq!(verdicts(&reports), [Verdict::Deferred { after: None }]);
        assert!(answer(&reports[0]).detail.starts_with("cannot connect to https://127.0.0.1"));
    })
    .await;
}

#[tokio::test]
async fn hostile_answers_are_judged_by_their_status_or_unknown() {
    let long_line = format!("HTTP/1.1 201 {}\r\n\r\n", "x".repeat(10 << 20));
    let long_body = format!(
        "HTTP/1.1 410 Gone\r\ncontent-length: 10485760\r\n\r\n{}",
        "\u{1b}".repeat(10 << 20)
    );
    let many_headers = format!("HTTP/1.1 201 Created\r\n{}\r\n", "a: b\r\n".repeat(20_000));
    let check = async |text: &str, expect: Verdict| {
        let listener = TlsListener::bind(b"http/1.1").await;
        let rig = Rig::new(&listener);
        beside(answer_all_http1(listener, text.to_owned()), async {
            let reports = rig.send(1).await;
            assert_eq!(verdicts(&reports), [expect]);
            let detail = &answer(&reports[0]).detail;
            assert!(detail.len() <= notification::limits::DETAIL_BYTES, "{detail}");
            assert!(!detail.chars().any(char::is_control), "{detail:?}");
        })
        .await;
    };
    check("\0\0\0\0\r\n\r\n", Verdict::Unknown).await;
    check("SSH-2.0-x\r\n", Verdict::Unknown).await;
    check(&long_line, Verdict::Unknown).await;
    check(&many_headers, Verdict::Unknown).await;
    check(&long_body, GONE).await;
    check(
        "HTTP/1.1 413 Too Long\r\ntransfer-encoding: chunked\r\n\r\nzzz\r\n",
        Verdict::Refused { gone: false },
    )
    .await;
}

#[tokio::test]
async fn an_answer_that_drips_costs_its_words_and_no_more() {
    let listener = TlsListener::bind(b"h2").await;
    let rig = Rig::new(&listener);
    let server = async move {
        let mut peer = Peer::welcome(listener.accept().await, PLENTY).await;
        let (stream, _) = peer.request().await.unwrap();
        peer.head(stream, 410, 0).await;
        tokio::time::pause();
        loop {
            peer.body(stream, b"x").await;
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    beside(server, async {
        let reports = rig.send(1).await;
        assert_eq!(verdicts(&reports), [GONE]);
    })
    .await;
}

#[tokio::test]
async fn a_body_that_is_read_halfway_is_unknown() {
    let listener = TlsListener::bind(b"http/1.1").await;
    let rig = Rig::new(&listener);
    let server = async move {
        drop(listener.accept().await);
        let mut stream = listener.accept().await;
        let mut some = [0; 20];
        stream.read_exact(&mut some).await.unwrap();
    };
    beside(server, async {
        assert_eq!(verdicts(&rig.send(1).await), [Verdict::Unknown]);
    })
    .await;
}

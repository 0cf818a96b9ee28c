//! The SMTP channel against servers that mean no good, and as a channel like any other.

use std::time::Duration;

use channel::Channel;
use channel::conformance::{Behaviour, TestedChannel, exercise};
use channel::smtp::SmtpChannel;
use flow::Clock;
use notification::{Bytes, Content, Verdict};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::support::jobs::{NOW, answer, beside, verdicts};
use crate::support::mail::{CONTENT, MailServer, Manner, PIPELINING, Step, settings};

const BACK_OFF: Verdict = Verdict::Deferred { after: None };

/// The outcome of a mail to a server that writes `bytes` as soon as it is called, and listens until the client goes.
async fn called(bytes: Vec<u8>) -> (Verdict, String) {
    let server = MailServer::bind().await;
    let (rig, listener) = (server.rig(), std::rc::Rc::clone(&server.listener));
    let serving = async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            // Fails when the client has had enough.
            let _enough = stream.write_all(&bytes).await;
            let _gone = stream.read_to_end(&mut Vec::new()).await;
        }
    };
    let mut said = (Verdict::Accepted, String::new());
    beside(serving, async {
        let reports = rig.send(1).await;
        said = (answer(&reports[0]).verdict, answer(&reports[0]).detail.clone().into_owned());
    })
    .await;
    said
}

#[tokio::test]
async fn what_is_not_smtp_is_no_mail_server() {
    let check = async |bytes: Vec<u8>, expect: &str| {
        let (verdict, detail) = called(bytes).await;
        assert_eq!(verdict, BACK_OFF, "{detail}");
        assert!(detail.contains(expect), "{detail}");
    };
    check(b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(), "is not SMTP").await;
    check(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc".to_vec(), "is not SMTP").await;
    check(b"\r\n\r\n".to_vec(), "is not SMTP").await;
    check(b"999 what\r\n".to_vec(), "is not SMTP").await;
    check(b"000 what\r\n".to_vec(), "is not SMTP").await;
    check(vec![0; 100_000], "is not SMTP").await;
    // 10 MB in a line, and lines without end: neither is kept.
    let mut line = b"220 ".to_vec();
    line.resize(10_000_000, b'x');
    check(line, "too long").await;
    check(b"220-\r\n".repeat(2_000_000), "too long").await;
    check(b"220-x\r\n".repeat(2_000_000), "too long").await;
    // Answers before it is asked.
    check(b"220 a\r\n250 b\r\n250 c\r\n250 d\r\n354 e\r\n250 f\r\n".to_vec(), "before it is asked")
        .await;
}

#[tokio::test]
async fn a_hostile_reply_within_a_mail_is_the_end_of_its_connection_only() {
    let long: &'static str = Box::leak(format!("250 {}", "x".repeat(1_000_000)).into_boxed_str());
    for (step, line, verdict) in [
        (Step::Mail, "garbage", BACK_OFF),
        (Step::Recipient, long, BACK_OFF),
        (Step::Data, "250 no", BACK_OFF),
        (Step::Message, "garbage", Verdict::Unknown),
        (Step::Message, long, Verdict::Unknown),
        (Step::Message, "354 more", Verdict::Unknown),
    ] {
        let server = MailServer::bind().await;
        let rig = server.rig();
        let serving = server.serve(move |number| Manner {
            offers: "8BITMIME",
            replies: if number == 0 { vec![(step, line)] } else { Vec::new() },
            ..Manner::default()
        });
        beside(serving, async {
            assert_eq!(verdicts(&rig.send(1).await), [verdict], "{step:?} {line:.40}");
            assert_eq!(verdicts(&rig.send(1).await), [Verdict::Accepted], "{step:?} {line:.40}");
        })
        .await;
    }
}

#[tokio::test]
async fn a_server_that_drips_is_given_up_in_time() {
    let server = MailServer::bind().await;
    let (rig, listener) = (server.rig(), std::rc::Rc::clone(&server.listener));
    let serving = async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        tokio::time::pause();
        for byte in b"220-slow\r\n".iter().cycle() {
            if stream.write_all(&[*byte]).await.is_err() {
                break;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    beside(serving, async {
        let started = rig.clock.monotonic();
        let reports = rig.send(1).await;
        assert_eq!(verdicts(&reports), [BACK_OFF]);
        assert!(answer(&reports[0]).detail.contains("within 90 s"), "{reports:?}");
        assert!(rig.clock.monotonic() - started < Duration::from_mins(3));
    })
    .await;
}

#[tokio::test]
async fn a_server_that_is_down_is_not_called_for_every_mail() {
    let server = MailServer::bind().await;
    let rig = server.rig();
    let calls = std::rc::Rc::new(std::cell::Cell::new(0));
    let (listener, counted) = (std::rc::Rc::clone(&server.listener), std::rc::Rc::clone(&calls));
    let serving = async move {
        loop {
            drop(listener.accept().await.unwrap());
            counted.set(counted.get() + 1);
        }
    };
    beside(serving, async {
        let reports = rig.send(100).await;
        assert_eq!(verdicts(&reports), [BACK_OFF; 100]);
    })
    .await;
    assert!(calls.get() < 50, "{} calls", calls.get());
}

struct Smtp {
    accepts: u16,
    cuts_off: u16,
}

impl TestedChannel for Smtp {
    fn channel(&self, provider: Behaviour) -> Option<Box<dyn Channel>> {
        let port = match provider {
            Behaviour::Accepts => self.accepts,
            Behaviour::CutsOff => self.cuts_off,
        };
        Some(Box::new(SmtpChannel::new(&settings(port, &json!({}))).unwrap()))
    }

    fn recipient(&self, _provider: Behaviour, number: u16) -> String {
        format!("r{number}@example.org")
    }

    fn content(&self) -> Content {
        Content { payload: Bytes::from_static(CONTENT.as_bytes()), ..Content::default() }
    }
}

#[tokio::test]
async fn smtp_is_a_channel() {
    let (accepts, cuts_off) = (MailServer::bind().await, MailServer::bind().await);
    let subject = Smtp { accepts: accepts.port(), cuts_off: cuts_off.port() };
    let good = accepts.serve(|_| Manner { offers: PIPELINING, ..Manner::default() });
    let bad = cuts_off.serve(|_| Manner {
        offers: PIPELINING,
        cut_before: Some(Step::Message),
        ..Manner::default()
    });
    let servers = async move {
        tokio::join!(good, bad);
    };
    beside(servers, exercise(&subject, Clock::starting_at(NOW))).await;
}

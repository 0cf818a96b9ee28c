//! The SMTP channel against servers that behave, refuse, and break off.

use std::rc::Rc;
use std::time::Duration;

use notification::{Guarantee, Report, Verdict};

use crate::samples::still;
use crate::support::jobs::{answer, beside, verdicts};
use crate::support::mail::{CHUNKING, CONTENT, MailServer, Manner, PIPELINING, Step};

const GONE: Verdict = Verdict::Refused { gone: true };
const BACK_OFF: Verdict = Verdict::Deferred { after: None };

/// Sends `count` mails to a server whose connections have the manner that `manner` gives by their number.
async fn exchange(
    manner: impl Fn(usize) -> Manner + 'static,
    count: usize,
) -> (Vec<Report>, MailServer) {
    let server = MailServer::bind().await;
    let rig = server.rig();
    let serving = server.serve(manner);
    let mut reports = Vec::new();
    beside(serving, async {
        reports = rig.send(count).await;
        rig.sender.close().await;
    })
    .await;
    (reports, server)
}

fn good(offers: &'static str) -> Manner {
    Manner { offers, ..Manner::default() }
}

#[tokio::test]
async fn a_mail_takes_one_connection_and_as_few_round_trips_as_the_server_offers() {
    let mail = "MAIL FROM:<news@example.com>";
    let check = async |offers: &'static str, expect: &[&str]| {
        let (reports, server) = exchange(move |_| good(offers), 2).await;
        assert_eq!(verdicts(&reports), [Verdict::Accepted; 2], "{offers}");
        let commands = server.commands();
        let plain: Vec<&str> = commands.iter().map(String::as_str).collect();
        assert_eq!(plain, expect);
        for message in server.messages() {
            assert!(message.ends_with("\r\n\r\nA line\r\n.\r\nand another\r\n"), "{message}");
        }
        assert!(server.messages()[0].contains("\r\nTo: r0@example.org\r\n"));
        assert!(server.messages()[1].contains("\r\nTo: r1@example.org\r\n"));
        assert!(!server.messages()[1].contains("r0@example.org"), "nothing of the former mail");
    };
    let (to_first, to_second) = ("RCPT TO:<r0@example.org>", "RCPT TO:<r1@example.org>");
    let hello = "EHLO client.example";
    check(PIPELINING, &[hello, mail, to_first, "DATA", mail, to_second, "DATA", "QUIT"]).await;
    check("8BITMIME", &[hello, mail, to_first, "DATA", mail, to_second, "DATA", "QUIT"]).await;
    check(
        "",
        &[hello, "HELO client.example", mail, to_first, "DATA", mail, to_second, "DATA", "QUIT"],
    )
    .await;
    let (_, server) = exchange(|_| good("PIPELINING\nSIZE 100000\nSMTPUTF8\n8BITMIME"), 1).await;
    assert_eq!(server.commands()[1], format!("{mail} SIZE={}", server.messages()[0].len()));
    let (reports, server) = exchange(|_| good(CHUNKING), 1).await;
    assert_eq!(verdicts(&reports), [Verdict::Accepted]);
    assert_eq!(server.commands()[3], format!("BDAT {} LAST", server.messages()[0].len()));
}

#[tokio::test]
async fn a_cut_is_unknown_exactly_between_the_whole_message_and_its_reply() {
    use Step::{Data, Greeting, HalfMessage, Hello, Mail, Message, Recipient};
    for offers in [PIPELINING, CHUNKING, "8BITMIME", ""] {
        for (step, verdict) in [
            (Greeting, BACK_OFF),
            (Hello, BACK_OFF),
            (Mail, BACK_OFF),
            (Recipient, BACK_OFF),
            (Data, BACK_OFF),
            (HalfMessage, BACK_OFF),
            (Message, Verdict::Unknown),
        ] {
            if (offers == CHUNKING && step == Data) || step == HalfMessage {
                continue;
            }
            let cut = move |_| Manner { cut_before: Some(step), ..good(offers) };
            let (reports, server) = exchange(cut, 1).await;
            assert_eq!(verdicts(&reports), [verdict], "{offers:?} before the reply to {step:?}");
            assert_eq!(server.messages().len(), usize::from(step == Message));
        }
        for (step, verdict) in [
            (Greeting, BACK_OFF),
            (Hello, BACK_OFF),
            (Mail, BACK_OFF),
            (Message, Verdict::Accepted),
        ] {
            let cut = move |_| Manner { cut_after: Some(step), ..good(offers) };
            let (reports, _) = exchange(cut, 1).await;
            assert_eq!(verdicts(&reports), [verdict], "{offers:?} after the reply to {step:?}");
        }
    }
}

#[tokio::test]
async fn a_message_that_was_cut_in_the_middle_was_not_sent() {
    // More than the kernel's buffers of both sides hold (4 MiB is what Linux lets a sender's grow to).
    let text = "x ".repeat(4 << 20);
    let content = format!(r#"{{"from":"news@example.com","subject":"Hello","text":"{text}"}}"#);
    for offers in [PIPELINING, CHUNKING] {
        let server = MailServer::bind().await;
        let rig = server.rig();
        let small = socket2::SockRef::from(&*server.listener).set_recv_buffer_size(2048);
        small.unwrap();
        let cut = move |_| Manner { cut_before: Some(Step::HalfMessage), ..good(offers) };
        let serving = server.serve(cut);
        beside(serving, async {
            let report = rig.send_to(&content, "a@example.org").await;
            assert_eq!(answer(&report).verdict, BACK_OFF, "{offers} {report:?}");
        })
        .await;
        assert!(server.messages().is_empty());
    }
}

#[tokio::test]
async fn a_refusal_stands_whatever_happens_to_its_connection() {
    let check = async |offers, step, data: &'static str, cut_before, cut_after| {
        let refused = move |_| Manner {
            replies: vec![(step, "550 5.1.1 no such user"), (Step::Data, data)],
            cut_before,
            cut_after,
            ..good(offers)
        };
        let (reports, _) = exchange(refused, 2).await;
        let expect = if step == Step::Mail { Verdict::Refused { gone: false } } else { GONE };
        assert_eq!(verdicts(&reports), [expect; 2], "{offers} {step:?} {data} {reports:?}");
    };
    for step in [Step::Mail, Step::Recipient] {
        for offers in [PIPELINING, CHUNKING, "8BITMIME"] {
            check(offers, step, "503 5.5.1 x", None, Some(step)).await;
        }
        check(PIPELINING, step, "503 5.5.1 x", Some(Step::Data), None).await;
        check(PIPELINING, step, "354 go on", Some(Step::Message), None).await;
        check(PIPELINING, step, "421 4.7.0 bye", None, Some(Step::Data)).await;
    }
}

#[tokio::test]
async fn what_a_server_does_between_two_mails_costs_nothing() {
    let most_once = Guarantee::AtMostOnce;
    for (most, says_so) in [(1, true), (1, false), (3, true), (3, false)] {
        let server = MailServer::bind().await;
        let rig = server.rig();
        let serving = server
            .serve(move |_| Manner { closes_after: Some((most, says_so)), ..good(PIPELINING) });
        let mut reports = Vec::new();
        beside(serving, async { reports = rig.send_with(10, 1, most_once).await }).await;
        assert_eq!(
            verdicts(&reports),
            [Verdict::Accepted; 10],
            "closes after {most}, says so: {says_so}"
        );
        assert_eq!(server.messages().len(), 10, "each was sent once");
    }
    // The word comes instead of the reply to the next mail.
    let server = MailServer::bind().await;
    let rig = server.rig();
    let late = |number| match number {
        0 => Manner { replies: vec![(Step::Mail, "421 4.3.2 restarting")], ..good(PIPELINING) },
        _ => good(PIPELINING),
    };
    let serving = server.serve(late);
    beside(serving, async {
        assert_eq!(
            verdicts(&rig.send(1).await),
            [BACK_OFF],
            "on a new connection it is the server's answer"
        );
        assert_eq!(verdicts(&rig.send(1).await), [Verdict::Accepted]);
    })
    .await;
}

#[tokio::test]
async fn a_refused_recipient_costs_the_next_mail_nothing_but_a_reset() {
    let check = async |offers, data: &'static str, expect_reset: bool| {
        let refused = move |_| Manner {
            replies: vec![
                (Step::Recipient, "550 5.1.1 no such user"),
                (Step::Data, data),
                (Step::Message, "554 5.5.1 nobody"),
            ],
            ..good(offers)
        };
        let (reports, server) = exchange(refused, 2).await;
        assert_eq!(verdicts(&reports), [GONE, GONE], "{offers} {data}");
        assert_eq!(answer(&reports[0]).detail, "550 5.1.1 no such user");
        let commands = server.commands();
        assert_eq!(
            commands.iter().filter(|line| line.starts_with("EHLO")).count(),
            1,
            "{commands:?}"
        );
        assert_eq!(commands.contains(&"RSET".to_owned()), expect_reset, "{commands:?}");
        assert!(server.messages().iter().all(String::is_empty), "nobody's message");
    };
    check(PIPELINING, "503 5.5.1 no valid recipients", true).await;
    check(PIPELINING, "354 go on all the same", false).await;
    check("8BITMIME", "503 5.5.1 no valid recipients", true).await;
    check(CHUNKING, "503 5.5.1 x", true).await;
}

#[tokio::test]
async fn each_stage_has_its_reply_and_each_mail_its_own_verdict() {
    let check = async |step, line: &'static str, verdict| {
        for offers in [PIPELINING, "8BITMIME"] {
            let (reports, _) =
                exchange(move |_| Manner { replies: vec![(step, line)], ..good(offers) }, 1).await;
            assert_eq!(verdicts(&reports), [verdict], "{step:?} {line}");
        }
    };
    let half_an_hour = Verdict::Deferred { after: Some(Duration::from_mins(30)) };
    let refused = Verdict::Refused { gone: false };
    check(Step::Mail, "451 4.3.0 later", half_an_hour).await;
    check(Step::Mail, "550 5.7.1 not you", refused).await;
    check(Step::Recipient, "452 4.2.2 full", half_an_hour).await;
    check(
        Step::Recipient,
        "450 4.2.0 Greylisted",
        Verdict::Deferred { after: Some(Duration::from_mins(5)) },
    )
    .await;
    check(Step::Recipient, "550 5.1.1 nobody", GONE).await;
    check(Step::Data, "451 4.3.0 later", half_an_hour).await;
    check(Step::Data, "554 5.3.0 no", refused).await;
    check(Step::Message, "451 4.3.0 later", half_an_hour).await;
    check(Step::Message, "554 5.6.0 spam", refused).await;
    check(Step::Greeting, "421 4.3.2 busy", BACK_OFF).await;
    check(Step::Greeting, "554 5.3.2 no service", BACK_OFF).await;
    check(Step::Hello, "421 4.3.2 busy", BACK_OFF).await;
    check(Step::Hello, "550 5.7.1 not that name", BACK_OFF).await;
    check(Step::Mail, "421 4.3.2 busy", BACK_OFF).await;
    check(Step::Recipient, "421 4.3.2 busy", BACK_OFF).await;
    check(Step::Data, "421 4.3.2 busy", BACK_OFF).await;
    check(Step::Message, "421 4.3.2 busy", BACK_OFF).await;
    check(Step::Mail, "452 4.3.1 no room for so much", half_an_hour).await;
    check(Step::Mail, "552 5.3.4 too big", refused).await;
    check(Step::Recipient, "552 5.2.2 full", half_an_hour).await;
    check(Step::Message, "552 5.2.2 full", half_an_hour).await;
}

#[tokio::test]
async fn a_permanent_reply_to_a_whole_message_is_definite_at_most_once_too() {
    for line in ["552 5.2.2 full", "530 5.7.0 log in", "554 5.6.0 spam"] {
        let server = MailServer::bind().await;
        let rig = server.rig();
        let replies = vec![(Step::Message, line)];
        let serving =
            server.serve(move |_| Manner { replies: replies.clone(), ..good(PIPELINING) });
        beside(serving, async {
            let reports = rig.send_with(1, 1, Guarantee::AtMostOnce).await;
            assert!(!answer(&reports[0]).may_have_acted, "{reports:?}");
            assert!(line.starts_with(&answer(&reports[0]).status.to_string()), "{reports:?}");
        })
        .await;
    }
}

#[tokio::test]
async fn what_a_server_cannot_take_is_not_sent_to_it() {
    let server = MailServer::bind().await;
    let rig = server.rig();
    let serving = server.serve(|_| good("PIPELINING\nSIZE 300"));
    beside(serving, async {
        let report = rig.send_to(CONTENT, "jos\u{e9}@example.org").await;
        assert_eq!(answer(&report).verdict, Verdict::Refused { gone: false });
        assert!(answer(&report).detail.contains("SMTPUTF8"), "{report:?}");
        let long =
            format!(r#"{{"from":"a@example.com","subject":"s","text":"{}"}}"#, "x ".repeat(200));
        let report = rig.send_to(&long, "a@example.org").await;
        assert_eq!(answer(&report).verdict, Verdict::Refused { gone: false });
        assert!(answer(&report).detail.contains("takes at most 300"), "{report:?}");
    })
    .await;
    assert_eq!(server.commands(), ["EHLO client.example"]);
    // Where it is offered it is not asked for: no header and no address of ours needs it.
    let server = MailServer::bind().await;
    let rig = server.rig();
    let serving = server.serve(|_| good("PIPELINING\nSMTPUTF8\n8BITMIME"));
    beside(serving, async {
        let content =
            r#"{"from":"B\u00fccher <a@b\u00fccher.example>","subject":"\u2603","text":"\u2603"}"#;
        let report = rig.send_to(content, "name@B\u{fc}cher.example").await;
        assert_eq!(answer(&report).verdict, Verdict::Accepted);
    })
    .await;
    let expect = ["MAIL FROM:<a@xn--bcher-kva.example>", "RCPT TO:<name@xn--bcher-kva.example>"];
    assert_eq!(server.commands()[1..3], expect);
    assert!(server.messages()[0].is_ascii());
}

#[tokio::test]
async fn a_connection_carries_its_share_and_no_more_and_places_are_kept() {
    let server = MailServer::bind().await;
    let rig = server
        .rig_with(&serde_json::json!({ "deliveries_per_connection": 3, "connections_max": 2 }));
    let serving = server.serve(|_| good(PIPELINING));
    beside(serving, async {
        let reports = rig.send_with(12, 12, Guarantee::AtLeastOnce).await;
        assert_eq!(verdicts(&reports), [Verdict::Accepted; 12]);
    })
    .await;
    let hellos = server.commands().iter().filter(|line| line.starts_with("EHLO")).count();
    assert_eq!(hellos, 4, "12 mails, 3 on each");
}

#[tokio::test]
async fn the_reply_to_a_message_has_ten_minutes() {
    let check = async |minutes, verdict| {
        let takes = Duration::from_mins(minutes);
        let server = MailServer::bind().await;
        let rig = server.rig();
        let serving = server.serve(move |_| Manner { message_takes: takes, ..good(PIPELINING) });
        beside(serving, async {
            // Time runs ahead whenever nothing is left to do, so the connection is made before.
            tokio::join!(
                async {
                    while server.messages().is_empty() {
                        tokio::task::yield_now().await;
                    }
                    tokio::time::pause();
                },
                async {
                    let report = rig.send(1).await;
                    assert_eq!(verdicts(&report), [verdict], "{minutes} minutes");
                }
            );
        })
        .await;
        tokio::time::resume();
    };
    check(9, Verdict::Accepted).await;
    check(11, Verdict::Unknown).await;
}

#[tokio::test(start_paused = true)]
async fn connections_that_fail_at_the_same_time_are_one_failure_in_a_row() {
    let _still = still();
    let server = MailServer::bind().await;
    let rig = server.rig_with(&serde_json::json!({ "connections_max": 8 }));
    let listener = Rc::clone(&server.listener);
    let serving = server.serve(|_| Manner { offers: PIPELINING, ..Manner::default() });
    let failing_first = async move {
        let mut waiting = Vec::new();
        for _ in 0..8 {
            waiting.push(listener.accept().await.unwrap());
        }
        drop(waiting);
        serving.await;
    };
    beside(failing_first, async {
        let reports = rig.send_with(8, 8, Guarantee::AtLeastOnce).await;
        assert_eq!(verdicts(&reports), [BACK_OFF; 8]);
        // The longest pause after one failure.
        tokio::time::advance(Duration::from_millis(500)).await;
        assert_eq!(verdicts(&rig.send(1).await), [Verdict::Accepted]);
    })
    .await;
}

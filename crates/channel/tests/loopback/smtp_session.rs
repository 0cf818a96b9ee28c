//! The SMTP channel before the first mail: encryption and login.

use std::rc::Rc;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use channel::smtp::Settings;
use notification::{Guarantee, Report, Verdict};
use serde_json::json;
use tokio::io::BufReader;

use crate::support::TlsListener;
use crate::support::jobs::{answer, beside, verdicts};
use crate::support::mail::{MailServer, Manner, Rig, Seen, Step, line, say, settings, talk};

const BACK_OFF: Verdict = Verdict::Deferred { after: None };
/// An operator has to correct the settings first.
const MEND: Verdict = Verdict::Deferred { after: Some(Duration::from_mins(15)) };
const ENCRYPTED: &str = "PIPELINING\nSIZE 5000";

/// A server that offers `offers` before encryption and says `go` to STARTTLS, with anything behind it.
async fn start_tls(listener: Rc<TlsListener>, offers: &'static str, go: &'static str, seen: Seen) {
    loop {
        let mut stream = BufReader::new(listener.accept_plain().await);
        let _gone = async {
            say(&mut stream, "220 test ESMTP").await?;
            loop {
                let command = line(&mut stream).await?;
                seen.borrow_mut().push(command.clone());
                match command.split(' ').next().unwrap_or_default() {
                    "EHLO" => say(&mut stream, &format!("250-test\r\n250 {offers}")).await?,
                    "STARTTLS" => break,
                    "MAIL" | "RCPT" => say(&mut stream, "250 ok").await?,
                    _ => say(&mut stream, "554 no").await?,
                }
            }
            say(&mut stream, go).await?;
            if !go.starts_with("220") || go.ends_with("hangs up") {
                return None;
            }
            seen.borrow_mut().push("(encrypted)".to_owned());
            let encrypted = listener.encrypt(stream.into_inner()).await.ok()?;
            let manner = Manner { offers: ENCRYPTED, ..Manner::default() };
            talk(BufReader::new(encrypted), manner, Rc::clone(&seen)).await
        }
        .await;
    }
}

async fn sent(
    listener: Rc<TlsListener>,
    offers: &'static str,
    go: &'static str,
    settings: Settings,
) -> (Vec<Report>, Vec<String>) {
    let seen = Seen::default();
    let rig = Rig::new(&settings);
    let serving = start_tls(listener, offers, go, Rc::clone(&seen));
    let mut reports = Vec::new();
    beside(serving, async { reports = rig.send(1).await }).await;
    let seen = seen.borrow().iter().filter(|line| !line.contains("\r\n")).cloned().collect();
    (reports, seen)
}

#[tokio::test]
async fn starttls_comes_before_anything_else_and_what_was_offered_before_it_is_forgotten() {
    let listener = TlsListener::bind(b"").await;
    let more = json!({ "tls": "require", "ca_file": listener.ca_file.path() });
    let settings = settings(listener.port(), &more);
    let (reports, seen) = sent(listener, "STARTTLS", "220 go", settings).await;
    assert_eq!(verdicts(&reports), [Verdict::Accepted], "{reports:?}");
    let expect = ["EHLO client.example", "STARTTLS", "(encrypted)", "EHLO client.example"];
    assert_eq!(seen[..4], expect);
    assert!(seen[4].starts_with("MAIL FROM:<news@example.com> SIZE="), "{seen:?}");
}

#[tokio::test]
async fn what_somebody_says_ahead_of_the_encryption_is_never_read() {
    let listener = TlsListener::bind(b"").await;
    let more = json!({ "tls": "require", "ca_file": listener.ca_file.path(), "username": "u", "password": "p" });
    let settings = settings(listener.port(), &more);
    let injected =
        "220 go\r\n250-evil\r\n250 AUTH PLAIN\r\n235 2.7.0 welcome\r\n250 ok\r\n250 ok\r\n354 go";
    let (reports, seen) = sent(listener, "STARTTLS", injected, settings).await;
    // The server's own offer after encryption has no AUTH: nothing of what was injected counts, and no password is sent.
    assert_eq!(verdicts(&reports), [MEND]);
    assert!(
        answer(&reports[0]).detail.contains("neither AUTH PLAIN nor AUTH LOGIN"),
        "{reports:?}"
    );
    assert!(
        !seen.iter().any(|line| line.starts_with("AUTH") || line.starts_with("MAIL")),
        "{seen:?}"
    );
}

#[tokio::test]
async fn without_encryption_nothing_is_sent_where_it_is_required() {
    let check = async |offers, go, with_ca: bool, verdict, expect: &str| {
        let listener = TlsListener::bind(b"").await;
        let mut more = json!({ "tls": "require" });
        if with_ca {
            more["ca_file"] = json!(listener.ca_file.path());
        }
        let settings = settings(listener.port(), &more);
        let (reports, seen) = sent(listener, offers, go, settings).await;
        assert_eq!(verdicts(&reports), [verdict]);
        assert!(answer(&reports[0]).detail.contains(expect), "{reports:?}");
        assert!(!seen.iter().any(|line| line.starts_with("MAIL")), "{seen:?}");
    };
    check("PIPELINING", "220 go", true, MEND, "does not offer STARTTLS").await;
    check("STARTTLS", "454 4.7.0 TLS not available", true, BACK_OFF, "454 4.7.0 TLS").await;
    check("STARTTLS", "220 go, and it hangs up", true, BACK_OFF, "").await;
    check("STARTTLS", "220 go", false, MEND, "TLS: invalid peer certificate").await;
}

#[tokio::test]
async fn opportunistic_encryption_takes_any_certificate_and_does_without() {
    let listener = TlsListener::bind(b"").await;
    let settings_of = |port| settings(port, &json!({ "tls": "opportunistic" }));
    let (reports, seen) =
        sent(Rc::clone(&listener), "STARTTLS", "220 go", settings_of(listener.port())).await;
    assert_eq!(verdicts(&reports), [Verdict::Accepted], "{reports:?}");
    assert!(seen.contains(&"(encrypted)".to_owned()));
    let (reports, _) =
        sent(Rc::clone(&listener), "STARTTLS", "421 4.3.2 bye", settings_of(listener.port())).await;
    assert_eq!(verdicts(&reports), [BACK_OFF]);
    assert_eq!(answer(&reports[0]).status, 421, "{reports:?}");
    // Not every server can do what it offers, nor says so.
    let hangs_up = "220 go, and it hangs up";
    let (_, seen) =
        sent(Rc::clone(&listener), "STARTTLS", hangs_up, settings_of(listener.port())).await;
    assert!(seen.iter().any(|line| line.starts_with("MAIL")), "{seen:?}");
    let server = MailServer::bind().await;
    let rig = server.rig_with(&json!({ "tls": "opportunistic" }));
    let serving = server.serve(|_| Manner { offers: "PIPELINING", ..Manner::default() });
    beside(serving, async { assert_eq!(verdicts(&rig.send(1).await), [Verdict::Accepted]) }).await;
}

#[tokio::test]
async fn smtps_is_encrypted_from_the_first_byte() {
    let listener = TlsListener::bind(b"").await;
    let mut settings = settings(listener.port(), &json!({ "ca_file": listener.ca_file.path() }));
    settings.relay = settings.relay.map(|relay| relay.replace("smtp://", "smtps://"));
    let rig = Rig::new(&settings);
    let seen = Seen::default();
    let server = async move {
        let mut stream = BufReader::new(listener.accept().await);
        say(&mut stream, "220 test").await.unwrap();
        talk(stream, Manner { offers: ENCRYPTED, ..Manner::default() }, seen).await;
    };
    beside(server, async { assert_eq!(verdicts(&rig.send(1).await), [Verdict::Accepted]) }).await;
}

/// A server that wants a login: replies to AUTH and what follows it in turn.
async fn log_in(server: &MailServer, offers: &'static str, replies: &'static [&'static str]) {
    loop {
        let (stream, _) = server.listener.accept().await.unwrap();
        let mut stream = BufReader::new(stream);
        let mut replies = replies.iter();
        let _gone = async {
            say(&mut stream, "220 test ESMTP").await?;
            loop {
                let command = line(&mut stream).await?;
                server.seen.borrow_mut().push(command.clone());
                if command.starts_with("EHLO") {
                    say(&mut stream, &format!("250-test\r\n250-PIPELINING\r\n250 {offers}"))
                        .await?;
                    continue;
                }
                let Some(reply) = replies.next() else { break };
                say(&mut stream, reply).await?;
                if reply.starts_with("235") {
                    break;
                }
            }
            talk(
                stream,
                Manner { offers: "PIPELINING", ..Manner::default() },
                Rc::clone(&server.seen),
            )
            .await
        }
        .await;
    }
}

#[tokio::test]
async fn a_login_goes_the_best_way_that_is_offered_or_the_one_that_is_asked_for() {
    let check = async |auth: &str, offers, replies: &'static [&str], expect: &[&str], verdict| {
        let server = MailServer::bind().await;
        let mut more = json!({ "username": "user", "password": "pass word" });
        if !auth.is_empty() {
            more["auth"] = json!(auth);
        }
        let rig = server.rig_with(&more);
        let mut reports = Vec::new();
        let local = tokio::task::LocalSet::new();
        local
            .run_until(async {
                tokio::select! {
                    () = log_in(&server, offers, replies) => {}
                    found = rig.send(1) => reports = found,
                }
            })
            .await;
        assert_eq!(verdicts(&reports), [verdict], "{auth} {offers} {reports:?}");
        assert_eq!(server.commands()[1..=expect.len()], *expect);
        let refusal = replies.last().and_then(|reply| reply.get(..3)?.parse().ok()).unwrap_or(0);
        let status = if verdict == Verdict::Accepted { 250 } else { refusal };
        assert_eq!(answer(&reports[0]).status, status, "{reports:?}");
        assert!(!answer(&reports[0]).may_have_acted, "{reports:?}");
        assert!(!format!("{reports:?}").contains("pass word"), "no password in what is kept");
    };
    let base64 = |text: &str| BASE64_STANDARD.encode(text);
    let plain = format!("AUTH PLAIN {}", base64("\0user\0pass word"));
    let (user, pass) = (base64("user"), base64("pass word"));
    let token = format!("AUTH XOAUTH2 {}", base64("user=user\u{1}auth=Bearer pass word\u{1}\u{1}"));
    let welcome = &["235 2.7.0 welcome"][..];
    let (accepted, login) = (Verdict::Accepted, ["AUTH LOGIN", &user, &pass]);
    check("", "AUTH LOGIN PLAIN", welcome, &[&plain], accepted).await;
    check("", "AUTH LOGIN", &["334 VXNlcm5hbWU6", "334 UGFzc3dvcmQ6", "235 ok"], &login, accepted)
        .await;
    check("login", "AUTH LOGIN PLAIN", &["334 x", "334 x", "235 ok"], &login, accepted).await;
    check("xoauth2", "AUTH XOAUTH2 PLAIN", welcome, &[&token], accepted).await;
    check("xoauth2", "AUTH XOAUTH2", &["334 eyJ9", "535 5.7.8 expired"], &[&token, ""], MEND).await;
    check("", "AUTH PLAIN", &["535 5.7.8 bad"], &[&plain], MEND).await;
    check("", "AUTH PLAIN", &["534 5.7.9 too weak"], &[&plain], MEND).await;
    check("", "AUTH PLAIN", &["421 4.7.0 too many logins"], &[&plain], BACK_OFF).await;
    check("", "AUTH PLAIN", &["454 4.7.0 later"], &[&plain], BACK_OFF).await;
    check("", "AUTH GSSAPI", &[], &[], MEND).await;
}

#[tokio::test]
async fn a_limit_of_mails_per_session_costs_no_attempt_and_is_met_once() {
    let check = async |offers, refusal: &'static str| {
        let server = MailServer::bind().await;
        let rig = server.rig();
        let limited =
            move |_| Manner { offers, mails_per_session: Some((3, refusal)), ..Manner::default() };
        let mut reports = Vec::new();
        beside(server.serve(limited), async {
            reports = rig.send_with(12, 1, Guarantee::AtMostOnce).await;
        })
        .await;
        assert_eq!(verdicts(&reports), [Verdict::Accepted; 12], "{offers} {refusal}");
        assert_eq!(server.messages().len(), 12, "each was sent once");
        let count =
            |verb: &str| server.commands().iter().filter(|line| line.starts_with(verb)).count();
        assert_eq!(count("EHLO"), 4, "sessions of three mails");
        assert_eq!(count("MAIL"), 13, "one was refused, and the number was remembered");
    };
    for offers in ["PIPELINING", "PIPELINING\nCHUNKING", "8BITMIME"] {
        check(offers, "452 4.5.3 Too many messages sent").await;
        check(offers, "450 later").await;
    }
}

#[tokio::test]
async fn a_refusal_on_a_new_session_is_the_servers_answer_and_teaches_nothing() {
    let server = MailServer::bind().await;
    let rig = server.rig();
    let manner = |number| match number {
        0 => Manner {
            offers: ENCRYPTED,
            mails_per_session: Some((1, "452 4.5.3 enough")),
            ..Manner::default()
        },
        1 => Manner {
            offers: ENCRYPTED,
            replies: vec![(Step::Mail, "452 4.5.3 enough")],
            ..Manner::default()
        },
        _ => Manner { offers: ENCRYPTED, ..Manner::default() },
    };
    let mut reports = Vec::new();
    beside(server.serve(manner), async { reports = rig.send(3).await }).await;
    let later = Verdict::Deferred { after: Some(Duration::from_mins(30)) };
    // The second session refuses its first mail, and is asked again with the next: it took none, so it is not full.
    assert_eq!(verdicts(&reports), [Verdict::Accepted, later, later]);
    let sessions = server.commands().iter().filter(|line| line.starts_with("EHLO")).count();
    assert_eq!(sessions, 2, "a server that refuses is not called more often");
}

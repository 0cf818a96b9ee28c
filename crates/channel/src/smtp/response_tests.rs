//! Every reply, and what it means.

use super::*;
use flow::Signal;
use notification::{Report, Verdict, limits};

const DELAYS: SmtpDelays =
    SmtpDelays { deferred: Duration::from_mins(30), greylisted: Duration::from_mins(5) };
const DEFERRED: Verdict = Verdict::Deferred { after: Some(DELAYS.deferred) };
const GREYLISTED: Verdict = Verdict::Deferred { after: Some(DELAYS.greylisted) };
const BACK_OFF: Verdict = Verdict::Deferred { after: None };
const REFUSED: Verdict = Verdict::Refused { gone: false };
const GONE: Verdict = Verdict::Refused { gone: true };

fn reply(line: &str) -> SmtpReply {
    let mut words = line.splitn(3, ' ');
    let code = words.next().unwrap().parse().unwrap();
    let enhanced: Vec<u8> =
        words.next().unwrap_or("").split('.').filter_map(|part| part.parse().ok()).collect();
    let enhanced = enhanced.try_into().unwrap_or([0; 3]);
    SmtpReply { code, enhanced, text: words.next().unwrap_or("").to_owned() }
}

fn read(stage: SmtpStage, line: &str) -> (Answer, Signal, Advice) {
    let reply = reply(line);
    let (attempt, advice) = interpret(stage, &reply, DELAYS);
    let Report::Attempted(answer) = attempt.report else { panic!("a reply is an attempt") };
    // No reply is left out of the log, and none but a lost one reads as if something might have come of it.
    let has_status = answer.verdict == Verdict::Accepted || reply.code >= 400;
    assert_eq!(answer.status, if has_status { reply.code } else { 0 }, "{stage:?} {line}");
    assert_eq!(answer.may_have_acted, answer.verdict == Verdict::Unknown, "{stage:?} {line}");
    (answer, attempt.signal, advice)
}

const ALL: &[SmtpStage] =
    &[SmtpStage::Mail, SmtpStage::Recipient, SmtpStage::Data, SmtpStage::Message];
const BEFORE_MESSAGE: &[SmtpStage] = &[SmtpStage::Mail, SmtpStage::Recipient, SmtpStage::Data];
const ABOUT_RECIPIENT: &[SmtpStage] = &[SmtpStage::Recipient, SmtpStage::Message];

/// Each of `lines`, a reply a line, means the same at each of `stages`.
fn check(stages: &[SmtpStage], lines: &str, expect: (Verdict, Signal, Advice)) {
    for stage in stages {
        for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let (answer, signal, advice) = read(*stage, line);
            assert_eq!((answer.verdict, signal, advice), expect, "{stage:?} {line}");
        }
    }
}

#[test]
fn a_positive_reply_means_what_it_was_asked_for() {
    let accepted = "250 2.0.0 ok
        250 x queued
        251 2.1.5 forwarded
        252 2.5.2 try";
    check(&[SmtpStage::Message], accepted, (Verdict::Accepted, Signal::Answered, Advice::CarryOn));
    let what = "354 x go on
        334 x what
        300 x what";
    // Not what was asked for: it may have been taken all the same.
    check(
        &[SmtpStage::Message],
        what,
        (Verdict::Unknown, Signal::Dropped, Advice::LeaveConnection),
    );
    let nothing_sent = (BACK_OFF, Signal::Silent, Advice::LeaveConnection);
    check(BEFORE_MESSAGE, "300 x what\n334 x what", nothing_sent);
    check(&[SmtpStage::Data], "250 2.0.0 ok", nothing_sent);
}

#[test]
fn a_temporary_refusal_is_tried_again_after_the_delay_of_its_kind() {
    let closing = "421 4.3.2 shutting down
        421 4.7.0 too many connections
        421 x bye";
    check(ALL, closing, (BACK_OFF, Signal::PushedBack, Advice::LeaveConnection));
    let closing = "421 4.7.0 Greylisted, try again in 5 minutes";
    check(ALL, closing, (GREYLISTED, Signal::PushedBack, Advice::LeaveConnection));
    let temporary = "450 x busy
        450 4.2.1 mailbox busy
        451 x local error
        452 4.2.2 full
        450 4.1.1 unverified
        451 4.4.1 no answer from host
        454 4.0.0 x
        455 4.5.4 x
        450 5.1.1 contradicts itself
        408 x x
        499 x x";
    check(ALL, temporary, (DEFERRED, Signal::Answered, Advice::CarryOn));
    let overloaded = "452 4.3.1 no space
        451 4.3.0 x
        452 4.5.3 too many
        552 5.5.3 too many, as RFC 821 has it
        451 4.4.5 congested";
    check(ALL, overloaded, (DEFERRED, Signal::PushedBack, Advice::CarryOn));
    let policy = "451 4.7.1 try later
        450 4.7.0 rate limited
        454 4.7.0 auth later";
    check(ALL, policy, (DEFERRED, Signal::PushedBack, Advice::Alert));
    let greylisting = "450 4.2.0 Greylisted, see http://postgrey.example
        451 4.7.1 Greylisting in action
        450 4.7.1 <a@b>: Recipient address rejected: Greylisted
        450 4.4.2 grey-listing, 299 seconds left
        451 x graylisted";
    check(ALL, greylisting, (GREYLISTED, Signal::Answered, Advice::CarryOn));
    // Called permanent, and passes: a full mailbox, and settings of ours that an operator corrects.
    let full = "552 5.2.2 full
        550 5.2.2 over quota";
    check(ALL, full, (DEFERRED, Signal::Answered, Advice::CarryOn));
    let no_room = "552 x storage allocation exceeded
        552 5.0.0 too many recipients";
    check(&[SmtpStage::Recipient], no_room, (DEFERRED, Signal::Answered, Advice::CarryOn));
    let too_big = "552 x message size exceeds fixed maximum message size
        552 5.0.0 too big";
    let message = &[SmtpStage::Mail, SmtpStage::Data, SmtpStage::Message];
    check(message, too_big, (REFUSED, Signal::Answered, Advice::CarryOn));
    let settings = "523 5.7.10 encryption needed
        525 5.7.13 account disabled
        530 5.7.0 authentication required
        530 x STARTTLS first
        535 5.7.8 bad
        534 5.7.9 x
        538 5.7.11 x";
    let mended = Verdict::Deferred { after: Some(SETTINGS_DELAY) };
    check(ALL, settings, (mended, Signal::Answered, Advice::Alert));
}

#[test]
fn a_permanent_refusal_says_whether_the_recipient_is_gone() {
    let gone = "550 5.1.1 no such user
        550 5.1.2 no such domain
        553 5.1.3 not an address
        551 5.1.6 moved
        550 5.1.10 null MX
        556 5.1.10 null MX
        556 x takes no mail
        554 5.1.1 x";
    check(ABOUT_RECIPIENT, gone, (GONE, Signal::Answered, Advice::CarryOn));
    // The same words about the sender say nothing of the recipient.
    let sender = "550 5.1.1 x
        553 5.1.3 x
        550 5.1.10 x
        556 x x";
    check(&[SmtpStage::Mail], sender, (REFUSED, Signal::Answered, Advice::CarryOn));
    // It may be the address or anything else.
    let refused = "550 5.2.1 disabled
        552 5.2.3 too long
        550 5.2.4 list
        550 5.2.0 x
        550 x unavailable
        550 5.0.0 x
        550 5.1.0 x
        550 5.1.4 ambiguous
        551 x not local
        553 x not allowed
        554 x failed
        550 5.4.1 x
        550 5.4.4 no route
        554 5.4.6 loop
        552 5.3.4 too big
        554 5.3.4 too big
        550 5.2.3 too long for this mailbox
        550 5.3.0 x
        554 5.6.0 content
        554 5.6.7 international
        599 x x";
    check(ALL, refused, (REFUSED, Signal::Answered, Advice::CarryOn));
    // Policy, our sender, our commands: not this mail alone.
    let ours = "550 5.7.1 spam
        554 5.7.1 relay access denied
        550 5.7.26 unauthenticated
        550 5.1.8 bad sender
        553 5.1.7 bad sender
        503 5.5.1 order
        500 x what
        501 5.5.4 what
        502 x x
        504 x x
        521 x no mail
        555 5.5.4 x";
    check(ALL, ours, (REFUSED, Signal::Answered, Advice::Alert));
}

#[test]
fn what_is_kept_of_a_reply_is_one_short_plain_line() {
    assert_eq!(
        read(SmtpStage::Recipient, "550 5.1.1 no such user").0.detail,
        "550 5.1.1 no such user"
    );
    assert_eq!(read(SmtpStage::Recipient, "550 x no").0.detail, "550 no");
    let answer = read(SmtpStage::Recipient, "550 5.1.1 a\nb\u{1b}[31m\r\tc").0;
    assert_eq!(answer.detail, "550 5.1.1 a b [31m  c");
    let long = format!("550 5.1.1 {}", "\u{fc}".repeat(5_000));
    assert!(read(SmtpStage::Recipient, &long).0.detail.len() <= limits::DETAIL_BYTES);
}

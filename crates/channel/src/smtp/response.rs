//! The meaning of a server's replies.
//!
//! The first digit decides (RFC 5321, section 4.2.1): 4yz may be tried again, 5yz not. The enhanced code (RFC 3463, and the
//! registry of RFC 5248) says what is meant: the recipient, the mailbox, the policy. `docs/channels/email.md` has the table.

use std::time::Duration;

use notification::Answer;

use super::transaction::SmtpStage;
use super::wire::SmtpReply;
use crate::Attempt;
use crate::answers::SETTINGS_DELAY;

/// Waits that the settings name.
#[derive(Debug, Clone, Copy)]
pub(super) struct SmtpDelays {
    /// After a temporary refusal.
    pub(super) deferred: Duration,
    /// After greylisting.
    pub(super) greylisted: Duration,
}

/// The action that a reply asks for beside its verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Advice {
    CarryOn,
    /// The connection is of no more use.
    LeaveConnection,
    /// An operator must check: it concerns more than this mail.
    Alert,
}

/// The meaning of `reply` to `stage`.
pub(super) fn interpret(
    stage: SmtpStage,
    reply: &SmtpReply,
    delays: SmtpDelays,
) -> (Attempt, Advice) {
    match reply.code {
        200..=299 if stage == SmtpStage::Message => {
            (Attempt::answered(Answer::accepted(reply.code)), Advice::CarryOn)
        }
        // Not an answer to a message; it may have been taken all the same.
        200..=399 if stage == SmtpStage::Message => (
            Attempt::lost(format!("an unexpected reply: {}", reply.detail())),
            Advice::LeaveConnection,
        ),
        // The conversation is out of step: the next reply would be taken for one to another command.
        200..=399 => {
            let detail = format!("an unexpected reply: {}", reply.detail());
            (Attempt::unsent(detail, None), Advice::LeaveConnection)
        }
        421 => {
            let after = is_greylisting(&reply.text).then_some(delays.greylisted);
            let answer = declined(reply, after);
            (Attempt::pushed_back(answer), Advice::LeaveConnection)
        }
        400..=499 => temporary(reply, delays),
        _ => permanent(stage, reply, delays),
    }
}

fn temporary(reply: &SmtpReply, delays: SmtpDelays) -> (Attempt, Advice) {
    let is_greylisting = is_greylisting(&reply.text);
    let after = if is_greylisting { delays.greylisted } else { delays.deferred };
    let answer = declined(reply, Some(after));
    match reply.enhanced {
        // It is about this sender and this recipient, and says nothing of how much the server can take.
        _ if is_greylisting => (Attempt::answered(answer), Advice::CarryOn),
        // Policy: often a limit on how much or how fast.
        [_, 7, _] => (Attempt::pushed_back(answer), Advice::Alert),
        // The server itself: no space, too much to do, too many recipients.
        [_, 3, _] | [_, 4, 5] | [_, 5, 3] => (Attempt::pushed_back(answer), Advice::CarryOn),
        _ => (Attempt::answered(answer), Advice::CarryOn),
    }
}

fn permanent(stage: SmtpStage, reply: &SmtpReply, delays: SmtpDelays) -> (Attempt, Advice) {
    let refused = |is_unregistered| {
        Attempt::answered(Answer::refused(reply.code, is_unregistered, reply.detail()))
    };
    // A refusal by name that is none in effect.
    let not_now = |after| Attempt::answered(declined(reply, Some(after)));
    let is_about_recipient = matches!(stage, SmtpStage::Recipient | SmtpStage::Message);
    match (reply.code, reply.enhanced) {
        // We are not logged in, or not encrypted: it is our settings, and waits until they are mended.
        (523 | 525 | 530 | 534 | 535 | 538, _) => (not_now(SETTINGS_DELAY), Advice::Alert),
        // The mailbox is full. That passes, although this server calls it permanent.
        (_, [_, 2, 2]) => (not_now(delays.deferred), Advice::CarryOn),
        // Of one recipient that is all of a mailbox's room, or what RFC 821 called too many recipients (RFC 5321, sections
        // 4.2.3 and 4.5.3.1.10). Of a message it is its size.
        (552, [_, 0, 0]) if stage == SmtpStage::Recipient => {
            (not_now(delays.deferred), Advice::CarryOn)
        }
        // Too many recipients, when there is only one, are too many mails.
        (_, [_, 5, 3]) => {
            (Attempt::pushed_back(declined(reply, Some(delays.deferred))), Advice::CarryOn)
        }
        // No such mailbox, no such domain, not an address, moved away; the domain takes no mail (RFC 7504, 7505).
        (_, [_, 1, 1 | 2 | 3 | 6 | 10]) | (556, _) if is_about_recipient => {
            (refused(true), Advice::CarryOn)
        }
        // Our sender, our commands, or policy.
        (_, [_, 1, 7 | 8] | [_, 5 | 7, _]) | (500..=504 | 521 | 555, _) => {
            (refused(false), Advice::Alert)
        }
        _ => (refused(false), Advice::CarryOn),
    }
}

/// Not now. Whatever its code would mean in HTTP, the server did say that it took nothing.
pub(super) fn declined(reply: &SmtpReply, after: Option<Duration>) -> Answer {
    Answer::deferred(reply.code, after, reply.detail()).acted(false)
}

/// Greylisting has no code of its own; the programs that do it say so.
pub(super) fn is_greylisting(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    ["greylist", "graylist", "grey-list", "gray-list", "grey list", "gray list"]
        .iter()
        .any(|word| text.contains(word))
}

#[cfg(test)]
#[path = "response_tests.rs"]
mod tests;

//! The answers to a recipient, and to a mail.

use std::cell::RefCell;
use std::collections::HashMap;

use super::MailServer;
use crate::faults::{SimFault, is_dead};
use crate::journal::JournalStatus;

/// The answer to a recipient.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum MailAdmission {
    /// It is good, and this is what becomes of the mail.
    Good(MailTaken),
    /// It is answered so.
    Reply(u16, String),
    /// It is answered 421, and the connection ends.
    Close,
}

/// The answer to a whole mail for one recipient.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MailTaken {
    /// 250.
    Accepted,
    /// 451: not taken.
    Failed,
    /// Taken, and the connection ends without a word.
    Silence,
}

/// Senders that were turned away once, with the time of it, microseconds since the Unix epoch.
#[derive(Debug, Default)]
pub(super) struct Greylist(RefCell<HashMap<String, u64>>);

/// Recipients remembered; beyond it every recipient is new again.
const GREYLIST_MAX: usize = 1 << 20;

// === impl MailServer ===

impl MailServer {
    /// True if an outage is under way.
    pub(super) fn is_out(&self, now_us: u64) -> bool {
        self.common.outage.strikes(now_us)
    }

    /// Decides about a recipient.
    pub(super) fn admit(&self, recipient: &str, now_us: u64) -> MailAdmission {
        // Before the dice: what an address asks for is the same in every run.
        if let Some((code, enhanced)) = asked_for(recipient) {
            return MailAdmission::Reply(code, format!("{enhanced} as the address asks for"));
        }
        let faults = &self.options.faults;
        if faults.dead_tokens > 0.0 && is_dead(recipient, faults.dead_tokens) {
            return MailAdmission::Reply(550, "5.1.1 no such user here".to_owned());
        }
        if let Some(wait) = self.options.smtp_greylist {
            let wait_us = u64::try_from(wait.as_micros()).unwrap_or(u64::MAX);
            if self.greylist.turns_away(recipient, now_us, wait_us) {
                return MailAdmission::Reply(450, "4.2.0 Greylisted, try again".to_owned());
            }
        }
        match self.dice.borrow_mut().fault() {
            None => MailAdmission::Good(MailTaken::Accepted),
            // Both leave the request unprocessed, and 421 is how a mail server says that.
            Some(SimFault::Refuse | SimFault::Unavailable) => MailAdmission::Close,
            Some(SimFault::Throttle) => {
                MailAdmission::Reply(451, "4.7.1 too many mails".to_owned())
            }
            Some(SimFault::InternalError) => MailAdmission::Good(MailTaken::Failed),
            // Both process it and leave the client without a word.
            Some(SimFault::Drop | SimFault::Disconnect) => MailAdmission::Good(MailTaken::Silence),
        }
    }

    /// The time that the answer to a mail takes, microseconds.
    pub(super) fn latency_us(&self, now_us: u64) -> u64 {
        match self.dice.borrow_mut().latency_us() {
            0 => 0,
            latency_us => {
                self.common.capacity.answered_us(now_us, latency_us).saturating_sub(now_us)
            }
        }
    }

    /// Mails after which a connection ends.
    pub(super) fn closes_after(&self) -> Option<u64> {
        self.options.faults.goaway_every.map(std::num::NonZeroU64::get)
    }

    /// The login that may send, as AUTH PLAIN has it; `None`: no login is asked for.
    pub(super) fn login(&self) -> Option<(&str, &str)> {
        self.options.smtp_login.as_deref().and_then(|login| login.split_once(':'))
    }
}

// === impl MailTaken ===

impl MailTaken {
    pub(super) const fn status(self) -> JournalStatus {
        match self {
            Self::Accepted => JournalStatus::Answered(250),
            Self::Failed => JournalStatus::Answered(451),
            Self::Silence => JournalStatus::Drop,
        }
    }
}

// === impl Greylist ===

impl Greylist {
    /// True if `recipient` comes too early: for the first time, or again before `wait_us` is over.
    fn turns_away(&self, recipient: &str, now_us: u64, wait_us: u64) -> bool {
        let mut seen = self.0.borrow_mut();
        if seen.len() >= GREYLIST_MAX {
            seen.clear();
        }
        if let Some(first_us) = seen.get(recipient) {
            return now_us < first_us.saturating_add(wait_us);
        }
        seen.insert(recipient.to_owned(), now_us);
        true
    }
}

/// The reply that an address asks for: `450-4.2.1@anywhere`, `550-5.1.1+more@anywhere`.
fn asked_for(recipient: &str) -> Option<(u16, &str)> {
    let local = recipient.split(['@', '+']).next()?;
    let (code, enhanced) = local.split_once('-')?;
    let code: u16 = code.parse().ok().filter(|code| (400..600).contains(code))?;
    let is_enhanced = enhanced.split('.').count() == 3
        && enhanced.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    is_enhanced.then_some((code, enhanced))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_can_ask_for_its_reply() {
        let check = |address, expect| assert_eq!(asked_for(address), expect, "{address}");
        check("450-4.2.1@example.org", Some((450, "4.2.1")));
        check("550-5.1.10+more@example.org", Some((550, "5.1.10")));
        check("250-2.0.0@example.org", None);
        check("550@example.org", None);
        check("550-x.y.z@example.org", None);
        check("somebody@example.org", None);
        check("", None);
    }

    #[test]
    fn who_is_greylisted_comes_through_after_the_wait() {
        let greylist = Greylist::default();
        let turned_away = [(0, "a"), (5, "a"), (5, "b"), (10, "a"), (11, "a"), (12, "b")]
            .map(|(now_us, who)| greylist.turns_away(who, now_us, 10));
        assert_eq!(turned_away, [true, true, true, false, false, true]);
    }
}

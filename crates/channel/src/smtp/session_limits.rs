//! How many mails a host takes in a session, learned from its refusals.
//!
//! Servers bound the mails of a session and say so instead of taking the next one: `OpenSMTPD` with `452 4.5.3` after 100. Such a
//! refusal speaks of the session, so the mail goes over another one within its attempt. If that one takes it, the number is
//! remembered for the host, and later sessions end before they are refused. A number is used for an hour and then learned anew.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use flow::Clock;
use tokio::time::Instant;

use super::response::is_greylisting;
use super::transaction::SmtpStage;
use super::wire::SmtpReply;

/// How long a number is used. A server's limit changes with its configuration, which is rare; too low a number costs a
/// connection for each so many mails meanwhile.
const USED_FOR: Duration = Duration::from_hours(1);
/// Hosts remembered per sender thread, about 100 bytes each; beyond it the one that was learned first is forgotten.
const HOSTS_MAX: usize = 1_024;

/// The numbers of one sender thread.
#[derive(Debug)]
pub(super) struct SessionLimits {
    clock: Clock,
    by_host: RefCell<HashMap<Arc<str>, LearnedSessions>>,
}

/// A session that was refused another mail, and what would be learned from that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LimitRefusal {
    pub(super) host: Arc<str>,
    /// Mails that the session took before, at least 1.
    pub(super) mails_taken: u32,
}

#[derive(Debug, Clone, Copy)]
struct LearnedSessions {
    mails: u32,
    until: Instant,
}

// === impl SessionLimits ===

impl SessionLimits {
    /// Nothing learned yet.
    pub(super) fn new(clock: Clock) -> Self {
        Self { clock, by_host: RefCell::default() }
    }

    /// True if a session with `host` that took `mails_taken` mails has no room for another one, as far as is known.
    pub(super) fn is_full(&self, host: &str, mails_taken: u32) -> bool {
        let by_host = self.by_host.borrow();
        let learned = by_host.get(host).filter(|learned| learned.until > self.clock.monotonic());
        learned.is_some_and(|learned| mails_taken >= learned.mails)
    }

    /// Remembers the number of `refusal`, after another session with the host took the mail.
    pub(super) fn learn(&self, refusal: LimitRefusal) {
        let LimitRefusal { host, mails_taken: mails } = refusal;
        let until = self.clock.monotonic() + USED_FOR;
        let mut by_host = self.by_host.borrow_mut();
        if by_host.len() >= HOSTS_MAX && !by_host.contains_key(&host) {
            let first = by_host.iter().min_by_key(|(_, learned)| learned.until);
            if let Some(host) = first.map(|(host, _)| Arc::clone(host)) {
                by_host.remove(&host);
            }
        }
        by_host.insert(host, LearnedSessions { mails, until });
    }
}

/// True if `reply`, to a mail over a session that took mails before, may speak of the session and not of the mail. Not if it
/// names policy, which is about rates, or the server's storage or load: another session would only add to that.
pub(super) fn may_end_session(stage: SmtpStage, reply: &SmtpReply) -> bool {
    let is_of_session = match reply.enhanced {
        [_, 5, 3] => matches!(reply.code, 400..=499),
        [_, 7, _] | [_, 3, 1 | 2] => false,
        _ => matches!(reply.code, 450 | 452),
    };
    stage == SmtpStage::Mail && is_of_session && !is_greylisting(&reply.text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(host: &str, mails_taken: u32) -> LimitRefusal {
        LimitRefusal { host: host.into(), mails_taken }
    }

    #[tokio::test(start_paused = true)]
    async fn a_number_is_used_for_an_hour_and_then_learned_anew() {
        let limits = SessionLimits::new(Clock::starting_at(Duration::from_hours(500_000)));
        assert!(!limits.is_full("mx.example", 1_000), "nothing is known");
        limits.learn(refusal("mx.example", 100));
        let full = [99, 100, 101].map(|mails| limits.is_full("mx.example", mails));
        assert_eq!(full, [false, true, true]);
        assert!(!limits.is_full("mx.example.org", 100), "another host");
        limits.learn(refusal("mx.example", 10));
        assert!(limits.is_full("mx.example", 10), "the newest counts");
        tokio::time::advance(USED_FOR).await;
        assert!(!limits.is_full("mx.example", 1_000));
    }

    #[tokio::test(start_paused = true)]
    async fn of_a_hundred_times_as_many_hosts_the_newest_are_remembered() {
        let limits = SessionLimits::new(Clock::starting_at(Duration::from_hours(500_000)));
        for number in 0..100 * HOSTS_MAX {
            tokio::time::advance(Duration::from_millis(1)).await;
            limits.learn(refusal(&format!("mx{number}.example"), 1));
        }
        assert_eq!(limits.by_host.borrow().len(), HOSTS_MAX);
        let last = 100 * HOSTS_MAX - 1;
        assert!(limits.is_full(&format!("mx{last}.example"), 1));
        assert!(limits.is_full(&format!("mx{}.example", last - HOSTS_MAX + 1), 1));
        assert!(!limits.is_full(&format!("mx{}.example", last - HOSTS_MAX), 1));
    }

    #[test]
    fn a_refusal_of_the_sender_may_mean_the_session_unless_it_names_something_else() {
        let check = |stage, code, enhanced, text: &str, expect| {
            let reply = SmtpReply { code, enhanced, text: text.to_owned() };
            assert_eq!(may_end_session(stage, &reply), expect, "{reply:?}");
        };
        check(SmtpStage::Mail, 452, [4, 5, 3], "too many messages", true);
        check(SmtpStage::Mail, 451, [4, 5, 3], "too many messages", true);
        check(SmtpStage::Mail, 452, [0; 3], "too many mails", true);
        check(SmtpStage::Mail, 450, [4, 0, 0], "enough", true);
        check(SmtpStage::Mail, 450, [0; 3], "Greylisted", false);
        check(SmtpStage::Mail, 452, [4, 3, 1], "no space", false);
        check(SmtpStage::Mail, 450, [4, 7, 1], "too fast", false);
        check(SmtpStage::Mail, 451, [4, 3, 0], "try later", false);
        check(SmtpStage::Mail, 552, [5, 5, 3], "too many", false);
        check(SmtpStage::Recipient, 452, [4, 5, 3], "too many recipients", false);
    }
}

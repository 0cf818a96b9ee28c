//! A circuit breaker: decides from the ends of attempts in a row that a destination does not answer.

use std::time::Duration;

/// Opens when many attempts in a row came to nothing, and closes with the next answer. Pure arithmetic: the time, since any
/// instant in the past, comes in.
#[derive(Debug, Clone, Copy, Default)]
pub struct Breaker {
    /// Attempts that failed since the last answer.
    failures: u32,
    /// The last answer; the first failure, when there was none.
    since: Option<Duration>,
    /// The last time that a try was let through while the breaker was open.
    tried_at: Option<Duration>,
}

/// Failures in a row that open it.
const FAILURES: u32 = 16;
/// Attempts that are tried at a time while it is open: each may wait for its answer for half a minute, and one that begins every two
/// seconds is not to wait for them.
pub(crate) const TRIES: usize = 16;
/// Time without an answer before the breaker opens: a shorter one may be one lost connection with all attempts under way on it.
const TROUBLE: Duration = Duration::from_millis(500);

// === impl Breaker ===

impl Breaker {
    /// An attempt ended at `now`: with an answer, whatever it was, or with none and with "not now".
    pub fn note(&mut self, is_answer: bool, now: Duration) {
        if is_answer {
            *self = Self { failures: 0, since: Some(now), tried_at: None };
        } else {
            self.failures = self.failures.saturating_add(1);
            self.since.get_or_insert(now);
        }
    }

    /// True if enough attempts in a row failed; time decides the rest.
    pub(crate) fn is_suspicious(&self) -> bool {
        self.failures >= FAILURES
    }

    /// True if the breaker is open and lets no attempt through at `now`: the tries are used up (`is_full`), or one began less
    /// than [`TROUBLE`] ago. All attempts that were under way when a destination fell silent end at once, and new ones would hold
    /// all the tries for half a minute.
    pub(crate) fn shuts_out(&mut self, now: Duration, is_full: bool) -> bool {
        if !self.is_open(now) {
            return false;
        }
        let is_soon = self.tried_at.is_some_and(|at| now.saturating_sub(at) < TROUBLE);
        if !is_full && !is_soon {
            self.tried_at = Some(now);
        }
        is_full || is_soon
    }

    /// True if the breaker is open: no more than [`TRIES`] attempts at a time.
    pub fn is_open(&self, now: Duration) -> bool {
        self.is_suspicious() && self.since.is_some_and(|since| now.saturating_sub(since) >= TROUBLE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_opens_after_many_failures_in_a_row_and_closes_with_an_answer() {
        let start = Duration::from_hours(500_000);
        let mut breaker = Breaker::default();
        (0..FAILURES).for_each(|_| breaker.note(false, start));
        assert!(!breaker.is_open(start), "as a lost connection has it");
        assert!(breaker.is_open(start + TROUBLE));
        breaker.note(true, start + TROUBLE);
        assert!(!breaker.is_open(start + 2 * TROUBLE));
        let silent = start + TROUBLE + Duration::from_secs(30);
        (1..FAILURES).for_each(|_| breaker.note(false, silent));
        assert!(!breaker.is_open(silent));
        breaker.note(false, silent);
        assert!(breaker.is_open(silent), "nothing was answered for half a minute");
    }

    #[test]
    fn failures_between_answers_do_not_open_it() {
        let start = Duration::from_hours(500_000);
        let mut breaker = Breaker::default();
        for attempt in 0..10_000 {
            breaker.note(attempt % 16 == 0, start + Duration::from_secs(attempt));
            assert!(!breaker.is_open(start + Duration::from_secs(attempt)));
        }
    }
}

//! The wall time of another machine, estimated by this process.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The wall time that all processes of a cluster go by: its database's.
///
/// The time is held as a distance from this machine's time since boot ([`Clock::boot`](crate::Clock::boot)), which never steps
/// and goes on in suspend: a machine whose own clock is wrong, was set, or was asleep still has the cluster's time. The distance
/// is measured with every answer of the database and errs to one side: the time shown is never ahead of the reference by more
/// than the two drift apart between two answers, and behind it by no more than the way back of the quickest answer. Behind is the
/// safe side: nothing is sent before it is due.
#[derive(Debug)]
pub struct Reference {
    /// Distance of the reference ahead of the time since boot, microseconds; [`UNKNOWN`] before the first answer.
    ahead: AtomicI64,
    /// The time since boot of the last answer, microseconds.
    learned_at: Mutex<i64>,
}

/// One answer of the reference; its spans are since boot.
#[derive(Debug, Clone, Copy)]
pub struct TimeAnswer {
    /// Time of the question.
    pub asked: Duration,
    /// Time that the reference gave, since the Unix epoch: an instant between question and answer.
    pub told: Duration,
    /// Time of the answer.
    pub answered: Duration,
}

/// Two clocks drift apart by no more than this, parts in a million: adjtime(3) slews by up to 500, and an oscillator is off
/// by less than 100.
const DRIFT_PPM: i64 = 600;
const UNKNOWN: i64 = i64::MIN;

// === impl Reference ===

impl Reference {
    /// A reference whose time is unknown so far. A process has one for each store that it opens, as long as it lives: it is never
    /// freed, so that a [`Clock`](crate::Clock) that follows it stays as cheap to copy as any.
    pub fn forever() -> &'static Self {
        let (ahead, learned_at) = (AtomicI64::new(UNKNOWN), Mutex::new(0));
        Box::leak(Box::new(Self { ahead, learned_at }))
    }

    /// Learns from `answer`. Gives how far that moved it, milliseconds: a few, unless the reference was set.
    pub fn learn(&self, answer: TimeAnswer) -> i64 {
        let (asked, told) = (micros(answer.asked), micros(answer.told));
        let answered = micros(answer.answered);
        // The time given was true at some instant between the two.
        let (least, most) = (told.saturating_sub(answered), told.saturating_sub(asked));
        // Held to the end: answers of different connections are learned one after the other.
        let mut learned_at = self.learned_at.lock().unwrap_or_else(PoisonError::into_inner);
        // Two answers may take the lock in another order than they came in.
        let passed = answered.saturating_sub(*learned_at).max(0);
        *learned_at = answered;
        let before = self.ahead.load(Ordering::Acquire);
        if before == UNKNOWN {
            self.ahead.store(least, Ordering::Release);
            return 0;
        }
        // The clocks may have drifted apart since the last answer: the estimate goes back by the most that they can have.
        let aged = before.saturating_sub(passed.saturating_mul(DRIFT_PPM) / 1_000_000);
        // Of two that are not too much, the greater one is nearer the truth.
        let ahead = if aged > most { least } else { least.max(aged) };
        self.ahead.store(ahead, Ordering::Release);
        ahead.saturating_sub(before) / 1_000
    }

    /// Its wall time at `boot`, a time since boot; `None` before it is known.
    pub fn wall(&self, boot: Duration) -> Option<Duration> {
        match self.ahead.load(Ordering::Acquire) {
            UNKNOWN => None,
            ahead => Some(moved(boot, ahead)),
        }
    }
}

fn micros(span: Duration) -> i64 {
    i64::try_from(span.as_micros()).unwrap_or(i64::MAX)
}

/// `time`, later by `micros`, or earlier when negative. Saturates.
pub(crate) fn moved(time: Duration, micros: i64) -> Duration {
    let by = Duration::from_micros(micros.unsigned_abs());
    if micros < 0 { time.saturating_sub(by) } else { time.saturating_add(by) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// The answer of a reference that is `ahead` of the time since boot, to a question at `asked`, with ways of `there` and
    /// `back`.
    fn answer(ahead: Duration, asked: u32, there: u32, back: u32) -> TimeAnswer {
        let (asked, told) = (asked * MS, ahead + (asked + there) * MS);
        TimeAnswer { asked, told, answered: asked + (there + back) * MS }
    }

    fn shown(reference: &Reference, at: u32) -> Duration {
        reference.wall(at * MS).unwrap()
    }

    #[test]
    fn it_is_never_ahead_and_behind_by_the_quickest_way_back() {
        let (reference, ahead) = (Reference::forever(), 50_000 * MS);
        assert_eq!(reference.wall(MS), None, "not known yet");
        assert_eq!(reference.learn(answer(ahead, 100, 10, 400)), 0);
        assert_eq!(shown(reference, 600), ahead + 200 * MS);
        assert_eq!(reference.learn(answer(ahead, 1_000, 3, 2)), 398);
        assert_eq!(shown(reference, 1_100), ahead + 1_098 * MS);
        // A slow answer is less exact than the estimate; the drift of the clocks since is allowed for.
        reference.learn(answer(ahead, 2_005, 900, 100));
        let behind = (ahead + 4_000 * MS).abs_diff(shown(reference, 4_000));
        assert!(2 * MS < behind && behind < 4 * MS, "{behind:?}");
    }

    #[test]
    fn it_follows_a_step_either_way_with_the_next_answer() {
        let (reference, ahead) = (Reference::forever(), 500_000 * MS);
        reference.learn(answer(ahead, 0, 1, 1));
        assert_eq!(reference.learn(answer(ahead + 60_000 * MS, 1_000, 1, 1)), 60_000);
        assert_eq!(shown(reference, 2_000), ahead + 61_999 * MS);
        assert_eq!(reference.learn(answer(ahead, 3_000, 1, 1)), -60_000);
        assert_eq!(shown(reference, 4_000), ahead + 3_999 * MS);
    }

    #[test]
    fn a_drift_either_way_is_followed_and_never_runs_ahead_by_much() {
        for drift_ppm in [-200_i64, 200] {
            let reference = Reference::forever();
            for beat in 0..1_000_u32 {
                let asked = 2_000 * beat;
                let apart = 1_000_000_000 + i64::from(asked) * drift_ppm / 1_000;
                let ahead = Duration::from_micros(apart.unsigned_abs());
                // Each answer takes another time.
                reference.learn(answer(ahead, asked, beat * 7 % 13, 1 + beat * 5 % 11));
                let (shown, truth) = (shown(reference, asked + 30), ahead + (asked + 30) * MS);
                assert!(shown <= truth + MS, "{shown:?} ahead of {truth:?} at {beat}");
                assert!(truth <= shown + 40 * MS, "{shown:?} behind {truth:?} at {beat}");
            }
        }
    }
}

//! A rate that a destination keeps to and does not publish, learned from its refusals (429) and their `Retry-After`.
//!
//! It is counted first: from the first refusal on, for some seconds, and only where a good part of all answers are refusals. After that
//! each refusal says that what was let through lately is what is let through: the rate goes back to just under that, climbs slowly past
//! it, and then ever faster, since the destination may take more than it did. It climbs only while it holds something back: a
//! destination that gets little proves nothing. A rate that does not end the refusals is none of the destination's, and is given up.
//!
//! Pure arithmetic, time passed in as a span since any instant before.

use std::collections::VecDeque;
use std::time::Duration;

/// A rate learned from refusals.
#[derive(Debug)]
pub struct LearnedRate {
    /// Messages a second that were let through before the last refusal; `None` while they are counted.
    found: Option<f64>,
    /// Time for which the rate has held something back since the last refusal.
    climbed: Duration,
    answers: AnswerCounts,
    /// The first instant that counts for the next rate.
    since: Duration,
    refused_at: Duration,
    /// True if something was accepted since the pause after the last refusal.
    has_accepted: bool,
    held_back_at: Duration,
    /// Refusals in a row with which a good part of the answers were refusals, in spite of the rate.
    vain: u8,
    rests_until: Duration,
}

/// Answers of the last minute, by half seconds.
#[derive(Debug, Default)]
struct AnswerCounts {
    /// Those with an answer, in order, and never more than [`SLOTS`].
    slots: VecDeque<AnswerSlot>,
}

#[derive(Debug)]
struct AnswerSlot {
    /// Half seconds since the beginning of time.
    number: u64,
    accepted: u32,
    refused: u32,
}

/// Answers of a span.
#[derive(Debug)]
struct AnswerSum {
    accepted: u32,
    refused: u32,
    span: Duration,
}

const SLOTS: u64 = 120;
const SLOT_MILLIS: u64 = 500;
/// Part of the rate that was let through at which it begins again.
const CUT: f64 = 0.97;
/// Part of it after a refusal that came too soon for a count, and where a good part of the answers are refusals.
const CUT_UNCOUNTED: f64 = 0.95;
const CUT_FAR: f64 = 0.85;
/// Accepted messages that are enough for a rate and the shortest span for it; so many, or so long a span, that are enough for the first
/// one; and a span in which any number is enough.
const COUNT_MIN: u32 = 8;
const COUNTED_MIN: Duration = Duration::from_secs(1);
const COUNT_AMPLE: u32 = 64;
const COUNTED_FIRST: Duration = Duration::from_secs(3);
const COUNTED_LONG: Duration = Duration::from_secs(55);
/// Refusals that are a good part of the answers: so many, and a third of what was accepted. Fewer are of single recipients with
/// rates of their own.
const REFUSED_MIN: u32 = 4;
const REFUSED_PART: u32 = 3;
/// Shortest span over which answers are counted, seconds, and messages that it has room for; the longest one.
const COUNTED_SECONDS: f64 = 5.0;
const COUNTED_MESSAGES: f64 = 10.0;
const COUNTED_MAX: Duration = Duration::from_mins(1);
/// Time after the first rate in which messages are sent that were let in before.
const SETTLES_FOR: Duration = Duration::from_millis(500);
/// Time without a refusal after which counting begins anew, and after which it ends.
const LULL: Duration = Duration::from_secs(5);
const LULL_MAX: Duration = Duration::from_mins(2);
/// Bounds of the time spent around the known rate, seconds, and messages that it has room for: one refusal in 100 is what it costs.
const PLATEAU_SECONDS: (f64, f64) = (20.0, 100.0);
const PLATEAU_MESSAGES: f64 = 100.0;
/// The rate grows as e is raised to the plateaus passed, over this.
const GROWTH_PLATEAUS: f64 = 1.7;
const RATE_MIN: f64 = 1.0 / 60.0;
/// Longest time between two messages held back that is taken for one stretch, beside two intervals.
const STRETCH: Duration = Duration::from_secs(5);
/// Longest pause: after it one message asks again. Beside accepted messages it is shorter: the refusal may be one recipient's.
pub(crate) const PAUSE_MAX: Duration = Duration::from_mins(1);
const PAUSE_MAX_BESIDE: Duration = Duration::from_millis(200);
/// Refusals in a row that a rate may fail to prevent, and how long none is learned then.
const VAIN_MAX: u8 = 50;
pub(crate) const REST: Duration = Duration::from_mins(5);
/// Time after which a rate that holds nothing back is forgotten.
pub(crate) const FORGOTTEN_AFTER: Duration = Duration::from_hours(1);

// === impl LearnedRate ===

impl LearnedRate {
    /// Begins to count at `now`.
    pub fn new(now: Duration) -> Self {
        Self {
            found: None,
            climbed: Duration::ZERO,
            answers: AnswerCounts::default(),
            since: now,
            refused_at: Duration::ZERO,
            has_accepted: false,
            held_back_at: now,
            vain: 0,
            rests_until: Duration::ZERO,
        }
    }

    /// Messages a second that may be sent; `None` without a bound.
    pub fn per_second(&self) -> Option<f64> {
        Some(rate_after(self.found?, self.climbed))
    }

    /// Messages a second that were let through before the last refusal; `None` while they are counted.
    pub(crate) fn found(&self) -> Option<f64> {
        self.found
    }

    /// Time for which the rate has held something back since the last refusal.
    pub(crate) fn climbed(&self) -> Duration {
        self.climbed
    }

    /// When a message was refused last that counted.
    pub(crate) fn refused_at(&self) -> Duration {
        self.refused_at
    }

    /// Messages a second that were let through since the first refusal; `None` if it was just now.
    pub(crate) fn counted(&self, now: Duration) -> Option<f64> {
        let counted = self.answers.since(self.since, now);
        let is_enough = counted.accepted > 0 && counted.span >= COUNTED_MIN;
        is_enough.then(|| f64::from(counted.accepted) / counted.span.as_secs_f64())
    }

    /// Goes by a rate that others have learned. With `is_other`, what was sent until `now` says nothing of it.
    pub(crate) fn follow(&mut self, found: f64, climbed: Duration, is_other: bool, now: Duration) {
        (self.found, self.climbed) = (Some(found.max(RATE_MIN)), climbed);
        if is_other {
            (self.refused_at, self.since) = (now, self.since.max(now));
        }
    }

    /// Sets the rate that was let through before the last refusal: it is known from more than what was counted.
    pub(crate) fn correct(&mut self, found: f64) {
        self.found = Some(found.max(RATE_MIN));
    }

    /// Refusals of messages that are sent for `span` from now on say nothing: their places were reserved by an earlier rate.
    pub(crate) fn settle(&mut self, now: Duration, span: Duration) {
        self.refused_at = self.refused_at.max(now + span);
    }

    /// Learns nothing for `span`: a rate does not end the refusals.
    pub(crate) fn rest(&mut self, now: Duration, span: Duration) {
        *self = Self { rests_until: now + span, ..Self::new(now + span) };
    }

    /// True if there is nothing to remember any more.
    pub fn is_over(&self, now: Duration) -> bool {
        let used_at = self.refused_at.max(self.held_back_at).max(self.rests_until);
        let kept = if self.found.is_some() { FORGOTTEN_AFTER } else { LULL_MAX };
        now.saturating_sub(used_at) > kept
    }

    /// So many messages were answered and not refused.
    pub fn accept(&mut self, now: Duration, count: u32) {
        self.answers.add(now, count, 0);
        self.has_accepted |= count > 0 && now >= self.since;
    }

    /// The rate has a message wait.
    pub fn hold_back(&mut self, now: Duration) {
        let Some(rate) = self.per_second() else { return };
        let stretch = STRETCH.max(Duration::from_secs_f64(2.0 / rate));
        let passed = now.saturating_sub(self.held_back_at.max(self.since));
        if passed <= stretch {
            self.climbed += passed;
        } else {
            // Less was sent than the rate allows, so what came through says little of it.
            self.since = now;
        }
        self.held_back_at = now;
    }

    /// A message that was sent at `sent_at` was refused, for `retry_after`. Those that were under way then are one refusal. Returns for
    /// how long nothing is to be sent.
    pub fn refuse(&mut self, now: Duration, sent_at: Duration, retry_after: Duration) -> Duration {
        self.answers.add(now, 0, 1);
        if sent_at <= self.refused_at || now < self.rests_until {
            return Duration::ZERO;
        }
        let lull = now.saturating_sub(self.refused_at);
        self.refused_at = now;
        let Some(current) = self.per_second() else {
            if lull > LULL.max(retry_after.saturating_mul(2)) {
                self.since = now;
            }
            self.find(now);
            // At what is let through already there is nothing to wait for.
            return Duration::ZERO;
        };
        let counted = (COUNTED_MESSAGES / current).max(COUNTED_SECONDS);
        let from = now.saturating_sub(Duration::from_secs_f64(counted).min(COUNTED_MAX));
        let lately = self.answers.since(from, now);
        self.vain = if lately.is_good_part_refused() { self.vain + 1 } else { 0 };
        if self.vain > VAIN_MAX {
            self.rest(now, REST);
            return Duration::ZERO;
        }
        let counted = self.answers.since(from.max(self.since), now);
        let has_accepted = std::mem::take(&mut self.has_accepted);
        self.begin_at(match counted.per_second() {
            // It takes nothing at all for now, whatever the rate is.
            None if !has_accepted => current,
            None if self.vain > 0 => current * CUT_FAR,
            None => current * CUT_UNCOUNTED,
            Some(let_through) => current.min(let_through),
        });
        let longest = if has_accepted { PAUSE_MAX_BESIDE } else { PAUSE_MAX };
        let pause = retry_after.min(longest);
        self.since = now + pause;
        pause
    }

    /// Goes by what was let through, if that was counted for long enough and is a rate.
    fn find(&mut self, now: Duration) {
        let from = now.saturating_sub(COUNTED_MAX).max(self.since);
        let counted = self.answers.since(from, now);
        if let Some(let_through) = counted.per_second()
            && (counted.span >= COUNTED_FIRST || counted.accepted >= COUNT_AMPLE)
            && counted.is_good_part_refused()
        {
            self.begin_at(let_through);
            // What was answered last may not be counted yet, so it grows at once, and the next refusal tells.
            self.climbed = growth_of(let_through);
            (self.since, self.held_back_at, self.has_accepted) = (now, now, true);
            // Those of before say nothing of the rate.
            self.answers = AnswerCounts::default();
            // What was let in without it is sent until then.
            self.refused_at = now + SETTLES_FOR;
        }
    }

    fn begin_at(&mut self, known: f64) {
        self.found = Some(known.max(RATE_MIN));
        self.climbed = Duration::ZERO;
    }
}

/// The rate so much time of climbing after a refusal before which messages were let through at the rate `known`.
pub(crate) fn rate_after(known: f64, climbed: Duration) -> f64 {
    let (climb, plateau) = climb_and_plateau(known);
    let climbed = climbed.as_secs_f64();
    if climbed < climb {
        known * (CUT + (0.99 - CUT) * climbed / climb)
    } else if climbed < climb + plateau {
        known * (0.99 + 0.02 * (climbed - climb) / plateau)
    } else {
        known * 1.01 * ((climbed - climb - plateau) / (GROWTH_PLATEAUS * plateau)).exp()
    }
}

/// Time of climbing from which on a known rate grows.
pub(crate) fn growth_of(known: f64) -> Duration {
    let (climb, plateau) = climb_and_plateau(known);
    Duration::from_secs_f64(climb + plateau)
}

/// Seconds of the climb to a known rate, and of the plateau around it.
fn climb_and_plateau(known: f64) -> (f64, f64) {
    let (least, most) = PLATEAU_SECONDS;
    let plateau = (PLATEAU_MESSAGES / known).clamp(least, most);
    (plateau / 4.0, plateau)
}

// === impl AnswerCounts ===

impl AnswerCounts {
    /// Counts answers of `now`.
    fn add(&mut self, now: Duration, accepted: u32, refused: u32) {
        let number = slot_number(now);
        while self.slots.pop_front_if(|first| first.number + SLOTS <= number).is_some() {}
        match self.slots.back_mut() {
            // What is told late counts as of the last slot.
            Some(last) if last.number >= number => {
                last.accepted += accepted;
                last.refused += refused;
            }
            _ => self.slots.push_back(AnswerSlot { number, accepted, refused }),
        }
    }

    /// The answers in the slots that begin after `from`.
    fn since(&self, from: Duration, now: Duration) -> AnswerSum {
        let first = slot_number(from) + 1;
        let span = now.saturating_sub(Duration::from_millis(first * SLOT_MILLIS));
        let mut counted = AnswerSum { accepted: 0, refused: 0, span };
        for slot in self.slots.iter().filter(|slot| slot.number >= first) {
            counted.accepted += slot.accepted;
            counted.refused += slot.refused;
        }
        counted
    }
}

// === impl AnswerSum ===

impl AnswerSum {
    /// Accepted messages a second; `None` if there are too few to tell.
    fn per_second(&self) -> Option<f64> {
        let is_enough = (self.accepted >= COUNT_MIN && self.span >= COUNTED_MIN)
            || (self.accepted > 0 && self.span >= COUNTED_LONG);
        is_enough.then(|| f64::from(self.accepted) / self.span.as_secs_f64())
    }

    fn is_good_part_refused(&self) -> bool {
        self.refused >= REFUSED_MIN && self.refused.saturating_mul(REFUSED_PART) >= self.accepted
    }
}

fn slot_number(at: Duration) -> u64 {
    u64::try_from(at.as_millis()).unwrap_or(u64::MAX) / SLOT_MILLIS
}

#[cfg(test)]
#[path = "hidden_rate.rs"]
pub(crate) mod hidden;
#[cfg(test)]
#[path = "learned_rate_tests.rs"]
mod tests;

//! A learned rate that the processes of a cluster share: one rate for all, and turns to send by it.
//!
//! A destination that wants a distance between any two messages is kept to only if one process at a time sends to it, and the others
//! know when it stops. So a process books a *turn*, a stretch of time in which it alone sends at the whole rate, behind those that
//! are booked already. What it learns in its turns it tells with the next question, and goes by what all have learned.
//!
//! Nothing here is for safety: turns that overlap cost refusals, turns that are not used cost time of the destination.
//!
//! Pure arithmetic. Times are since the Unix epoch, by the one clock that all processes go by.

use std::time::Duration;

use crate::learned_rate::{self, FORGOTTEN_AFTER, REST};

/// A destination in the ledger of all processes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RateRow {
    /// The rate that was learned.
    pub rate: SharedRate,
    /// When the row began.
    pub began_at: Duration,
    /// When the rate was set back last.
    pub refused_at: Duration,
    /// End of the last turn that is booked.
    pub booked_until: Duration,
    /// Nothing is to be sent until then.
    pub paused_until: Duration,
    /// No rate is learned until then: this one ended no refusals.
    pub rests_until: Duration,
    /// The row counts until then.
    pub until: Duration,
}

/// A rate that was learned from refusals; see [`LearnedRate`](crate::LearnedRate).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SharedRate {
    /// Messages a second that were let through before the last refusal.
    pub found: f64,
    /// Time for which the rate has held something back since.
    pub climbed: Duration,
    /// Number of the last refusal, greater than those of all before.
    pub generation: u64,
}

/// A question to the ledger.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TurnAsk {
    /// News since the last question.
    pub news: RateNews,
    /// [`SharedRate::generation`] of the rate that was gone by; 0 without one.
    pub generation: u64,
    /// Time for which the rate has held something back since the last question.
    pub climbed: Duration,
    /// Time for which nothing is to be sent.
    pub pause: Duration,
    /// Longest turn that is wanted; zero for none.
    pub wants: Duration,
}

/// News of a process since its last question.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum RateNews {
    /// Nothing.
    None,
    /// A rate was found without those of others: so many messages a second of its own were let through.
    Counted(f64),
    /// So many a second of its own were let through so far, which is no rate by itself.
    Counting(f64),
    /// A message was refused, and so many a second were let through.
    Refused(f64),
    /// A good part was refused, and so many a second were let through, where it may be twice as many: a destination that wants a
    /// distance refuses every other one, by however little it is too short.
    RefusedMany(f64),
    /// The rate ends no refusals.
    GivenUp,
}

/// The answer.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct TurnAnswer {
    /// The rate to go by; `None` if there is none.
    pub rate: Option<SharedRate>,
    /// The turn that is booked.
    pub turn: Option<RateTurn>,
    /// Time until the last turn of any process ends.
    pub booked_for: Duration,
    /// Time for which nothing is to be sent.
    pub paused_for: Duration,
    /// Time for which no rate is to be learned.
    pub rests_for: Duration,
}

/// A stretch of time in which one process alone sends.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RateTurn {
    /// Time from the question until it begins.
    pub starts_in: Duration,
    /// Messages: one for each `interval`, the first one at the start.
    pub messages: u32,
    /// Time between two messages.
    pub interval: Duration,
}

/// Longest turn.
pub const TURN_MAX: Duration = Duration::from_secs(1);

/// How far ahead turns are booked, or for two messages if those take longer: what waits for its turn waits for that long.
const BOOKED_MAX: Duration = Duration::from_secs(4);
/// Time between two turns: clocks of two processes differ by about a way to the database.
const GUARD: Duration = Duration::from_millis(2);
/// Time in which all processes have heard of another rate; and a part of the rate, of which a refusal until then leaves more.
const SETTLES_FOR: Duration = BOOKED_MAX;
const LITTLE: f64 = 0.9;
/// Time after the beginning of a row in which processes add what each has counted: before, none knew of the others.
const ADDS_UP: Duration = Duration::from_secs(5);
const ADDS_UP_MAX: Duration = Duration::from_mins(1);
const ADDS_UP_MESSAGES: u32 = 10;

/// Answers `ask` at `now` and books the turn in the row of a destination; `None` if there is none, or is none any more.
pub fn take_turn(
    row: Option<RateRow>,
    ask: &TurnAsk,
    now: Duration,
) -> (Option<RateRow>, TurnAnswer) {
    let known = row.filter(|row| row.until > now && row.rests_until.is_zero());
    if let Some(resting) = row.filter(|row| row.rests_until > now) {
        let rests_for = resting.rests_until.saturating_sub(now);
        return (Some(resting), TurnAnswer { rests_for, ..TurnAnswer::default() });
    }
    let Some(mut row) = known.or_else(|| RateRow::begin(ask.news, now)) else {
        return (None, TurnAnswer::default());
    };
    row.learn(ask, now);
    if row.rests_until > now {
        return (Some(row), TurnAnswer { rests_for: REST, ..TurnAnswer::default() });
    }
    let turn = row.book(ask.wants, now);
    let answer = TurnAnswer {
        rate: Some(row.rate),
        turn,
        booked_for: row.booked_until.saturating_sub(now),
        paused_for: row.paused_until.saturating_sub(now),
        rests_for: Duration::ZERO,
    };
    (Some(row), answer)
}

// === impl RateRow ===

impl RateRow {
    /// The row of a destination whose rate `news` tells first.
    fn begin(news: RateNews, now: Duration) -> Option<Self> {
        let found = match news {
            RateNews::None | RateNews::Counting(_) | RateNews::GivenUp => return None,
            // Added by what the news say.
            RateNews::Counted(_) => 0.0,
            RateNews::Refused(found) | RateNews::RefusedMany(found) => found,
        };
        let generation = u64::try_from(now.as_micros()).unwrap_or(u64::MAX).max(1);
        Some(Self {
            rate: SharedRate { found, climbed: Duration::ZERO, generation },
            began_at: now,
            refused_at: Duration::ZERO,
            booked_until: now,
            paused_until: Duration::ZERO,
            rests_until: Duration::ZERO,
            until: now + FORGOTTEN_AFTER,
        })
    }

    fn learn(&mut self, ask: &TurnAsk, now: Duration) {
        self.until = now + FORGOTTEN_AFTER;
        let current = self.rate.per_second();
        let is_current = ask.generation == self.rate.generation;
        let is_late = now < self.refused_at + SETTLES_FOR;
        match ask.news {
            RateNews::Counted(counted) | RateNews::Counting(counted) if self.adds_up(now) => {
                let found = current + counted;
                // All of them may have counted less than there is: it grows before long.
                self.set_back(found, learned_rate::growth_of(found) * 4 / 5);
            }
            RateNews::None | RateNews::Counted(_) | RateNews::Counting(_) => {
                if is_current {
                    self.climb(ask.climbed);
                }
            }
            // By a rate that holds no more.
            RateNews::Refused(_) | RateNews::RefusedMany(_) | RateNews::GivenUp if !is_current => {}
            // What was on its way by the former rate says little more than the refusal that set it back.
            RateNews::Refused(found) if is_late && found > current * LITTLE => {}
            RateNews::Refused(found) => {
                self.set_back(found.min(current), Duration::ZERO);
                self.refused_at = now;
            }
            RateNews::RefusedMany(found) => {
                let found = found.min(current);
                self.set_back(found, learned_rate::growth_of(found));
                self.refused_at = now;
            }
            RateNews::GivenUp => self.rests_until = now + REST,
        }
        if is_current && !ask.pause.is_zero() {
            self.paused_until = self.paused_until.max(now + ask.pause);
            self.booked_until = self.booked_until.max(self.paused_until);
        }
    }

    /// Another rate holds from now on.
    fn set_back(&mut self, found: f64, climbed: Duration) {
        self.rate = SharedRate { found, climbed, generation: self.rate.generation + 1 };
    }

    /// True while others may have counted without knowing of this row.
    fn adds_up(&self, now: Duration) -> bool {
        let counting = self.rate.interval() * ADDS_UP_MESSAGES;
        now < self.began_at + counting.clamp(ADDS_UP, ADDS_UP_MAX)
    }

    /// The rate has held something back for `span`. Up to where it grows it climbs at half the speed of that of one process: what is
    /// under way when it comes to a refusal is more.
    fn climb(&mut self, span: Duration) {
        let is_growing = self.rate.climbed >= learned_rate::growth_of(self.rate.found);
        self.rate.climbed += if is_growing { span } else { span / 2 };
    }

    /// Books a turn of `wants` at most behind those that are booked; `None` if none is wanted, or if those reach too far.
    fn book(&mut self, wants: Duration, now: Duration) -> Option<RateTurn> {
        let interval = self.rate.interval();
        let booked = self.booked_until.saturating_sub(now);
        // What others have counted may not be added yet, and the rate be much greater.
        let adds_up = self.adds_up(now);
        let ahead = if adds_up { BOOKED_MAX } else { BOOKED_MAX.max(2 * interval) };
        let room = ahead.checked_sub(booked)?;
        if wants.is_zero() || room < interval {
            return None;
        }
        // Half of what is left: the more processes there are, the shorter are their turns.
        let messages = messages(wants.min(room / 2), interval);
        let starts_at = self.booked_until.max(now);
        self.booked_until = starts_at + interval * messages + GUARD;
        Some(RateTurn { starts_in: starts_at.saturating_sub(now), messages, interval })
    }
}

/// Time between two messages at so many a second, as a clock can tell them apart; a minute at most.
pub(crate) fn interval_at(per_second: f64) -> Duration {
    Duration::from_secs_f64((1.0 / per_second).clamp(1e-6, 60.0))
}

/// Whole intervals within `span`, at least one.
fn messages(span: Duration, interval: Duration) -> u32 {
    let count = span.as_nanos() / interval.as_nanos().max(1);
    u32::try_from(count).unwrap_or(u32::MAX).max(1)
}

// === impl SharedRate ===

impl SharedRate {
    /// Messages a second that may be sent.
    pub fn per_second(&self) -> f64 {
        learned_rate::rate_after(self.found, self.climbed)
    }

    /// Time between two messages, as a clock can tell them apart.
    fn interval(&self) -> Duration {
        interval_at(self.per_second())
    }
}

#[cfg(test)]
#[path = "shared_rate_tests.rs"]
mod tests;

//! A process's turns in sending by a learned rate that all processes share, see [`shared_rate`](crate::shared_rate).
//!
//! While it goes by turns, places are of its turns alone, and what it learns has a time of its own, which passes in its turns: in that
//! time it sends without a gap at the whole rate, as a process does that is alone. One whose questions are not answered goes on alone,
//! with the part of the rate that it had.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use super::booked_turns::BookedTurns;
use super::nanos::nanos_of;
use crate::LearnedRate;
use crate::learned_rate::{FORGOTTEN_AFTER, PAUSE_MAX};
use crate::shared_rate::{RateNews, TURN_MAX, TurnAnswer, TurnAsk, interval_at};

/// The turns of one process before one destination.
#[derive(Debug)]
pub(super) struct Turns {
    /// Notified when a turn is wanted, or when there are news.
    wake: Arc<Notify>,
    /// Of the rate that is gone by; 0 before one is known.
    generation: u64,
    /// Time of climbing that the ledger knows of.
    climbed: Duration,
    news: RateNews,
    /// Refusals since the last question.
    untold: Untold,
    /// Answers since the last refusal that changed the rate.
    accepted: u32,
    refused: u32,
    /// Accepted attempts since nothing was accepted for a while.
    accepted_since_shut: u32,
    /// Until then refusals are of what was sent before others knew of the rate.
    settles_until: u64,
    booked: BookedTurns,
    /// Time between two messages of the last turn that has begun, nanoseconds.
    interval: u64,
    /// Length of the next turn: of those that are used up twice the last one's.
    length: Duration,
    asked_length: Duration,
    /// True if the last turn was used up.
    is_used_up: bool,
    /// Since when a place has been looked for in vain.
    wanted_since: Option<u64>,
    /// No turn is asked for until then, and there is room for one.
    no_turn_until: u64,
    room_at: u64,
    /// Time of the first question without an answer.
    unanswered_since: Option<u64>,
    /// True while it goes on alone, by the part of the rate that it had.
    is_alone: bool,
    looked_at: u64,
    /// Until when the time of what is learned has been told.
    told_until: u64,
    /// The part of all time that its turns have, how much they had since, and since when.
    share: f64,
    had: Duration,
    had_since: u64,
}

/// Refusals that other processes have not been told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Untold {
    Nothing,
    /// Attempts were refused.
    Refused,
    /// And nothing is accepted beside them.
    Shut,
}

/// How long an answer of the ledger is waited for before a process goes on alone.
const PATIENCE: Duration = Duration::from_secs(3);
/// Length of the first turn, and of the shortest: half of it.
const LENGTH_FIRST: Duration = Duration::from_millis(125);
/// Length of turns from which on the next one is booked before the last one is used up, and how far ahead: what found no place comes
/// back a second later.
const LENGTH_OF_BACKLOG: Duration = Duration::from_millis(500);
const AHEAD: Duration = Duration::from_millis(2_500);
/// Least and greatest time before it is asked again for a turn where there was no room.
const ASK_AGAIN: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// Time before it is asked again for a rate that none has found.
const UNKNOWN_FOR: Duration = Duration::from_secs(1);
/// Least time to wait for a place where there is no turn.
const NO_TURN_WAIT: Duration = Duration::from_secs(2);
/// Least part of the rate of one that goes on alone.
const SHARE_MIN: f64 = 0.02;
/// Answers that tell which part of them is accepted.
const ANSWERS_MIN: u32 = 8;
/// Refusals without an acceptance that tell that nothing is accepted, and the shortest pause that is more than a rate's.
const SHUT_MIN: u32 = 2;
const SHUT_FOR: Duration = Duration::from_secs(5);
/// Time after which all processes go by a first rate.
const SETTLES_FOR: Duration = Duration::from_millis(2_500);
/// Part of a rate that was just too much, which is let through.
const CUT_CLOSE: f64 = 0.98;
/// Least part that is let through by one refusal: one that wants a distance refuses half, by however little it is too short.
const CUT_FAR: f64 = 0.5;
/// Least part of a rate that is left when nothing is accepted for a while: it may be the doing of one that has just come, and sends
/// without a rate.
const CUT_SHUT: f64 = 0.7;
/// Time over which the part of all time is measured.
const SHARE_SPAN: Duration = Duration::from_secs(2);

// === impl Turns ===

impl Turns {
    pub(super) fn new(wake: &Arc<Notify>, now: u64) -> Self {
        Self {
            wake: Arc::clone(wake),
            generation: 0,
            climbed: Duration::ZERO,
            news: RateNews::None,
            untold: Untold::Refused,
            accepted: 0,
            refused: 0,
            accepted_since_shut: 0,
            settles_until: 0,
            booked: BookedTurns::default(),
            interval: 0,
            length: LENGTH_FIRST / 2,
            asked_length: LENGTH_FIRST / 2,
            is_used_up: true,
            wanted_since: None,
            no_turn_until: 0,
            room_at: 0,
            unanswered_since: None,
            is_alone: false,
            looked_at: now,
            told_until: now,
            share: 1.0,
            had: Duration::ZERO,
            had_since: now,
        }
    }

    /// True if places are of turns alone.
    pub(super) fn are_in_force(&self, now: u64) -> bool {
        self.generation > 0 && !self.is_alone && !self.is_unanswered(now)
    }

    fn is_unanswered(&self, now: u64) -> bool {
        self.unanswered_since.is_some_and(|since| now >= since + nanos_of(PATIENCE))
    }

    /// Goes on alone, if questions are not answered for too long.
    pub(super) fn go_alone(&mut self, learned: &mut LearnedRate, now: u64) {
        if self.generation == 0 || self.is_alone || !self.is_unanswered(now) {
            return;
        }
        self.is_alone = true;
        self.news = RateNews::None;
        if let Some(found) = learned.found() {
            learned.correct(found * self.share);
        }
    }

    /// True if nothing has been sent for so long that the rate is forgotten.
    pub(super) fn are_over(&self, now: u64) -> bool {
        now > self.looked_at + nanos_of(FORGOTTEN_AFTER)
    }

    /// True if there is something that other processes have not been told.
    pub(super) fn have_news(&self) -> bool {
        self.untold > Untold::Nothing
    }

    /// True if a place that is not before `from` is worth waiting for: a turn was asked for less than `patience` ago.
    pub(super) fn are_awaited(&mut self, now: u64, from: u64, patience: u64) -> bool {
        self.looked_at = now;
        if self.place(from).is_some() || now < self.no_turn_until {
            return false;
        }
        now < self.want(now) + patience
    }

    /// Time since this was last called, nanoseconds, in which others had their turns; those that have passed are forgotten.
    pub(super) fn of_others(&mut self, now: u64) -> u64 {
        let span = now.saturating_sub(self.told_until);
        let own = self.passed(now);
        if self.are_in_force(now) { span.saturating_sub(own) } else { 0 }
    }

    /// The part of all time that its turns have.
    pub(super) fn share(&self) -> f64 {
        if self.generation > 0 && !self.is_alone { self.share } else { 1.0 }
    }

    /// The first free place that is not before `from`.
    pub(super) fn place(&self, from: u64) -> Option<u64> {
        self.booked.place(from)
    }

    /// Time to wait where there is no place.
    pub(super) fn wait(&self, now: u64) -> Duration {
        Duration::from_nanos(self.room_at.saturating_sub(now) / 2).max(NO_TURN_WAIT)
    }

    /// Uses the place at `at`, and with it those before.
    pub(super) fn take_place(&mut self, at: u64) {
        self.is_used_up |= self.booked.take(at);
    }

    /// A place was looked for.
    pub(super) fn looked(&mut self, now: u64) {
        self.looked_at = now;
        if self.generation > 0 && now >= self.no_turn_until && self.is_short(now) {
            self.want(now);
        }
    }

    /// True if one more turn is needed: there is no place, or soon will be none for a backlog.
    fn is_short(&self, now: u64) -> bool {
        let is_backlog = self.is_used_up && self.length >= LENGTH_OF_BACKLOG;
        self.place(now).is_none() || (is_backlog && self.booked.end() < now + nanos_of(AHEAD))
    }

    /// Wants a turn; since when.
    fn want(&mut self, now: u64) -> u64 {
        *self.wanted_since.get_or_insert_with(|| {
            self.wake.notify_one();
            now
        })
    }

    /// So many attempts were accepted.
    pub(super) fn accept(&mut self, count: u32) {
        self.accepted = self.accepted.saturating_add(count);
        self.accepted_since_shut = self.accepted_since_shut.saturating_add(count);
    }

    /// `learned` is told of a refusal at a time and of a message sent at another by its own time; see [`LearnedRate::refuse`].
    pub(super) fn refuse(
        &mut self,
        learned: &mut LearnedRate,
        (at, sent_at): (Duration, Duration),
        retry_after: Duration,
        now: u64,
    ) -> Duration {
        self.refused += 1;
        let before = (learned.refused_at(), learned.per_second());
        let settles = self.generation > 0 && !self.is_alone && now < self.settles_until;
        let pause = if settles { Duration::ZERO } else { learned.refuse(at, sent_at, retry_after) };
        if self.generation == 0 || self.is_alone {
            if learned.refused_at() != before.0 {
                self.untold = Untold::Refused;
            }
            return pause;
        }
        let Some(rate) = before.1 else { return pause };
        if (learned.refused_at(), learned.per_second()) == before {
            // It was reserved by a former rate, and says at most that nothing is accepted.
            let is_shut = self.accepted == 0 && self.refused >= SHUT_MIN;
            let pause = if is_shut { retry_after.min(PAUSE_MAX) } else { Duration::ZERO };
            self.shut(learned, pause);
            return pause;
        }
        self.untold = self.untold.max(Untold::Refused);
        if learned.found().is_none() {
            self.news = RateNews::GivenUp;
            return pause;
        }
        // Attempts go at the very rate of the turn, so the part of it that is accepted tells more than a count.
        let part = self.let_through();
        let found = rate.min(per_second(self.interval)) * part.unwrap_or(CUT_CLOSE);
        learned.correct(found);
        self.news =
            if part.is_some() { RateNews::RefusedMany(found) } else { RateNews::Refused(found) };
        (self.accepted, self.refused) = (0, 0);
        self.shut(learned, pause);
        learned.settle(at, self.booked.reserved_for(now));
        self.slow_down(learned);
        pause
    }

    /// The destination accepts nothing for `pause`: it counts by a longer span, and is to be sent to so slowly that it lasts.
    fn shut(&mut self, learned: &mut LearnedRate, pause: Duration) {
        if pause < SHUT_FOR {
            return;
        }
        self.untold = Untold::Shut;
        let had = std::mem::take(&mut self.accepted_since_shut);
        if let Some(found) = learned.found()
            && had >= ANSWERS_MIN
        {
            let open = PAUSE_MAX.saturating_sub(pause).as_secs_f64() / PAUSE_MAX.as_secs_f64();
            let found = found * open.max(CUT_SHUT);
            learned.correct(found);
            self.news = RateNews::Refused(found);
        }
    }

    /// The part of the rate that is let through, by the answers since the last refusal that changed it; `None` if refusals are few
    /// beside what was accepted: then it was just too much.
    fn let_through(&self) -> Option<f64> {
        let all = self.accepted + self.refused;
        let is_part = self.accepted > 0 && all >= ANSWERS_MIN && self.refused * 4 >= all;
        is_part.then(|| (f64::from(self.accepted) / f64::from(all)).max(CUT_FAR))
    }

    /// Leaves no less time between places than `learned` says.
    fn slow_down(&mut self, learned: &LearnedRate) {
        if let Some(rate) = learned.per_second() {
            self.booked.slow_down(nanos_of(interval_at(rate)));
        }
    }

    /// Time of the process's own turns from `told_until` to `now`, nanoseconds; those that have passed are forgotten.
    fn passed(&mut self, now: u64) -> u64 {
        let own = self.booked.between(self.told_until, now);
        self.told_until = now.max(self.told_until);
        self.interval = self.booked.interval(now).unwrap_or(self.interval);
        self.is_used_up = self.booked.forget(now).unwrap_or(self.is_used_up);
        own
    }

    /// The question to the ledger, while `learned` is at `at` by its own time; `None` if there is nothing to tell, and no turn is wanted.
    pub(super) fn ask(
        &mut self,
        learned: &LearnedRate,
        at: Duration,
        pause: Duration,
        now: u64,
    ) -> Option<TurnAsk> {
        if self.generation == 0 {
            self.news = match learned.found() {
                Some(_) => learned.per_second().map_or(RateNews::None, RateNews::Counted),
                None if self.untold == Untold::Nothing || now < self.no_turn_until => return None,
                None => learned.counted(at).map_or(RateNews::None, RateNews::Counting),
            };
        }
        let is_wanted = self.generation == 0 || self.is_alone || self.wanted_since.is_some();
        let wants = if is_wanted && now >= self.no_turn_until {
            self.next_length()
        } else {
            Duration::ZERO
        };
        self.asked_length = wants.max(LENGTH_FIRST / 2);
        let is_quiet = self.news == RateNews::None && self.untold < Untold::Shut;
        if wants.is_zero() && is_quiet && self.generation > 0 {
            return None;
        }
        self.untold = Untold::Nothing;
        self.unanswered_since.get_or_insert(now);
        let climbed = if self.is_alone {
            Duration::ZERO
        } else {
            learned.climbed().saturating_sub(self.climbed)
        };
        self.climbed = learned.climbed();
        Some(TurnAsk { news: self.news, generation: self.generation, climbed, pause, wants })
    }

    fn next_length(&self) -> Duration {
        // One that comes back after its turn has passed has little to send.
        let is_more = self.is_used_up && !self.booked.is_empty();
        let length = if is_more { self.length * 2 } else { self.length / 2 };
        length.clamp(LENGTH_FIRST / 2, TURN_MAX)
    }

    /// Goes by an answer to a question of `asked_at`, when `learned` is at `at` by its own time.
    pub(super) fn hear(
        &mut self,
        answer: &TurnAnswer,
        learned: &mut LearnedRate,
        at: Duration,
        (asked_at, now): (u64, u64),
    ) {
        self.book(answer, asked_at, now);
        match answer.rate {
            // What was learned since the question is told with the next one.
            Some(rate)
                if rate.generation == self.generation
                    && self.untold > Untold::Nothing
                    && !self.is_alone => {}
            Some(rate) => {
                self.untold = Untold::Nothing;
                let is_other = rate.generation != self.generation || self.is_alone;
                learned.follow(rate.found, rate.climbed, is_other, at);
                if is_other {
                    learned.settle(at, self.booked.reserved_for(now));
                    (self.accepted, self.refused) = (0, 0);
                }
                if self.generation == 0 || self.is_alone {
                    (self.share, self.had, self.had_since) = (1.0, Duration::ZERO, now);
                    self.settles_until = now + nanos_of(SETTLES_FOR);
                    // What was accepted before went at no rate.
                    self.accepted_since_shut = 0;
                }
                self.is_alone = false;
                (self.generation, self.climbed) = (rate.generation, rate.climbed);
                self.news = RateNews::None;
                self.slow_down(learned);
            }
            None => {
                if !answer.rests_for.is_zero() {
                    learned.rest(at, answer.rests_for);
                }
                (self.generation, self.news) = (0, RateNews::None);
                self.no_turn_until = now + nanos_of(UNKNOWN_FOR);
            }
        }
        if answer.paused_for >= SHUT_FOR {
            // The rate that comes with it is less already.
            self.accepted_since_shut = 0;
        }
    }

    /// Books the turn of an answer, if it has one.
    fn book(&mut self, answer: &TurnAnswer, asked_at: u64, now: u64) {
        (self.unanswered_since, self.wanted_since) = (None, None);
        if let Some(turn) = answer.turn {
            let (from, interval) = (asked_at + nanos_of(turn.starts_in), nanos_of(turn.interval));
            let until = from + interval * u64::from(turn.messages);
            self.length = self.asked_length;
            self.had += Duration::from_nanos(until - from);
            self.booked.push(from, until, interval);
        } else {
            let (least, most) = ASK_AGAIN;
            self.no_turn_until = now + nanos_of((answer.booked_for / 8).clamp(least, most));
            self.room_at = now + nanos_of(answer.booked_for);
        }
        let span = Duration::from_nanos(now.saturating_sub(self.had_since));
        if span >= SHARE_SPAN {
            let share = self.had.as_secs_f64() / span.as_secs_f64();
            self.share = share.max(self.share / 2.0).clamp(SHARE_MIN, 1.0);
            (self.had, self.had_since) = (Duration::ZERO, now);
        }
    }
}

/// Messages a second with so much time between two of them.
fn per_second(interval_nanos: u64) -> f64 {
    1.0 / Duration::from_nanos(interval_nanos.max(1)).as_secs_f64()
}

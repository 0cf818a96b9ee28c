//! A limit that is learned from latency and push-back.
//!
//! A destination answers a number of requests at a time as fast as it can; requests beyond that wait in a queue, and only latency
//! grows. The limit looks for that number, the *knee*, and stays a little above it:
//!
//! - *Slow start* grows with every answer until latency rises.
//! - *Steady*, each window of answers is compared with the latency of the unloaded destination. Above it by more than a twentieth,
//!   the limit falls in proportion (the gradient of Envoy's and Netflix's limiters); below, it grows by a root of itself, and as in
//!   slow start where the knee seems to be far off.
//!   More is tolerated where thousands of answers come in a second: there the sender and its machine are a part of the latency,
//!   which rises long before they can do no more.
//! - *Draining*, now and then, the limit falls until a lower one does not answer faster: that is the latency of the
//!   unloaded destination. It happens at the same instants of the wall clock everywhere, so that senders who share a destination
//!   do not measure each other's queues.
//!
//! Explicit push-back lowers the limit by the share that was pushed back, unless that does not help. Attempts without an answer
//! are no latency: they halve the limit, which returns to its former value within some round trips.
//!
//! Latencies are compared as logarithms: 0.05 is five percent.

use std::time::Duration;

use super::growth::{Growth, LEAST, SMALL};
use super::own::OwnLatency;
use super::phase::{Drain, Phase};
use super::push_back::PushBack;
use super::restart::Restart;
use super::unloaded::{Unloaded, error};
use super::window::{Level, Window, WindowCounts};
use super::{Limit, Sample, Signal, float};

/// A limit that is learned.
#[derive(Debug)]
pub struct Learned {
    limit: f64,
    min: f64,
    max: f64,
    phase: Phase,
    window: Window,
    unloaded: Unloaded,
    own: OwnLatency,
    /// The spread of latencies within windows.
    spread: f64,
    growth: Growth,
    restart: Restart,
    push_back: PushBack,
    /// More answers in a row took twice the unloaded latency than did not.
    slow: u32,
    /// True if the last window was far too slow.
    is_suspect: bool,
    /// The last limit before attempts were lost.
    good: f64,
    /// Wall time of the next measurement of the unloaded latency, and of the beginning of the present one.
    next_drain: Duration,
    draining_since: Duration,
    /// The wall time of the last sample.
    now: Duration,
}

/// Answers that give the first value of the unloaded latency.
const FIRST: usize = 4;
/// Growth of the limit with each answer in slow start: in a round trip, by as large a part of itself.
const SLOW_START: f64 = 0.6;
/// That growth when a steady limit has looked for its knee before: less is to be found, and it is in use meanwhile.
const SLOW_START_ANEW: f64 = 0.3;
/// The growth of both beyond a limit of [`FEW`] where an answer takes [`SELDOM`] seconds or longer, and [`SELDOM_ANEW`] when it has looked
/// before: there are few round trips in the time in which a limit should be found. Smaller ones are found soon, and there each place too
/// many is felt.
const SLOW_START_SELDOM: f64 = 1.0;
const FEW: f64 = 20.0;
const SELDOM: f64 = 0.25;
const SELDOM_ANEW: f64 = 1.0;
/// Least limit of streams that servers should grant (RFC 9113, section 6.5.2): fewer attempts wait for connections alone, which
/// are made as they are needed, and over HTTP/1.1 perhaps for each.
const STREAMS: f64 = 100.0;
/// Latency above the unloaded one that is no sign of load.
const TOLERANCE: f64 = 0.05;
/// Latency above the tolerated one that ends slow start, and that has the unloaded latency measured anew.
const QUEUE: f64 = 0.15;
const FAR: f64 = 0.3;
/// Multiple of the expected latency that counts as slow, and the excess of slow answers over others that is an alarm.
const SLOW: f64 = 2.0;
const ALARM: f64 = 32.0;
/// An alarm is also at least this part of the limit: a machine that stands still for a moment delays many at once.
const ALARM_SHARE: f64 = 0.125;
/// Growth of the limit, as a logarithm, that no latency shows.
const UNFELT: f64 = 0.02;
/// Latencies that are enough to decide by.
const TRUSTED: usize = 4;
const DRAIN_TO: f64 = 0.6;
const DRAIN_EVERY: Duration = Duration::from_secs(10);
const DRAIN_EVERY_MAX: Duration = Duration::from_hours(1);
/// Divisor of time: the measurement takes one part in twenty at most.
const DRAIN_SHARE: u32 = 20;
/// Attempts without an answer that say that the destination is lost, and their share.
const DROPS: usize = 3;
const DROPS_SHARE: usize = 5;

// === impl Learned ===

impl Learned {
    /// Finds a limit up to `max`. It begins with `min`, and latency alone does not lower it below that: push-back and lost attempts
    /// do, to 1 at least.
    pub fn between(min: usize, max: usize) -> Self {
        let max = float(max.max(1));
        let min = float(min.max(1)).min(max);
        Self {
            limit: min,
            min,
            max,
            phase: Phase::First,
            window: Window::new(FIRST, 0, false),
            unloaded: Unloaded::default(),
            own: OwnLatency::at(0.0),
            spread: 0.2,
            growth: Growth::default(),
            restart: Restart::default(),
            push_back: PushBack::default(),
            slow: 0,
            is_suspect: false,
            good: min,
            next_drain: Duration::ZERO,
            draining_since: Duration::ZERO,
            now: Duration::ZERO,
        }
    }

    /// Begins with `first`, within the bounds, in place of the least limit.
    #[must_use]
    pub fn starting_at(self, first: usize) -> Self {
        let limit = float(first).clamp(self.min, self.max);
        Self { limit, good: limit, ..self }
    }

    fn answered(&mut self, sample: Sample) {
        let seconds = sample.seconds();
        // Answers that were sent together come together, and have few beside them that are under way still.
        let in_flight = sample.in_flight.max(self.window.counts().peak);
        if matches!(self.phase, Phase::SlowStart { .. })
            && float(in_flight) >= self.limit / 2.0
            && !(self.limit >= STREAMS && sample.has_waited())
        {
            let (growth, seldom) = if self.restart.is_under_way() {
                (SLOW_START_ANEW, SELDOM_ANEW)
            } else {
                (SLOW_START, SELDOM)
            };
            let is_seldom = self.limit >= FEW && seconds.is_some_and(|seconds| seconds >= seldom);
            let growth = if is_seldom { SLOW_START_SELDOM } else { growth };
            self.limit = (self.limit + growth).min(self.max);
        }
        if self.phase == Phase::Steady
            && self.limit > self.min
            && !self.window.is_of_higher_limit()
            && let Some(seconds) = seconds
            && self.is_alarmed(seconds)
        {
            return self.drain(sample.in_flight, seconds.ln(), true);
        }
        if self.window.passes(false) {
            self.window.answered(&sample);
        } else if let (Phase::Draining(drain), Some(seconds)) = (&mut self.phase, seconds)
            && drain.is_growing
        {
            drain.from_level += (seconds.max(1e-6).ln() - drain.from_level) / 8.0;
        }
    }

    /// True if so many answers are slow that the window is decided before it is full.
    fn is_alarmed(&mut self, seconds: f64) -> bool {
        let is_slow = seconds > self.expected_seconds() * SLOW;
        self.slow = if is_slow { self.slow + 1 } else { self.slow.saturating_sub(1) };
        f64::from(self.slow) >= ALARM.max(self.limit * ALARM_SHARE)
    }

    /// A window is full: decides.
    fn decide(&mut self, in_flight: usize) {
        let counts = self.window.counts();
        if counts.pushed_back > 0 {
            return self.pushed_back(counts, in_flight);
        }
        self.push_back.ended(self.limit);
        let Some(level) = self.window.level(TRUSTED) else { return self.open(0) };
        self.spread += (level.spread.max(0.01) - self.spread) * 0.3;
        self.own = OwnLatency::at(self.limit / level.mean.exp());
        match self.phase {
            Phase::First => {
                self.unloaded = Unloaded::of(level);
                self.phase = Phase::SlowStart { goal: f64::INFINITY, from: self.limit };
                self.open(0);
            }
            Phase::SlowStart { goal, from } => self.started(level, goal, from, in_flight),
            Phase::Draining(drain) => self.drained(level, drain, in_flight),
            Phase::Steady => self.steady(level, counts, in_flight),
        }
    }

    fn started(&mut self, level: Level, goal: f64, from: f64, in_flight: usize) {
        let (above, rate) = (level.mean - self.expected(), from / level.mean.exp());
        let error = self.error(level.count).hypot(self.error_of_expected());
        // Of few, one more is a large part.
        let is_first = !self.restart.is_under_way();
        let queued = self.tolerance().max(if is_first { TOLERANCE + QUEUE } else { 0.0 });
        if above > queued.max(3.0 * error).max(1.2 / self.limit) {
            self.phase = Phase::Steady;
            self.schedule();
            let limit = self.restart.end(from * (self.tolerance() - above).exp(), rate, self.now);
            self.growth.from = Some((from, self.expected()));
            let _former = self.growth.fail(self.limit, level.mean, error);
            return self.set(limit.max(self.least()), in_flight);
        }
        // Within the noise; a queue that has begun to grow is not.
        if level.mean - self.unloaded.mean() < 2.0 * error {
            self.unloaded.pool(level);
        }
        self.phase = Phase::SlowStart { goal, from: self.limit };
        if self.limit >= goal.min(self.max) {
            let _same = self.restart.end(self.limit, rate, self.now);
            self.phase = Phase::Steady;
            self.schedule();
        }
        self.open(0);
    }

    fn steady(&mut self, level: Level, counts: WindowCounts, in_flight: usize) {
        // A limit that is not used learns nothing; nor does one of which a part waits for streams.
        let waits = self.limit >= STREAMS && 2 * counts.waited > counts.ended;
        if float(counts.peak) < 0.9 * self.limit.floor() || waits {
            return self.open(0);
        }
        let above = level.mean - self.expected();
        let error = self.error(level.count);
        if level.mean - self.unloaded.mean() < -4.5 * error.max(0.02) {
            self.unloaded = Unloaded::of(level);
        }
        let excess = above - error - self.tolerance();
        if (excess > QUEUE || excess > 0.0 && self.growth.is_in_doubt)
            && let Some(former) = self.growth.fail(self.limit, level.mean, error)
        {
            return self.set(former.max(self.least()), in_flight);
        }
        // The wall clock may be set back.
        let is_due = self.now >= self.next_drain
            || self.next_drain.saturating_sub(self.now) > DRAIN_EVERY_MAX;
        if is_due || excess > FAR && self.is_suspect && self.limit > self.min {
            return self.drain(in_flight, level.mean, false);
        }
        self.is_suspect = excess > FAR;
        if self.is_suspect {
            return self.open(0);
        }
        if self.growth.look_twice(self.limit) {
            return self.open(0);
        }
        self.growth.heed(self.limit, excess);
        self.restart.heed((self.tolerance() / 2.0 - above) / error);
        // A small one grows as fast by itself, and is slow to return.
        let may_restart = self.limit >= float(SMALL)
            && self.limit < self.max
            && !self.growth.is_held()
            && !self.push_back.has_ceiling();
        if may_restart && self.restart.begin(self.limit, self.limit / level.mean.exp(), self.now) {
            self.phase = Phase::SlowStart { goal: f64::INFINITY, from: self.limit };
            return self.open(0);
        }
        let grown = self.growth.next(self.limit, level, counts.ended);
        let limit = self.limit * (-excess.max(0.0)).exp() + grown;
        let limit = self.push_back.bound(limit.max(self.least()), counts.ended);
        // What was sent before so little growth says as much, and the next window begins a round trip earlier.
        let is_felt = !(0.0..UNFELT).contains(&(limit / self.limit).ln());
        if self.restart.is_likely() && !is_felt {
            self.limit = limit.min(self.max);
            return self.open(0);
        }
        self.set(limit, in_flight);
    }

    /// Begins to measure the unloaded latency. `level` is that of the present limit.
    fn drain(&mut self, in_flight: usize, level: f64, is_growing: bool) {
        (self.slow, self.is_suspect, self.draining_since) = (0, false, self.now);
        self.growth.is_in_doubt = false;
        let before = self.limit;
        let drain = Drain { before, from: before, from_level: level, is_growing };
        self.step_down(drain, in_flight);
    }

    fn step_down(&mut self, drain: Drain, in_flight: usize) {
        // The factor by which the latency exceeds the expected one, if it is a queue.
        let to = (self.expected() - drain.from_level).exp().clamp(0.1, DRAIN_TO);
        self.phase = Phase::Draining(drain);
        let limit = self.limit.floor() * to;
        self.set(if limit > 3.0 { limit.ceil() } else { limit.floor() }, in_flight);
    }

    fn drained(&mut self, level: Level, drain: Drain, in_flight: usize) {
        let error = self.error(level.count);
        // A queue is as much shorter as the limit is lower.
        let lower = (drain.from.floor() / self.limit.floor()).ln();
        let is_faster = (drain.from_level - level.mean) / lower.max(0.01);
        let noise = (3.0 * error / lower.max(0.1)).min(0.15);
        let above = level.mean - self.unloaded.mean();
        // A latency that grew until its limit was lowered is too low to compare with: the next step has this one.
        let is_queue = drain.is_growing || is_faster > 0.75 - noise;
        if self.limit > 1.0 && above > TOLERANCE + error && is_queue {
            let (from, from_level) = (self.limit, level.mean);
            let drain = Drain { from, from_level, is_growing: false, ..drain };
            return self.step_down(drain, in_flight);
        }
        self.schedule();
        self.phase = Phase::Steady;
        let has_changed = lower > 0.0 && level.mean > drain.from_level + 3.0 * error + 0.03;
        if has_changed {
            // In the middle of it: begins again with the next window.
            self.next_drain = self.now;
            return self.set(drain.before, in_flight);
        }
        if above.abs() > 3.0 * error.hypot(self.error_of_unloaded()).max(0.02) {
            (self.growth, self.restart) = Default::default();
            self.unloaded = Unloaded::of(level);
        } else {
            // The new measurement counts for a quarter at least.
            self.unloaded.weigh_at_most(3 * level.count);
            self.unloaded.pool(level);
        }
        // Steps that were followed by a further one had a queue, whose length is that of the last of them.
        let queue = drain.from_level - self.expected();
        if queue > self.tolerance() + TOLERANCE + error {
            let limit = drain.from * (self.tolerance() - queue).exp();
            self.set(limit.max(self.min.min(drain.before)), in_flight);
        } else {
            self.set(drain.before, in_flight);
        }
    }

    fn pushed_back(&mut self, counts: WindowCounts, in_flight: usize) {
        if let Phase::Draining(drain) = self.phase {
            self.limit = drain.before;
        }
        self.phase = Phase::Steady;
        (self.growth, self.restart) = Default::default();
        match self.push_back.answer(self.limit, counts) {
            Some(limit) => self.set(limit, in_flight),
            None => self.open(0),
        }
    }

    /// The destination does not answer.
    fn lost(&mut self, in_flight: usize) {
        match self.phase {
            // Nothing is known yet that could be returned to.
            Phase::First => return self.open(in_flight.saturating_sub(1)),
            // Lost on the way back: the limit to return to is still the one before the first loss.
            Phase::SlowStart { .. } => {}
            Phase::Steady => self.good = self.limit,
            Phase::Draining(drain) => self.good = drain.before,
        }
        self.restart = Restart::default();
        self.growth.is_in_doubt = false;
        self.phase = Phase::SlowStart { goal: self.good * 0.95, from: self.limit / 2.0 };
        self.set(self.limit / 2.0, in_flight);
    }

    fn set(&mut self, limit: f64, in_flight: usize) {
        let is_lower = limit < self.limit;
        self.limit = limit.clamp(1.0, self.max);
        self.window = Window::new(self.wanted(), in_flight.saturating_sub(1), is_lower);
    }

    /// A window at the same limit.
    fn open(&mut self, stale: usize) {
        self.window = Window::new(self.wanted(), stale, false);
    }

    /// Answers that a window needs: those of a round trip, and as many as make the noise small.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "small and positive"
    )]
    fn wanted(&self) -> usize {
        let quiet = ((self.spread * 1.25 / 0.04).powi(2) as usize).min(256);
        let limit = self.limit as usize;
        match self.phase {
            Phase::First => FIRST,
            Phase::SlowStart { .. } => limit.max(8),
            Phase::Draining(_) => limit.max(8).max(quiet.min(4 * limit)),
            // One too many of few is felt by each answer, and is seen in the first of them: as many as `Growth::fail` needs.
            Phase::Steady if limit < SMALL => {
                let least = if self.growth.is_in_doubt { LEAST } else { TRUSTED };
                let needed = (10.0 * self.spread / self.growth.step_to(self.limit)).powi(2);
                (needed as usize).clamp(least, quiet.max(LEAST))
            }
            Phase::Steady => limit.max(LEAST).max(quiet),
        }
    }

    /// The limit below which latency alone does not lower it.
    fn least(&self) -> f64 {
        self.min.min(self.limit)
    }

    /// The latency that is no sign of load: the destination's and the sender's own.
    fn expected_seconds(&self) -> f64 {
        self.unloaded.mean().exp() + self.own.seconds()
    }

    /// Its logarithm.
    fn expected(&self) -> f64 {
        self.expected_seconds().ln()
    }

    fn tolerance(&self) -> f64 {
        TOLERANCE + self.own.tolerance()
    }

    /// Standard error of the mean of `count` latencies; some are left out of it.
    fn error(&self, count: usize) -> f64 {
        error(self.spread, float(count))
    }

    fn error_of_unloaded(&self) -> f64 {
        error(self.spread, self.unloaded.weight())
    }

    /// Of the destination's part of it, as the sender's own is not measured.
    fn error_of_expected(&self) -> f64 {
        self.error_of_unloaded() * (self.unloaded.mean() - self.expected()).exp()
    }

    /// Sets the next measurement of the unloaded latency.
    fn schedule(&mut self) {
        // A measurement that takes long is made less often, so that its part of the time is bounded.
        let took = match self.phase {
            Phase::Draining(_) => self.now.saturating_sub(self.draining_since),
            Phase::First | Phase::SlowStart { .. } | Phase::Steady => Duration::ZERO,
        };
        let mut period = DRAIN_EVERY;
        while period < took * DRAIN_SHARE && period < DRAIN_EVERY_MAX {
            period *= 2;
        }
        // The next multiple on the wall clock, which is the same for all senders.
        let periods = self.now.as_millis() / period.as_millis() + 1;
        self.next_drain = period * u32::try_from(periods).unwrap_or(u32::MAX);
    }
}

impl Limit for Learned {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "between 1 and the maximum"
    )]
    fn current(&self) -> usize {
        self.limit as usize
    }

    fn learn(&mut self, sample: Sample) {
        self.now = sample.at;
        match sample.signal {
            Signal::Silent => return,
            Signal::Answered => self.answered(sample),
            Signal::PushedBack | Signal::OverRate => {
                if self.window.passes(true) {
                    self.window.pushed_back();
                }
            }
            Signal::Dropped => {
                if self.window.passes(true) {
                    self.window.dropped();
                }
            }
        }
        let counts = self.window.counts();
        if counts.dropped >= DROPS && counts.dropped * DROPS_SHARE >= counts.ended {
            self.lost(sample.in_flight);
        } else if self.window.is_full() || self.push_back.is_urgent(counts) {
            self.decide(sample.in_flight);
        }
    }
}

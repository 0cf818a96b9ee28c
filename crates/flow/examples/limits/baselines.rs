//! Other limits, to compare with: written from their published descriptions.

use std::time::Duration;

use flow::{Limit, Sample, Signal};

/// The gradient of Netflix's `Gradient2Limit`: the long-term mean of the latency divided by the last one.
#[derive(Debug)]
pub(crate) struct Gradient2 {
    limit: f64,
    long: f64,
    samples: u32,
}

/// The rule of Vector's adaptive request concurrency: one more while the mean latency of a round trip does not rise, a tenth
/// less when it does.
#[derive(Debug)]
pub(crate) struct AdditiveIncrease {
    limit: usize,
    past: Option<(f64, f64)>,
    sum: f64,
    answers: u32,
    has_push_back: bool,
    has_reached: bool,
    next: Duration,
}

/// Upper bound of both limits.
const MAX: usize = 20_000;

impl Gradient2 {
    pub(crate) fn new() -> Self {
        Self { limit: 20.0, long: 0.0, samples: 0 }
    }
}

impl Limit for Gradient2 {
    fn current(&self) -> usize {
        self.limit as usize
    }

    fn learn(&mut self, sample: Sample) {
        let Some(timing) = sample.timing else { return };
        let latency = timing.on_wire.as_secs_f64();
        self.samples += 1;
        let share = if self.samples <= 10 { 1.0 / f64::from(self.samples) } else { 2.0 / 601.0 };
        self.long += (latency - self.long) * share;
        if self.long / latency > 2.0 {
            self.long *= 0.9;
        }
        if (sample.in_flight as f64) < self.limit / 2.0 {
            return;
        }
        let gradient = (self.long / latency).clamp(0.5, 1.0);
        let next = 0.8 * self.limit + 0.2 * (self.limit * gradient + 4.0);
        self.limit = next.clamp(20.0, MAX as f64);
    }
}

impl AdditiveIncrease {
    pub(crate) fn new() -> Self {
        Self {
            limit: 1,
            past: None,
            sum: 0.0,
            answers: 0,
            has_push_back: false,
            has_reached: false,
            next: Duration::ZERO,
        }
    }
}

impl Limit for AdditiveIncrease {
    fn current(&self) -> usize {
        self.limit
    }

    fn learn(&mut self, sample: Sample) {
        self.has_reached |= sample.in_flight >= self.limit;
        match sample.timing {
            Some(timing) if sample.signal == Signal::Answered => {
                self.sum += timing.on_wire.as_secs_f64();
                self.answers += 1;
            }
            _ => self.has_push_back = true,
        }
        if sample.at < self.next || self.answers == 0 && !self.has_push_back {
            return;
        }
        let mean = (self.answers > 0).then(|| self.sum / f64::from(self.answers));
        let (past, variance) = self.past.unwrap_or((mean.unwrap_or(0.1), 0.0));
        let mean = mean.unwrap_or(past);
        if self.limit < MAX && self.has_reached && !self.has_push_back && mean <= past {
            self.limit += 1;
        } else if self.limit > 1 && (self.has_push_back || mean >= past + 2.5 * variance.sqrt()) {
            self.limit = (self.limit * 9 / 10).max(1);
        }
        let off = mean - past;
        self.past = Some((past + 0.4 * off, 0.6 * (variance + 0.4 * off * off)));
        self.next = sample.at + Duration::from_secs_f64(past);
        (self.sum, self.answers, self.has_push_back, self.has_reached) = (0.0, 0, false, false);
    }
}

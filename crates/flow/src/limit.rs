//! How many attempts may be under way to one destination.

use std::fmt;
use std::time::Duration;

/// What one attempt says about its destination's load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// An answer that took its normal way: its latency is a sample.
    Answered,
    /// An explicit "slow down": 429, 503, `REFUSED_STREAM`, `GOAWAY`.
    PushedBack,
    /// No answer in time, or a lost connection: a drop, never a latency sample.
    Dropped,
    /// Says nothing about load: the attempt failed before it reached the destination.
    Silent,
}

/// One finished attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// From the first byte to the answer, of this attempt alone, without any retry.
    pub latency: Duration,
    /// What it says about load.
    pub signal: Signal,
    /// How many were under way when it finished, itself included.
    pub in_flight: usize,
}

/// Decides how many may be under way. Pure arithmetic: time comes in with the samples.
pub trait Limit: fmt::Debug {
    /// The limit as of now, at least 1.
    fn current(&self) -> usize;

    /// Learns from a finished attempt.
    fn learn(&mut self, sample: Sample);
}

/// A limit that somebody chose.
#[derive(Debug, Clone, Copy)]
pub struct Fixed(pub usize);

// === impl Fixed ===

impl Limit for Fixed {
    fn current(&self) -> usize {
        self.0.max(1)
    }

    fn learn(&mut self, _sample: Sample) {}
}

//! Limits on the attempts under way to one destination.

mod growth;
mod learned;
mod own;
mod phase;
mod push_back;
mod restart;
mod unloaded;
mod window;

use std::fmt;
use std::time::Duration;

pub use learned::Learned;

/// The measurement of one attempt, from which a limit learns its destination's load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// An answer that took its normal way: its latency is a sample.
    Answered,
    /// An explicit "slow down": 503, `REFUSED_STREAM`, `GOAWAY`.
    PushedBack,
    /// A refusal for the rate of all attempts to the destination: 429. A limit takes it for a "slow down" as well.
    OverRate,
    /// No answer in time, or a lost connection: a drop, without a latency.
    Dropped,
    /// Says nothing about load: the attempt failed before it reached the destination.
    Silent,
}

/// Duration of the answered try of an attempt, as stamped where its bytes leave and arrive.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Timing {
    /// Wait for a stream or a connection, from its beginning to the first byte of this try, with the tries that were refused
    /// meanwhile. Zero without a wait.
    pub waited: Duration,
    /// Time from the first byte of this try to the last byte of its answer.
    pub on_wire: Duration,
}

/// Measurement of one finished attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// Timing of the answered try; `None` without an answer. A limit learns from the time on the wire: the waits are what the
    /// limit itself causes.
    pub timing: Option<Timing>,
    /// The sign of load in its outcome.
    pub signal: Signal,
    /// Attempts under way when it finished, itself included, of all that share the limit.
    pub in_flight: usize,
    /// Time of its end on the wall clock, since the Unix epoch: the same instant for all senders to a destination.
    pub at: Duration,
}

/// Decides how many may be under way. Pure arithmetic: time comes in with the samples.
pub trait Limit: fmt::Debug + Send {
    /// The limit as of now, at least 1.
    fn current(&self) -> usize;

    /// Learns from a finished attempt.
    fn learn(&mut self, sample: Sample);
}

/// A limit that is set.
#[derive(Debug, Clone, Copy)]
pub struct Fixed(pub usize);

// === impl Sample ===

impl Sample {
    /// Seconds on the wire.
    fn seconds(&self) -> Option<f64> {
        self.timing.map(|timing| timing.on_wire.as_secs_f64())
    }

    /// True if the attempt waited for a stream or a connection for more than a quarter of its time on the wire.
    fn has_waited(&self) -> bool {
        self.timing.is_some_and(|timing| 4 * timing.waited > timing.on_wire)
    }
}

// === impl Fixed ===

impl Limit for Fixed {
    fn current(&self) -> usize {
        // A lane with a limit of zero would stand still for ever.
        self.0.max(1)
    }

    fn learn(&mut self, _sample: Sample) {}
}

#[expect(clippy::cast_precision_loss, reason = "counts of attempts")]
fn float(count: usize) -> f64 {
    count as f64
}

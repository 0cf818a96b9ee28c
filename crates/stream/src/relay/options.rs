//! Options of a relay, its counts, and how it ends.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::{BatchLimits, StreamError};

/// Options of a relay.
#[derive(Debug, Clone)]
pub struct RelayOptions {
    /// Bounds of what is in hand.
    pub buffer: RelayBuffer,
    /// Guarantee for each message.
    pub guarantee: RelayGuarantee,
    /// Ends it when the source gave nothing for so long, and all is acknowledged.
    pub until_empty: Option<Duration>,
    /// Ends it when the source could not be read once within so long from the start. Later it is waited for.
    pub patience: Duration,
}

/// Bounds of the messages that were fetched and are not answered for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RelayBuffer {
    /// Messages, never more.
    pub messages: usize,
    /// Bytes of keys and bodies. What one fetch brings may go beyond, since sizes are known afterwards.
    pub bytes: usize,
}

/// Guarantee for each message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RelayGuarantee {
    /// Acknowledged once the target took it. A crash, a lost answer or a lost acknowledgement may have it put again.
    AtLeastOnce,
    /// Acknowledged before it is put, and never put again once it may have been taken. A crash loses what is in hand, and what may have been
    /// taken goes to the dead letters. A source that gives a message again that was acknowledged (a standard queue of SQS may) has it put
    /// again all the same.
    AtMostOnce,
}

/// Messages so far.
#[derive(Debug, Default)]
pub struct RelayCounts {
    /// Came from the source.
    pub fetched: AtomicU64,
    /// Taken by the target.
    pub put: AtomicU64,
    /// Acknowledged to the source.
    pub acknowledged: AtomicU64,
    /// Taken by the dead letters.
    pub dead: AtomicU64,
    /// Puts of a record beyond its first.
    pub repeated: AtomicU64,
    /// Of these, those after an answer that left open whether it was taken: it may be there twice.
    pub doubtful: AtomicU64,
    /// Answers that it goes too fast.
    pub throttled: AtomicU64,
    /// Taken by the target and not acknowledged to the source: they come again.
    pub unacknowledged: AtomicU64,
    /// Given back to the source.
    pub given_back: AtomicU64,
    /// Acknowledged before, and then neither taken nor a dead letter (at most once alone).
    pub lost: AtomicU64,
    /// In hand now.
    pub held: AtomicU64,
}

/// Why a relay ended without a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RelayEnd {
    /// The source gave nothing for the time that was asked for.
    Empty,
    /// It was asked to end.
    Stopped,
}

/// Why a relay failed. What was not taken was given back to the source.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RelayError {
    /// The target, or the map, refused a message, and there are no dead letters.
    #[error("message {id} cannot be put ({why}): name a place for dead letters, or correct it")]
    Refused {
        /// Identifier of the message.
        id: String,
        /// The words of the target.
        why: String,
    },
    /// The dead letters refused a message.
    #[error("message {id} was refused, and the dead letters do not take it either ({why})")]
    Letter {
        /// Identifier of the message.
        id: String,
        /// The words of the target of dead letters.
        why: String,
    },
    /// The source cannot be read before something is changed.
    #[error("the source cannot be read: {0}")]
    Source(StreamError),
    /// The source could not be read once in the time for that.
    #[error("the source was not reached: {0}")]
    Unreachable(StreamError),
}

/// Batches of the target that are held at most, unless the options say otherwise: some are under way, some are acknowledged, some are fetched.
const BATCHES: usize = 4;
/// Bounds of that, in messages.
const MESSAGES: (usize, usize) = (1_000, 20_000);
const BYTES: usize = 32 << 20;

// === impl RelayBuffer ===

impl RelayBuffer {
    /// The usual one before a target of these limits.
    pub fn before(limits: BatchLimits) -> Self {
        let (least, most) = MESSAGES;
        Self { messages: limits.records.saturating_mul(BATCHES).clamp(least, most), bytes: BYTES }
    }
}

// === impl RelayCounts ===

impl RelayCounts {
    pub(super) fn add(counter: &AtomicU64, count: usize) {
        counter.fetch_add(count as u64, Ordering::Relaxed);
    }
}

//! The order in which ready chunks are looked for: by the span of time in which they are due, then by lane.
//!
//! Work that waits for its time is an entry of the index `chunk_due` and nothing else. Its lane comes into memory when its
//! span begins, a page of lanes at a time. A lane has one entry to be read for a whole span, however many of its chunks
//! are due in it, so a backlog in one lane costs few steps.

use notification::Timestamp;

use super::codes::LaneId;

/// A place in the index `chunk_due`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct DueCursor {
    pub(crate) span: i64,
    pub(crate) lane: LaneId,
}

/// Milliseconds in a span, as a power of two: 16 s. Lanes come into memory that much earlier than they are due; a lane whose
/// backlog is a day old has 5,300 spans. The migrations that make `chunk_due` name the same number.
const SPAN_BITS: u32 = 14;
/// Lanes that are read at once, and lanes that may be kept in memory though their spans lie ahead: with so few, the
/// next due time is known exactly. A page takes some milliseconds to read.
pub(crate) const LANES_PER_PAGE: usize = LANES_LISTED;
/// Lanes of which nothing is claimed and something waits that [`ReadStore::lanes`](crate::ReadStore::lanes) lists at most; lanes with
/// something claimed it lists beside these.
pub const LANES_LISTED: usize = 1_000;
/// Waiting chunks, of up to 1,000 notifications each, that metrics have counted by [`ReadStore::waiting_counts`](crate::ReadStore::waiting_counts):
/// some tens of milliseconds, however many wait.
pub const WAITING_CHUNKS_COUNTED: usize = 10_000;

// === impl DueCursor ===

impl DueCursor {
    pub(crate) const START: Self = Self { span: i64::MIN, lane: 0 };
    pub(crate) const END: Self = Self { span: i64::MAX, lane: LaneId::MAX };

    pub(crate) fn of(at: Timestamp, lane: LaneId) -> Self {
        Self { span: span_of(at), lane }
    }

    /// The cursor before all lanes of a span: lanes are numbered from one.
    pub(crate) const fn before(span: i64) -> Self {
        Self { span, lane: 0 }
    }

    /// Begin of the cursor's span.
    pub(crate) const fn begins_at(self) -> Timestamp {
        // The spans of `START` and `END` lie beyond all instants.
        Timestamp::from_millis(self.span.saturating_mul(1 << SPAN_BITS))
    }
}

impl Default for DueCursor {
    fn default() -> Self {
        Self::START
    }
}

pub(crate) const fn span_of(at: Timestamp) -> i64 {
    // Rounded down below zero as well, as `due_at >> 14` is in the index.
    at.millis() >> SPAN_BITS
}

//! Broadcasts that are larger than one transaction: their chunks are made, and withdrawn, slice by slice (decision 0023).
//!
//! A batch is *released* when its chunk is made. Until then it waits: members without an entry in the log are pending, or
//! cancelled if the broadcast was withdrawn meanwhile.

use notification::{State, Timestamp, limits};

use super::codec::{LogGroup, LogLine};
use super::members::Members;
use crate::cancel::{CancelCursor, CancelStage};
use crate::{Attempted, CancelPage, CancelPlace, CancelScope, Cancelled};

/// Division of broadcasts into slices.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Slicing {
    /// Batches in one slice.
    pub(crate) batches: usize,
    /// True if each slice follows the one before at once; tests look at the state between two of them.
    pub(crate) goes_on: bool,
}

/// Batches of a broadcast that wait for their chunks, in order of their numbers.
#[derive(Debug)]
pub(crate) struct WaitingSlice<Batch> {
    pub(crate) broadcast: i64,
    pub(crate) batches: Vec<Batch>,
    /// True if no batch waits behind them.
    pub(crate) is_last: bool,
}

/// State of a batch that waits for its chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WaitingState {
    /// The batch will get its chunk.
    Pending,
    /// Its broadcast was cancelled at this instant.
    Withdrawn(Timestamp),
}

/// A broadcast of which some batches wait for their chunks.
#[derive(Debug)]
pub(crate) struct UnreleasedPart {
    /// All notifications of the broadcast.
    pub(crate) recipients: u64,
    /// Of these, the ones that wait.
    pub(crate) waiting: u64,
    /// Batches up to this one have their chunks.
    pub(crate) passed: i64,
    pub(crate) state: WaitingState,
}

/// The result of a slice of a cancellation.
#[derive(Debug, Default)]
pub(crate) struct CancelSlice {
    /// The notifications of this slice, by what became of them.
    pub(crate) counted: Cancelled,
    /// All notifications of the broadcast, where that is known at once. Then not all of them are in slices.
    pub(crate) recipients: Option<u64>,
    /// Place of the next slice.
    pub(crate) next: Option<CancelPlace>,
}

/// A cancellation, slice by slice.
#[derive(Debug, Default)]
pub(crate) struct Cancellation {
    counted: Cancelled,
    recipients: Option<u64>,
}

// === impl Slicing ===

impl Slicing {
    pub(crate) const DEFAULT: Self = Self { batches: limits::SLICE_BATCHES, goes_on: true };
}

// === impl WaitingState ===

impl WaitingState {
    pub(crate) fn new(withdrawn_at: Option<i64>) -> Self {
        withdrawn_at.map_or(Self::Pending, |at| Self::Withdrawn(Timestamp::from_millis(at)))
    }

    pub(crate) fn state(self) -> State {
        match self {
            Self::Pending => State::Pending,
            Self::Withdrawn(_) => State::Cancelled,
        }
    }

    /// The entry that the log will get for members that it does not have yet.
    pub(crate) fn attempted(self) -> Option<Attempted> {
        let Self::Withdrawn(at) = self else { return None };
        Some(LogLine::unattempted(at, State::Cancelled).into())
    }
}

/// The members of a batch of `count` that `log` says nothing of.
pub(crate) fn without<'a>(count: usize, log: impl IntoIterator<Item = &'a LogGroup>) -> Members {
    let mut members = Members::all(count);
    for group in log {
        group.indexes.iter().for_each(|index| _ = members.remove(*index));
    }
    members
}

// === impl CancelSlice ===

impl CancelSlice {
    /// Place of the call `request` among the batches of a broadcast, whose cancellation begins at `begin` and with this slice.
    pub(crate) fn begins_at(&mut self, request: &CancelScope, begin: CancelCursor) -> CancelCursor {
        let Some(CancelPlace(CancelStage::Batches(from))) = request.from else { return begin };
        // The first call has counted those that wait. Slices that were released or written down since then are among them.
        *self = Self::default();
        CancelCursor { after: from.after, until: from.until.min(begin.until) }
    }

    /// Notes that the slice ended with batch `last`, if more follow up to `until`.
    pub(crate) fn ends_at(&mut self, last: Option<i64>, until: i64) {
        let place = |after| CancelPlace(CancelStage::Batches(CancelCursor { after, until }));
        self.next = last.map(place);
    }

    /// The slice as the answer to a call over the broadcast as a scope.
    pub(crate) fn into_page(self) -> CancelPage {
        let Cancelled { cancelled, under_way, ended: _ } = self.counted;
        CancelPage { cancelled, under_way, next: self.next }
    }
}

// === impl Cancellation ===

impl Cancellation {
    /// Counts a slice; where the next one begins.
    pub(crate) fn add(&mut self, slice: CancelSlice) -> Option<CancelPlace> {
        self.counted.cancelled += slice.counted.cancelled;
        self.counted.under_way += slice.counted.under_way;
        self.counted.ended += slice.counted.ended;
        self.recipients = self.recipients.or(slice.recipients);
        slice.next
    }

    /// The answer, after the last slice.
    pub(crate) fn answer(&self) -> Cancelled {
        let Cancelled { cancelled, under_way, ended } = self.counted;
        let of_all = |all: u64| all.saturating_sub(cancelled + under_way);
        Cancelled { cancelled, under_way, ended: self.recipients.map_or(ended, of_all) }
    }
}

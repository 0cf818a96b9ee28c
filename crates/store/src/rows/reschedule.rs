//! Rescheduling in both databases: how a member of a chunk comes to another time, and how the chunks of a broadcast do, slice by
//! slice.

use notification::{NotificationId, Timestamp};

use super::members::Members;
use super::model::{ChunkRow, NewChunk};
use super::release::{UnreleasedPart, WaitingState};
use super::requeue::EndedBatch;
use crate::cancel::CancelCursor;
use crate::{Reschedule, RescheduleCounts, Rescheduled};

/// The way of one member of a batch to its new time.
#[derive(Debug)]
pub(crate) enum MemberMove<'c> {
    /// The member is in no chunk.
    Ended,
    /// Its chunk is claimed.
    UnderWay,
    /// The member is due then already.
    Stays,
    /// The member leaves a chunk, which keeps the rest.
    Moves { from: &'c ChunkRow, rest: Members, to: MoveTarget<'c> },
}

/// The chunk that a member comes into.
#[derive(Debug)]
pub(crate) enum MoveTarget<'c> {
    /// One that waits, with these members then.
    Ready(&'c ChunkRow, Members),
    /// One of its own.
    New(NewChunk),
}

/// A broadcast that has a new time, while its chunks follow.
#[derive(Debug)]
pub(crate) struct Rescheduling {
    pub(crate) due_at: Timestamp,
    /// Its time before.
    pub(crate) before: Timestamp,
    /// Place of the next slice.
    pub(crate) next: Option<CancelCursor>,
    counted: RescheduleCounts,
    /// All notifications of the broadcast, where that is known at once. Then not all of them are in slices.
    recipients: Option<u64>,
}

/// The result of a slice.
#[derive(Debug, Default)]
pub(crate) struct RescheduleSlice {
    pub(crate) counted: RescheduleCounts,
    /// Place of the next slice.
    pub(crate) next: Option<CancelCursor>,
}

// === impl MemberMove ===

impl<'c> MemberMove<'c> {
    /// The way of the member `index` to `due_at`, among the chunks of its batch.
    pub(crate) fn new(chunks: &'c [ChunkRow], index: u16, due_at: Timestamp) -> Self {
        let Some(from) = chunks.iter().find(|chunk| chunk.members().contains(index)) else {
            return Self::Ended;
        };
        // It may be on the wire already, and would arrive before its new time.
        if from.lease_until.is_some() {
            return Self::UnderWay;
        }
        if from.due_at == due_at {
            return Self::Stays;
        }
        let mut rest = from.members();
        rest.remove(index);
        let alone = NewChunk::part(from, due_at, Members::from_iter([index]));
        // Those that were moved one by one to the same time are one chunk again.
        let joined = chunks.iter().find(|it| it.lease_until.is_none() && alone.joins(it));
        let to = match joined {
            Some(ready) => {
                let mut members = ready.members();
                members.insert(index);
                MoveTarget::Ready(ready, members)
            }
            None => MoveTarget::New(alone),
        };
        Self::Moves { from, rest, to }
    }

    /// The answer about it.
    pub(crate) fn answer(&self) -> Rescheduled {
        Rescheduled::Counted(match self {
            Self::Ended => RescheduleCounts::ONE_ENDED,
            Self::UnderWay => RescheduleCounts::ONE_UNDER_WAY,
            Self::Stays | Self::Moves { .. } => RescheduleCounts::ONE,
        })
    }
}

// === impl EndedBatch ===

impl EndedBatch {
    /// The answer about a member that needs no look at chunks, if there is one.
    pub(crate) fn rescheduled(
        &self,
        id: NotificationId,
        request: &Reschedule,
    ) -> Option<Rescheduled> {
        if !self.has(id) {
            return Some(Rescheduled::Unknown);
        }
        if let Some(refusal) = request.refusal(self.expires_at) {
            return Some(refusal);
        }
        let waiting = self.waiting?;
        let is_logged = self.log.iter().any(|group| group.indexes.contains(&id.index()));
        // Its batch gets one chunk when its slice comes, at the time of the broadcast.
        let has_ended = is_logged || waiting != WaitingState::Pending;
        let ended = Rescheduled::Counted(RescheduleCounts::ONE_ENDED);
        Some(if has_ended { ended } else { Rescheduled::NotYet })
    }
}

// === impl Rescheduling ===

impl Rescheduling {
    /// Of a broadcast that was due at `before`, and of which this part has no chunk yet.
    pub(crate) fn new(
        due_at: Timestamp,
        before: Timestamp,
        unreleased: Option<&UnreleasedPart>,
    ) -> Self {
        let waiting = unreleased.filter(|part| part.state == WaitingState::Pending);
        let rescheduled = waiting.map_or(0, |part| part.waiting);
        // Behind `passed` no batch has a chunk, and those that get one from now on have it at the new time.
        let until = unreleased.map_or(i64::MAX, |part| part.passed);
        Self {
            due_at,
            before,
            next: Some(CancelCursor { after: 0, until }),
            counted: RescheduleCounts { rescheduled, ..RescheduleCounts::default() },
            recipients: unreleased.map(|part| part.recipients),
        }
    }

    /// Counts a slice.
    pub(crate) fn add(&mut self, slice: &RescheduleSlice) {
        self.counted.rescheduled += slice.counted.rescheduled;
        self.counted.under_way += slice.counted.under_way;
        self.counted.ended += slice.counted.ended;
        self.next = slice.next;
    }

    /// True if nothing waited: then it keeps the time that it had.
    pub(crate) fn was_too_late(&self) -> bool {
        self.counted.rescheduled == 0
    }

    /// The answer, after the last slice.
    pub(crate) fn answer(&self) -> Rescheduled {
        let RescheduleCounts { rescheduled, under_way, ended } = self.counted;
        let of_all = |all: u64| all.saturating_sub(rescheduled + under_way);
        let ended = self.recipients.map_or(ended, of_all);
        Rescheduled::Counted(RescheduleCounts { rescheduled, under_way, ended })
    }
}

// === impl RescheduleSlice ===

impl RescheduleSlice {
    /// Notes that the slice ended with batch `last`, if more follow up to `until`.
    pub(crate) fn ends_at(&mut self, last: Option<i64>, until: i64) {
        self.next = last.map(|after| CancelCursor { after, until });
    }
}

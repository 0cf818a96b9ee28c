//! Rows of both backends, and their meaning.

use std::collections::BTreeSet;
use std::sync::Arc;

use notification::{
    Alternative, BatchId, ByteString, Bytes, ChunkId, Content, Delivery, Draft, Envelope, Epoch,
    Fallback, ItemTraces, NotificationId, State, Timestamp, limits,
};

use super::blame::InFlight;
use super::claim_load::ChunkLoad;
use super::codec::{Items, LogGroup};
use super::codes::LaneId;
use super::labels::BatchLabels;
use super::members::Members;
use super::paused::PUT_AWAY;
use super::release::WaitingState;
use super::requeue::put_end_last;
use super::undelivered::reason_of;
use crate::{Attempted, Filter, History, StoreError};

/// A row of `chunk`.
#[derive(Debug, Clone)]
pub(crate) struct ChunkRow {
    pub(crate) id: ChunkId,
    pub(crate) batch: BatchId,
    pub(crate) lane: LaneId,
    pub(crate) due_at: Timestamp,
    pub(crate) attempt: u16,
    pub(crate) epoch: Epoch,
    pub(crate) crashes: u16,
    pub(crate) lease_until: Option<Timestamp>,
    pub(crate) begun_through: Option<u16>,
    pub(crate) count: usize,
    /// The weight of its bytes while it is leased, where that is stored.
    pub(crate) weight: usize,
    /// `None` means all of the batch, and then `count` is the batch's.
    pub(crate) members: Option<Members>,
    /// Its partition, where there are any.
    pub(crate) partition: i16,
}

/// A chunk to be stored, ready.
#[derive(Debug)]
pub(crate) struct NewChunk {
    pub(crate) batch: BatchId,
    pub(crate) lane: LaneId,
    pub(crate) due_at: Timestamp,
    pub(crate) attempt: u16,
    pub(crate) crashes: u16,
    /// Members of the chunk; if they are all of a batch, their number alone is stored.
    pub(crate) members: Members,
    pub(crate) is_whole: bool,
    /// Its partition: 0 until it is placed, and in SQLite, which has none.
    pub(crate) partition: i16,
}

/// A row of `batch`.
#[derive(Debug, Clone)]
pub(crate) struct BatchRow {
    pub(crate) id: BatchId,
    pub(crate) envelope: Envelope,
    pub(crate) accepted_at: Timestamp,
    /// The content of all members, when it is stored here.
    pub(crate) content: Option<Content>,
    /// Number of its parts that retention has removed, in the order of [`RetainedPart`](crate::RetainedPart).
    pub(crate) removed: u8,
    pub(crate) items: Bytes,
    pub(crate) traces: ItemTraces,
}

/// A batch with its chunks and its log.
pub(crate) struct BatchHistory {
    pub(crate) batch: BatchRow,
    pub(crate) labels: BatchLabels,
    pub(crate) chunks: Vec<(ChunkRow, Members)>,
    pub(crate) log: Vec<LogGroup>,
    /// Set while it is part of a broadcast and has no chunk yet.
    pub(crate) waiting: Option<WaitingState>,
}

/// Up to this many members of a batch are copied out of it.
const SPARSE_MEMBERS: usize = 100;
/// Bytes of a batch from which more members than that are copied too, if they hold less than half of it.
const WASTE_BYTES: usize = 64 * 1024;

// === impl ChunkRow ===

impl ChunkRow {
    pub(crate) fn members(&self) -> Members {
        self.members.clone().unwrap_or_else(|| Members::all(self.count))
    }

    /// Keeps its first `count` members; returns the rest as a chunk of their own, due as it is. `None` when it has no more.
    pub(crate) fn cut(&mut self, count: usize) -> Option<NewChunk> {
        if self.count <= count {
            return None;
        }
        let members = self.members();
        let mut indexes = members.iter();
        let first: Members = indexes.by_ref().take(count).collect();
        let rest = NewChunk::part(self, self.due_at, indexes.collect());
        (self.count, self.members) = (first.len(), Some(first));
        Some(rest)
    }

    /// The envelope of its deliveries. One that was moved to an earlier time is due since then, whatever its batch says.
    pub(crate) fn envelope_of(&self, batch: &BatchRow) -> Envelope {
        let due_at = batch.envelope.due_at.min(self.due_at);
        Envelope { due_at, ..batch.envelope.clone() }
    }

    /// Load of the chunk in a claim, with `bytes` bytes.
    pub(crate) fn load(&self, bytes: usize) -> ChunkLoad {
        ChunkLoad { items: self.count, bytes }
    }

    /// The members `rest` of the chunk, as they were in flight.
    pub(crate) fn in_flight(&self, rest: &Members) -> InFlight {
        // Every engine claims for this long.
        let claimed_at = self.lease_until.unwrap_or(self.due_at).minus(limits::LEASE);
        InFlight { crashes: self.crashes, claimed_at, count: rest.len() }
    }

    /// True if a member may be in one of `states`.
    fn may_be_in(&self, states: &BTreeSet<State>) -> bool {
        let of_lease = [State::Claimed, State::Begun];
        match self.lease_until {
            Some(_) => of_lease.iter().any(|state| states.contains(state)),
            None => states.contains(&State::Pending),
        }
    }

    /// State of a member, and its due time if it is ready.
    fn state_of(&self, index: u16) -> (State, Option<Timestamp>) {
        match (self.lease_until, self.begun_through) {
            // The due time of a chunk that is put away is not known.
            (None, _) => (State::Pending, Some(self.due_at).filter(|at| *at < PUT_AWAY)),
            (Some(_), Some(through)) if index <= through => (State::Begun, None),
            (Some(_), _) => (State::Claimed, None),
        }
    }
}

// === impl NewChunk ===

impl NewChunk {
    /// Members of a batch before their first attempt; it has no partition yet.
    pub(crate) fn first(batch: BatchId, lane: LaneId, due_at: Timestamp, members: Members) -> Self {
        let (attempt, crashes, partition) = (1, 0, 0);
        Self { batch, lane, due_at, attempt, crashes, members, is_whole: false, partition }
    }

    /// Members of `chunk` as a chunk of their own, with the attempt, the crashes and the partition of `chunk`.
    pub(crate) fn part(chunk: &ChunkRow, due_at: Timestamp, members: Members) -> Self {
        let ChunkRow { batch, lane, attempt, crashes, partition, .. } = *chunk;
        Self { batch, lane, due_at, attempt, crashes, members, is_whole: false, partition }
    }

    /// True if its members may be added to `ready`, a chunk that is not leased: they are due as it is, after as many attempts.
    pub(crate) fn joins(&self, ready: &ChunkRow) -> bool {
        (ready.batch, ready.due_at, ready.attempt, ready.crashes)
            == (self.batch, self.due_at, self.attempt, self.crashes)
    }

    /// Cuts `members` of a suspected chunk into parts of these sizes, due at these instants.
    pub(crate) fn divide(
        chunk: &ChunkRow,
        members: &Members,
        crashes: u16,
        parts: Vec<(usize, Timestamp)>,
    ) -> impl Iterator<Item = Self> {
        let mut indexes = members.iter();
        let part = move |(count, due_at)| {
            let members = indexes.by_ref().take(count).collect();
            Self { crashes, ..Self::part(chunk, due_at, members) }
        };
        parts.into_iter().map(part)
    }

    /// The members as they are stored.
    pub(crate) fn members_blob(&self) -> Option<Vec<u8>> {
        (!self.is_whole).then(|| self.members.to_blob())
    }
}

// === impl BatchHistory ===

impl BatchHistory {
    /// A batch without anything that happened to it.
    pub(crate) fn new(batch: BatchRow) -> Self {
        let labels = BatchLabels::default();
        Self { batch, labels, chunks: Vec::new(), log: Vec::new(), waiting: None }
    }

    /// Those of `wanted` that may match the states and the reason of `filter`; `None` if all may.
    pub(crate) fn narrowed(&self, filter: &Filter, wanted: &Members) -> Option<Members> {
        let (states, reason) = (&filter.states, reason_of(filter));
        let is_waiting = self.waiting.is_some_and(|waiting| states.contains(&waiting.state()));
        if reason.is_none() && (states.is_empty() || is_waiting) {
            return None;
        }
        let is_said = |group: &&LogGroup| match reason {
            Some(reason) => group.attempted.detail.contains(reason),
            None => states.contains(&group.attempted.state),
        };
        // Whether or not an end was taken back.
        let said = self.log.iter().filter(is_said).flat_map(|group| group.indexes.iter().copied());
        let mut indexes: BTreeSet<u16> = said.collect();
        if reason.is_none() {
            let its = self.chunks.iter().filter(|(chunk, _)| chunk.may_be_in(states));
            indexes.extend(its.flat_map(|(_, members)| members.iter()));
        }
        Some(indexes.into_iter().filter(|index| wanted.contains(*index)).collect())
    }

    /// The histories of `wanted` members, in order of index.
    pub(crate) fn histories(
        &self,
        store_id: u16,
        wanted: &Members,
    ) -> Result<Vec<History>, StoreError> {
        let mut histories = Vec::with_capacity(wanted.len());
        for delivery in deliveries(&self.batch, wanted)? {
            let batch = &self.batch;
            let id = NotificationId::new(batch.accepted_at, store_id, batch.id, delivery.index);
            // Groups are written with their indexes in order.
            let of_this = |group: &&LogGroup| group.indexes.binary_search(&delivery.index).is_ok();
            let of_this = self.log.iter().filter(of_this);
            let mut attempts: Vec<Attempted> =
                of_this.map(|group| group.attempted.clone()).collect();
            let chunk = self.chunks.iter().find(|(_, members)| members.contains(delivery.index));
            if chunk.is_none() && attempts.is_empty() {
                // Its broadcast was withdrawn, and a later slice brings this line to the log.
                attempts.extend(self.waiting.and_then(WaitingState::attempted));
            }
            if chunk.is_none() {
                put_end_last(&mut attempts);
            }
            let (state, next_attempt_at) = match chunk {
                Some((chunk, _)) => chunk.state_of(delivery.index),
                None => match attempts.last() {
                    Some(last) => (last.state, None),
                    None => (State::Pending, self.waiting.map(|_| batch.envelope.due_at)),
                },
            };
            if chunk.is_none() && !state.is_terminal() && next_attempt_at.is_none() {
                return Err(StoreError::Damaged(format!("{id} is neither pending nor ended")));
            }
            let is_erased = delivery.recipient.is_empty();
            let has_content = batch.removed == 0 && !is_erased;
            let own = delivery.content.map(|content| *content);
            let content = own.or_else(|| batch.content.clone()).filter(|_| has_content);
            if content.is_none() && has_content {
                return Err(StoreError::Damaged(format!("{id} has no content")));
            }
            histories.push(History {
                id,
                envelope: batch.envelope.clone(),
                accepted_at: batch.accepted_at,
                recipient: (!is_erased).then_some(delivery.recipient),
                content,
                labels: self.labels.of(delivery.index),
                state,
                next_attempt_at,
                attempts,
                // A look-up for each: the caller makes it for those that it shows.
                fallback_id: None,
            });
        }
        Ok(histories)
    }
}

/// The members of a batch, decoded.
pub(crate) fn deliveries(batch: &BatchRow, members: &Members) -> Result<Vec<Delivery>, StoreError> {
    let mut deliveries = Vec::with_capacity(members.len());
    let mut items = Items::new(batch.items.clone())?;
    let (mut passed, mut bytes) = (0, 0);
    // The rest of a batch must not keep all of its bytes in memory.
    let is_sparse = members.len() <= SPARSE_MEMBERS;
    for index in members.iter() {
        for _ in passed..index {
            items.skip()?;
        }
        let (recipient, content) = items.read()?;
        bytes += recipient.len() + content.as_ref().map_or(0, Content::bytes_stored);
        let delivery = Delivery { index, recipient, content: content.map(Box::new) };
        deliveries.push(if is_sparse { detach(&delivery) } else { delivery });
        passed = index.saturating_add(1);
    }
    if !is_sparse && bytes + WASTE_BYTES < batch.items.len() / 2 {
        for delivery in &mut deliveries {
            *delivery = detach(delivery);
        }
    }
    Ok(deliveries)
}

/// The drafts that stand in for `suppressed` ones among the deliveries of a batch.
pub(crate) fn fallbacks<'a>(
    batch: &BatchRow,
    store_id: u16,
    suppressed: impl Iterator<Item = &'a Delivery>,
    now: Timestamp,
) -> Vec<Draft> {
    let fallback = |delivery: &Delivery| {
        let id = NotificationId::new(batch.accepted_at, store_id, batch.id, delivery.index);
        // Without a content of its own it has no fallback: a content with fallbacks is never shared.
        let (trace, content) = (batch.traces.get(delivery.index), delivery.content.as_deref()?);
        Draft::in_place_of(id, trace, &batch.envelope, content, now)
    };
    suppressed.filter_map(fallback).collect()
}

/// A copy of a delivery, in bytes of its own.
fn detach(delivery: &Delivery) -> Delivery {
    let copy = |bytes: &Bytes| Bytes::copy_from_slice(bytes);
    let next = |alternative: &Alternative| Alternative {
        recipient: ByteString::from(&*alternative.recipient),
        payload: copy(&alternative.payload),
        options: copy(&alternative.options),
        // Channel and destination were not parts of the row's bytes.
        ..alternative.clone()
    };
    let fallback = |fallback: &Arc<Fallback>| {
        let Fallback { of, next: all } = &**fallback;
        Arc::new(Fallback { of: *of, next: all.iter().map(next).collect() })
    };
    let own = |content: &Content| Content {
        payload: copy(&content.payload),
        options: copy(&content.options),
        fallback: content.fallback.as_ref().map(fallback),
    };
    Delivery {
        index: delivery.index,
        recipient: ByteString::from(&*delivery.recipient),
        content: delivery.content.as_deref().map(own).map(Box::new),
    }
}

//! The state of the double, and the only ways in which it changes.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use notification::{
    BatchId, BroadcastId, ByteString, Chunk, ChunkId, Content, Delivery, Disposition, Envelope,
    Epoch, Event, Guarantee, ItemTraces, Labels, Lane, Name, NotificationId, Pauses, Priority,
    Settlement, State, Timestamp, TraceContext,
};

use crate::ingest::BatchItem;
use crate::rows::claim_load::ChunkLoad;
use crate::rows::codec::LogLine;
use crate::rows::evidence::Evidence;
use crate::rows::pace::Paces;
use crate::rows::room::LoadKind;
use crate::{
    Act, Attempted, BroadcastDraft, FeedCursor, KeyUse, LogEntry, ShardCursor, StoredKeys,
    Suppression, SuppressionEvent,
};

/// The tag of every double.
const STORE_ID: u16 = 0xd0b;

#[derive(Debug, Default)]
pub(super) struct Books {
    pub(super) batches: BTreeMap<BatchId, Batch>,
    pub(super) chunks: BTreeMap<ChunkId, MemoryChunk>,
    pub(super) broadcasts: BTreeMap<BroadcastId, Broadcast>,
    pub(super) keys: HashMap<(Name, ByteString), (KeyUse, [u8; 32])>,
    pub(super) suppressions: BTreeMap<(Name, ByteString), Suppression>,
    /// Up to when a provider's word on a recipient is out of date.
    pub(super) lifts: BTreeMap<(Name, ByteString), Timestamp>,
    pub(super) events: Vec<SuppressionEvent>,
    pub(super) feeds: BTreeMap<Name, FeedCursor>,
    /// Shards of sources.
    pub(super) shards: BTreeMap<(Name, String), ShardCursor>,
    /// Pages of the log, one for each transaction that settled a delivery.
    pub(super) log: Vec<Vec<LogEntry>>,
    pub(super) last_served: HashMap<Lane, u64>,
    /// Deliveries that tenants were given, by priority.
    pub(super) given: HashMap<(Priority, Name), usize>,
    /// Deliveries that the tenant served last had been given before, by priority.
    pub(super) served_last: HashMap<Priority, usize>,
    pub(super) evidence: HashMap<Lane, Evidence>,
    pub(super) paces: Paces<Lane>,
    pub(super) counted: HashMap<Lane, LoadKind>,
    /// The channels that are claimed; all of them when nothing is said.
    pub(super) offered: Option<Arc<BTreeSet<Name>>>,
    pub(super) pauses: Arc<Pauses>,
    pub(super) api_keys: StoredKeys,
    pub(super) acts: Vec<Act>,
    /// Notifications that were removed, by their tenant and the state in which they ended.
    pub(super) tombstones: BTreeMap<Name, BTreeMap<State, u64>>,
    /// Those of broadcasts of which others are left.
    pub(super) broadcast_tombstones: BTreeMap<BroadcastId, BTreeMap<State, u64>>,
    /// True while what is counted is without a tenant.
    pub(super) is_unassigned: bool,
    /// Number of assignments of what was without a tenant.
    pub(super) assignments: i64,
    numbers: u64,
}

#[derive(Debug)]
pub(super) struct Batch {
    pub(super) envelope: Envelope,
    pub(super) accepted_at: Timestamp,
    pub(super) entries: Vec<Entry>,
    /// Number of its parts that were removed.
    pub(super) removed: u8,
    /// True if a feed hands events on by it.
    pub(super) is_of_feed: bool,
}

/// A notification.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) recipient: ByteString,
    pub(super) content: Content,
    pub(super) labels: Labels,
    pub(super) trace: Option<TraceContext>,
    pub(super) state: State,
    pub(super) attempts: Vec<Attempted>,
}

/// Members of a batch that are due together.
#[derive(Debug, Clone)]
pub(super) struct MemoryChunk {
    pub(super) batch: BatchId,
    pub(super) due_at: Timestamp,
    pub(super) attempt: u16,
    pub(super) epoch: Epoch,
    pub(super) crashes: u16,
    pub(super) lease_until: Option<Timestamp>,
    /// The weight of its bytes while it is leased, counted when it was.
    pub(super) bytes_weight: usize,
    pub(super) begun_through: Option<u16>,
    pub(super) members: Vec<u16>,
}

#[derive(Debug)]
pub(super) struct Broadcast {
    pub(super) draft: BroadcastDraft,
    pub(super) sealed_at: Option<Timestamp>,
    /// Number of its notifications when it was sealed.
    pub(super) recipients: u64,
}

// === impl Books ===

impl Books {
    /// Runs `body`; its entries become one page of the log.
    pub(super) fn transaction<T>(&mut self, body: impl FnOnce(&mut Self) -> T) -> T {
        self.log.push(Vec::new());
        let answer = body(self);
        self.log.pop_if(|page| page.is_empty());
        answer
    }

    pub(super) fn next_number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    #[expect(clippy::expect_used, reason = "chunks and the log name batches that were stored")]
    pub(super) fn batch(&self, id: BatchId) -> &Batch {
        self.batches.get(&id).expect("a batch that is referred to is stored")
    }

    #[expect(clippy::expect_used, reason = "indexes are checked against a chunk's members first")]
    pub(super) fn entry(&mut self, batch: BatchId, index: u16) -> &mut Entry {
        let batch = self.batches.get_mut(&batch).expect("a batch that is referred to is stored");
        batch
            .entries
            .get_mut(usize::from(index))
            .expect("a member of a batch is one of its entries")
    }

    pub(super) fn recipient(&self, batch: BatchId, index: u16) -> &ByteString {
        &self.read_entry(batch, index).recipient
    }

    pub(super) fn content(&self, batch: BatchId, index: u16) -> &Content {
        &self.read_entry(batch, index).content
    }

    pub(super) fn trace(&self, batch: BatchId, index: u16) -> Option<TraceContext> {
        self.read_entry(batch, index).trace
    }

    #[expect(clippy::expect_used, reason = "indexes are checked against a chunk's members first")]
    fn read_entry(&self, batch: BatchId, index: u16) -> &Entry {
        let entry = self.batch(batch).entries.get(usize::from(index));
        entry.expect("a member of a batch is one of its entries")
    }

    /// Stores `items` as one batch, and returns its number.
    pub(super) fn store(
        &mut self,
        envelope: Envelope,
        accepted_at: Timestamp,
        items: impl IntoIterator<Item = BatchItem>,
    ) -> BatchId {
        let id = BatchId(self.next_number());
        let entry =
            Batch { envelope, accepted_at, entries: Vec::new(), removed: 0, is_of_feed: false };
        self.batches.insert(id, entry);
        for item in items {
            self.append(id, item);
        }
        id
    }

    /// Adds one notification to a batch that was not released yet.
    #[expect(clippy::expect_used, reason = "the caller stored the batch, and cuts it to size")]
    pub(super) fn append(&mut self, batch: BatchId, item: BatchItem) -> NotificationId {
        let BatchItem { recipient, content, labels, trace } = item;
        let stored = self.batches.get_mut(&batch).expect("the batch is stored");
        let index = u16::try_from(stored.entries.len()).expect("a batch fits its indexes");
        let (state, attempts) = (State::Pending, Vec::new());
        stored.entries.push(Entry { recipient, content, labels, trace, state, attempts });
        self.id(batch, index)
    }

    /// Makes all of a batch due.
    pub(super) fn release(&mut self, batch: BatchId) {
        let stored = self.batch(batch);
        let members = (0..=u16::MAX).take(stored.entries.len()).collect();
        let due_at = stored.envelope.due_at;
        self.add_piece(MemoryChunk::first(batch, due_at, members));
    }

    pub(super) fn add_piece(&mut self, piece: MemoryChunk) {
        let id = ChunkId(self.next_number());
        self.chunks.insert(id, piece);
    }

    /// Moves one notification along the lifecycle table.
    #[expect(clippy::expect_used, reason = "what the table does not allow is a bug, found here")]
    pub(super) fn advance(&mut self, batch: BatchId, index: u16, event: Event) -> State {
        let guarantee = self.batch(batch).envelope.guarantee;
        let entry = self.entry(batch, index);
        entry.state = entry.state.after(event, guarantee).expect("the lifecycle allows this event");
        entry.state
    }

    /// Notes in the log an attempt or the end of one notification.
    pub(super) fn note(&mut self, batch: BatchId, index: u16, line: LogLine<'_>) {
        let (id, attempted) = (self.id(batch, index), Attempted::from(line));
        self.entry(batch, index).attempts.push(attempted.clone());
        if let Some(page) = self.log.last_mut() {
            page.push(LogEntry { id, attempted });
        }
    }

    /// Takes `indexes` out of a chunk; an empty chunk is gone.
    pub(super) fn take_members(&mut self, id: ChunkId, indexes: &[u16]) -> usize {
        let Some(piece) = self.chunks.get_mut(&id) else { return 0 };
        piece.members.retain(|member| !indexes.contains(member));
        let remaining = piece.members.len();
        if remaining == 0 {
            self.chunks.remove(&id);
        }
        remaining
    }

    pub(super) fn id(&self, batch: BatchId, index: u16) -> NotificationId {
        NotificationId::new(self.batch(batch).accepted_at, STORE_ID, batch, index)
    }

    /// A batch of an open broadcast is not accepted yet.
    pub(super) fn is_accepted(&self, batch: &Batch) -> bool {
        batch.envelope.broadcast.is_none_or(|id| {
            self.broadcasts.get(&id).is_some_and(|broadcast| broadcast.sealed_at.is_some())
        })
    }

    pub(super) fn claimed_items(&self, lane: &Lane) -> usize {
        let of_lane = |piece: &&MemoryChunk| &self.batch(piece.batch).envelope.lane == lane;
        let leased = self.chunks.values().filter(|piece| piece.lease_until.is_some());
        leased.filter(of_lane).map(|piece| piece.members.len()).sum()
    }

    /// A leased chunk as its claimant gets it.
    pub(super) fn chunk(&self, id: ChunkId, piece: &MemoryChunk, lease_until: Timestamp) -> Chunk {
        let batch = self.batch(piece.batch);
        let delivery = |&index: &u16| {
            let entry = batch.entries.get(usize::from(index))?;
            let content = Some(Box::new(entry.content.clone()));
            Some(Delivery { index, recipient: entry.recipient.clone(), content })
        };
        let mut traces = ItemTraces::NONE;
        for &index in &piece.members {
            traces.push(index, self.trace(piece.batch, index));
        }
        Chunk {
            id,
            epoch: piece.epoch,
            lease_until,
            worker: 0,
            batch: piece.batch,
            store_id: STORE_ID,
            accepted_at: batch.accepted_at,
            // One that was moved to an earlier time is due since then.
            envelope: Envelope {
                due_at: batch.envelope.due_at.min(piece.due_at),
                ..batch.envelope.clone()
            },
            attempt: piece.attempt,
            content: None,
            deliveries: piece.members.iter().filter_map(delivery).collect(),
            origins: Vec::new(),
            traces,
        }
    }
}

// === impl MemoryChunk ===

impl MemoryChunk {
    /// Members of a batch before their first attempt, ready.
    pub(super) fn first(batch: BatchId, due_at: Timestamp, members: Vec<u16>) -> Self {
        Self {
            batch,
            due_at,
            attempt: 1,
            epoch: Epoch(0),
            crashes: 0,
            lease_until: None,
            bytes_weight: 0,
            begun_through: None,
            members,
        }
    }

    /// Some of its members as a chunk of their own, ready.
    pub(super) fn part(&self, due_at: Timestamp, members: Vec<u16>) -> Self {
        let Self { batch, attempt, crashes, .. } = *self;
        Self { attempt, crashes, ..Self::first(batch, due_at, members) }
    }

    /// Pieces that become due again with this settlement: one for each instant and kind of outcome.
    pub(super) fn due_again(&self, settlement: &Settlement) -> Vec<Self> {
        let (mut handed_back, mut retries) = (BTreeMap::new(), BTreeMap::new());
        for group in &settlement.groups {
            let (pieces, at) = match group.disposition {
                Disposition::Ended(_) | Disposition::TooLate => continue,
                Disposition::HandedBack { at } => (&mut handed_back, at),
                Disposition::Retry { at } => (&mut retries, at),
            };
            let members: &mut Vec<u16> = pieces.entry(at).or_default();
            members.extend(&group.indexes);
            members.sort_unstable();
        }
        let handed_back = handed_back.into_iter().map(|(at, members)| self.part(at, members));
        let attempt = self.attempt.saturating_add(1);
        let retry = |(at, members)| Self { attempt, crashes: 0, ..self.part(at, members) };
        handed_back.chain(retries.into_iter().map(retry)).collect()
    }

    /// Load of the piece in a claim, with `bytes` bytes.
    pub(super) fn load(&self, bytes: usize) -> ChunkLoad {
        ChunkLoad { items: self.members.len(), bytes }
    }

    /// True if a crash now leaves the member at `index` in doubt.
    pub(super) fn has_begun(&self, index: u16, guarantee: Guarantee) -> bool {
        guarantee == Guarantee::AtMostOnce
            && self.begun_through.is_some_and(|through| index <= through)
    }
}

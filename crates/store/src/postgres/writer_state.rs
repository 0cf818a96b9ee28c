//! The state of a writer: its memory between transactions, which may always be read anew.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::sync::Arc;

use notification::{ChunkId, Lane, Name, Pauses, Timestamp};
use tokio::sync::watch;

use super::commit::SentCommit;
use super::lane_tenants::LaneTenants;
use super::listed::ListedRecipients;
use super::notices::Notice;
use super::notify::NotifyPolicy;
use super::placement::{HOT_FROM, RecentArrivals};
use super::time::DatabaseTime;
use super::totals_changes::{FOLD_EVERY, FoldPace};
use crate::CommitCounts;
use crate::rows::codes::LaneId;
use crate::rows::evidence::AttemptEvidence;
use crate::rows::lanes::Lanes;
use crate::rows::release::Slicing;
use crate::rows::room::LaneLoad;

/// The place of this process in the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Membership {
    /// Its number among the workers.
    pub(super) worker: i64,
    /// The partitions it claims from.
    pub(super) partitions: Vec<i16>,
    /// Workers that own partitions, with this one.
    pub(super) producers: usize,
    /// Workers that deliver, with this one.
    pub(super) consumers: usize,
}

/// The state of a writer.
#[derive(Debug)]
pub(super) struct WriterState {
    pub(super) store_id: u16,
    pub(super) membership: watch::Receiver<Membership>,
    pub(super) time: DatabaseTime,
    /// Lanes that were looked up.
    pub(super) kept_lanes: HashMap<Lane, KeptLane>,
    /// Batch numbers that are ours to give.
    pub(super) batch_numbers: Vec<Range<u64>>,
    /// The database's time when the first of them were drawn.
    pub(super) batch_numbers_since: Timestamp,
    /// All numbers that were drawn are lower, those that were given too.
    pub(super) batch_numbers_end: u64,
    pub(super) claiming: ClaimState,
    pub(super) listed: ListedRecipients,
    /// True if the transaction under way takes recipients off the suppression list.
    pub(super) takes_off_list: bool,
    /// Deliveries that it has stored lately, by destination: they say where new chunks go.
    pub(super) recent_arrivals: RecentArrivals,
    /// The channels that are claimed; all of them when nothing is said.
    pub(super) offered: Option<Arc<BTreeSet<Name>>>,
    /// The pauses, under which chunks are not claimed.
    pub(super) pauses: watch::Receiver<Arc<Pauses>>,
    /// True if this writer's transactions write to the log.
    pub(super) logs: bool,
    pub(super) lane_tenants: LaneTenants,
    pub(super) fold_pace: FoldPace,
    pub(super) slicing: Slicing,
    pub(super) notify: Arc<NotifyPolicy>,
    /// True if the transaction under way notifies other processes.
    pub(super) is_notifying: bool,
    /// Counts of commits, of all writers.
    pub(super) commits: Arc<CommitCounts>,
    /// The commit that was sent, unless its transaction has written nothing, and the effects of it once it is durable.
    committing: Option<(Option<SentCommit>, Effects)>,
}

/// A lane, and for how long it is certainly there.
#[derive(Debug, Clone, Copy)]
pub(super) struct KeptLane {
    pub(super) id: LaneId,
    /// The last number of a batch that may be written to it without another look.
    pub(super) through: u64,
}

/// The work in this process's partitions, as far as it was read.
#[derive(Debug, Default)]
pub(super) struct ClaimState {
    pub(super) lanes: Lanes,
    /// Places in lanes up to and including which none of our chunks is ready.
    pub(super) watermarks: HashMap<LaneId, (i64, i64)>,
    /// Number of watermarks at which those of lanes without work are dropped.
    watermarks_max: usize,
    /// Lanes with due work that are known by number only.
    pub(super) unknown_lanes: HashMap<LaneId, Timestamp>,
    /// Ends of the leases that this process gave; a chunk number of zero stands for those of other ones.
    pub(super) leases: BTreeSet<(Timestamp, ChunkId)>,
    /// Leases that ended before are dealt with.
    pub(super) checked: Option<Timestamp>,
    /// Worker and partitions for which all this was read.
    pub(super) read_for: Option<(i64, Vec<i16>)>,
}

/// The effects of a transaction within the process and the cluster, once it is durable.
#[derive(Debug, Default)]
pub(super) struct Effects {
    /// Lanes with a chunk that became ready, and the earliest instant at which one is due.
    pub(super) dues: BTreeMap<LaneId, Timestamp>,
    /// Load that is settled or due again, by partition and lane.
    pub(super) freed: BTreeMap<(i16, LaneId), LaneLoad>,
    /// Evidence of settlements, by lane.
    pub(super) attempts: BTreeMap<LaneId, AttemptEvidence>,
    /// Lanes that were looked up.
    pub(super) lanes: Vec<(Lane, KeptLane)>,
    /// Deliveries that this process settled.
    pub(super) settled: u64,
    /// True if more may be claimable.
    pub(super) woke: bool,
    /// True if a broadcast waits for its next slice.
    pub(super) waits: bool,
}

/// Lanes that are remembered. Beyond that they are read again.
const KEPT_LANES_MAX: usize = 100_000;
/// Watermarks that are kept in memory even when their lanes have no work. A watermark that is dropped is found again from the
/// lane's beginning.
const WATERMARKS: usize = 65_536;

// === impl WriterState ===

impl WriterState {
    pub(super) fn new(
        store_id: u16,
        membership: watch::Receiver<Membership>,
        time: DatabaseTime,
        notify: Arc<NotifyPolicy>,
        logs: bool,
    ) -> Self {
        Self {
            store_id,
            membership,
            time,
            kept_lanes: HashMap::new(),
            batch_numbers: Vec::new(),
            batch_numbers_since: Timestamp::from_millis(0),
            batch_numbers_end: 0,
            claiming: ClaimState::default(),
            listed: ListedRecipients::default(),
            takes_off_list: false,
            recent_arrivals: RecentArrivals::new(HOT_FROM),
            offered: None,
            pauses: watch::channel(Arc::default()).1,
            logs,
            lane_tenants: LaneTenants::default(),
            fold_pace: FoldPace::new(FOLD_EVERY),
            slicing: Slicing::DEFAULT,
            notify,
            is_notifying: false,
            commits: Arc::default(),
            committing: None,
        }
    }

    /// Invalidates the memory: the next claim reads it anew.
    pub(super) fn invalidate(&mut self) {
        self.claiming.read_for = None;
    }

    /// The `commit` of a transaction is about to be sent.
    pub(super) fn commit_sent(&mut self, commit: Option<SentCommit>, effects: Effects) {
        self.committing = Some((commit, effects));
    }

    /// The commit of which it is not known what became of it.
    pub(super) fn committing(&self) -> Option<SentCommit> {
        self.committing.as_ref().and_then(|(commit, _)| commit.clone())
    }

    /// Drops the effects of a transaction that was not committed.
    pub(super) fn undone(&mut self) {
        self.committing = None;
        // Those that it took off are on the list again, and what it read of the list meanwhile was without them.
        if std::mem::take(&mut self.takes_off_list) {
            self.listed = ListedRecipients::default();
        }
        // Its notices are undone with it, and one of them may have stood for all that was kept back before.
        if self.is_notifying {
            self.notify.note_missed();
        }
    }

    /// Returns the effects of a transaction that was committed.
    pub(super) fn committed(&mut self) -> Effects {
        self.takes_off_list = false;
        let effects = self.committing.take().map(|(_, effects)| effects).unwrap_or_default();
        if self.kept_lanes.len() + effects.lanes.len() > KEPT_LANES_MAX {
            // All of them: which ones will be used again is not known, and they are read again for little.
            self.kept_lanes.clear();
        }
        self.kept_lanes.extend(effects.lanes.iter().cloned());
        effects
    }

    /// Learns of a change that another writer made.
    pub(super) fn apply_notice(&mut self, notice: &Notice) {
        let claiming = &mut self.claiming;
        match *notice {
            // Whichever partition the chunk is of, which the notice does not say: at worst a look at the lane finds nothing of
            // ours.
            Notice::Due(lane, at) => claiming.add_due(lane, at),
            Notice::Freed(partition, lane, load) => {
                // Claims from other workers' partitions are not counted here.
                if self.membership.borrow().partitions.contains(&partition) {
                    claiming.lanes.free(lane, load);
                }
            }
            Notice::Tried(lane, attempts) => claiming.lanes.note_attempts(lane, attempts),
            Notice::Everything => self.invalidate(),
        }
    }
}

// === impl Effects ===

impl Effects {
    /// The notices for other writers and processes.
    pub(super) fn notices(&self) -> Vec<Notice> {
        let dues = self.dues.iter().map(|(&lane, &at)| Notice::Due(lane, at));
        let freed = self.freed.iter();
        let freed = freed.map(|(&(its, lane), &load)| Notice::Freed(its, lane, load));
        let tried = self.attempts.iter().map(|(&lane, &attempts)| Notice::Tried(lane, attempts));
        // Evidence first: a lane was busy by what it held when it was answered, before some of that is freed.
        tried.chain(dues).chain(freed).collect()
    }
}

// === impl ClaimState ===

impl ClaimState {
    /// The memory without the work; the evidence of destinations stays.
    pub(super) fn anew(self) -> Self {
        // Watermarks go as well: they hold for the former partitions, and chunks below them may be ours now.
        Self { lanes: Lanes::knowing(self.lanes.evidence()), ..Self::default() }
    }

    /// Claimed from `lane`, up to a place of it. With as many lanes as there are destinations, not all can be remembered: at
    /// most twice as many as have work.
    pub(super) fn set_watermark(&mut self, lane: LaneId, place: (i64, i64)) {
        self.watermarks.insert(lane, place);
        if self.watermarks.len() > self.watermarks_max.max(WATERMARKS) {
            self.watermarks.retain(|lane, _| self.lanes.lane(*lane).is_some());
            // Twice what is left, so that the walk over all of them comes once for as many insertions.
            self.watermarks_max = 2 * self.watermarks.len();
        }
    }

    pub(super) fn add_due(&mut self, lane: LaneId, at: Timestamp) {
        // Even if the due time is not kept: the lane is read when its span begins, and looked at from here.
        self.lower_watermark(lane, at);
        if self.lanes.lane(lane).is_some() {
            self.lanes.add_due(lane, at);
        } else if self.lanes.keeps(lane, at) {
            let due = self.unknown_lanes.entry(lane).or_insert(at);
            *due = at.min(*due);
        }
    }

    /// A lane was read from the index, with its earliest ready chunk of a span.
    pub(super) fn add_read(&mut self, id: LaneId, lane: Lane, at: Timestamp) {
        self.lower_watermark(id, at);
        self.lanes.add_read(id, lane, at);
    }

    fn lower_watermark(&mut self, lane: LaneId, at: Timestamp) {
        if let Some(watermark) = self.watermarks.get_mut(&lane)
            && (at.millis(), 0) <= *watermark
        {
            // Before all chunks of that instant: numbers begin with one.
            *watermark = (at.millis(), 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_places_are_remembered_than_twice_the_lanes_that_have_work() {
        let mut claiming = ClaimState::default();
        let lane = |id: LaneId| Lane {
            channel: crate::conformance::name("channel"),
            destination: id.to_string().into(),
            priority: notification::Priority::Normal,
            tenant: crate::conformance::name("tenant"),
        };
        let many = i64::try_from(WATERMARKS).unwrap();
        let now = Timestamp::from_millis(0);
        (0..100).for_each(|id| claiming.add_read(id, lane(id), now));
        for id in 0..3 * many {
            claiming.set_watermark(id, (id, 1));
            assert!(claiming.watermarks.len() <= WATERMARKS);
        }
        assert!((0..100).all(|id| claiming.watermarks.contains_key(&id)), "these have work");
        for id in 100..2 * many {
            claiming.add_read(id, lane(id), now);
            claiming.set_watermark(id, (id, 1));
        }
        assert_eq!(claiming.watermarks.len(), 2 * WATERMARKS, "all of these have work");
    }
}

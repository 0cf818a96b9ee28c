//! The way through: claimed under a lease, begun under a fence, settled once.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use notification::{ChunkId, Epoch, Name, Pauses, Priority, Settlement, Timestamp};
use tokio::sync::watch;

use crate::StoreError;

/// Time, lease and bounds of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClaimRequest {
    /// Present time.
    pub now: Timestamp,
    /// Lease of the claimed chunks.
    pub lease: Duration,
    /// Deliveries claimed, at most; a chunk that would exceed it is left, unless it is the first. A chunk that would make the
    /// claim exceed about [`CLAIM_BYTES`](notification::limits::CLAIM_BYTES) is left likewise.
    pub items: usize,
    /// Lowest priority that is claimed: the deliverers have no room for lower ones now.
    pub lowest: Priority,
    /// Deliveries of one lane that may be claimed and unsettled at a time; every chunk weighs
    /// [`CHUNK_WEIGHT`](notification::limits::CHUNK_WEIGHT) deliveries more than it has. A lane below it may be given one
    /// chunk beyond it.
    pub lane_window: usize,
    /// Deliveries of all lanes together that may be claimed and unsettled at a time, with the same weights. Lanes that are not
    /// urgent leave an eighth of it to those that are, and every lane at least a fifth of what is left to the other lanes.
    pub total_window: usize,
    /// Part of `total_window` for lanes whose destinations have not answered lately. Each of them is given a few deliveries of
    /// one chunk, and more when these are answered; a lane of which every attempt fails is given one now and then, with waits
    /// between that grow to a minute. A lane that answers may hold twice [`Settlement::places`], and the deliveries that it
    /// settles in a tenth of a second. With `None`, every lane may fill `lane_window`.
    ///
    /// [`Settlement::places`]: notification::Settlement::places
    pub probe_window: Option<usize>,
}

/// The answer to a claim: chunks, or tickets for them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim<T> {
    /// Chunks: urgent lanes first, of one priority the tenants in turn, of a tenant its lanes in turn, within a lane by due time.
    pub chunks: Vec<T>,
    /// Time of the next claim if nothing changes before: the earliest due time or lease end ahead. `None` when only a change
    /// ([`Claims::changes`]) can bring work. An instant not after `now` means that more is claimable at once.
    pub next_at: Option<Timestamp>,
}

/// The mark up to which an at-most-once chunk is begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// The chunk.
    pub chunk: ChunkId,
    /// Epoch of the claim that requests it.
    pub epoch: Epoch,
    /// Index of the last delivery that may be sent, with all before it down to the last mark.
    pub through: u16,
}

/// The answer to a mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MarkAnswer {
    /// Durably marked: go.
    Granted,
    /// The chunk has another holder, is settled, or was begun this far before: send nothing.
    Stale,
    /// The claim is the current one, but its worker has not renewed its lease in time: nothing may be sent now, and the mark is
    /// to be requested again. It is granted once the worker has renewed, and stale once another one has taken the chunk over.
    Overdue,
}

/// The answer to a settlement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settled {
    /// Durable. `remaining` deliveries of the chunk are still unsettled; at zero the chunk is gone.
    Applied {
        /// Deliveries of the chunk without an outcome.
        remaining: usize,
    },
    /// The chunk has another holder, or is settled: nothing was written.
    Stale,
}

/// The part of the window that all others hold at most beside a lane that is nearly alone.
const ALONE: usize = 16;

// === impl ClaimRequest ===

impl ClaimRequest {
    /// True if a lane of `priority`, with a weight of `of_lane` claimed where all lanes together have `of_all`, may be given
    /// more. A lane may hold twice as much as is left of the common window, so that the next one finds room however many hold some
    /// (dynamic thresholds: Choudhury and Hahne, "Dynamic queue length thresholds for shared-memory packet switches", 1998); one that
    /// is nearly alone four times as much, which is four fifths of the window.
    pub fn is_open(&self, priority: Priority, of_lane: usize, of_all: usize) -> bool {
        // Urgent lanes fill more than the window of the other ones, and a lane's last chunk may go beyond either.
        let left = self.total_window_of(priority).saturating_sub(of_all);
        let of_others = of_all.saturating_sub(of_lane + self.probe_window.unwrap_or(0));
        let share = if of_others < self.total_window / ALONE { 4 } else { 2 };
        priority <= self.lowest && of_lane < self.lane_window.min(left.saturating_mul(share))
    }

    /// Weight of all lanes together from which lanes of `priority` are given no more.
    fn total_window_of(&self, priority: Priority) -> usize {
        match priority {
            Priority::Urgent => self.total_window,
            Priority::Normal | Priority::Bulk => self.total_window - self.total_window / 8,
        }
    }
}

/// Leases due work. For dispatch: as a [`Chunk`](notification::Chunk) where deliver runs in the same process, as a [`Ticket`]
/// where a broker lies between them. The chunk of a ticket is looked at when it is taken ([`TakeTickets`]): the claim settles none of
/// its notifications as expired or suppressed.
///
/// [`Ticket`]: notification::Ticket
/// [`TakeTickets`]: crate::Take
#[async_trait]
pub trait Claims<T>: Send + Sync + std::fmt::Debug {
    /// Leases due chunks, each with a new epoch. Before that, in the same transaction: a chunk whose lease ended is due again
    /// ([`State::after`] decides: at-most-once deliveries that were begun are in doubt), and expired and suppressed notifications
    /// are settled as such; neither are returned. The fallback of a suppressed one ([`Draft::in_place_of`]) is accepted in the
    /// same transaction, and may be claimed by it.
    ///
    /// [`State::after`]: notification::State::after
    /// [`Draft::in_place_of`]: notification::Draft::in_place_of
    async fn claim(&self, request: ClaimRequest) -> Result<Claim<T>, StoreError>;

    /// Changes after every commit that may have made more claimable: work came in, a chunk was settled or
    /// handed back.
    fn changes(&self) -> watch::Receiver<u64>;
}

/// Parks the lanes of channels that this process cannot deliver by. For the process that claims.
#[async_trait]
pub trait Offer: Send + Sync + std::fmt::Debug {
    /// Restricts claims from now on to chunks of `channels`, and notifies of a change ([`Claims::changes`]). All other chunks are
    /// parked: due or not, they stay as they are, at no cost, until their channel is offered again. Before the first call all
    /// channels are claimed. The restriction is not kept over a restart.
    async fn offer(&self, channels: Arc<BTreeSet<Name>>) -> Result<(), StoreError>;
}

/// The permission to begin at-most-once deliveries, for deliver, and the pauses.
#[async_trait]
pub trait Begin: Send + Sync + std::fmt::Debug {
    /// Marks at-most-once deliveries as begun, durably, if the claim is still the current one. Answers in
    /// order. A mark only ever rises: one that does not is stale, so a chunk that a queue gave out twice is
    /// sent once. At-least-once deliveries need no mark, and theirs are granted while the claim is current.
    async fn begin(&self, marks: Vec<Mark>) -> Result<Vec<MarkAnswer>, StoreError>;

    /// The pauses, under which no attempt may begin, claimed or not. Updated before the call that changes a pause is answered.
    fn watch_pauses(&self) -> watch::Receiver<Arc<Pauses>>;
}

/// Writes outcomes. For settle alone.
#[async_trait]
pub trait Settlements: Send + Sync + std::fmt::Debug {
    /// Writes log, retries and suppressions, accepts fallbacks, and answers in order. Each settlement applies whole or
    /// not at all, in one transaction; an index that is settled already makes it [`Settled::Stale`].
    async fn settle(&self, settlements: Vec<Settlement>) -> Result<Vec<Settled>, StoreError>;
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use notification::limits;

    /// The deliveries that each of `lanes` lanes holds, which were given room one after the other until none got more.
    fn shares(lanes: usize) -> Vec<usize> {
        let request = ClaimRequest {
            now: Timestamp::from_millis(0),
            lease: Duration::ZERO,
            items: usize::MAX,
            lowest: Priority::Bulk,
            lane_window: limits::LANE_WINDOW,
            total_window: limits::CLAIMED_ITEMS,
            probe_window: Some(limits::PROBE_WINDOW),
        };
        let mut held = vec![0; lanes];
        // Probes are counted as if they held all they may.
        let of_all = |held: &[usize]| limits::PROBE_WINDOW + held.iter().sum::<usize>();
        while let Some(lane) = (0..lanes)
            .filter(|lane| request.is_open(Priority::Normal, held[*lane], of_all(&held)))
            .min_by_key(|lane| held[*lane])
        {
            held[lane] += limits::BATCH_ITEMS;
        }
        assert!(request.is_open(Priority::Normal, 0, of_all(&held)), "the next lane finds no room");
        held
    }

    #[test]
    fn a_lane_alone_holds_four_fifths_and_the_next_one_finds_room_however_many_there_are() {
        let window = limits::CLAIMED_ITEMS / 8 * 7 - limits::PROBE_WINDOW;
        for lanes in [1, 2, 10, 100] {
            let held = shares(lanes);
            let (least, most) = (*held.iter().min().unwrap(), *held.iter().max().unwrap());
            assert!(most - least <= limits::BATCH_ITEMS, "{held:?}");
            let factor = if lanes == 1 { 4 } else { 2 };
            let share = factor * window / (factor * lanes + 1);
            assert!(most >= share && least <= share + limits::BATCH_ITEMS, "{held:?}");
        }
    }
}

//! What a claim is going to take: decided in memory from what the index has next in the lanes whose turn it is.

use std::collections::{HashMap, VecDeque};

use notification::{ChunkId, Timestamp, limits};

use super::board::{Board, Place};
use super::table::{instant, small};
use crate::rows::lanes::LaneId;
use crate::{ClaimRequest, StoreError};

/// A chunk that is ready.
#[derive(Debug, Clone, Copy)]
pub(super) struct Candidate {
    pub(super) place: Place,
    pub(super) lane: LaneId,
    pub(super) count: usize,
    expires_at: Option<Timestamp>,
}

/// What is next in a lane.
#[derive(Debug, Default)]
pub(super) struct Hand {
    next: VecDeque<Candidate>,
    /// Where the scan goes on.
    last: Option<Place>,
    /// Whether the lane has no more than this.
    is_all: bool,
}

/// What a claim is going to take.
#[derive(Debug, Default)]
pub(super) struct Plan {
    hands: HashMap<LaneId, Hand>,
    pub(super) chosen: Vec<Candidate>,
    pub(super) expired: Vec<Candidate>,
    items: usize,
    ended: usize,
}

/// What a plan needs next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Need {
    Nothing,
    Candidates,
}

/// Lanes looked into at once.
const LANES_AT_ONCE: usize = 256;

// === impl Candidate ===

impl Candidate {
    pub(super) const fn id(&self) -> ChunkId {
        ChunkId(self.place.chunk.cast_unsigned())
    }
}

// === impl Plan ===

impl Plan {
    /// Takes of what is in hand until the claim is full, or a lane has to be looked into.
    pub(super) fn choose(
        &mut self,
        board: &mut Board,
        request: &ClaimRequest,
        ends_expired: bool,
    ) -> Need {
        let now = request.now;
        // What ends here is bounded like all work of a round; the caller is told to come again at once.
        while self.ended < limits::ROUND_ITEMS
            && let Some(lane) = board.lanes.next(request)
        {
            let Some(hand) = self.hands.get_mut(&lane) else { return Need::Candidates };
            let Some(first) = hand.next.front().copied() else {
                if !hand.is_all {
                    return Need::Candidates;
                }
                board.lanes.set_next_due(lane, None);
                continue;
            };
            if first.place.due_at > now {
                board.lanes.set_next_due(lane, Some(first.place.due_at));
                continue;
            }
            let has_expired = first.expires_at.is_some_and(|expires_at| expires_at <= now);
            let ends = ends_expired && has_expired;
            if ends {
                self.ended += first.count;
                self.expired.push(first);
            } else if self.items > 0 && self.items + first.count > request.items {
                return Need::Nothing;
            } else {
                self.items += first.count;
                board.lanes.add_claimed(lane, first.count);
                self.chosen.push(first);
            }
            hand.next.pop_front();
            board.set_mark(lane, first.place);
            // Where more may follow that was not looked at, something may be due at once.
            let next_due = match hand.next.front() {
                Some(next) => Some(next.place.due_at),
                None => (!hand.is_all).then_some(first.place.due_at),
            };
            if ends {
                board.lanes.set_next_due(lane, next_due);
            } else {
                board.lanes.served(lane, next_due);
            }
        }
        Need::Nothing
    }

    /// Lanes to look into, and from where on.
    pub(super) fn wanted(&self, board: &mut Board, request: &ClaimRequest) -> Vec<(LaneId, Place)> {
        let lanes: Vec<LaneId> = board.lanes.open_and_due(request).take(LANES_AT_ONCE).collect();
        let needed = lanes.into_iter().filter(|lane| {
            self.hands.get(lane).is_none_or(|hand| hand.next.is_empty() && !hand.is_all)
        });
        let from = |lane| {
            let last = self.hands.get(&lane).and_then(|hand| hand.last);
            (lane, last.unwrap_or_else(|| board.mark(lane)))
        };
        needed.map(from).collect()
    }

    /// Gives a lane what was found in it, of `rows_max` at most.
    pub(super) fn deal(&mut self, lane: LaneId, mut found: Vec<Candidate>, rows_max: usize) {
        found.sort_unstable_by_key(|candidate| candidate.place);
        let hand = self.hands.entry(lane).or_default();
        hand.is_all = found.len() < rows_max;
        hand.last = found.last().map(|candidate| candidate.place).or(hand.last);
        hand.next.extend(found);
    }
}

pub(super) fn candidate(row: &tokio_postgres::Row) -> Result<Candidate, StoreError> {
    Ok(Candidate {
        lane: LaneId::from(row.try_get::<_, i32>(0)?),
        place: Place { due_at: instant(row, 1)?, chunk: row.try_get(2)? },
        count: small(row.try_get::<_, i32>(3)?)?,
        expires_at: row.try_get::<_, Option<i64>>(4)?.map(Timestamp::from_millis),
    })
}

//! The progress of a broadcast, from its chunks and its log.

use std::collections::BTreeMap;

use notification::{Account, State, Timestamp};

use super::codec::LogGroup;
use super::paused::PUT_AWAY;
use crate::{Attempted, BroadcastPart};

/// The parts of one broadcast, by lane. Chunks are added before log entries.
#[derive(Debug)]
pub(crate) struct BroadcastParts<Lane> {
    of_lanes: Vec<(Lane, BroadcastPart)>,
    /// Part of the further lanes together; `None` while there are none.
    rest: Option<BroadcastPart>,
    /// Ends that requeues and resolutions took back: the log has no order to rely on.
    taken_back: BTreeMap<State, u64>,
}

/// Pending members of a chunk.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PendingChunk {
    pub(crate) count: u64,
    pub(crate) attempt: u16,
    pub(crate) due_at: Timestamp,
    pub(crate) is_ready: bool,
}

/// Lanes that are looked at one by one: few broadcasts have more destinations that take long.
const LANES_APART: usize = 32;

// === impl BroadcastParts ===

impl<Lane: PartialEq> BroadcastParts<Lane> {
    /// The parts of a broadcast of which `waiting` notifications have no chunk yet. Their lanes are not known yet, so all lanes
    /// are counted together while there are any.
    pub(crate) fn new(waiting: u64) -> Self {
        let rest = BroadcastPart { pending: waiting, ..BroadcastPart::default() };
        let rest = (waiting > 0).then_some(rest);
        Self { of_lanes: Vec::new(), rest, taken_back: BTreeMap::new() }
    }

    pub(crate) fn add_chunk(&mut self, lane: Lane, chunk: PendingChunk) {
        let PendingChunk { count, attempt, due_at, is_ready } = chunk;
        let part = self.part_of(lane);
        part.pending += count;
        // A chunk that is put away is due when it is resumed.
        if is_ready && attempt > 1 && due_at < PUT_AWAY {
            part.retries.add(due_at.to_unix(), 0, count);
            part.retry_attempt = part.retry_attempt.max(attempt);
        }
    }

    /// A group of the log, whose end counts in `account`.
    pub(crate) fn add_group(&mut self, lane: &Lane, group: &LogGroup, account: &mut Account) {
        let (entry, items) = (&group.attempted, group.indexes.len() as u64);
        self.add_logged(lane, entry, items);
        if entry.state.is_terminal() {
            account.add(entry.state, items);
        } else if let Some(from) = entry.taken_back() {
            *self.taken_back.entry(from).or_default() += items;
        }
    }

    /// An entry of the log, about `count` notifications. Of lanes in which nothing is left, nothing needs to be known.
    pub(crate) fn add_logged(&mut self, lane: &Lane, entry: &Attempted, count: u64) {
        let own = self.of_lanes.iter_mut().find(|(other, _)| other == lane);
        let Some(part) = own.map(|(_, part)| part).or(self.rest.as_mut()) else { return };
        let at = entry.at.to_unix();
        match entry.state {
            // Its destination has taken it, or not, when it was in doubt.
            _ if entry.is_resolution() => {}
            State::Pending if entry.taken_back().is_some() => {}
            State::Pending => part.series.add(at, 0, count),
            State::Delivered
            | State::Refused
            | State::Suppressed
            | State::InDoubt
            | State::Dead => part.series.add(at, count, 0),
            // These end whatever the destination takes, but for the few that could only be tried again too late; and nothing
            // that is under way is logged.
            State::Cancelled | State::Expired | State::Claimed | State::Begun => {}
        }
    }

    /// The parts, after the last group of the log. The ends that were taken back no longer count in `account`.
    pub(crate) fn into_parts(self, account: &mut Account) -> Vec<BroadcastPart> {
        for (state, items) in self.taken_back {
            account.remove(state, items);
        }
        self.of_lanes.into_iter().map(|(_, part)| part).chain(self.rest).collect()
    }

    pub(crate) fn pending(&self) -> u64 {
        let parts = self.of_lanes.iter().map(|(_, part)| part).chain(&self.rest);
        parts.map(|part| part.pending).sum()
    }

    fn part_of(&mut self, lane: Lane) -> &mut BroadcastPart {
        let own = self.of_lanes.iter().position(|(other, _)| *other == lane);
        let is_apart = self.rest.is_none() && self.of_lanes.len() < LANES_APART;
        let place = own.or_else(|| {
            is_apart.then(|| {
                self.of_lanes.push((lane, BroadcastPart::default()));
                self.of_lanes.len() - 1
            })
        });
        match place.and_then(|place| self.of_lanes.get_mut(place)) {
            Some((_, part)) => part,
            None => self.rest.get_or_insert_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_lanes_are_looked_at_together() {
        let mut parts = BroadcastParts::new(0);
        let due_at = Timestamp::from_millis(0);
        let chunk = PendingChunk { count: 2, attempt: 1, due_at, is_ready: true };
        for lane in 0..40 {
            parts.add_chunk(lane, chunk);
            parts.add_chunk(lane, chunk);
        }
        assert_eq!(parts.pending(), 160);
        let parts = parts.into_parts(&mut Account::default());
        let pending: Vec<u64> = parts.iter().map(|part| part.pending).collect();
        assert_eq!(pending, [vec![4; LANES_APART], vec![32]].concat());
    }
}

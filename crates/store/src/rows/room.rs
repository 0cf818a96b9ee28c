//! The room of a lane in a claim: by its window, by the windows of all lanes, and by its evidence.

use std::time::Duration;

use notification::{Priority, Timestamp};

use super::evidence::{Evidence, LaneHealth, PROBE_ITEMS};
use crate::ClaimRequest;

/// Claimed and unsettled deliveries of a lane.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct LaneLoad {
    pub(crate) deliveries: usize,
    /// The deliveries, with [`CHUNK_WEIGHT`](notification::limits::CHUNK_WEIGHT) for each chunk and the weight of bytes.
    pub(crate) weight: usize,
}

/// The window against which the load of a lane counts: set by its health when it had nothing claimed, changed to failing when it is
/// probed, and to proven when its destination answers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum LoadKind {
    #[default]
    Proven,
    Unproven,
    Failing,
}

/// Weight of the claimed and unsettled deliveries of all lanes.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct TotalLoad {
    weight: usize,
    /// The parts of it that are counted so.
    unproven: usize,
    failing: usize,
}

/// A lane with something due.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DueLane {
    pub(crate) priority: Priority,
    pub(crate) due_at: Timestamp,
    pub(crate) load: LaneLoad,
    /// Health of the lane, by [`ClaimRequest::health`].
    pub(crate) health: LaneHealth,
}

/// A lane that fell due so lately has an eighth of the window for probes before those that wait for longer: after a start
/// the backlogs of a thousand dead destinations are as unproven as a destination that has one notification, due now.
const FRESH: Duration = Duration::from_secs(10);

/// Parts into which the window for probes is divided.
const PROBE_WINDOW_PARTS: usize = 16;

// === impl LoadKind ===

impl From<LaneHealth> for LoadKind {
    fn from(health: LaneHealth) -> Self {
        match health {
            LaneHealth::Proven { .. } => Self::Proven,
            LaneHealth::Unproven => Self::Unproven,
            LaneHealth::Failing { .. } => Self::Failing,
        }
    }
}

// === impl TotalLoad ===

impl TotalLoad {
    pub(crate) fn add(&mut self, counted: LoadKind, weight: usize) {
        self.weight += weight;
        if let Some(part) = self.part(counted) {
            *part += weight;
        }
    }

    pub(crate) fn remove(&mut self, counted: LoadKind, weight: usize) {
        // Never more than was added: a lane gives back no more than it holds.
        self.weight -= weight;
        if let Some(part) = self.part(counted) {
            *part -= weight;
        }
    }

    fn part(&mut self, counted: LoadKind) -> Option<&mut usize> {
        match counted {
            LoadKind::Proven => None,
            LoadKind::Unproven => Some(&mut self.unproven),
            LoadKind::Failing => Some(&mut self.failing),
        }
    }

    #[cfg(test)]
    pub(super) fn failing_weight(self) -> usize {
        self.failing
    }

    fn probes(self) -> usize {
        self.unproven + self.failing
    }
}

// === impl ClaimRequest ===

impl ClaimRequest {
    /// Health of a lane with this `evidence` now.
    pub(crate) fn health(&self, evidence: Evidence) -> LaneHealth {
        match self.probe_window {
            Some(_) => evidence.health(self.now),
            None => LaneHealth::Proven { window: usize::MAX },
        }
    }

    /// True if only a settlement makes room for more of the lane.
    pub(crate) fn is_full(&self, lane: DueLane) -> bool {
        let LaneLoad { deliveries, weight } = lane.load;
        match lane.health {
            LaneHealth::Proven { window } => deliveries >= window || weight >= self.lane_window,
            // The next ones wait for the answers to the last.
            LaneHealth::Unproven => weight > 0,
            LaneHealth::Failing { at_a_time, .. } => deliveries >= at_a_time,
        }
    }

    /// Deliveries of its next chunk that `lane` may be given now; 0 when it may not be given any.
    pub(crate) fn room_of(&self, lane: DueLane, total: TotalLoad) -> usize {
        let LaneLoad { deliveries, weight } = lane.load;
        if self.is_full(lane) || lane.priority > self.lowest {
            return 0;
        }
        let probe_window = self.probe_window.unwrap_or(0);
        match lane.health {
            LaneHealth::Proven { window } => {
                let is_open = self.is_open(lane.priority, weight, self.load_of_proven(total));
                // Not the last few places alone, or each claim would cut a small part off a large chunk.
                if is_open { (window - deliveries).max(window / 4) } else { 0 }
            }
            LaneHealth::Unproven => {
                let share = self.probes_of(lane.priority, lane.due_at, probe_window);
                if total.probes() >= share {
                    return 0;
                }
                // Half as many with every sixteenth that is taken: of very many unknown destinations each may be dead, and an attempt
                // that is not answered holds a connection for half a minute.
                let taken = PROBE_WINDOW_PARTS * total.probes() / share;
                (PROBE_ITEMS >> taken).max(1)
            }
            LaneHealth::Failing { closed_until, has_answered, .. } => {
                // A part of the window for probes only, so that destinations that fail keep none from being tried that may answer; and
                // a smaller one for those that have not answered lately: hundreds that hold each attempt for minutes keep none
                // waiting that failed once.
                let eighths = if has_answered { 3 } else { 2 };
                let part = probe_window / 8 * eighths;
                let has_room = total.failing < part && total.probes() < probe_window;
                usize::from(closed_until <= self.now && has_room)
            }
        }
    }

    /// The part of the window for probes that a lane may fill which is not known to fail.
    fn probes_of(&self, priority: Priority, due_at: Timestamp, probe_window: usize) -> usize {
        let eighths = match priority {
            Priority::Urgent => 8,
            Priority::Normal | Priority::Bulk if self.now.since(due_at) < FRESH => 7,
            Priority::Normal | Priority::Bulk => 6,
        };
        probe_window / 8 * eighths
    }

    /// True if a proven lane of `priority` that has nothing claimed may be given a delivery.
    pub(crate) fn has_room(&self, priority: Priority, total: TotalLoad) -> bool {
        self.is_open(priority, 0, self.load_of_proven(total))
    }

    /// True if a lane of `priority` may be probed whose destination may answer.
    pub(crate) fn has_probes(&self, priority: Priority, total: TotalLoad) -> bool {
        priority <= self.lowest && self.probe_window.is_some_and(|window| total.probes() < window)
    }

    /// True if anything may be claimed: the most urgent have the largest window.
    pub(crate) fn has_any_room(&self, total: TotalLoad) -> bool {
        self.has_room(Priority::Urgent, total) || self.has_probes(Priority::Urgent, total)
    }

    /// Weight that counts as claimed for a proven lane: as if the window for probes were always full, so that probes find room in
    /// it.
    fn load_of_proven(&self, total: TotalLoad) -> usize {
        match self.probe_window {
            Some(probe_window) => total.weight - total.probes() + probe_window,
            None => total.weight,
        }
    }
}

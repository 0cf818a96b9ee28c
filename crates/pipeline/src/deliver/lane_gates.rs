//! One gate per lane and thread.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use channel::Concurrency;
use flow::Gate;
use notification::Lane;
use tokio::sync::Mutex;

/// The limits that the chunks of one lane share on one thread.
#[derive(Debug, Clone)]
pub(super) struct LaneGate {
    /// Admits attempts.
    pub(super) gate: Gate,
    /// Held by the at-most-once chunk that is being begun: one at a time, so that little is begun that has no
    /// stream yet.
    pub(super) beginning: Rc<Mutex<()>>,
    /// What the gate was made with.
    concurrency: Concurrency,
}

/// The gates of one thread, by lane.
#[derive(Debug, Default)]
pub(super) struct LaneGates {
    by_lane: RefCell<HashMap<Lane, LaneGate>>,
}

/// Above this many, the gates of idle lanes are dropped: webhooks may go to very many hosts.
const LANES_KEPT: usize = 4_096;

// === impl LaneGates ===

impl LaneGates {
    /// The gate of `lane`. It is made with a limit of `concurrency` when the lane is new, or when its channel was replaced
    /// by one with another limit: what is under way then ends in the old gate.
    pub(super) fn get(&self, lane: &Lane, concurrency: Concurrency) -> LaneGate {
        let mut by_lane = self.by_lane.borrow_mut();
        let known = by_lane.get(lane);
        if let Some(lane_gate) = known.filter(|lane_gate| lane_gate.concurrency == concurrency) {
            return lane_gate.clone();
        }
        // A gate that holds passes must stay: a second one would admit as many again.
        if by_lane.len() >= LANES_KEPT {
            by_lane.retain(|_, lane_gate| !lane_gate.gate.is_idle());
        }
        let gate = Gate::new(concurrency.limit());
        let lane_gate = LaneGate { gate, beginning: Rc::new(Mutex::new(())), concurrency };
        by_lane.insert(lane.clone(), lane_gate.clone());
        lane_gate
    }
}

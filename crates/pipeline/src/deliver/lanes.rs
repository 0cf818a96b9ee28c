//! One gate per lane and thread.

use std::cell::RefCell;
use std::collections::HashMap;

use flow::{Fixed, Gate};
use notification::Lane;

/// The gates of one thread.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    gates: RefCell<HashMap<Lane, Gate>>,
}

/// Above this many gates, those that nobody passes are forgotten: webhooks may go to very many hosts.
const GATES_KEPT: usize = 4_096;

// === impl Lanes ===

impl Lanes {
    /// The gate of `lane`, made with room for `concurrency` when it is new.
    pub(super) fn gate(&self, lane: &Lane, concurrency: usize) -> Gate {
        let mut gates = self.gates.borrow_mut();
        if let Some(gate) = gates.get(lane) {
            return gate.clone();
        }
        if gates.len() >= GATES_KEPT {
            gates.retain(|_, gate| !gate.is_idle());
        }
        let gate = Gate::new(Box::new(Fixed(concurrency)));
        gates.insert(lane.clone(), gate.clone());
        gate
    }
}

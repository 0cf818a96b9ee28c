//! One gate and one turn per lane and thread.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use flow::{Fixed, Gate};
use notification::Lane;
use tokio::sync::Mutex;

/// What the chunks of one lane share on one thread.
#[derive(Debug, Clone)]
pub(super) struct Entrance {
    /// Admits attempts.
    pub(super) gate: Gate,
    /// Held by the at-most-once chunk that is being begun: one at a time, so that little is begun that has no
    /// stream yet.
    pub(super) turn: Rc<Mutex<()>>,
    /// What the gate was made for.
    concurrency: usize,
}

/// The lanes of one thread.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    entrances: RefCell<HashMap<Lane, Entrance>>,
}

/// Above this many, lanes that nobody uses are forgotten: webhooks may go to very many hosts.
const LANES_KEPT: usize = 4_096;

// === impl Lanes ===

impl Lanes {
    /// The entrance of `lane`, made with room for `concurrency` when it is new, or when its channel was replaced by one with
    /// another: what is under way then ends in the old one.
    pub(super) fn entrance(&self, lane: &Lane, concurrency: usize) -> Entrance {
        let mut entrances = self.entrances.borrow_mut();
        let known = entrances.get(lane);
        if let Some(entrance) = known.filter(|entrance| entrance.concurrency == concurrency) {
            return entrance.clone();
        }
        if entrances.len() >= LANES_KEPT {
            entrances.retain(|_, entrance| !entrance.gate.is_idle());
        }
        let gate = Gate::new(Box::new(Fixed(concurrency)));
        let entrance = Entrance { gate, turn: Rc::new(Mutex::new(())), concurrency };
        entrances.insert(lane.clone(), entrance.clone());
        entrance
    }
}

//! The quotas of the destinations, and the lanes before them: the same for all sender threads of a process.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, PoisonError};

use channel::LaneQuota;
use flow::Quotas;
use notification::Lane;
use tokio::time::Instant;

/// The quotas of one process. Its sender threads share it.
#[derive(Debug, Default)]
pub struct LaneQuotas {
    quotas: Quotas,
    lanes: Mutex<HashMap<(Lane, NonZeroU32), Arc<LaneQuota>>>,
}

/// Above this many, lanes that no thread has a gate for are forgotten.
const LANES_KEPT: usize = 16_384;

// === impl LaneQuotas ===

impl LaneQuotas {
    /// For `lane`, whose destination takes at most `per_minute` in any minute.
    pub(super) fn of(&self, lane: &Lane, per_minute: NonZeroU32, now: Instant) -> Arc<LaneQuota> {
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (lane.clone(), per_minute);
        if lanes.len() >= LANES_KEPT && !lanes.contains_key(&key) {
            lanes.retain(|_, of_lane| Arc::strong_count(of_lane) > 1);
        }
        let new = || Arc::new(LaneQuota::new(self.quotas.of(&lane.destination, per_minute, now)));
        Arc::clone(lanes.entry(key).or_insert_with(new))
    }
}

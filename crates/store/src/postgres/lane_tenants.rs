//! The tenants of lanes, as far as a writer knows them.

use std::collections::HashMap;

use notification::{BatchId, Name};

use crate::rows::codes::LaneId;

/// The tenants of lanes that were looked up, or seen with a batch.
#[derive(Debug, Default)]
pub(super) struct LaneTenants {
    known: HashMap<LaneId, Name>,
    /// The last batch that may be of another tenant than its lane, once that was read.
    pub(super) mixed_through: Option<BatchId>,
}

/// Lanes that are remembered. Beyond that they are read again.
const LANES_MAX: usize = 100_000;

// === impl LaneTenants ===

impl LaneTenants {
    pub(super) fn get(&self, lane: LaneId) -> Option<&Name> {
        self.known.get(&lane)
    }

    pub(super) fn insert(&mut self, lane: LaneId, tenant: Name) {
        if self.known.len() >= LANES_MAX {
            // All of them: which ones will be used again is not known, and they are read again for little.
            self.known.clear();
        }
        self.known.insert(lane, tenant);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::name;

    #[test]
    fn no_more_lanes_are_remembered_than_there_is_room_for() {
        let (mut lanes, end) = (LaneTenants::default(), 3 * i64::try_from(LANES_MAX).unwrap());
        for lane in 0..end {
            lanes.insert(lane, name("tenant"));
            assert!(lanes.known.len() <= LANES_MAX);
            assert_eq!(lanes.get(lane), Some(&name("tenant")));
        }
    }
}

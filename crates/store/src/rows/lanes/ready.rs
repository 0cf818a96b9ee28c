//! The lanes that may be given something, in the order in which they are: of a priority the tenants in turn, counted in
//! deliveries, and of a tenant its lanes one after the other.
//!
//! Start-time fair queueing (Goyal, Vin and Cheng, SIGCOMM 1996): the tenant that was given the least has the next turn, and one
//! that comes back counts as having been given as much as the one served last had been. So a tenant with a million waiting and ten
//! thousand destinations delays one that has a single notification by a chunk.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use notification::{Lane, Name, Priority};

use super::super::codes::LaneId;

/// The lanes that are ready.
#[derive(Debug, Default)]
pub(super) struct ReadyLanes {
    by_priority: BTreeMap<Priority, TenantTurns>,
}

/// The tenants with something of one priority.
#[derive(Debug, Default)]
struct TenantTurns {
    /// Their lanes, by turn.
    lanes: HashMap<Name, BTreeMap<u64, LaneId>>,
    /// Tenants in order of turn: by the deliveries they were given.
    order: BTreeSet<(u64, Name)>,
    /// Deliveries that each was given, as those count that have lanes here, and those that had until lately.
    given: HashMap<Name, u64>,
    /// Deliveries that the tenant served last had been given before.
    served: u64,
}

/// Tenants without a ready lane whose count is kept, at least; with very many, all of their counts are dropped.
const COUNTS_KEPT: usize = 1_024;

// === impl ReadyLanes ===

impl ReadyLanes {
    /// Adds a lane, whose turn among those of its tenant is `turn`.
    pub(super) fn insert(&mut self, lane: &Lane, turn: u64, id: LaneId) {
        self.by_priority.entry(lane.priority).or_default().insert(&lane.tenant, turn, id);
    }

    pub(super) fn remove(&mut self, lane: &Lane, turn: u64) {
        if let Some(turns) = self.by_priority.get_mut(&lane.priority) {
            turns.remove(&lane.tenant, turn);
        }
    }

    /// Deliveries of the lane were claimed.
    pub(super) fn count(&mut self, lane: &Lane, deliveries: usize) {
        let turns = self.by_priority.entry(lane.priority).or_default();
        turns.count(&lane.tenant, u64::try_from(deliveries).unwrap_or(u64::MAX));
    }

    /// Lanes of a priority, all of one tenant before those of the next.
    pub(super) fn in_turn(&self, priority: Priority) -> impl Iterator<Item = LaneId> {
        self.tenants(priority).flat_map(BTreeMap::values).copied()
    }

    /// Lanes of a priority: the first of up to `tenants` tenants, then their second ones, and so on.
    #[cfg(feature = "postgres")]
    pub(super) fn interleaved(
        &self,
        priority: Priority,
        tenants: usize,
    ) -> impl Iterator<Item = LaneId> {
        let tenants = self.tenants(priority).take(tenants);
        let mut rest: VecDeque<_> = tenants.map(BTreeMap::values).collect();
        std::iter::from_fn(move || {
            loop {
                let mut lanes = rest.pop_front()?;
                if let Some(&id) = lanes.next() {
                    rest.push_back(lanes);
                    return Some(id);
                }
            }
        })
    }

    fn tenants(&self, priority: Priority) -> impl Iterator<Item = &BTreeMap<u64, LaneId>> {
        let turns = self.by_priority.get(&priority);
        turns
            .into_iter()
            .flat_map(|turns| turns.order.iter().filter_map(|(_, tenant)| turns.lanes.get(tenant)))
    }
}

// === impl TenantTurns ===

impl TenantTurns {
    fn insert(&mut self, tenant: &Name, turn: u64, id: LaneId) {
        if let Some(lanes) = self.lanes.get_mut(tenant) {
            lanes.insert(turn, id);
            return;
        }
        let given = self.given.entry(tenant.clone()).or_default();
        *given = self.served.max(*given);
        self.order.insert((*given, tenant.clone()));
        self.lanes.insert(tenant.clone(), [(turn, id)].into());
    }

    fn remove(&mut self, tenant: &Name, turn: u64) {
        let Some(lanes) = self.lanes.get_mut(tenant) else { return };
        lanes.remove(&turn);
        if lanes.is_empty() {
            self.lanes.remove(tenant);
            let given = self.given.get(tenant).copied().unwrap_or_default();
            self.order.remove(&(given, tenant.clone()));
            self.trim();
        }
        // No tenant has work left: from here on they are equal.
        if self.lanes.is_empty() {
            self.served = self.given.drain().map(|(_, given)| given).max().unwrap_or(self.served);
        }
    }

    fn count(&mut self, tenant: &Name, deliveries: u64) {
        let given = self.given.entry(tenant.clone()).or_default();
        let before = self.served.max(*given);
        // Before the count changes, which is part of its key there.
        let is_listed = self.order.remove(&(*given, tenant.clone()));
        *given = before.saturating_add(deliveries);
        if is_listed {
            self.order.insert((*given, tenant.clone()));
        }
        self.served = before;
    }

    /// Forgets what counts for nothing.
    fn trim(&mut self) {
        if self.given.len() > 2 * self.lanes.len() + COUNTS_KEPT {
            self.given.retain(|tenant, _| self.lanes.contains_key(tenant));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::name;

    fn lane(tenant: &str) -> Lane {
        let (channel, destination) = (name("channel"), "here".into());
        Lane { channel, destination, priority: Priority::Normal, tenant: name(tenant) }
    }

    /// Serves the lane whose turn it is, `chunk` deliveries; it comes behind the others of its tenant.
    fn serve(
        ready: &mut ReadyLanes,
        turn: &mut u64,
        of: impl Fn(LaneId) -> (Lane, usize),
    ) -> LaneId {
        let id = ready.in_turn(Priority::Normal).next().unwrap();
        let (lane, chunk) = of(id);
        ready.count(&lane, chunk);
        let turns = &ready.by_priority[&Priority::Normal].lanes[&lane.tenant];
        let before = turns.iter().find(|(_, known)| **known == id).map(|(turn, _)| *turn).unwrap();
        ready.remove(&lane, before);
        *turn += 1;
        ready.insert(&lane, *turn, id);
        id
    }

    #[test]
    fn tenants_are_given_equal_parts_however_many_lanes_and_how_large_chunks_they_have() {
        let mut ready = ReadyLanes::default();
        // The first has a hundred lanes with chunks of 1,000, the second one with chunks of 10.
        let of = |id: LaneId| if id == 999 { (lane("small"), 10) } else { (lane("large"), 1_000) };
        for id in (0..100).chain([999]) {
            ready.insert(&of(id).0, id.unsigned_abs(), id);
        }
        let mut turn = 1_000;
        let mut given = HashMap::<bool, usize>::new();
        for _ in 0..10_100 {
            let id = serve(&mut ready, &mut turn, of);
            *given.entry(id == 999).or_default() += of(id).1;
        }
        assert_eq!((given[&true], given[&false]), (100_000, 100_000));
        let waiting: Vec<LaneId> = ready.in_turn(Priority::Normal).collect();
        assert_eq!(waiting.len(), 101);
    }

    #[test]
    fn who_comes_back_has_the_next_turn_and_nothing_of_what_was_missed() {
        let mut ready = ReadyLanes::default();
        let of = |id: LaneId| (lane(if id == 1 { "steady" } else { "guest" }), 100);
        let mut turn = 10;
        ready.insert(&of(1).0, 1, 1);
        (0..50).for_each(|_| assert_eq!(serve(&mut ready, &mut turn, of), 1));
        ready.insert(&of(2).0, 2, 2);
        let served: Vec<LaneId> = (0..6).map(|_| serve(&mut ready, &mut turn, of)).collect();
        assert_eq!(served, [2, 1, 2, 1, 2, 1]);
    }

    #[cfg(feature = "postgres")]
    #[test]
    fn a_page_has_lanes_of_every_tenant() {
        let mut ready = ReadyLanes::default();
        for id in 0..100 {
            ready.insert(&lane("large"), id, id.cast_signed());
        }
        ready.insert(&lane("small"), 100, 100);
        let page: Vec<LaneId> = ready.interleaved(Priority::Normal, 8).take(4).collect();
        assert_eq!(page, [0, 100, 1, 2]);
    }

    #[test]
    fn the_counts_of_tenants_that_are_gone_are_forgotten() {
        let mut ready = ReadyLanes::default();
        ready.insert(&lane("steady"), 0, 2);
        for id in 0..10 * COUNTS_KEPT {
            let lane = lane(&format!("tenant-{id}"));
            ready.insert(&lane, 0, 1);
            ready.count(&lane, 1);
            ready.remove(&lane, 0);
        }
        assert!(ready.by_priority[&Priority::Normal].given.len() <= COUNTS_KEPT + 2);
    }
}

//! The gates of one thread: one per channel and destination, in which each lane has its turn.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use channel::{Channel, Concurrency, LaneQuota, LearnedBounds, SendBounds};
use flow::Gate;
use notification::Lane;
use tokio::sync::Mutex;

use super::destination_limits::{DestinationLimits, LimitKey, LimitSettings};
use super::lane_quotas::LaneQuotas;

/// The gate and the quota that the chunks of one lane share on one thread.
#[derive(Debug, Clone)]
pub(super) struct LaneGate {
    /// Admits attempts; with those of other tenants and priorities, whose limit it is as well.
    pub(super) gate: Gate,
    /// Held by the at-most-once chunk that is being begun: one at a time, so that little is begun that has no
    /// stream yet.
    pub(super) beginning: Rc<Mutex<()>>,
    /// Quota of all threads, for tenant and provider.
    pub(super) quota: Arc<LaneQuota>,
    /// Bounds with which the gate and the quota were made.
    bounds: LaneBounds,
}

/// Limits on the attempts to a destination, by its channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LaneBounds {
    concurrency: Concurrency,
    learned: LearnedBounds,
    quota_key: Arc<str>,
}

/// The gates of one thread.
#[derive(Debug)]
pub(super) struct LaneGates {
    by_lane: RefCell<HashMap<Lane, LaneGate>>,
    by_limit: RefCell<HashMap<LimitKey, (LimitSettings, Gate)>>,
    limits: Arc<DestinationLimits>,
    quotas: Arc<LaneQuotas>,
}

/// Above this many, the gates of idle lanes are dropped: webhooks may go to very many hosts.
const LANES_KEPT: usize = 4_096;

// === impl LaneGates ===

impl LaneGates {
    /// A table without gates. All threads of the process share `limits` and `quotas`.
    pub(super) fn new(limits: Arc<DestinationLimits>, quotas: Arc<LaneQuotas>) -> Self {
        Self { by_lane: RefCell::default(), by_limit: RefCell::default(), limits, quotas }
    }

    /// The gate of `lane`. It is made with `bounds` when its destination is new, or when its channel was replaced by one with
    /// another limit: attempts under way then end in the old gate. Another quota is used from then on.
    pub(super) fn get(&self, lane: &Lane, bounds: LaneBounds) -> LaneGate {
        let mut by_lane = self.by_lane.borrow_mut();
        let known = by_lane.get(lane);
        if let Some(lane_gate) = known.filter(|lane_gate| lane_gate.bounds == bounds) {
            return lane_gate.clone();
        }
        let quota = self.quotas.of(lane, &bounds.quota_key);
        if let Some(known) = by_lane.get_mut(lane)
            && known.bounds.limits() == bounds.limits()
        {
            (known.quota, known.bounds) = (quota, bounds);
            return known.clone();
        }
        // A gate that holds passes must stay: a second one would admit as many again.
        if by_lane.len() >= LANES_KEPT {
            by_lane.retain(|_, lane_gate| !lane_gate.gate.is_idle());
            self.by_limit.borrow_mut().retain(|_, (_, gate)| gate.has_other_groups());
        }
        let gate = self
            .of_destination(LimitKey::of(lane), &bounds)
            .for_group(lane.priority.weight().into());
        let lane_gate = LaneGate { gate, beginning: Rc::new(Mutex::new(())), quota, bounds };
        by_lane.insert(lane.clone(), lane_gate.clone());
        lane_gate
    }

    /// The gate for `key`.
    fn of_destination(&self, key: LimitKey, bounds: &LaneBounds) -> Gate {
        let mut by_limit = self.by_limit.borrow_mut();
        let settings = bounds.limits();
        // Lanes that still have the gate of other settings end in it, and those that ask from now on share the new one.
        if let Some((_, gate)) = by_limit.get(&key).filter(|(known, _)| *known == settings) {
            return gate.clone();
        }
        let gate = Gate::sharing(self.limits.of(&key, settings));
        by_limit.insert(key, (settings, gate.clone()));
        gate
    }
}

// === impl LaneGate ===

impl LaneGate {
    /// Attempts from which the limit has learned, of all threads; `None` where it is a fixed number.
    pub(super) fn learned_from(&self) -> Option<usize> {
        (self.bounds.concurrency == Concurrency::Auto).then(|| self.gate.learned_from())
    }
}

// === impl LaneBounds ===

impl LaneBounds {
    /// The bounds of a channel's destination.
    pub(super) fn of(channel: &dyn Channel, destination: &Arc<str>) -> Self {
        let SendBounds { concurrency, learned, .. } = channel.bounds();
        Self { concurrency, learned, quota_key: channel.quota_key(destination) }
    }

    fn limits(&self) -> LimitSettings {
        (self.concurrency, self.learned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use notification::{Priority, sample};
    use std::time::Duration;

    fn lane(tenant: &str) -> Lane {
        Lane { tenant: sample::name(tenant), ..sample::envelope().lane }
    }

    fn no_quotas() -> Arc<LaneQuotas> {
        Arc::new(LaneQuotas::new(flow::Clock::starting_at(Duration::ZERO)))
    }

    fn no_gates() -> LaneGates {
        LaneGates::new(Arc::default(), no_quotas())
    }

    fn at_a_time(limit: usize) -> LaneBounds {
        let concurrency = Concurrency::Fixed(limit);
        LaneBounds { concurrency, learned: LearnedBounds::SMALL, quota_key: "here".into() }
    }

    #[test]
    fn all_threads_share_the_quota_of_a_destination_whatever_the_lane() {
        let quotas = no_quotas();
        let threads = [(); 2].map(|()| LaneGates::new(Arc::default(), Arc::clone(&quotas)));
        let get = |thread: usize, lane: &Lane, quota_key: &str| {
            threads[thread].get(lane, LaneBounds { quota_key: quota_key.into(), ..at_a_time(1) })
        };
        let first = get(0, &lane("first"), "here");
        let second = get(1, &Lane { priority: Priority::Urgent, ..lane("second") }, "here");
        assert!(Arc::ptr_eq(first.quota.destination(), second.quota.destination()));
        let elsewhere = get(1, &lane("first"), "here");
        assert!(Arc::ptr_eq(&first.quota, &elsewhere.quota), "the lane is one, too");
        let changed = get(0, &lane("first"), "here, with another credential");
        assert!(!Arc::ptr_eq(first.quota.destination(), changed.quota.destination()));
        let _pass = first.gate.try_enter().unwrap();
        assert!(changed.gate.try_enter().is_none(), "the limit is not doubled by that");
    }

    #[test]
    fn lanes_that_differ_in_their_tenant_or_priority_share_a_limit() {
        let (gates, one) = (no_gates(), at_a_time(1));
        let [first, second] =
            ["first", "second"].map(|tenant| gates.get(&lane(tenant), one.clone()).gate);
        let pass = first.try_enter().unwrap();
        assert!(second.try_enter().is_none());
        drop(pass);
        assert!(second.try_enter().is_some());
        let urgent = Lane { priority: Priority::Urgent, ..lane("first") };
        let _pass = first.try_enter().unwrap();
        assert!(gates.get(&urgent, one).gate.try_enter().is_none());
    }

    #[test]
    fn all_threads_share_the_limit_of_a_destination() {
        let limits = Arc::new(DestinationLimits::default());
        let threads = [(); 2].map(|()| LaneGates::new(Arc::clone(&limits), no_quotas()));
        let [here, there] =
            [0, 1].map(|thread| threads[thread].get(&lane("first"), at_a_time(1)).gate);
        let pass = here.enter().now_or_never().unwrap();
        assert!(there.enter().now_or_never().is_none());
        drop(pass);
        assert!(there.enter().now_or_never().is_some());
        let other = threads[1].get(&lane("first"), at_a_time(2)).gate;
        assert_eq!((here.limit(), other.limit()), (1, 2), "other settings make another limit");
    }

    #[test]
    fn all_threads_know_from_how_many_attempts_a_limit_has_learned() {
        let limits = Arc::new(DestinationLimits::default());
        let threads = [(); 2].map(|()| LaneGates::new(Arc::clone(&limits), no_quotas()));
        let learned = LaneBounds { concurrency: Concurrency::Auto, ..at_a_time(0) };
        let [here, there] =
            [0, 1].map(|thread| threads[thread].get(&lane("first"), learned.clone()));
        for _ in 0..3 {
            let pass = here.gate.enter().now_or_never().unwrap();
            pass.finish(flow::Signal::Answered, Some(flow::Timing::default()), Duration::ZERO);
        }
        assert_eq!([here, there].map(|gate| gate.learned_from()), [Some(3); 2]);
        let fixed = threads[0].get(&lane("first"), at_a_time(1));
        assert_eq!(fixed.learned_from(), None);
    }

    /// Urgent, normal and bulk lanes that all have more than the destination takes.
    #[test]
    fn priorities_come_to_places_by_their_weights() {
        let gates = no_gates();
        let priorities = [Priority::Urgent, Priority::Normal, Priority::Bulk];
        let of = |priority| gates.get(&Lane { priority, ..lane("first") }, at_a_time(12)).gate;
        let lanes = priorities.map(of);
        let mut held: Vec<Vec<flow::Pass>> = vec![Vec::new(), Vec::new(), Vec::new()];
        held[2].extend((0..12).map(|_| lanes[2].try_enter().unwrap()));
        let mut waits = lanes.each_ref().map(|gate| Box::pin(gate.enter()));
        // Each attempt takes as long: the places of a lane are freed in proportion to its part.
        for answer in 0..600 {
            for (number, wait) in waits.iter_mut().enumerate() {
                while let Some(pass) = wait.now_or_never() {
                    held[number].push(pass);
                    *wait = Box::pin(lanes[number].enter());
                }
            }
            let freed = (0..3).flat_map(|number| vec![number; held[number].len()]);
            let freed: Vec<usize> = freed.collect();
            held[freed[answer * 7 % freed.len()]].pop();
        }
        let parts: Vec<usize> = held.iter().map(Vec::len).collect();
        assert!((7..=8).contains(&parts[0]) && parts[1] == 3 && parts[2] == 1, "{parts:?}");
    }

    #[test]
    fn another_limit_makes_another_gate_for_every_tenant() {
        let (gates, [old, new]) = (no_gates(), [1, 2].map(at_a_time));
        let before = gates.get(&lane("first"), old).gate;
        let [first, second] =
            ["first", "second"].map(|tenant| gates.get(&lane(tenant), new.clone()).gate);
        let _passes = (before.try_enter().unwrap(), first.try_enter().unwrap());
        assert!(second.try_enter().is_some());
        assert_eq!(gates.get(&lane("first"), new).gate.in_flight(), 1);
    }

    #[test]
    fn other_bounds_of_a_learned_limit_make_another_gate() {
        let gates = no_gates();
        let upto = |max| {
            let learned = LearnedBounds { first: max, min: max, max };
            LaneBounds { concurrency: Concurrency::Auto, learned, quota_key: "here".into() }
        };
        assert_eq!(gates.get(&lane("first"), upto(5)).gate.limit(), 5);
        assert_eq!(gates.get(&lane("first"), upto(20)).gate.limit(), 20);
        assert_eq!(gates.get(&lane("second"), upto(20)).gate.limit(), 20);
    }
}

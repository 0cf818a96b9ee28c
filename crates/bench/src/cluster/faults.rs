//! Which faults a round meets, and when: a pure function of the seed.

use std::fmt;
use std::time::Duration;

/// One thing that goes wrong, and how long it stays so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are in the words of each kind")]
pub enum ClusterFault {
    /// SIGKILL of a worker, which is started again after `down`.
    Kill { worker: usize, down: Duration },
    /// SIGSTOP of a worker past its lease, then SIGCONT.
    Pause { worker: usize, lasts: Duration },
    /// A broken link between one worker and a server.
    Link { worker: usize, server: FaultedServer, harm: Harm, lasts: Duration },
    /// `pg_ctl stop -m immediate`, and a start after `down`.
    StoreStop { down: Duration },
    /// SIGKILL of the broker, and a start after `down`.
    BrokerKill { down: Duration },
    /// The broker loses everything it had, and starts empty.
    BrokerWipe,
}

/// A server that workers are connected to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultedServer {
    /// PostgreSQL.
    Store,
    /// RabbitMQ or NATS.
    Broker,
}

/// The harm done to a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Harm {
    /// Connections are closed, new ones refused.
    Cut,
    /// Connections stay, bytes vanish.
    HalfOpen,
    /// Connections stay, bytes arrive late.
    Frozen,
}

/// A fault and its moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Planned {
    /// When it begins, after the start of the load.
    pub at: Duration,
    /// The fault.
    pub fault: ClusterFault,
}

/// The bounds of the draw.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// Number of workers.
    pub workers: usize,
    /// True if there is a broker.
    pub has_broker: bool,
    /// Number of faults.
    pub faults: usize,
    /// They begin within this time.
    pub within: Duration,
}

/// A target that can have one fault at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FaultTarget {
    Worker(usize),
    Store,
    Broker,
}

/// Past the lease of a worker (10 s): it is reaped when it comes back.
pub(super) const PAST_LEASE: Duration = Duration::from_secs(12);
/// The pause in which a target comes back, before its next fault.
const RECOVERY: Duration = Duration::from_secs(2);
/// The pause of a broker, which takes longer to start.
const BROKER_RECOVERY: Duration = Duration::from_secs(10);
/// Draws for one fault, until its target is free.
const DRAWS: usize = 100;

// === impl Plan ===

impl Plan {
    /// Draws the faults, in order of time. The same seed draws the same. No target meets two at a time; when no target
    /// is free, there are fewer than asked for.
    pub fn draw(&self, seed: u64) -> Vec<Planned> {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut planned: Vec<Planned> = Vec::new();
        for _ in 0..self.faults {
            let mut draws = (0..DRAWS).map(|_| self.draw_one(&mut random));
            planned.extend(draws.find(|one| planned.iter().all(|other| !one.collides_with(other))));
        }
        planned.sort_by_key(|one| one.at);
        planned
    }

    fn draw_one(&self, random: &mut fastrand::Rng) -> Planned {
        let mut millis = |range: std::ops::Range<u64>| Duration::from_millis(random.u64(range));
        // At least 1: no moment can be drawn from an empty range.
        let within = u64::try_from(self.within.as_millis()).unwrap_or(u64::MAX).max(1);
        let (at, down, cut) = (millis(0..within), millis(0..2_000), millis(1_000..6_000));
        let worker = random.usize(0..self.workers.max(1));
        let server = if self.has_broker && random.bool() {
            FaultedServer::Broker
        } else {
            FaultedServer::Store
        };
        let link = |harm, lasts| ClusterFault::Link { worker, server, harm, lasts };
        let fault = match random.u8(0..if self.has_broker { 10 } else { 8 }) {
            0..=1 => ClusterFault::Kill { worker, down },
            2 => ClusterFault::Pause { worker, lasts: PAST_LEASE },
            3..=4 => link(Harm::Cut, cut),
            5 => link(Harm::HalfOpen, PAST_LEASE),
            6 => link(Harm::Frozen, PAST_LEASE),
            // Every worker is overdue when the server is back, and none is left to reap it.
            7 => ClusterFault::StoreStop { down: if random.bool() { PAST_LEASE } else { down } },
            8 => ClusterFault::BrokerKill { down },
            _ => ClusterFault::BrokerWipe,
        };
        Planned { at, fault }
    }
}

// === impl Planned ===

impl Planned {
    fn collides_with(&self, other: &Self) -> bool {
        let until = |one: &Self| one.at + one.fault.lasts();
        let is_apart = until(self) < other.at || until(other) < self.at;
        self.fault.target() == other.fault.target() && !is_apart
    }
}

impl fmt::Display for Planned {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "at {:.3} s {:?}", self.at.as_secs_f64(), self.fault)
    }
}

// === impl ClusterFault ===

impl ClusterFault {
    fn target(&self) -> FaultTarget {
        match *self {
            Self::Kill { worker, .. } | Self::Pause { worker, .. } | Self::Link { worker, .. } => {
                FaultTarget::Worker(worker)
            }
            Self::StoreStop { .. } => FaultTarget::Store,
            Self::BrokerKill { .. } | Self::BrokerWipe => FaultTarget::Broker,
        }
    }

    /// How long its target is taken.
    fn lasts(&self) -> Duration {
        match *self {
            Self::Kill { down, .. } | Self::StoreStop { down } => down + RECOVERY,
            Self::Pause { lasts, .. } | Self::Link { lasts, .. } => lasts + RECOVERY,
            Self::BrokerKill { down } => down + BROKER_RECOVERY,
            Self::BrokerWipe => BROKER_RECOVERY,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::mem::discriminant;

    const PLAN: Plan =
        Plan { workers: 5, has_broker: true, faults: 8, within: Duration::from_secs(20) };

    #[test]
    fn the_same_seed_draws_the_same_faults_and_another_one_others() {
        assert_eq!(PLAN.draw(7), PLAN.draw(7));
        assert_ne!(PLAN.draw(7), PLAN.draw(8));
    }

    #[test]
    fn faults_are_in_order_within_the_time_and_never_two_at_one_target() {
        for seed in 0..200 {
            let drawn = PLAN.draw(seed);
            assert_eq!(drawn.len(), PLAN.faults, "seed {seed}");
            assert!(drawn.is_sorted_by_key(|one| one.at));
            assert!(drawn.iter().all(|one| one.at < PLAN.within));
            for (i, one) in drawn.iter().enumerate() {
                assert!(
                    drawn.iter().skip(i + 1).all(|other| !one.collides_with(other)),
                    "{drawn:?}"
                );
            }
        }
    }

    #[test]
    fn every_kind_of_fault_meets_every_member_sooner_or_later() {
        let drawn: Vec<ClusterFault> =
            (0..200).flat_map(|seed| PLAN.draw(seed)).map(|one| one.fault).collect();
        let kinds: HashSet<_> = drawn.iter().map(discriminant).collect();
        assert_eq!(kinds.len(), 6);
        for worker in 0..PLAN.workers {
            let mut distinct = HashSet::new();
            for fault in &drawn {
                if let ClusterFault::Link { worker: on, server, harm, .. } = *fault
                    && on == worker
                {
                    distinct.insert(format!("{server:?} {harm:?}"));
                }
            }
            assert_eq!(distinct.len(), 6, "worker {worker}");
        }
    }

    #[test]
    fn without_a_broker_nothing_befalls_one() {
        let plan = Plan { has_broker: false, ..PLAN };
        let is_broker = |fault: &ClusterFault| {
            matches!(
                fault,
                ClusterFault::BrokerKill { .. }
                    | ClusterFault::BrokerWipe
                    | ClusterFault::Link { server: FaultedServer::Broker, .. }
            )
        };
        let drawn = (0..200).flat_map(|seed| plan.draw(seed));
        assert_eq!(drawn.filter(|one| is_broker(&one.fault)).count(), 0);
    }
}

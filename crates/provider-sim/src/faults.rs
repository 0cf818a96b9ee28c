//! Faults: drawn from a seed, or decided by the recipient's name.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::capacity::Capacity;
use crate::options::Faults;
use crate::rate_limit::SimRateLimit;

/// True if the simulator calls this recipient gone when `--dead-tokens` is `fraction`.
///
/// A recipient is a device token as sent, or the path of a webhook. The answer depends on nothing
/// else, and a recipient dead at one fraction is dead at every larger one.
pub fn is_dead(recipient: &str, fraction: f64) -> bool {
    unit(spread(recipient.as_bytes())) < fraction
}

/// A fault that befalls a good request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SimFault {
    Refuse,
    Disconnect,
    Drop,
    Throttle,
    InternalError,
    Unavailable,
}

/// The seeded generator of one provider in one thread.
#[derive(Debug)]
pub(crate) struct Dice {
    generator: fastrand::Rng,
    /// Upper bounds in ascending order; a draw below one of them is that fault.
    bounds: [(f64, SimFault); 6],
    latency_us: u64,
    latency_jitter_us: u64,
}

/// The faults that are common to all threads.
#[derive(Debug)]
pub(crate) struct CommonFaults {
    pub(crate) outage: Outage,
    pub(crate) capacity: Capacity,
    pub(crate) rate_limit: SimRateLimit,
}

/// A stretch of 503.
#[derive(Debug)]
pub(crate) struct Outage {
    after: Option<u64>,
    lasts_us: u64,
    requests: AtomicU64,
    /// 0 until it begins.
    began_us: AtomicU64,
}

impl Dice {
    /// `stream` tells apart the generators of threads and providers.
    pub(crate) fn new(faults: &Faults, stream: u64) -> Self {
        let mut bound = 0.0;
        let bounds = [
            (faults.refuse_rate, SimFault::Refuse),
            (faults.disconnect_rate, SimFault::Disconnect),
            (faults.drop_rate, SimFault::Drop),
            (faults.throttle_rate, SimFault::Throttle),
            (faults.error_rate / 2.0, SimFault::InternalError),
            (faults.error_rate / 2.0, SimFault::Unavailable),
        ]
        .map(|(rate, fault)| {
            bound += rate;
            (bound, fault)
        });
        Self {
            // Mixed: the numbers of threads and providers are neighbours, and so are the seeds that users take.
            generator: fastrand::Rng::with_seed(mix(faults.seed ^ mix(stream))),
            bounds,
            latency_us: micros(faults.latency),
            latency_jitter_us: micros(faults.latency_jitter),
        }
    }

    /// The fault of the next good request, if it meets one.
    pub(crate) fn fault(&mut self) -> Option<SimFault> {
        let [.., (most, _)] = self.bounds;
        // Without a draw: where no faults are asked for, a request pays nothing for them.
        if most == 0.0 {
            return None;
        }
        let draw = self.generator.f64();
        self.bounds.iter().find(|(bound, _)| draw < *bound).map(|(_, fault)| *fault)
    }

    /// How long the next answer takes.
    pub(crate) fn latency_us(&mut self) -> u64 {
        if self.latency_jitter_us == 0 {
            return self.latency_us;
        }
        self.latency_us.saturating_add(self.generator.u64(0..=self.latency_jitter_us))
    }

    /// An identifier for a request that brought none: a random (version 4) UUID.
    pub(crate) fn uuid(&mut self) -> String {
        // The version is 4, and the variant the two bits 10 (RFC 9562, sections 4.1 and 4.2).
        let high = self.generator.u64(..) & 0xffff_ffff_ffff_0fff | 0x4000;
        let low = self.generator.u64(..) >> 2 | 1 << 63;
        let (time, version) = (high >> 16, high & 0xffff);
        let (variant, node) = (low >> 48, low & 0xffff_ffff_ffff);
        format!("{:08x}-{:04x}-{version:04x}-{variant:04x}-{node:012x}", time >> 16, time & 0xffff)
    }
}

impl CommonFaults {
    pub(crate) fn new(faults: &Faults) -> Self {
        Self {
            outage: Outage::new(faults),
            capacity: Capacity::new(faults.capacity.clone()),
            rate_limit: SimRateLimit::new(
                faults.rate_limit,
                Duration::from_millis(faults.rate_burst.into()),
            ),
        }
    }
}

impl Outage {
    pub(crate) fn new(faults: &Faults) -> Self {
        Self {
            after: faults.outage_after,
            lasts_us: micros(faults.outage_for),
            requests: AtomicU64::new(0),
            began_us: AtomicU64::new(0),
        }
    }

    /// Counts one request, and tells whether it falls into the outage.
    pub(crate) fn strikes(&self, now_us: u64) -> bool {
        let Some(after) = self.after else {
            return false;
        };
        // Relaxed: the count itself is exact, and nothing else is read by it.
        if self.requests.fetch_add(1, Ordering::Relaxed) < after {
            return false;
        }
        // The first request beyond the number begins it for all threads.
        let began = self.began_us.compare_exchange(0, now_us, Ordering::Relaxed, Ordering::Relaxed);
        let began_us = began.map_or_else(|earlier| earlier, |_| now_us);
        now_us.saturating_sub(began_us) < self.lasts_us
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// FNV-1a and a final mix: the same value on every machine and with every compiler.
fn spread(bytes: &[u8]) -> u64 {
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    mix(hash)
}

/// The finaliser of `SplitMix64`.
fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// Maps to [0, 1) by the 32 upper bits, which a float holds exactly.
fn unit(value: u64) -> f64 {
    f64::from(u32::try_from(value >> 32).unwrap_or(u32::MAX)) / 4_294_967_296.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::SimulatorOptions;

    fn dice(change: impl FnOnce(&mut Faults)) -> Dice {
        let mut faults = SimulatorOptions::default().faults;
        change(&mut faults);
        Dice::new(&faults, 0)
    }

    fn faults_of(mut dice: Dice, draws: usize) -> Vec<Option<SimFault>> {
        (0..draws).map(|_| dice.fault()).collect()
    }

    #[test]
    fn the_same_seed_draws_the_same_faults() {
        let with_seed = |seed| {
            let dice = dice(|faults| (faults.seed, faults.error_rate) = (seed, 0.5));
            faults_of(dice, 200)
        };
        assert_eq!(with_seed(7), with_seed(7));
        assert_ne!(with_seed(7), with_seed(8));
    }

    #[test]
    fn faults_come_as_often_as_asked() {
        let dice = dice(|faults| {
            (faults.error_rate, faults.throttle_rate, faults.drop_rate) = (0.2, 0.1, 0.05);
        });
        let drawn = faults_of(dice, 100_000);
        let share = |fault| {
            let count = drawn.iter().filter(|drawn| **drawn == fault).count();
            f64::from(u32::try_from(count).unwrap()) / 100_000.0
        };
        let check = |fault, expect: f64| assert!((share(fault) - expect).abs() < 0.01, "{fault:?}");
        check(Some(SimFault::InternalError), 0.1);
        check(Some(SimFault::Unavailable), 0.1);
        check(Some(SimFault::Throttle), 0.1);
        check(Some(SimFault::Drop), 0.05);
        check(Some(SimFault::Refuse), 0.0);
        check(None, 0.65);
    }

    #[test]
    fn without_rates_nothing_goes_wrong() {
        assert!(faults_of(dice(|_| {}), 1000).iter().all(Option::is_none));
    }

    #[test]
    fn a_recipient_is_dead_for_good() {
        let tokens: Vec<String> = (0..10_000).map(|i| format!("{i:064x}")).collect();
        let dead: Vec<_> = tokens.iter().filter(|token| is_dead(token, 0.02)).collect();
        assert!((150..250).contains(&dead.len()), "{}", dead.len());
        assert!(dead.iter().all(|token| is_dead(token, 0.02) && is_dead(token, 0.5)));
        assert!(tokens.iter().all(|token| !is_dead(token, 0.0) && is_dead(token, 1.0)));
    }

    #[test]
    fn latency_lies_between_its_bounds() {
        let mut dice = dice(|faults| {
            faults.latency = Duration::from_millis(10);
            faults.latency_jitter = Duration::from_millis(5);
        });
        let drawn: Vec<u64> = (0..1000).map(|_| dice.latency_us()).collect();
        assert!(drawn.iter().all(|latency_us| (10_000..=15_000).contains(latency_us)));
        assert!(drawn.iter().any(|latency_us| *latency_us < 11_000));
        assert!(drawn.iter().any(|latency_us| *latency_us > 14_000));
    }

    #[test]
    fn made_up_identifiers_are_uuids() {
        let mut dice = dice(|_| {});
        let (first, second) = (dice.uuid(), dice.uuid());
        assert_ne!(first, second);
        assert_eq!(first.len(), 36);
        assert_eq!(first.as_bytes()[14], b'4');
        assert!(b"89ab".contains(&first.as_bytes()[19]), "{first}");
    }

    #[test]
    fn an_outage_begins_after_its_count_and_ends() {
        let mut faults = SimulatorOptions::default().faults;
        faults.outage_after = Some(2);
        faults.outage_for = Duration::from_micros(100);
        let outage = Outage::new(&faults);
        let strikes = [1, 2, 50, 149, 150, 151].map(|now_us| outage.strikes(now_us));
        assert_eq!(strikes, [false, false, true, true, false, false]);
    }
}

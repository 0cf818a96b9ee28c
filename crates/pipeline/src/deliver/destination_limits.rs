//! The limits of a process: one for each destination of a channel, which its sender threads share.

use std::collections::hash_map::RandomState;
use std::collections::{BTreeMap, HashMap};
use std::hash::BuildHasher as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use channel::{Concurrency, LearnedBounds};
use flow::SharedLimit;
use notification::{Lane, Name};

/// The limits on attempts under way that gates of any thread are governed by. They are spread over tables of their own, by the hash
/// of their keys: while one of them is walked, the sender threads wait for a small part of all limits and no more.
#[derive(Debug)]
pub struct DestinationLimits {
    tables: [Mutex<LimitTable>; TABLES],
    hasher: RandomState,
}

/// A part of the limits.
#[derive(Debug, Default)]
struct LimitTable {
    by_key: HashMap<LimitKey, KnownLimit>,
    /// Above this many the limits without a gate are dropped.
    kept: usize,
}

/// The load of a channel's destinations to which something was sent lately.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ChannelLoad {
    /// How many destinations these are.
    pub destinations: u64,
    /// Attempts that may be under way at a time, to all of them together.
    pub limit: u64,
    /// Attempts that are under way.
    pub in_flight: u64,
}

/// Settings with which a limit is made.
pub(super) type LimitSettings = (Concurrency, LearnedBounds);

/// Key under which lanes share a limit: all of a lane but its tenant and its priority.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct LimitKey {
    channel: Name,
    destination: Arc<str>,
}

#[derive(Debug)]
struct KnownLimit {
    settings: LimitSettings,
    /// Gone with the last gate that it governs.
    limit: Weak<SharedLimit>,
}

/// Tables of a process: of 100,000 destinations each holds some 1,600, which are listed in a fraction of a millisecond.
const TABLES: usize = 64;
/// The least number of limits of a table of which those without a gate are dropped.
const KEPT_MIN: usize = 4_096 / TABLES;

// === impl DestinationLimits ===

impl DestinationLimits {
    /// The limit for `key`. It is a new one when no gate has it, and when the settings were others: attempts under way then end under
    /// the old one.
    pub(super) fn of(&self, key: &LimitKey, settings: LimitSettings) -> Arc<SharedLimit> {
        let mut table = lock(self.table_of(key));
        if let Some(known) = table.by_key.get(key)
            && known.settings == settings
            && let Some(limit) = known.limit.upgrade()
        {
            return limit;
        }
        table.make_room();
        let (concurrency, learned) = settings;
        let limit = SharedLimit::new(concurrency.limit(learned));
        let known = KnownLimit { settings, limit: Arc::downgrade(&limit) };
        table.by_key.insert(key.clone(), known);
        limit
    }

    /// The load of each channel as of now; it asks all limits, so it is for the metrics.
    pub fn load(&self) -> BTreeMap<Name, ChannelLoad> {
        let mut load = BTreeMap::<Name, ChannelLoad>::new();
        for table in &self.tables {
            // What a limit says is asked when its table is free again: senders ask for limits meanwhile.
            let listed = lock(table).list();
            for (channel, limit) in listed {
                let Some(limit) = limit.upgrade() else { continue };
                let of_channel = load.entry(channel).or_default();
                of_channel.destinations += 1;
                of_channel.limit = of_channel.limit.saturating_add(limit.current() as u64);
                of_channel.in_flight += limit.in_flight() as u64;
            }
        }
        load
    }

    fn table_of(&self, key: &LimitKey) -> &Mutex<LimitTable> {
        let [first, ..] = &self.tables;
        // A hash has no more than 64 bits, so its remainder is the number of a table.
        let place = usize::try_from(self.hasher.hash_one(key) % TABLES as u64);
        place.ok().and_then(|place| self.tables.get(place)).unwrap_or(first)
    }
}

impl Default for DestinationLimits {
    fn default() -> Self {
        Self { tables: std::array::from_fn(|_| Mutex::default()), hasher: RandomState::new() }
    }
}

// === impl LimitTable ===

impl LimitTable {
    fn make_room(&mut self) {
        if self.by_key.len() >= self.kept.max(KEPT_MIN) {
            self.by_key.retain(|_, known| known.limit.strong_count() > 0);
            self.kept = 2 * self.by_key.len();
        }
    }

    fn list(&self) -> Vec<(Name, Weak<SharedLimit>)> {
        let listed = self.by_key.iter();
        listed.map(|(key, known)| (key.channel.clone(), Weak::clone(&known.limit))).collect()
    }
}

// === impl LimitKey ===

impl LimitKey {
    pub(super) fn of(lane: &Lane) -> Self {
        let Lane { channel, destination, priority: _, tenant: _ } = lane.clone();
        Self { channel, destination }
    }
}

// === helpers ===

/// A panic leaves nothing half done in a table: each change is one assignment.
fn lock(table: &Mutex<LimitTable>) -> MutexGuard<'_, LimitTable> {
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_load_of_a_hundred_thousand_destinations_is_that_of_those_with_a_gate() {
        let limits = DestinationLimits::default();
        let channels: [Name; 2] = ["hooks", "mail"].map(|name| name.parse().unwrap());
        let of = |number: usize| {
            let [hooks, mail] = &channels;
            let channel = if number.is_multiple_of(4) { mail } else { hooks }.clone();
            let key = LimitKey { channel, destination: format!("host-{number}").into() };
            limits.of(&key, (Concurrency::Fixed(3), LearnedBounds::SMALL))
        };
        let mut gates: Vec<_> = (0..100_000).map(&of).collect();
        let load =
            |destinations| ChannelLoad { destinations, limit: 3 * destinations, in_flight: 0 };
        let [hooks, mail] = channels.clone();
        let expect = BTreeMap::from([(hooks, load(75_000)), (mail, load(25_000))]);
        assert_eq!(limits.load(), expect);
        // Asked for again by another thread they are the same limits.
        let again: Vec<_> = (0..100_000).map(of).collect();
        assert!(gates.iter().zip(&again).all(|(one, other)| Arc::ptr_eq(one, other)));
        drop(again);
        gates.truncate(40_000);
        let [hooks, mail] = channels.clone();
        let expect = BTreeMap::from([(hooks, load(30_000)), (mail, load(10_000))]);
        assert_eq!(limits.load(), expect);
    }
}

//! The limits of a process: one for each destination of a channel, which its sender threads share.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use channel::{Concurrency, LearnedBounds};
use flow::SharedLimit;
use notification::{Lane, Name};

/// The limits on attempts under way that gates of any thread are governed by.
#[derive(Debug, Default)]
pub struct DestinationLimits(Mutex<LimitTable>);

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

/// The least number of limits of which those without a gate are dropped.
const KEPT_MIN: usize = 4_096;

// === impl DestinationLimits ===

impl DestinationLimits {
    /// The limit for `key`. It is a new one when no gate has it, and when the settings were others: attempts under way then end under
    /// the old one.
    pub(super) fn of(&self, key: &LimitKey, settings: LimitSettings) -> Arc<SharedLimit> {
        // A panic leaves nothing half done here: each change is one assignment.
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
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
        let table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let limits = table
            .by_key
            .iter()
            .filter_map(|(key, known)| Some((key.channel.clone(), known.limit.upgrade()?)));
        let limits: Vec<(Name, Arc<SharedLimit>)> = limits.collect();
        // Senders ask for limits meanwhile.
        drop(table);
        let mut load = BTreeMap::<Name, ChannelLoad>::new();
        for (channel, limit) in limits {
            let of_channel = load.entry(channel).or_default();
            of_channel.destinations += 1;
            of_channel.limit = of_channel.limit.saturating_add(limit.current() as u64);
            of_channel.in_flight += limit.in_flight() as u64;
        }
        load
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
}

// === impl LimitKey ===

impl LimitKey {
    pub(super) fn of(lane: &Lane) -> Self {
        let Lane { channel, destination, priority: _, tenant: _ } = lane.clone();
        Self { channel, destination }
    }
}

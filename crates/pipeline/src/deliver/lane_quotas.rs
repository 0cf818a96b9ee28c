//! The quotas of a process, of tenants and of what providers count by, and the lanes before them: the same for all sender threads.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use channel::LaneQuota;
use flow::quota_share::{Share, ShareAsk, Shareholder};
use flow::shared_rate::{TurnAnswer, TurnAsk};
use flow::{Clock, LearningQuotas, Quota};
use notification::{Lane, Name};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::Channels;

/// The quotas of one process. Its sender threads share it.
#[derive(Debug)]
pub struct LaneQuotas {
    book: Mutex<QuotaBook>,
    /// The quotas that learn a rate. Its `wake` is also notified when a part of a number is wanted that this process has none of.
    learning: Arc<LearningQuotas>,
    clock: Clock,
}

/// Attempts that may be made in any minute, by the configuration. A channel or tenant without an entry has no bound.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QuotaNumbers {
    /// Number of each channel's quota.
    pub channels: BTreeMap<Name, NonZeroU32>,
    /// Number of each tenant's quota.
    pub tenants: BTreeMap<Name, NonZeroU32>,
}

#[derive(Debug, Default)]
struct QuotaBook {
    numbers: QuotaNumbers,
    quotas: HashMap<QuotaKey, KnownQuota>,
    /// Number of quotas at which those without a booked place are dropped.
    quotas_max: usize,
    lanes: HashMap<(Lane, Arc<str>), Arc<LaneQuota>>,
    /// Number of lanes at which those without a gate on any thread are dropped.
    lanes_max: usize,
    /// Notified when a part is wanted; `None` while this process has all of every number.
    shared: Option<Arc<Notify>>,
    /// The last quota whose turns were asked about, where there were more than could be.
    asked_last: Option<Arc<str>>,
}

/// Key of a quota.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum QuotaKey {
    Tenant(Name),
    /// The destination's provider, by [`channel::Channel::quota_key`].
    Provider(Arc<str>),
}

#[derive(Debug)]
struct KnownQuota {
    quota: Arc<Quota>,
    /// The channels that send under it; of a tenant's, none.
    channels: BTreeSet<Name>,
    /// This process's share; `None` without a number, and while it has all of it.
    share: Option<Shareholder>,
}

/// Quotas that are kept, at least: webhooks may go to very many hosts.
const QUOTAS_KEPT: usize = 4_096;
/// Quotas that are divided among processes at a time, of those in use. A further one lets nothing through until one of them has not
/// been used for some seconds.
const QUOTAS_SHARED: usize = 4_096;
/// Quotas whose turns are asked about at a time. The next ones are asked about then.
const TURNS_ASKED: usize = 4_096;
/// Lanes that are kept, at least.
const LANES_KEPT: usize = 16_384;

// === impl LaneQuotas ===

impl LaneQuotas {
    /// Quotas without any number, until they are [given](Self::follow).
    pub fn new(clock: Clock) -> Self {
        Self { book: Mutex::default(), learning: Arc::default(), clock }
    }

    /// Goes by `numbers` from now on, also where something waits.
    pub fn follow(&self, numbers: QuotaNumbers) {
        let (mut book, now) = (self.book(), self.clock.monotonic());
        book.numbers = numbers;
        let QuotaBook { numbers, quotas, shared, .. } = &mut *book;
        for (of, known) in quotas {
            known.follow(numbers.of(of, &known.channels), shared.as_ref(), now);
        }
    }

    /// Divides every number with other processes from now on. What this process goes by is its own until it has heard of them.
    pub(super) fn share(&self) {
        let (mut book, now) = (self.book(), self.clock.monotonic());
        book.shared = Some(Arc::clone(&self.learning.wake));
        let QuotaBook { numbers, quotas, .. } = &mut *book;
        for (of, known) in quotas {
            let number = numbers.of(of, &known.channels);
            known.share = number.map(|number| Shareholder::of_all(&known.quota, number, now));
        }
    }

    /// Goes by no number until it has a share: what it had is another process's by now.
    pub(super) fn share_anew(&self) {
        let (mut book, now) = (self.book(), self.clock.monotonic());
        book.shared = Some(Arc::clone(&self.learning.wake));
        let QuotaBook { numbers, quotas, .. } = &mut *book;
        for (of, known) in quotas {
            known.share = None;
            known.follow(numbers.of(of, &known.channels), Some(&self.learning.wake), now);
        }
    }

    /// Has all of every number from now on: there is no other process.
    pub(super) fn keep_all(&self) {
        let (mut book, now) = (self.book(), self.clock.monotonic());
        book.shared = None;
        let QuotaBook { numbers, quotas, .. } = &mut *book;
        for (of, known) in quotas {
            known.share = None;
            known.follow(numbers.of(of, &known.channels), None, now);
            known.quota.learn_alone(now);
        }
    }

    /// The questions about the quotas in use, by their keys in the ledger. First come those of which something is held.
    pub(super) fn asks(&self) -> Vec<(Arc<str>, ShareAsk)> {
        let (mut book, now) = (self.book(), self.clock.monotonic());
        let ask = |(of, known): (&QuotaKey, &mut KnownQuota)| {
            let ask = known.share.as_mut()?.ask(&known.quota, &self.learning.wake, now)?;
            Some((of.ledger_key(), ask))
        };
        let mut asks: Vec<_> = book.quotas.iter_mut().filter_map(ask).collect();
        if asks.len() > QUOTAS_SHARED {
            asks.sort_by_key(|(_, ask)| ask.stake.held == 0);
            asks.truncate(QUOTAS_SHARED);
        }
        asks
    }

    /// Goes by no number any more; what to tell the ledger of that.
    pub(super) fn give_back(&self) -> Vec<(Arc<str>, ShareAsk)> {
        let (mut book, now) = (self.book(), self.clock.monotonic());
        let ask = |(of, known): (&QuotaKey, &mut KnownQuota)| {
            let ask = known.share.as_mut()?.give_back(&known.quota, &self.learning.wake, now)?;
            Some((of.ledger_key(), ask))
        };
        book.quotas.iter_mut().filter_map(ask).collect()
    }

    /// Goes by the answers to what was asked at `asked_at`; says when the next one is to be asked, if before long.
    pub(super) fn hear(
        &self,
        shares: &HashMap<Arc<str>, Share>,
        asked_at: Instant,
    ) -> Option<Instant> {
        let (mut book, now) = (self.book(), self.clock.monotonic());
        let mut next: Option<Instant> = None;
        for (of, known) in &mut book.quotas {
            let KnownQuota { quota, share: Some(holder), .. } = known else { continue };
            let Some(share) = shares.get(&of.ledger_key()) else { continue };
            holder.hear(quota, *share, &self.learning.wake, (asked_at, now));
            next = next.into_iter().chain(holder.gives_back_at()).min();
        }
        next
    }

    /// The questions about the rates that are learned, by the keys of their quotas: of those that were refused or want a turn.
    pub(super) fn turn_asks(&self) -> Vec<(Arc<str>, TurnAsk)> {
        let (mut book, now) = (self.book(), self.clock.monotonic());
        let keys = self.learning.next(book.asked_last.as_ref(), TURNS_ASKED);
        book.asked_last = keys.last().cloned();
        let ask = |key: Arc<str>| {
            let known = book.quotas.get(&QuotaKey::Provider(Arc::clone(&key)));
            let Some(known) = known.filter(|known| known.quota.is_learning()) else {
                self.learning.remove(&key);
                return None;
            };
            let ask = known.quota.turn_ask(&self.learning.wake, now)?;
            Some((key, ask))
        };
        keys.into_iter().filter_map(ask).collect()
    }

    /// Goes by the answers to what was asked at `asked_at`.
    pub(super) fn hear_turns(&self, answers: &[(Arc<str>, TurnAnswer)], asked_at: Instant) {
        let (book, now) = (self.book(), self.clock.monotonic());
        for (key, answer) in answers {
            if let Some(known) = book.quotas.get(&QuotaKey::Provider(Arc::clone(key))) {
                known.quota.hear_turn(answer, asked_at, now);
            }
        }
    }

    /// Waits until a part of a number or a turn is wanted, or a rate is learned.
    pub(super) async fn is_wanted(&self) {
        self.learning.wake.notified().await;
    }

    /// The quota of `lane`, whose channel is counted by `key`.
    pub(super) fn of(&self, lane: &Lane, key: &Arc<str>) -> Arc<LaneQuota> {
        let (mut book, now) = (self.book(), self.clock.monotonic());
        let of_lane = (lane.clone(), Arc::clone(key));
        if let Some(known) = book.lanes.get(&of_lane) {
            return Arc::clone(known);
        }
        // Lanes are told apart by destination, of which webhooks have any number.
        if book.lanes.len() >= book.lanes_max.max(LANES_KEPT) {
            book.lanes.retain(|_, lane| Arc::strong_count(lane) > 1);
            // Not at each further one, when most of them must stay.
            book.lanes_max = 2 * book.lanes.len();
        }
        let tenant = book.quota(&QuotaKey::Tenant(lane.tenant.clone()), None, now);
        let provider = book.quota(&QuotaKey::Provider(Arc::clone(key)), Some(&lane.channel), now);
        provider.announce(key, &self.learning);
        let lane = Arc::new(LaneQuota::new(tenant, provider));
        book.lanes.insert(of_lane, Arc::clone(&lane));
        lane
    }

    fn book(&self) -> MutexGuard<'_, QuotaBook> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl QuotaNumbers ===

impl QuotaNumbers {
    /// The numbers of `channels` and of `tenants`.
    pub fn new(channels: &Channels, tenants: BTreeMap<Name, NonZeroU32>) -> Self {
        let number = |(name, channel): (&Name, &Arc<dyn channel::Channel>)| {
            Some((name.clone(), channel.bounds().messages_per_minute?))
        };
        Self { channels: channels.iter().filter_map(number).collect(), tenants }
    }

    /// The number for a quota that `channels` send under: the smallest that any of them has, so that none is passed.
    fn of(&self, of: &QuotaKey, channels: &BTreeSet<Name>) -> Option<NonZeroU32> {
        match of {
            QuotaKey::Tenant(tenant) => self.tenants.get(tenant).copied(),
            QuotaKey::Provider(_) => {
                channels.iter().filter_map(|name| self.channels.get(name)).min().copied()
            }
        }
    }
}

// === impl QuotaBook ===

impl QuotaBook {
    /// The quota `of` something, to which `channel` sends.
    fn quota(&mut self, of: &QuotaKey, channel: Option<&Name>, now: Instant) -> Arc<Quota> {
        let Self { numbers, quotas, quotas_max, shared, .. } = self;
        if quotas.len() >= QUOTAS_KEPT.max(*quotas_max) && !quotas.contains_key(of) {
            // A quota with reserved places must be kept: a new one would let as much through again.
            quotas.retain(|_, KnownQuota { quota, .. }| {
                Arc::strong_count(quota) > 1 || quota.is_booked(now)
            });
            // Not at each further one, when most of them must stay.
            *quotas_max = 2 * quotas.len();
        }
        let new = || {
            let channels = channel.into_iter().cloned().collect();
            let number = numbers.of(of, &channels);
            let quota = Arc::new(Quota::new(number));
            let mut known = KnownQuota { quota, channels, share: None };
            if shared.is_some() {
                known.follow(number, shared.as_ref(), now);
            }
            known
        };
        let known = quotas.entry(of.clone()).or_insert_with(new);
        // A channel that joins may have the smallest number of all.
        if let Some(channel) = channel.filter(|name| !known.channels.contains(*name)) {
            known.channels.insert(channel.clone());
            known.follow(numbers.of(of, &known.channels), shared.as_ref(), now);
        }
        Arc::clone(&known.quota)
    }
}

// === impl KnownQuota ===

impl KnownQuota {
    /// Goes by another number, or by this process's share of it.
    fn follow(&mut self, number: Option<NonZeroU32>, shared: Option<&Arc<Notify>>, now: Instant) {
        let (Some(number), Some(wanted)) = (number, shared) else {
            self.share = None;
            self.quota.change(number, now);
            return;
        };
        match &mut self.share {
            Some(share) => share.change(&self.quota, number, now),
            None => self.share = Some(Shareholder::of_none(&self.quota, number, wanted, now)),
        }
    }
}

// === impl QuotaKey ===

impl QuotaKey {
    /// Its key in the ledger that processes share.
    fn ledger_key(&self) -> Arc<str> {
        match self {
            Self::Tenant(name) => format!("tenant {name}").into(),
            Self::Provider(key) => format!("provider {key}").into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use notification::sample;
    use std::time::Duration;

    fn quotas() -> (LaneQuotas, Clock) {
        let clock = Clock::starting_at(Duration::ZERO);
        (LaneQuotas::new(clock), clock)
    }

    fn lane(tenant: &str, channel: &str) -> Lane {
        let (tenant, channel) = (sample::name(tenant), sample::name(channel));
        Lane { tenant, channel, ..sample::envelope().lane }
    }

    fn numbers(channels: &[(&str, u32)], tenants: &[(&str, u32)]) -> QuotaNumbers {
        let read = |numbers: &[(&str, u32)]| {
            let number = |(name, count): &(&str, u32)| {
                (sample::name(name), NonZeroU32::new(*count).unwrap())
            };
            numbers.iter().map(number).collect()
        };
        QuotaNumbers { channels: read(channels), tenants: read(tenants) }
    }

    /// Places of a quota at once: a sixtieth of its number.
    fn burst(quota: &Quota) -> usize {
        quota.within(Duration::ZERO)
    }

    #[test]
    fn a_quota_of_several_channels_has_the_smallest_of_their_numbers() {
        let (quotas, _) = quotas();
        quotas.follow(numbers(&[("a", 600), ("b", 300)], &[]));
        let key = "there".into();
        let [a, b, c] = ["a", "b", "c"].map(|channel| quotas.of(&lane("default", channel), &key));
        assert!(Arc::ptr_eq(a.destination(), b.destination()));
        assert!(Arc::ptr_eq(a.destination(), c.destination()), "one without a number keeps to it");
        assert_eq!(burst(a.destination()), 5);
        quotas.follow(numbers(&[("a", 600)], &[]));
        assert_eq!(burst(b.destination()), 10, "a channel that is gone counts no more");
        quotas.follow(numbers(&[], &[]));
        assert!(a.destination().is_open());
        let elsewhere = quotas.of(&lane("default", "a"), &"elsewhere".into());
        assert!(!Arc::ptr_eq(a.destination(), elsewhere.destination()));
    }

    #[test]
    fn all_lanes_of_a_tenant_share_its_quota_and_a_new_number_holds_for_those_that_wait() {
        let (quotas, clock) = quotas();
        let [first, second] = ["one", "two"].map(|key| quotas.of(&lane("a", "x"), &key.into()));
        let other = quotas.of(&lane("b", "x"), &"one".into());
        assert!(Arc::ptr_eq(first.tenant(), second.tenant()));
        assert!(first.tenant().is_open());
        quotas.follow(numbers(&[], &[("a", 60)]));
        assert!(other.tenant().is_open() && !first.tenant().is_open());
        let now = clock.monotonic();
        assert_eq!(second.tenant().reserve(now, Duration::ZERO), Ok(Duration::ZERO));
        assert!(first.tenant().reserve(now, Duration::ZERO).is_err(), "it is the same");
    }

    #[test]
    fn a_quota_is_kept_for_as_long_as_it_counts() {
        let (quotas, clock) = quotas();
        let start = clock.monotonic();
        let mut book = quotas.book();
        let of = |name: &str| QuotaKey::Provider(name.into());
        let used = book.quota(&of("used"), None, start);
        assert!(Arc::ptr_eq(&used, &book.quota(&of("used"), None, start)));
        book.quota(&of("booked"), None, start).pause(start, Duration::from_mins(1));
        let crowd = |book: &mut QuotaBook, name: &str, now| {
            (0..QUOTAS_KEPT)
                .for_each(|number| drop(book.quota(&of(&format!("{name} {number}")), None, now)));
        };
        crowd(&mut book, "first", start);
        assert!(book.quotas.contains_key(&of("booked")), "while it counts");
        crowd(&mut book, "second", start + Duration::from_mins(2));
        assert!(!book.quotas.contains_key(&of("booked")), "it counts no more");
        assert!(
            Arc::ptr_eq(&used, &book.quota(&of("used"), None, start)),
            "it is kept while it is used"
        );
        assert!(book.quotas.len() < QUOTAS_KEPT, "the others are forgotten");
    }
}

//! The division of a quota's number among the processes that send under it.
//!
//! Each process goes by a *part* of the number. What it may go by is *held* for it in a ledger that all of them share, in which one
//! exchange follows the other. At no instant do the processes go by more than the number together:
//! - a part is raised in the ledger first, and only by what no other process holds;
//! - it is lowered in the process first, and in the ledger when the last place has passed that was reserved before;
//! - a process that hears nothing of the ledger reserves no place after [`PART_LASTS`], and what it held is free after
//!   [`HELD_FOR`], when the last of its places has passed.
//!
//! Pure arithmetic, time passed in. Amounts are thousandths of a message a minute.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::quota::{Bookings, Demand, Quota, QuotaPart, Tokens, WAIT_MAX, whole};

/// The row of one process in the ledger of a quota.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stake {
    /// The number, by the configuration of this process. The smallest of all holds.
    pub number: NonZeroU32,
    /// The amount that it could use.
    pub wants: u64,
    /// The amount that it may go by, or went by when the last of its reserved places was reserved.
    pub held: u64,
}

/// A question to the ledger: how much this process may go by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShareAsk {
    /// The stake of the process, with what it goes by already.
    pub stake: Stake,
    /// Time since its last place.
    pub idle_for: Duration,
    /// Time until it may send as much at once as after an hour of silence. Its row is kept until then.
    pub full_in: Duration,
}

/// The answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    /// The amount that the ledger holds for this process from now on.
    pub held: u64,
    /// The amount to go by: less than is held, if others are to have some of it.
    pub part: u64,
    /// Messages that may go at once, if it went by none so far.
    pub tokens: Tokens,
}

/// A process's side of one quota.
#[derive(Debug)]
pub struct Shareholder {
    number: NonZeroU32,
    /// The amount in the ledger, by the last answer.
    held: u64,
    /// The amount that the quota goes by.
    part: u64,
    /// End of the places that were reserved when more than `part` was gone by.
    lowered_until: Instant,
    /// The quota goes by its part until then.
    part_until: Instant,
    /// Places that were reserved since `measured_at`, and the amount per minute of the spans before.
    reserved: u64,
    rate: u64,
    measured_at: Instant,
    /// When places were looked for last, and when they were too far away.
    asked_at: Option<Instant>,
    short_at: Option<Instant>,
}

/// How long a process goes by its part after a question that was answered. Within the worker lease it could not start an attempt
/// for longer either.
pub const PART_LASTS: Duration = Duration::from_secs(5);
/// How long the ledger holds an amount after the question: until the last place has passed that was reserved at the end of
/// [`PART_LASTS`], and was used as late as it may be.
pub const HELD_FOR: Duration = Duration::from_secs(12);
/// How often the ledger is asked while a quota is in use.
pub const ROUND: Duration = Duration::from_secs(1);

/// Time without demand after which nothing is held any more.
const IDLE_AFTER: Duration = Duration::from_secs(5);
/// Least amount that a process in use wants: a message every 5 s.
const WANTS_MIN: u64 = 12_000;
/// Part of the number that is not divided, so that a process with sudden work begins at once. Half of it may be held by those, the
/// other half is for the message that each of them may send at once.
const SPARE: u64 = 32;
/// Processes that may begin with a message at once, over the time in which that half allows as many.
const BEGINNERS: u32 = 16;
const MINUTE_MILLIS: u64 = 60_000;

const _: () = assert!(
    HELD_FOR.as_secs() > PART_LASTS.as_secs() + WAIT_MAX.as_secs() + 1,
    "the last place has passed, and is stale"
);

/// How much `ask` is given, when `others` have these stakes.
pub fn divide(ask: &ShareAsk, others: &[Stake]) -> Share {
    let ShareAsk { stake: own, idle_for, .. } = *ask;
    let number = others.iter().map(|other| other.number).fold(own.number, NonZeroU32::min);
    let (all, spare) = (whole(number), whole(number) / SPARE);
    let target = fair(own.wants, others.iter().map(|other| other.wants), all - spare);
    if target <= own.held {
        // Places that were reserved hold until they have passed.
        return Share { held: own.held, part: target, tokens: Tokens::None };
    }
    let divided = if own.held == 0 { all - spare / 2 } else { all - spare };
    let held_by_others: u64 = others.iter().map(|other| other.held).sum();
    let held = target.min(divided.saturating_sub(held_by_others)).max(own.held);
    let rested = || Duration::from_mins(1_000) * BEGINNERS / u32_of(spare / 2).max(1);
    let tokens = if others.is_empty() {
        Tokens::Full
    } else if idle_for >= rested() {
        Tokens::One
    } else {
        Tokens::None
    };
    Share { held, part: held, tokens }
}

/// The max-min fair part of `amount` for one who wants `own` beside `others`. The rest is divided among all who want some.
fn fair(own: u64, others: impl Iterator<Item = u64>, amount: u64) -> u64 {
    if own == 0 {
        return 0;
    }
    let mut wants: Vec<u64> = others.filter(|wanted| *wanted > 0).chain([own]).collect();
    wants.sort_unstable();
    let (all, mut left) = (count(&wants), amount);
    for (place, wanted) in wants.iter().enumerate() {
        let even = left / count(wants.get(place..).unwrap_or_default());
        if *wanted > even {
            return own.min(even);
        }
        left -= wanted;
    }
    own + left / all
}

// === impl Shareholder ===

impl Shareholder {
    /// Of a process that has gone by the whole number alone so far, and goes by it until it has heard of the others.
    pub fn of_all(quota: &Quota, number: NonZeroU32, now: Instant) -> Self {
        let all = whole(number);
        let holder = Self { held: all, part: all, ..Self::new(number, now) };
        holder.tell(quota, Tokens::None, now);
        holder
    }

    /// Of a process that goes by nothing yet. `wake` is notified when that is too little.
    pub fn of_none(quota: &Quota, number: NonZeroU32, wake: &Arc<Notify>, now: Instant) -> Self {
        quota.close(wake);
        Self { part_until: now, ..Self::new(number, now) }
    }

    fn new(number: NonZeroU32, now: Instant) -> Self {
        Self {
            number,
            held: 0,
            part: 0,
            lowered_until: now,
            part_until: now + PART_LASTS,
            reserved: 0,
            rate: 0,
            measured_at: now,
            asked_at: None,
            short_at: None,
        }
    }

    /// Another number holds from now on.
    pub fn change(&mut self, quota: &Quota, number: NonZeroU32, now: Instant) {
        self.number = number;
        if self.part > whole(number) {
            self.lower(quota, whole(number), now);
            self.tell(quota, Tokens::None, now);
        }
    }

    /// The question to the ledger; `None` when there is nothing to ask for and nothing to give back.
    pub fn ask(&mut self, quota: &Quota, wake: &Arc<Notify>, now: Instant) -> Option<ShareAsk> {
        if self.part > 0 && now >= self.part_until {
            self.lower(quota, 0, now);
            quota.close(wake);
        }
        let wants = self.measure(quota, now);
        if now >= self.lowered_until {
            // Also if the answer is lost: the rest may be another process's by then.
            self.held = self.part;
        }
        let held = self.held;
        if wants == 0 && self.held == 0 {
            return None;
        }
        let bookings = quota.bookings(now);
        let stake = Stake { number: self.number, wants, held };
        Some(ShareAsk { stake, idle_for: bookings.last_ago, full_in: bookings.full_in })
    }

    /// Goes by nothing any more, of a process that begins no attempt; what to tell the ledger, if it holds something.
    pub fn give_back(
        &mut self,
        quota: &Quota,
        wake: &Arc<Notify>,
        now: Instant,
    ) -> Option<ShareAsk> {
        let Bookings { last_ago, full_in, .. } = quota.bookings(now);
        quota.close(wake);
        self.part = 0;
        let stake = Stake { number: self.number, wants: 0, held: 0 };
        (std::mem::take(&mut self.held) > 0).then_some(ShareAsk {
            stake,
            idle_for: last_ago,
            full_in,
        })
    }

    /// Goes by the answer to a question of `asked_at`.
    pub fn hear(
        &mut self,
        quota: &Quota,
        share: Share,
        wake: &Arc<Notify>,
        (asked_at, now): (Instant, Instant),
    ) {
        self.held = share.held;
        if now >= asked_at + PART_LASTS {
            return;
        }
        self.part_until = asked_at + PART_LASTS;
        let was_none = self.part == 0;
        if share.part < self.part {
            self.lower(quota, share.part, now);
        }
        // A number that was lowered meanwhile holds.
        self.part = share.part.min(whole(self.number));
        if self.part > 0 {
            self.tell(quota, share.tokens, now);
        } else {
            if !was_none {
                quota.close(wake);
            }
            if self.asked_at.is_some() {
                quota.stay_closed();
            }
        }
    }

    /// When a part that was lowered may be given back; `None` if none is to be.
    pub fn gives_back_at(&self) -> Option<Instant> {
        (self.part < self.held).then_some(self.lowered_until)
    }

    fn tell(&self, quota: &Quota, tokens: Tokens, now: Instant) {
        let part = QuotaPart { amount: self.part, of: self.number, tokens, until: self.part_until };
        quota.go_by(part, now);
    }

    fn lower(&mut self, quota: &Quota, part: u64, now: Instant) {
        self.part = part;
        self.lowered_until = self.lowered_until.max(now + quota.bookings(now).last_in);
    }

    /// The amount that could be used.
    fn measure(&mut self, quota: &Quota, now: Instant) -> u64 {
        let Demand { reserved, is_asked, is_short } = quota.take_demand();
        self.reserved += reserved;
        self.asked_at = if is_asked { Some(now) } else { self.asked_at };
        self.short_at = if is_short { Some(now) } else { self.short_at };
        let span = now.saturating_duration_since(self.measured_at);
        if span >= ROUND {
            let millis = u64::try_from(span.as_millis()).unwrap_or(u64::MAX).max(1);
            let rate = self.reserved.saturating_mul(1_000 * MINUTE_MILLIS) / millis;
            // A span with few after one with many is chance as often as not.
            self.rate = rate.max(self.rate / 2);
            (self.reserved, self.measured_at) = (0, now);
        }
        let all = whole(self.number);
        let lately = |at: Option<Instant>| at.is_some_and(|at| now < at + IDLE_AFTER);
        if !lately(self.asked_at) {
            self.asked_at = None;
            return 0;
        }
        // What found no place comes back some seconds later.
        if lately(self.short_at) {
            return all;
        }
        let begins = if self.part == 0 { all / 16 } else { 0 };
        (self.rate / 4 * 5).max(WANTS_MIN).max(begins).min(all)
    }
}

fn count(wants: &[u64]) -> u64 {
    u64::try_from(wants.len()).unwrap_or(u64::MAX).max(1)
}

fn u32_of(amount: u64) -> u32 {
    u32::try_from(amount).unwrap_or(u32::MAX)
}

#[cfg(test)]
#[path = "quota_share_tests.rs"]
mod tests;

//! The turns that a process has booked before one destination, and the places in them. Times in nanoseconds, as the quota has them.

use std::collections::VecDeque;
use std::time::Duration;

/// Turns, in order.
#[derive(Debug, Default)]
pub(super) struct BookedTurns(VecDeque<BookedTurn>);

#[derive(Debug)]
struct BookedTurn {
    from: u64,
    until: u64,
    /// The next place.
    next: u64,
    interval: u64,
}

/// A place may be used late by one of so many parts of the interval, and keep its distance to the next turn.
const LATE_PARTS: u64 = 16;

// === impl BookedTurns ===

impl BookedTurns {
    pub(super) fn push(&mut self, from: u64, until: u64, interval: u64) {
        self.0.push_back(BookedTurn { from, until, next: from, interval });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// End of the last one; 0 without any.
    pub(super) fn end(&self) -> u64 {
        self.0.back().map_or(0, |last| last.until)
    }

    /// The first free place that is not before `from`.
    pub(super) fn place(&self, from: u64) -> Option<u64> {
        self.0.iter().find_map(|turn| turn.place(from))
    }

    /// Uses the place at `at`, and with it those before. True if it was the last one of its turn.
    pub(super) fn take(&mut self, at: u64) -> bool {
        for turn in &mut self.0 {
            if turn.place(at) == Some(at) {
                turn.next = at + turn.interval;
                return turn.is_used_up();
            }
            turn.next = turn.until;
        }
        false
    }

    /// Leaves no less than `interval` between the places that are still free.
    pub(super) fn slow_down(&mut self, interval: u64) {
        for turn in &mut self.0 {
            turn.interval = turn.interval.max(interval);
        }
    }

    /// Time of these turns from `now` until the last reserved place.
    pub(super) fn reserved_for(&self, now: u64) -> Duration {
        let reserved =
            |turn: &BookedTurn| turn.next.min(turn.until).saturating_sub(turn.from.max(now));
        Duration::from_nanos(self.0.iter().map(reserved).sum())
    }

    /// Time of these turns from one time to another.
    pub(super) fn between(&self, from: u64, until: u64) -> u64 {
        let within = |turn: &BookedTurn| turn.until.min(until).saturating_sub(turn.from.max(from));
        self.0.iter().map(within).sum()
    }

    /// Time between two messages of the last one that has begun.
    pub(super) fn interval(&self, now: u64) -> Option<u64> {
        self.0.iter().take_while(|turn| turn.from < now).last().map(|turn| turn.interval)
    }

    /// Forgets those that have passed; whether the last of them was used up.
    pub(super) fn forget(&mut self, now: u64) -> Option<bool> {
        let mut is_used_up = None;
        while let Some(turn) = self.0.pop_front_if(|turn| turn.until <= now) {
            is_used_up = Some(turn.is_used_up());
        }
        is_used_up
    }
}

// === impl BookedTurn ===

impl BookedTurn {
    fn place(&self, from: u64) -> Option<u64> {
        let at = self.next.max(from);
        (at + self.interval <= self.until + self.interval / LATE_PARTS).then_some(at)
    }

    fn is_used_up(&self) -> bool {
        self.place(self.next).is_none()
    }
}

//! Batches by the time of their acceptance, found by halving the range of their numbers.
//!
//! Numbers rise with time, but not strictly: processes draw them in advance, and a clock may be set back. What is sought is therefore
//! given [`MARGIN`] on both sides, and compared when it is read.

use std::ops::Range;
use std::time::Duration;

use notification::Timestamp;

use super::places::ALL;
use crate::Filter;

/// The search for the first number from which on batches were accepted at a time or later.
#[derive(Debug)]
pub(crate) struct TimeSeek {
    numbers: Range<u64>,
    at: Timestamp,
}

/// By as much a batch may be older than one with a lower number: twice as long as a process gives numbers that it has drawn.
const MARGIN: Duration = Duration::from_mins(20);

// === impl TimeSeek ===

impl TimeSeek {
    /// The searches for both ends of what `filter` lists.
    pub(crate) fn ends_of(filter: &Filter) -> [Option<Self>; 2] {
        let seek = |at: Timestamp| Self { numbers: ALL, at };
        [
            filter.since.map(|since| seek(since.minus(MARGIN))),
            filter.until.map(|until| seek(until.plus(MARGIN))),
        ]
    }

    /// The number from which on the next batch is looked for; `None` at the end.
    pub(crate) fn probe(&self) -> Option<u64> {
        let Range { start, end } = self.numbers;
        (start < end).then(|| start + (end - start) / 2)
    }

    /// Goes on with the first batch that was found from the probe on: its number, and when it was accepted.
    pub(crate) fn learn(&mut self, found: Option<(u64, Timestamp)>) {
        let Some(probe) = self.probe() else { return };
        match found {
            Some((number, accepted_at)) if accepted_at < self.at => self.numbers.start = number + 1,
            Some(_) | None => self.numbers.end = probe,
        }
    }

    /// The number that was sought: all batches are below it if none is so young.
    pub(crate) const fn found(&self) -> u64 {
        self.numbers.start
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_number_of_a_time_is_found_in_few_steps() {
        // Numbers have gaps, also large ones.
        let number = |n: i64| n.cast_unsigned() * 64 + if n > 500 { 1 << 40 } else { 1 };
        let accepted: Vec<(u64, i64)> = (0..1_000).map(|n| (number(n), n / 3)).collect();
        for at in [-1, 0, 1, 100, 167, 332, 333, 334, 1_000] {
            let mut seek = TimeSeek { numbers: ALL, at: Timestamp::from_millis(at) };
            let mut steps = 0;
            while let Some(probe) = seek.probe() {
                let found = accepted.iter().find(|(number, _)| *number >= probe);
                seek.learn(found.map(|(number, at)| (*number, Timestamp::from_millis(*at))));
                steps += 1;
            }
            let first = accepted.iter().find(|(_, accepted_at)| *accepted_at >= at);
            let before = accepted.iter().rfind(|(_, accepted_at)| *accepted_at < at);
            assert!(first.is_none_or(|(number, _)| seek.found() <= *number), "{at}");
            assert!(before.is_none_or(|(number, _)| seek.found() > *number), "{at}");
            // One of 2^46 numbers, or none.
            assert!(steps <= 47, "{steps}");
        }
    }
}

//! Ends and deferrals of pieces of work over time.

use std::collections::BTreeMap;
use std::time::Duration;

/// Ends and deferrals of pieces of work over time, in [`SPANS`] spans of equal width at most: however long the work takes, it
/// needs no more memory. They may be added in any order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Series {
    width: Duration,
    spans: BTreeMap<u128, SpanCounts>,
}

/// Ends and deferrals in one span.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct SpanCounts {
    pub(super) ended: u64,
    pub(super) deferred: u64,
}

/// The counts of consecutive spans, the last of them cut off by the present.
#[derive(Debug, Clone)]
pub(super) struct Spans {
    /// Width of a span, seconds.
    pub(super) width: f64,
    pub(super) counts: Vec<SpanCounts>,
    /// Part of the last span that has passed, up to 1.
    pub(super) last_part: f64,
}

/// Spans of a series, at most: a span is about a hundredth of the time that passed.
const SPANS: u128 = 128;
/// The width of spans until there are too many of them.
const WIDTH_MIN: Duration = Duration::from_millis(100);

// === impl Series ===

impl Series {
    /// Adds the end of `ended` pieces and the deferral of `deferred` at `at`, by any clock whose times are later than its
    /// beginning.
    pub fn add(&mut self, at: Duration, ended: u64, deferred: u64) {
        if ended == 0 && deferred == 0 {
            return;
        }
        let index = self.index(at);
        let first = self.spans.first_key_value().map_or(index, |(first, _)| index.min(*first));
        let last = self.spans.last_key_value().map_or(index, |(last, _)| index.max(*last));
        for _ in 0..doublings(last - first) {
            self.double();
        }
        let counts = self.spans.entry(self.index(at)).or_default();
        counts.ended += ended;
        counts.deferred += deferred;
    }

    /// Adds all that happened to others.
    pub fn merge(&mut self, other: &Self) {
        for (index, counts) in &other.spans {
            self.add(other.begin_of(*index), counts.ended, counts.deferred);
        }
    }

    /// Pieces that are deferred to a time after `now`, and the last of these times; `None` when there are none.
    pub fn deferred_after(&self, now: Duration) -> Option<(u64, Duration)> {
        let after = self.spans.iter().filter(|(index, _)| self.begin_of(**index + 1) > now);
        let count = after.clone().map(|(_, counts)| counts.deferred).sum::<u64>();
        let last = after.map(|(index, _)| self.begin_of(index + 1)).next_back()?;
        (count > 0).then_some((count, last))
    }

    /// Pieces that have ended.
    pub(super) fn ended(&self) -> u64 {
        self.spans.values().map(|counts| counts.ended).sum()
    }

    /// Begin of the first span in which something ended.
    pub(super) fn first_end(&self) -> Option<Duration> {
        let first = self.spans.iter().find(|(_, counts)| counts.ended > 0);
        first.map(|(index, _)| self.begin_of(*index))
    }

    /// End of the last span in which something ended, and how many were deferred after it.
    pub(super) fn last_end(&self) -> Option<(Duration, u64)> {
        let mut deferred = 0;
        for (index, counts) in self.spans.iter().rev() {
            if counts.ended > 0 {
                return Some((self.begin_of(index + 1), deferred));
            }
            deferred += counts.deferred;
        }
        None
    }

    /// Pieces that were deferred.
    pub(super) fn deferred(&self) -> u64 {
        self.spans.values().map(|counts| counts.deferred).sum()
    }

    /// Its spans from that of `since` up to `now`, those in which nothing happened as well, in as many as there may be.
    pub(super) fn spans(&self, since: Duration, now: Duration) -> Spans {
        let mut series = self.clone();
        let passed = series.index(now.max(since)) - series.index(since);
        for _ in 0..doublings(passed) {
            series.double();
        }
        // Numbered anew: the doubling changed the width that they count in.
        let (first, last) = (series.index(since), series.index(now.max(since)));
        let of = |index| series.spans.get(&index).copied().unwrap_or_default();
        let width = series.width.as_secs_f64();
        let in_last = now.saturating_sub(series.begin_of(last)).as_secs_f64() / width;
        // Of a span that has just begun nothing can be told.
        Spans {
            width,
            counts: (first..=last).map(of).collect(),
            last_part: in_last.clamp(0.0, 1.0),
        }
    }

    fn index(&self, at: Duration) -> u128 {
        at.as_millis() / self.width.as_millis()
    }

    fn begin_of(&self, index: u128) -> Duration {
        let millis = index.saturating_mul(self.width.as_millis());
        Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX))
    }

    fn double(&mut self) {
        self.width = self.width.saturating_mul(2);
        for (index, counts) in std::mem::take(&mut self.spans) {
            let wide = self.spans.entry(index / 2).or_default();
            wide.ended += counts.ended;
            wide.deferred += counts.deferred;
        }
    }
}

impl Default for Series {
    fn default() -> Self {
        Self { width: WIDTH_MIN, spans: BTreeMap::new() }
    }
}

/// Number of doublings of the width after which two spans that are `apart` have fewer than [`SPANS`] between them.
fn doublings(apart: u128) -> u32 {
    let mut doublings = 0;
    while apart >> doublings >= SPANS - 1 {
        doublings += 1;
    }
    doublings
}

// === impl Spans ===

impl Spans {
    /// Seconds of the last `spans`.
    pub(super) fn seconds_of_last(&self, spans: usize) -> f64 {
        let whole = u32::try_from(spans.saturating_sub(1)).unwrap_or(u32::MAX);
        (f64::from(whole) + self.last_part) * self.width
    }

    /// The spans without runs of empty ones that last for `gap` seconds or longer, in which no piece was tried.
    pub(super) fn without_gaps(&self, gap: f64) -> Self {
        let mut counts = Vec::with_capacity(self.counts.len());
        for run in self.counts.chunk_by(|one, other| (one.ended == 0) == (other.ended == 0)) {
            let length = f64::from(u32::try_from(run.len()).unwrap_or(u32::MAX)) * self.width;
            let is_gap = run.iter().all(|counts| counts.ended == 0) && length >= gap;
            if !is_gap {
                counts.extend_from_slice(run);
            }
        }
        Self { counts, ..*self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_holds_all_in_few_spans_whatever_the_order() {
        let (mut forth, mut back) = (Series::default(), Series::default());
        let at = |second| Duration::from_hours(500_000) + Duration::from_secs(second);
        for second in 0..10_000 {
            forth.add(at(second), 2, 1);
            back.add(at(9_999 - second), 2, 1);
        }
        assert_eq!(forth, back);
        assert!((50..=128).contains(&forth.spans.len()), "{}", forth.spans.len());
        assert_eq!((forth.ended(), forth.deferred()), (20_000, 10_000));
        let spans = forth.spans(at(0), at(30_000));
        assert!(spans.counts.len() <= 128);
        assert_eq!(spans.counts.iter().map(|counts| counts.ended).sum::<u64>(), 20_000);
        assert!(spans.without_gaps(10_000.0).counts.len() < spans.counts.len());
        let mut merged = Series::default();
        merged.merge(&forth);
        assert_eq!(merged.ended(), 20_000);
    }
}

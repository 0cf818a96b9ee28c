//! How fast the store grows, and when the disk is full if it goes on like that.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use notification::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use store::StoreSpace;

/// The room that the store takes.
#[derive(Debug, JsonSchema, Serialize, Deserialize)]
pub struct SpaceAnswer {
    /// Bytes that it takes.
    pub used_bytes: u64,
    /// Bytes that it may still take before new notifications are refused; none where the database alone knows that.
    pub left_bytes: Option<u64>,
    /// Bytes by which it grows in a day, by those since the engine began, of the last day at most; below zero if it gets smaller.
    /// None in the first hour, and where the store itself was read.
    pub grows_per_day: Option<i64>,
    /// Days until nothing is left, if it goes on like that; none if it does not grow.
    pub full_in_days: Option<f64>,
}

/// Sizes of the store since the process began.
#[derive(Debug, Default)]
pub struct StoreGrowth {
    /// Oldest first.
    looks: Mutex<VecDeque<(Timestamp, u64)>>,
}

const DAY: Duration = Duration::from_hours(24);
/// Time over which growth is not told yet: what one broadcast takes says nothing of a day.
const TOO_SHORT: Duration = Duration::from_hours(1);

// === impl StoreGrowth ===

impl StoreGrowth {
    /// Time between two looks: a day has 144 of them.
    pub const LOOK_EVERY: Duration = Duration::from_mins(10);

    /// Notes the size as of `now`.
    pub fn note(&self, now: Timestamp, space: StoreSpace) {
        let mut looks = self.looks.lock().unwrap_or_else(PoisonError::into_inner);
        looks.push_back((now, space.used));
        // One that is a day old stays, to be compared with.
        while looks.get(1).is_some_and(|(at, _)| now.since(*at) >= DAY) {
            looks.pop_front();
        }
    }

    /// Bytes by which the store grows in a day, as of `now`.
    fn per_day(&self, now: Timestamp, space: StoreSpace) -> Option<i64> {
        let looks = self.looks.lock().unwrap_or_else(PoisonError::into_inner);
        let &(since, before) = looks.front()?;
        let span = now.since(since);
        let grown = i128::from(space.used) - i128::from(before);
        let per_day = grown * i128::try_from(DAY.as_millis()).ok()?;
        let per_day = per_day.checked_div(i128::try_from(span.as_millis()).ok()?)?;
        (span >= TOO_SHORT).then(|| i64::try_from(per_day).ok())?
    }
}

// === impl SpaceAnswer ===

impl SpaceAnswer {
    pub(crate) fn new(space: StoreSpace, growth: Option<&StoreGrowth>, now: Timestamp) -> Self {
        let grows_per_day = growth.and_then(|growth| growth.per_day(now, space));
        let growing = grows_per_day.filter(|bytes| *bytes > 0);
        #[expect(clippy::cast_precision_loss, reason = "days, with a decimal")]
        let days = |(left, bytes): (u64, i64)| left as f64 / bytes as f64;
        Self {
            used_bytes: space.used,
            left_bytes: space.left,
            grows_per_day,
            full_in_days: space.left.zip(growing).map(days),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn at(hour: u64) -> Timestamp {
        Timestamp::from_millis(0).plus(Duration::from_hours(hour))
    }

    #[test]
    fn the_growth_is_that_of_the_last_day_and_known_after_an_hour() {
        let growth = StoreGrowth::default();
        let space = |gib: u64| StoreSpace { used: gib * GIB, left: Some(100 * GIB) };
        let told = |hour, gib| {
            let answer = SpaceAnswer::new(space(gib), Some(&growth), at(hour));
            (answer.grows_per_day.map(|bytes| bytes / GIB.cast_signed()), answer.full_in_days)
        };
        assert_eq!(told(0, 1), (None, None));
        growth.note(at(0), space(1));
        assert_eq!(told(0, 1), (None, None));
        assert_eq!(told(1, 2), (Some(24), Some(100.0 / 24.0)));
        for hour in 1..=48 {
            // A GiB an hour on the first day, none on the second.
            growth.note(at(hour), space(1 + hour.min(24)));
        }
        assert_eq!(told(36, 25), (Some(0), None));
        assert_eq!(told(48, 25), (Some(0), None));
        assert_eq!(told(48, 23), (Some(-2), None), "it gets smaller");
        assert!(growth.looks.lock().unwrap().len() <= 25, "those of a day are kept");
    }

    #[test]
    fn where_the_database_alone_knows_what_is_left_no_end_is_told() {
        let growth = StoreGrowth::default();
        growth.note(at(0), StoreSpace { used: GIB, left: None });
        let space = StoreSpace { used: 3 * GIB, left: None };
        let answer = SpaceAnswer::new(space, Some(&growth), at(24));
        assert_eq!(answer.grows_per_day, Some(2 << 30));
        assert_eq!((answer.left_bytes, answer.full_in_days), (None, None));
        assert_eq!(SpaceAnswer::new(space, None, at(24)).grows_per_day, None);
    }
}

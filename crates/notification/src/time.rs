//! Instants of the wall clock, in milliseconds. This module reads no clock: `flow::Clock` does.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Serialize, Serializer};

/// Milliseconds since the Unix epoch, UTC.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Timestamp(i64);

/// A text that is not an instant.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not an instant such as 2026-11-21T08:30:00Z (RFC 3339)")]
pub struct TimestampError(String);

// === impl Timestamp ===

impl Timestamp {
    /// The latest instant that can be written: the end of the year 9999.
    pub const MAX: Self = Self(253_402_300_799_999);

    /// An instant from milliseconds since the Unix epoch.
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis)
    }

    /// The instant that lies `span` after the Unix epoch, as `flow::Clock::wall` gives it; rounded down to a millisecond.
    pub fn from_unix(span: Duration) -> Self {
        Self(i64::try_from(span.as_millis()).unwrap_or(i64::MAX))
    }

    /// How long after the Unix epoch this is; zero when it lies before.
    pub fn to_unix(self) -> Duration {
        self.since(Self(0))
    }

    /// Milliseconds since the Unix epoch.
    pub const fn millis(self) -> i64 {
        self.0
    }

    /// Whole seconds since the Unix epoch, rounded down.
    pub const fn seconds(self) -> i64 {
        self.0.div_euclid(1000)
    }

    /// The beginning of the second that it lies in.
    #[must_use]
    pub const fn whole_second(self) -> Self {
        Self(self.seconds() * 1000)
    }

    /// This instant and `duration` later; [`Timestamp::MAX`] at most.
    #[must_use]
    pub fn plus(self, duration: Duration) -> Self {
        let millis = i64::try_from(duration.as_millis()).unwrap_or(i64::MAX);
        Self(self.0.saturating_add(millis)).min(Self::MAX)
    }

    /// This instant and `duration` earlier.
    #[must_use]
    pub fn minus(self, duration: Duration) -> Self {
        let millis = i64::try_from(duration.as_millis()).unwrap_or(i64::MAX);
        Self(self.0.saturating_sub(millis))
    }

    /// How long after `earlier` this is; zero when it is not after.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_millisecond(self.0) {
            Ok(instant) => write!(formatter, "{instant:.3}"),
            // A number beyond the calendar, as in a damaged row, is shown as it is.
            Err(_) => write!(formatter, "{} ms", self.0),
        }
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl FromStr for Timestamp {
    type Err = TimestampError;

    fn from_str(text: &str) -> Result<Self, TimestampError> {
        let instant: jiff::Timestamp =
            // The text is the caller's and may be long: an error quotes its beginning.
            text.parse().map_err(|_| TimestampError(text.chars().take(80).collect()))?;
        Ok(Self(instant.as_millisecond()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instant_is_read_and_written_as_rfc_3339() {
        let check = |text: &str, expect: &str| {
            assert_eq!(text.parse::<Timestamp>().unwrap().to_string(), expect);
        };
        check("2026-11-21T08:30:00Z", "2026-11-21T08:30:00.000Z");
        check("2026-11-21T09:30:00.5+01:00", "2026-11-21T08:30:00.500Z");
        assert!("tomorrow".parse::<Timestamp>().is_err());
    }

    #[test]
    fn arithmetic_never_overflows() {
        let now = Timestamp::from_millis(1_000);
        assert_eq!(now.plus(Duration::MAX), Timestamp::MAX);
        assert_eq!(now.minus(Duration::from_secs(1)).millis(), 0);
        assert_eq!(now.since(now.plus(Duration::from_secs(1))), Duration::ZERO);
    }
}

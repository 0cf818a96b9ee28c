//! `[channels.NAME.retry]`: when a channel retries.

use std::time::Duration;

use flow::Backoff;
use serde::Deserialize;

use super::problem::Mistake;
use super::units;

/// `[channels.NAME.retry]`: retries of a notification that the provider deferred.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RetryConfig {
    /// Attempts before a notification is given up, 1 to 1,000. Default 32, about three hours; of `smtp` 240, a day without
    /// a connection, or five days at half an hour after each refusal (RFC 5321, section 4.5.4.1).
    pub(crate) attempts: Option<u16>,
    /// Longest wait after the first attempt; it doubles with each. Default `1s`.
    #[serde(deserialize_with = "units::duration")]
    pub(crate) base: Duration,
    /// Longest wait after any attempt. Default `15m`.
    #[serde(deserialize_with = "units::duration")]
    pub(crate) cap: Duration,
}

// === impl RetryConfig ===

impl Default for RetryConfig {
    fn default() -> Self {
        Self { attempts: None, base: Duration::from_secs(1), cap: Duration::from_mins(15) }
    }
}

impl RetryConfig {
    pub(super) fn check(&self, path: &str) -> Vec<Mistake> {
        let mut problems = Vec::new();
        if self.attempts.is_some_and(|attempts| !(1..=1_000).contains(&attempts)) {
            let path = format!("{path}.attempts");
            problems.push(Mistake::new(path, "must be from 1 to 1000"));
        }
        if let Err(error) = Backoff::new(self.base, self.cap) {
            problems.push(Mistake::new(path, error.to_string()));
        }
        problems
    }
}

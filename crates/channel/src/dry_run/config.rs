//! The settings of a dry run.

use std::time::Duration;

use serde::Deserialize;

use crate::checks::{each, require};
use crate::settings::duration;
use crate::{ChannelError, Concurrency};

/// How the provider that is not there behaves.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// How long every attempt takes at least. Default `0s`, at most `20s`.
    #[serde(deserialize_with = "duration")]
    pub latency: Duration,
    /// How much longer, at random, an attempt may take. Default `0s`, at most `5s`.
    #[serde(deserialize_with = "duration")]
    pub jitter: Duration,
    /// The share of attempts that are answered with "not now", 0 to 1. Default 0.
    pub failure_rate: f64,
    /// Attempts under way at a time, per destination and process. Default 1000.
    pub concurrency: Concurrency,
    /// Messages in any minute, over all threads of this process and all its dry runs; 0 is no limit.
    /// Default 0.
    pub messages_per_minute: u32,
}

/// Together they stay under [`notification::limits::ATTEMPT_TIMEOUT`].
const LATENCY_MAX: Duration = Duration::from_secs(20);
const JITTER_MAX: Duration = Duration::from_secs(5);

// === impl Settings ===

impl Default for Settings {
    fn default() -> Self {
        Self {
            latency: Duration::ZERO,
            jitter: Duration::ZERO,
            failure_rate: 0.0,
            concurrency: Concurrency::Fixed(1000),
            messages_per_minute: 0,
        }
    }
}

impl Settings {
    pub(super) fn check(&self) -> Result<(), ChannelError> {
        let (latency, jitter) = (self.latency <= LATENCY_MAX, self.jitter <= JITTER_MAX);
        let failure_rate = (0.0..=1.0).contains(&self.failure_rate);
        each([
            require(latency, "latency", "must be at most 20s: an attempt ends after 30s"),
            require(jitter, "jitter", "must be at most 5s: an attempt ends after 30s"),
            require(failure_rate, "failure_rate", "must be from 0 to 1"),
            require(self.concurrency.is_possible(), "concurrency", "must be at least 1"),
        ])
        .map(drop)
    }
}

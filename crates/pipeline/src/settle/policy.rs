//! The policy of retries.

use flow::Backoff;

/// The retry policy of a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Attempts in all, the first included; at least 1.
    pub attempts: u16,
    /// The wait between them.
    pub backoff: Backoff,
}

impl Default for RetryPolicy {
    /// 32 attempts: about three hours of trying in the mean, six at most.
    fn default() -> Self {
        Self { attempts: 32, backoff: Backoff::DEFAULT }
    }
}

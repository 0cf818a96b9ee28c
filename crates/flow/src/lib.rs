//! Mechanisms that are independent of notifications; each module is one, and small.
//!
//! - [`clock`]: the only place that reads a clock.
//! - [`reference`]: the wall time of another machine.
//! - [`backoff`]: the delays before retries.
//! - [`breaker`]: a circuit breaker for a destination that does not answer.
//! - [`forecast`](mod@forecast): the end of work that is under way.
//! - [`gate`]: the number of attempts under way, bounded by a [`limit`] that can learn.
//! - [`shared_limit`]: the division of that number among the threads of a process.
//! - [`learned_rate`]: the rate that a destination keeps to, learned from its refusals.
//! - [`quota`]: the number of attempts in a minute, or the rate that was learned.
//! - [`quota_share`]: the division of that number among processes.
//! - [`shared_rate`]: a learned rate that processes share, and their turns to send by it.
//! - [`shares`]: a bounded number of permits for each of those who share something.
//! - [`merge`]: requests over one connection, performed together.
//! - [`histogram`]: counts of measured values, without a lock.
//! - [`worker_deadline`]: the time until which a worker may start attempts.
//! - [`throttle`]: a limit on log lines about the same trouble.
//! - [`tasks`]: named background tasks, for which a drain waits.

pub mod backoff;
pub mod breaker;
pub mod clock;
pub mod forecast;
pub mod gate;
pub mod histogram;
pub mod learned_rate;
pub mod limit;
pub mod merge;
pub mod quota;
pub mod quota_share;
pub mod reference;
pub mod shared_limit;
pub mod shared_rate;
pub mod shares;
pub mod tasks;
pub mod throttle;
pub mod worker_deadline;

pub use backoff::Backoff;
pub use breaker::Breaker;
pub use clock::{Clock, Steering};
pub use gate::{Gate, Pass};
pub use histogram::{Histogram, HistogramTotal};
pub use learned_rate::LearnedRate;
pub use limit::{Fixed, Learned, Limit, Sample, Signal, Timing};
pub use quota::{LearningQuotas, Quota, QuotaGroup};
pub use reference::Reference;
pub use shared_limit::SharedLimit;
pub use shares::Shares;
pub use tasks::Tasks;
pub use throttle::LogThrottle;
pub use worker_deadline::WorkerDeadline;

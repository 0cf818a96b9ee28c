//! Mechanisms that know nothing of notifications; each module is one, and small.
//!
//! - [`clock`]: the only place that reads a clock.
//! - [`reference`]: the wall time of another machine.
//! - [`backoff`]: when to try again.
//! - [`breaker`]: whether a destination answers at all.
//! - [`forecast`](mod@forecast): when work that is under way will be complete.
//! - [`gate`]: how many may be under way, decided by a [`limit`] that can learn.
//! - [`quota`]: how many in a minute.
//! - [`merge`]: what is written over one connection, together.
//! - [`worker_deadline`]: until when a worker may start attempts.
//! - [`throttle`]: how often the same trouble is logged.
//! - [`tasks`]: no anonymous tasks; a drain waits for them by name.

pub mod backoff;
pub mod breaker;
pub mod clock;
pub mod forecast;
pub mod gate;
pub mod limit;
pub mod merge;
pub mod quota;
pub mod reference;
pub mod tasks;
pub mod throttle;
pub mod worker_deadline;

pub use backoff::Backoff;
pub use breaker::Breaker;
pub use clock::{Clock, Steering};
pub use gate::{Gate, Pass};
pub use limit::{Fixed, Learned, Limit, Sample, Signal, Timing};
pub use quota::{Quota, QuotaGroup};
pub use reference::Reference;
pub use tasks::Tasks;
pub use throttle::LogThrottle;
pub use worker_deadline::WorkerDeadline;

//! The worker deadline: the time until which a worker may start attempts.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::Clock;

/// Time until which this process, as one worker of a cluster, may start attempts. Clones share it.
///
/// The deadline is moved forward with each heartbeat that the store confirms, and lies before the instant at which other
/// workers may take over. A process that was stopped, cut off or suspended therefore finds it passed before it sends
/// anything that another worker may send too. It is measured in the time since boot, which goes on while the machine is
/// suspended, as the time of the other workers does.
#[derive(Debug, Clone)]
pub struct WorkerDeadline {
    /// `None`: no other process can take over.
    shared: Option<Arc<DeadlineState>>,
}

/// Never passes: for a process that has its store for itself.
pub static UNLIMITED: WorkerDeadline = WorkerDeadline::unlimited();

#[derive(Debug, Default)]
struct DeadlineState {
    /// Milliseconds since boot.
    until: AtomicU64,
    worker: AtomicU64,
}

// === impl WorkerDeadline ===

impl WorkerDeadline {
    /// Never passes: the process has its store for itself.
    pub const fn unlimited() -> Self {
        Self { shared: None }
    }

    /// Passed already, until it is extended.
    pub fn passed() -> Self {
        Self { shared: Some(Arc::default()) }
    }

    /// Moves the deadline of the worker `worker` to `from + span`, unless it is later already; `from` is a time since boot. A new
    /// number ends all that was started under the former one.
    pub fn extend(&self, worker: u64, from: Duration, span: Duration) {
        if let Some(shared) = &self.shared {
            shared.worker.store(worker, Ordering::Relaxed);
            // The greater one counts, so that a late answer to an early heartbeat takes nothing back. Released after the number:
            // a reader of this deadline reads that number.
            let until = u64::try_from((from + span).as_millis()).unwrap_or(u64::MAX);
            shared.until.fetch_max(until, Ordering::Release);
        }
    }

    /// Makes it pass at once.
    pub fn pass(&self) {
        if let Some(shared) = &self.shared {
            shared.until.store(0, Ordering::Relaxed);
        }
    }

    /// True if the deadline has passed: this process may be taken for gone.
    pub fn is_over(&self, clock: Clock) -> bool {
        self.shared.as_ref().is_some_and(|shared| {
            let until = shared.until.load(Ordering::Acquire);
            clock.boot() >= Duration::from_millis(until)
        })
    }

    /// True if the worker numbered `worker` may start an attempt now.
    pub fn allows(&self, worker: u64, clock: Clock) -> bool {
        self.allows_across(worker, clock, || {})
    }

    /// [`allows`](Self::allows), with what happens `between` its reads.
    fn allows_across(&self, worker: u64, clock: Clock, between: impl FnOnce()) -> bool {
        self.shared.as_ref().is_none_or(|shared| {
            // Before the number, which is then the one of this deadline or a later one. The other way round, an extension
            // between the reads would lend the new deadline to the former number.
            let until = shared.until.load(Ordering::Acquire);
            between();
            // Chunks claimed under a former number may have been given to another worker since.
            worker == shared.worker.load(Ordering::Relaxed)
                && clock.boot().as_millis() < u128::from(until)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_deadline_is_where_it_was_last_moved_to() {
        let clock = Clock::starting_at(Duration::ZERO);
        let deadline = WorkerDeadline::passed();
        assert!(!deadline.allows(7, clock));
        deadline.extend(7, clock.boot(), Duration::from_secs(5));
        deadline.extend(7, clock.boot(), Duration::from_secs(3));
        tokio::time::advance(Duration::from_millis(4_999)).await;
        assert!(deadline.allows(7, clock), "a late answer to an early heartbeat shortens nothing");
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(!deadline.allows(7, clock));
        deadline.extend(7, clock.boot(), Duration::from_secs(5));
        deadline.pass();
        assert!(!deadline.allows(7, clock));
        deadline.extend(8, clock.boot(), Duration::from_secs(5));
        assert!(deadline.allows(8, clock) && !deadline.allows(7, clock));
        assert!(WorkerDeadline::unlimited().allows(7, clock));
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_number_lends_its_deadline_to_no_former_one_that_is_asked_about_meanwhile() {
        let clock = Clock::starting_at(Duration::ZERO);
        let deadline = WorkerDeadline::passed();
        let join = |worker| deadline.extend(worker, clock.boot(), Duration::from_secs(5));
        join(7);
        tokio::time::advance(Duration::from_secs(5)).await;
        assert!(!deadline.allows_across(7, clock, || join(8)));
        assert!(deadline.allows(8, clock));
    }

    #[tokio::test(start_paused = true)]
    async fn a_deadline_passes_while_the_machine_is_suspended() {
        let (clock, steering) = Clock::starting_at(Duration::ZERO).steered();
        let deadline = WorkerDeadline::passed();
        deadline.extend(7, clock.boot(), Duration::from_secs(5));
        steering.step(-60_000);
        steering.suspend(Duration::from_millis(4_999));
        assert!(deadline.allows(7, clock), "a clock that is set says nothing of it");
        steering.suspend(Duration::from_millis(1));
        assert!(!deadline.allows(7, clock));
    }
}

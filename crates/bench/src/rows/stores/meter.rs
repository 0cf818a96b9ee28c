//! Time, and processor time, of one step.

use std::time::Duration;

use anyhow::Result;
use flow::Clock;
use rustix::time::{ClockId, clock_gettime};
use tokio::time::Instant;

use crate::rows::job::as_float;
use crate::usage::{cpu_of_tree, own_cpu};

/// One step, done with so many items.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct StoreStep {
    pub(super) per_minute: f64,
    /// Processor time for each item, of this process and of the database's server, microseconds.
    pub(super) cpu_us: f64,
    /// The part of it that the server took.
    pub(super) server_us: f64,
    pub(super) lost: u64,
    pub(super) duplicated: u64,
}

/// A step under way.
#[derive(Debug)]
pub(super) struct StepMeter {
    /// First process of the database's server.
    server: Option<u32>,
    begun: Instant,
    own: Duration,
    of_server: Duration,
    /// Time, and processor time, of what is not part of the step.
    left_out: (Duration, Duration),
}

// === impl StoreStep ===

impl StoreStep {
    /// Of so many items, with so much processor time of this process and of the server.
    fn of(items: usize, took: Duration, own: Duration, of_server: Duration) -> Self {
        let items = as_float(items as u64);
        let each = |time: Duration| time.as_secs_f64() * 1e6 / items;
        Self {
            per_minute: 60.0 * items / took.as_secs_f64(),
            cpu_us: each(own + of_server),
            server_us: each(of_server),
            lost: 0,
            duplicated: 0,
        }
    }

    /// With what was counted afterwards, where there should be `expected`.
    pub(super) fn counted(self, expected: u64, found: u64) -> Self {
        let (lost, duplicated) = (expected.saturating_sub(found), found.saturating_sub(expected));
        Self { lost, duplicated, ..self }
    }
}

// === impl StepMeter ===

impl StepMeter {
    /// Begins a step, for which the server whose first process is `server` works too.
    pub(super) fn start(server: Option<u32>) -> Result<Self> {
        Ok(Self {
            server,
            of_server: server.map_or(Ok(Duration::ZERO), cpu_of_tree)?,
            own: own_cpu(),
            begun: Clock::system().monotonic(),
            left_out: (Duration::ZERO, Duration::ZERO),
        })
    }

    /// Does what is not part of the step, on this thread.
    pub(super) fn leave_out<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let clock = Clock::system();
        let (begun, own) = (clock.monotonic(), thread_cpu());
        let done = work();
        self.left_out.0 += clock.monotonic() - begun;
        self.left_out.1 += thread_cpu().saturating_sub(own);
        done
    }

    /// Ends the step, which was done with so many `items`.
    pub(super) fn stop(self, items: usize) -> Result<StoreStep> {
        let took = Clock::system().monotonic() - self.begun;
        let own = own_cpu().saturating_sub(self.own);
        let of_server = self.server.map_or(Ok(Duration::ZERO), cpu_of_tree)?;
        let of_server = of_server.saturating_sub(self.of_server);
        let (time_out, cpu_out) = self.left_out;
        let own = own.saturating_sub(cpu_out);
        Ok(StoreStep::of(items, took.saturating_sub(time_out), own, of_server))
    }
}

fn thread_cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let nanos = u32::try_from(time.tv_nsec).unwrap_or_default();
    Duration::new(time.tv_sec.cast_unsigned(), nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_of_both_sides() {
        let millis = Duration::from_millis;
        let step = StoreStep::of(1_000, millis(500), millis(2), millis(1));
        assert_eq!((step.per_minute, step.cpu_us, step.server_us), (120_000.0, 3.0, 1.0));
    }

    #[test]
    fn time_that_is_left_out_is_noted() {
        let clock = Clock::system();
        let mut meter = StepMeter::start(None).unwrap();
        let spent = meter.leave_out(|| {
            let begun = clock.monotonic();
            while clock.monotonic() == begun {}
            clock.monotonic() - begun
        });
        assert!(meter.left_out.0 >= spent && spent > Duration::ZERO, "{meter:?}");
    }

    #[test]
    fn a_count_tells_lost_from_duplicated() {
        let of = |expected, found| {
            let step = StoreStep::default().counted(expected, found);
            (step.lost, step.duplicated)
        };
        assert_eq!((of(3, 3), of(3, 1), of(3, 5)), ((0, 0), (2, 0), (0, 2)));
    }
}

//! Clocks: the time is injected, and read from a [`Clock`] alone.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, Timespec, clock_gettime};
use tokio::time::Instant;

use crate::reference::{Reference, moved};

/// The wall time and the measure of spans. Cheap to copy.
///
/// Three times, for three purposes:
/// - [`Clock::wall`]: due times, the age of a token. It may step: an operator or a time server sets the
///   system's. A clock that follows a [`Reference`] shows the reference's wall time, whatever the machine's own clock shows.
/// - [`Clock::boot`]: the time for which this process may act on a lease that it was given. It never steps, and goes on while the
///   machine is suspended, as the time of the other workers does.
/// - [`Clock::monotonic`]: the duration of work in this process, and tokio's timers. It never steps, and stands still while
///   the machine is suspended, as the process does.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    source: TimeSource,
    steering: Option<&'static Steering>,
    reference: Option<&'static Reference>,
}

#[derive(Debug, Clone, Copy)]
enum TimeSource {
    System,
    /// Moves with tokio's time, which a test can pause.
    Tokio {
        wall_at_start: Duration,
        start: Instant,
    },
}

/// Moves the clocks of a process as an operator, a drifting oscillator or a suspended machine would. For tests of a whole
/// engine, next to clocks that are right: a database's, a provider's.
#[derive(Debug)]
pub struct Steering {
    start: Instant,
    stepped_micros: AtomicI64,
    suspended_micros: AtomicI64,
    drift_ppm: AtomicI64,
}

/// Goes on in suspend. Apple's monotonic clock does.
#[cfg(any(target_os = "linux", target_os = "android"))]
const BOOT_TIME: ClockId = ClockId::Boottime;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const BOOT_TIME: ClockId = ClockId::Monotonic;

/// The wall time, without a look at the hardware.
#[cfg(any(target_os = "linux", target_os = "android"))]
const LAST_TICK: ClockId = ClockId::RealtimeCoarse;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const LAST_TICK: ClockId = ClockId::Realtime;

// === impl Clock ===

#[expect(clippy::disallowed_methods, reason = "this is the one place that reads the clock")]
impl Clock {
    /// A clock that shows the system's wall time.
    pub const fn system() -> Self {
        Self { source: TimeSource::System, steering: None, reference: None }
    }

    /// A clock that shows `wall`, a span since the Unix epoch, now. For tests, with tokio's time paused.
    pub fn starting_at(wall: Duration) -> Self {
        let source = TimeSource::Tokio { wall_at_start: wall, start: Instant::now() };
        Self { source, ..Self::system() }
    }

    /// The clock, and the steering that moves it. For tests: the steering is never freed.
    pub fn steered(self) -> (Self, &'static Steering) {
        // A `&'static` keeps the clock `Copy`, so every stage holds one by value.
        let steering: &'static Steering = Box::leak(Box::new(Steering::new(self.monotonic())));
        (Self { steering: Some(steering), ..self }, steering)
    }

    /// The clock with the wall time of `reference`, which all processes of a cluster share, whatever the clocks of their machines
    /// show. Spans are unchanged.
    #[must_use]
    pub const fn following(self, reference: &'static Reference) -> Self {
        Self { reference: Some(reference), ..self }
    }

    /// The wall time, as a span since the Unix epoch.
    pub fn wall(&self) -> Duration {
        if let Some(wall) = self.reference.and_then(|reference| reference.wall(self.boot())) {
            return wall;
        }
        let wall = match self.source {
            // A clock that is set before 1970 shows 1970: a wrong date must not end the process.
            TimeSource::System => SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(),
            TimeSource::Tokio { wall_at_start, start } => wall_at_start + start.elapsed(),
        };
        moved(wall, self.steering.map_or(0, |steering| steering.wall_moved(self.monotonic())))
    }

    /// The wall time at the kernel's last tick, at most 10 ms ago. For reads at each delivery: it costs a third of the exact one.
    pub fn recent_wall(&self) -> Duration {
        if self.reference.is_some() || self.steering.is_some() {
            return self.wall();
        }
        match self.source {
            TimeSource::System => span(clock_gettime(LAST_TICK)),
            TimeSource::Tokio { .. } => self.wall(),
        }
    }

    /// The time since some instant before this process began, suspended time included. Never steps.
    pub fn boot(&self) -> Duration {
        let boot = match self.source {
            TimeSource::System => span(clock_gettime(BOOT_TIME)),
            TimeSource::Tokio { start, .. } => start.elapsed(),
        };
        moved(boot, self.steering.map_or(0, |steering| steering.boot_moved(self.monotonic())))
    }

    /// An instant for measuring spans and for tokio's timers. Stands still while the machine is suspended.
    pub fn monotonic(&self) -> Instant {
        Instant::now()
    }
}

// === impl Steering ===

impl Steering {
    fn new(start: Instant) -> Self {
        let [stepped_micros, suspended_micros, drift_ppm] = [const { AtomicI64::new(0) }; 3];
        Self { start, stepped_micros, suspended_micros, drift_ppm }
    }

    /// Sets the wall clock `millis` ahead of what it shows, or back when negative. Spans stay what they are.
    pub fn step(&self, millis: i64) {
        self.stepped_micros.fetch_add(millis.saturating_mul(1_000), Ordering::SeqCst);
    }

    /// Suspends the machine for `span`, and resumes it at once: the wall clock and the time since boot went on, and nothing
    /// else did.
    pub fn suspend(&self, span: Duration) {
        let micros = i64::try_from(span.as_micros()).unwrap_or(i64::MAX);
        self.suspended_micros.fetch_add(micros, Ordering::SeqCst);
    }

    /// Lets the wall clock and the time since boot run `parts` in a million faster than time, from the start on; slower when
    /// negative.
    pub fn drift(&self, parts: i64) {
        self.drift_ppm.store(parts, Ordering::SeqCst);
    }

    fn wall_moved(&self, now: Instant) -> i64 {
        self.boot_moved(now).saturating_add(self.stepped_micros.load(Ordering::SeqCst))
    }

    fn boot_moved(&self, now: Instant) -> i64 {
        let passed = now.saturating_duration_since(self.start).as_micros();
        let passed = i64::try_from(passed).unwrap_or(i64::MAX);
        let drifted = passed.saturating_mul(self.drift_ppm.load(Ordering::SeqCst)) / 1_000_000;
        drifted.saturating_add(self.suspended_micros.load(Ordering::SeqCst))
    }
}

fn span(time: Timespec) -> Duration {
    // A clock that is set before 1970 shows 1970, and the nanoseconds of a second fit 32 bits.
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn a_clock_moves_with_paused_time_only() {
        let clock = Clock::starting_at(1_000 * SECOND);
        assert_eq!(clock.wall(), 1_000 * SECOND);
        tokio::time::advance(5 * SECOND).await;
        assert_eq!(clock.wall(), 1_005 * SECOND);
        assert_eq!(clock.boot(), 5 * SECOND);
    }

    #[tokio::test(start_paused = true)]
    async fn a_step_moves_the_wall_time_and_a_suspend_the_time_since_boot_too() {
        let (clock, steering) = Clock::starting_at(1_000 * SECOND).steered();
        let times = || (clock.wall(), clock.boot());
        let start = clock.monotonic();
        steering.step(-60_000);
        assert_eq!(times(), (940 * SECOND, Duration::ZERO));
        steering.suspend(30 * SECOND);
        assert_eq!(times(), (970 * SECOND, 30 * SECOND));
        assert_eq!(clock.monotonic(), start, "which stands still");
        steering.drift(-500);
        tokio::time::advance(2_000 * SECOND).await;
        assert_eq!(times(), (2_969 * SECOND, 2_029 * SECOND));
        assert_eq!(clock.monotonic() - start, 2_000 * SECOND);
    }

    #[test]
    fn the_systems_time_since_boot_goes_on() {
        let clock = Clock::system();
        let (first, second) = (clock.boot(), clock.boot());
        assert!(Duration::ZERO < first && first <= second, "{first:?} {second:?}");
    }
}

//! How many records may be under way to a target. Without I/O.
//!
//! Puts begin beside others once a batch is full; otherwise one is under way, and records gather meanwhile. A target that says
//! "too fast" has the records under way halved, and they grow again with what it takes. One that takes nothing is asked by one put at a time,
//! less and less often.

use std::time::Duration;

use flow::Backoff;
use tokio::time::Instant;

/// Records and puts under way.
#[derive(Debug)]
pub(super) struct PutWindow {
    /// Records of a full batch.
    full: usize,
    /// Records that may be under way.
    open: usize,
    records: usize,
    puts: usize,
    /// Puts in a row of which nothing was taken.
    failures: u16,
    paused_until: Option<Instant>,
    /// Times that it was halved. What was put before says nothing new.
    halvings: u64,
}

/// A put that is under way.
#[derive(Debug, Clone, Copy)]
pub(super) struct PutPass {
    records: usize,
    halvings: u64,
}

/// Outcome of a put.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct PutSummary {
    /// Records that the target took, or refused for good.
    pub(super) answered: usize,
    /// Records for which it was too fast.
    pub(super) throttled: usize,
    /// The longest wait that the target asked for.
    pub(super) after: Option<Duration>,
}

/// Puts under way at a time.
const PUTS: usize = 16;
/// Part of a put that is taken as a whole by which the window grows.
const GROWTH: usize = 8;
/// Bounds of the pause after a put of which nothing was taken.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

// === impl PutWindow ===

impl PutWindow {
    /// Before a target that takes `full` records in a call.
    pub(super) fn new(full: usize) -> Self {
        let full = full.max(1);
        Self {
            full,
            open: full * PUTS,
            records: 0,
            puts: 0,
            failures: 0,
            paused_until: None,
            halvings: 0,
        }
    }

    /// Records that the next put may have while `waiting` wait; 0 when none may begin.
    pub(super) fn room(&self, waiting: usize, now: Instant) -> usize {
        if waiting == 0 || self.paused_until.is_some_and(|until| until > now) {
            return 0;
        }
        let is_alone = self.puts == 0;
        let is_beside = self.failures == 0
            && waiting >= self.full
            && self.puts < PUTS
            && self.records + self.full <= self.open;
        if is_alone || is_beside { self.full.min(self.open) } else { 0 }
    }

    /// A put of so many records begins.
    pub(super) fn begin(&mut self, records: usize) -> PutPass {
        self.records += records;
        self.puts += 1;
        PutPass { records, halvings: self.halvings }
    }

    /// A put has ended.
    pub(super) fn end(
        &mut self,
        pass: PutPass,
        summary: PutSummary,
        now: Instant,
        random: &mut fastrand::Rng,
    ) {
        self.records = self.records.saturating_sub(pass.records);
        self.puts = self.puts.saturating_sub(1);
        if summary.throttled > 0 && pass.halvings == self.halvings {
            self.open = (self.open / 2).max(1);
            self.halvings += 1;
        }
        if summary.answered == pass.records {
            let grown = self.open + (pass.records / GROWTH).max(1);
            self.open = grown.min(self.full * PUTS);
        }
        if summary.answered > 0 {
            self.failures = 0;
            self.paused_until = None;
        } else {
            self.failures = self.failures.saturating_add(1);
            self.paused_until = Some(now + pause(self.failures, summary.after, random));
        }
    }

    /// When puts may begin again, if none may now.
    pub(super) fn paused_until(&self) -> Option<Instant> {
        self.paused_until
    }
}

/// The pause after so many failures in a row; not shorter than what was asked for.
pub(super) fn pause(
    failures: u16,
    asked: Option<Duration>,
    random: &mut fastrand::Rng,
) -> Duration {
    let backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE).unwrap_or(Backoff::DEFAULT);
    backoff.delay(failures.max(1), asked, random)
}

#[cfg(test)]
mod tests {
    use flow::Clock;

    use super::*;

    #[test]
    fn puts_go_side_by_side_when_batches_are_full() {
        let (mut window, now) = (PutWindow::new(10), Clock::system().monotonic());
        assert_eq!(window.room(0, now), 0);
        assert_eq!(window.room(1, now), 10);
        window.begin(1);
        assert_eq!(window.room(9, now), 0, "they gather");
        for _ in 1..PUTS {
            assert_eq!(window.room(10, now), 10);
            window.begin(10);
        }
        assert_eq!(window.room(100, now), 0);
    }

    #[test]
    fn too_fast_halves_what_is_under_way_once_for_what_was_under_way() {
        let (mut window, now) = (PutWindow::new(10), Clock::system().monotonic());
        let mut random = fastrand::Rng::with_seed(1);
        let passes = [window.begin(10), window.begin(10)];
        let throttled = PutSummary { answered: 5, throttled: 5, after: None };
        for pass in passes {
            window.end(pass, throttled, now, &mut random);
        }
        assert_eq!(window.open, 80);
        for _ in 0..20 {
            let pass = window.begin(1);
            let summary = PutSummary { answered: 0, throttled: 1, after: None };
            window.end(pass, summary, now, &mut random);
        }
        assert_eq!(window.open, 1);
        let later = now + LONGEST_PAUSE;
        assert_eq!(window.room(100, later), 1);
        let taken = PutSummary { answered: 1, ..PutSummary::default() };
        let pass = window.begin(1);
        window.end(pass, taken, later, &mut random);
        assert_eq!(window.room(100, later), 2);
    }

    #[test]
    fn a_target_that_takes_nothing_is_asked_by_one_put_after_a_pause() {
        let (mut window, now) = (PutWindow::new(10), Clock::system().monotonic());
        let mut random = fastrand::Rng::with_seed(1);
        let asked = Duration::from_secs(3);
        let pass = window.begin(10);
        let summary = PutSummary { after: Some(asked), ..PutSummary::default() };
        window.end(pass, summary, now, &mut random);
        assert_eq!(window.room(100, now + asked / 2), 0);
        let until = window.paused_until().unwrap();
        assert!(until >= now + asked);
        assert_eq!(window.room(100, until), 10);
        window.begin(10);
        assert_eq!(window.room(100, until), 0);
    }
}

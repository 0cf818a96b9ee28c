//! How far a relay is, and what it did.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use flow::Clock;
use serde::Serialize;
use stream::relay::RelayCounts;
use tokio::time::Instant;

use crate::exit::complain;
use crate::progress::StatusLine;

/// Counts at the end.
#[derive(Debug, Serialize)]
pub(super) struct RelaySummary {
    put: u64,
    acknowledged: u64,
    dead: u64,
    repeated: u64,
    doubtful: u64,
    throttled: u64,
    unacknowledged: u64,
    given_back: u64,
    pub(super) lost: u64,
    seconds: f64,
}

/// Tells how far a relay is: on a terminal a line that changes, elsewhere a line now and then.
#[derive(Debug)]
pub(super) struct RelayLine {
    line: StatusLine,
    told: u64,
    looks: u32,
}

/// How far a relay without a store is.
#[derive(Debug)]
pub(super) struct RelayProgress {
    counts: Arc<RelayCounts>,
    clock: Clock,
    begun: Instant,
    line: RelayLine,
}

/// Time in which the source must be reached once.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);
/// Between two looks.
pub(super) const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Looks between two lines where there is no terminal.
const LOOKS_PER_LINE: u32 = 10;

// === impl RelayLine ===

impl RelayLine {
    pub(super) fn new() -> Self {
        Self { line: StatusLine::new(), told: 0, looks: 0 }
    }

    /// Tells what `text` says of the messages a second, once each [`LOOK_EVERY`]; `done` are all messages so far.
    pub(super) fn tell(&mut self, done: u64, text: impl FnOnce(u64) -> String) {
        self.looks += 1;
        let is_line = self.line.is_hidden();
        if is_line && !self.looks.is_multiple_of(LOOKS_PER_LINE) {
            return;
        }
        let looks = if is_line { u64::from(LOOKS_PER_LINE) } else { 1 };
        let rate = (done - self.told) / (looks * LOOK_EVERY.as_secs());
        self.told = done;
        if is_line {
            complain(&text(rate));
        } else {
            self.line.say(|| text(rate));
        }
    }

    /// Leaves a clean line for what comes next.
    pub(super) fn finish(&self) {
        self.line.finish();
    }
}

// === impl RelayProgress ===

impl RelayProgress {
    pub(super) fn new(counts: Arc<RelayCounts>, clock: Clock) -> Self {
        let begun = clock.monotonic();
        Self { counts, clock, begun, line: RelayLine::new() }
    }

    /// Tells it, once each [`LOOK_EVERY`].
    pub(super) fn tell(&mut self) {
        let counts = &self.counts;
        let (put, held) = (read(&counts.put), read(&counts.held));
        let [dead, repeated] = [&counts.dead, &counts.repeated].map(read);
        self.line.tell(put, |rate| {
            let mut text = format!("{put} put, {rate}/s, {held} in hand");
            push_counts(&mut text, ", ", &[(dead, "dead letters"), (repeated, "put again")]);
            text
        });
    }

    /// Counts so far.
    pub(super) fn summary(&self) -> RelaySummary {
        self.line.finish();
        let counts = &self.counts;
        let spent = self.clock.monotonic().saturating_duration_since(self.begun);
        RelaySummary {
            put: read(&counts.put),
            acknowledged: read(&counts.acknowledged),
            dead: read(&counts.dead),
            repeated: read(&counts.repeated),
            doubtful: read(&counts.doubtful),
            throttled: read(&counts.throttled),
            unacknowledged: read(&counts.unacknowledged),
            given_back: read(&counts.given_back),
            lost: read(&counts.lost),
            seconds: spent.as_secs_f64(),
        }
    }
}

// === impl RelaySummary ===

impl fmt::Display for RelaySummary {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { put, acknowledged, seconds, .. } = self;
        let mut text = format!("{put} put and {acknowledged} acknowledged in {seconds:.1} s");
        let counts = [
            (self.dead, "to the dead letters"),
            (self.repeated, "put again"),
            (self.doubtful, "of these perhaps there twice"),
            (self.throttled, "answers that it goes too fast"),
            (self.unacknowledged, "not acknowledged: they come again"),
            (self.given_back, "given back"),
            (self.lost, "lost"),
        ];
        push_counts(&mut text, "; ", &counts);
        formatter.write_str(&text)
    }
}

/// Appends each count that is above 0, with its name.
pub(super) fn push_counts(text: &mut String, separator: &str, counts: &[(u64, &str)]) {
    for (count, what) in counts.iter().filter(|(count, _)| *count > 0) {
        text.extend([separator, &count.to_string(), " ", what]);
    }
}

pub(super) fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

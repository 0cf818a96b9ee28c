//! The table at the end: every figure from the provider's books, but for those that only the engine knows.

use std::time::Duration;

use bench::{AuditOutput, Finished, Tally, Usage};
use serde_json::{Value, json};

/// The result of the demo.
#[derive(Debug)]
pub(super) struct DemoReport {
    audit: AuditOutput,
    tally: Tally,
    engine: Usage,
    simulator: Usage,
    due_at_us: u64,
    accepted_at_us: u64,
}

// === impl DemoReport ===

impl DemoReport {
    /// `due_at` and `accepted_at` are wall times: when the notifications were asked for, and when the engine
    /// had them all.
    pub(super) fn new(finished: &Finished, due_at: Duration, accepted_at: Duration) -> Self {
        let micros = |wall: Duration| u64::try_from(wall.as_micros()).unwrap_or(u64::MAX);
        Self {
            audit: finished.audit,
            tally: finished.books.tally(),
            engine: finished.engine,
            simulator: finished.simulator,
            due_at_us: micros(due_at),
            accepted_at_us: micros(accepted_at),
        }
    }

    /// Nothing lost, and everything accounted for.
    pub(super) fn is_good(&self) -> bool {
        self.lost() == 0 && self.audit.balanced && self.audit.pending == 0
    }

    /// A table for people, below an empty line.
    pub(super) fn to_text(&self) -> String {
        let ms = |share| format!("{:.0} ms", self.since_due_ms(share));
        let per_delivery = |usage: Usage| format!("{:.1} us", self.per_delivery_us(usage));
        let rows = [
            ("accepted by the engine", self.audit.accepted.to_string()),
            ("delivered", self.tally.accepted.to_string()),
            ("refused", self.tally.refused.to_string()),
            ("in doubt", self.audit.in_doubt.to_string()),
            ("duplicates", self.tally.duplicates.to_string()),
            ("lost", self.lost().to_string()),
            ("account balances", if self.audit.balanced { "yes" } else { "NO" }.to_owned()),
            ("taken in", format!("{:.0} per second", self.ingest_rate())),
            ("delivered, first to last", format!("{:.0} per second", self.rate())),
            ("p50 from due to accepted", ms(0.5)),
            ("p99 from due to accepted", ms(0.99)),
            ("engine's memory, peak", format!("{} MiB", self.engine.memory_bytes_max >> 20)),
            ("engine's CPU per delivery", per_delivery(self.engine)),
            ("provider's CPU per delivery", per_delivery(self.simulator)),
        ];
        rows.map(|(name, value)| format!("\n  {name:<28} {value:>22}")).concat()
    }

    pub(super) fn to_json(&self) -> Value {
        json!({
            "accepted": self.audit.accepted,
            "delivered": self.tally.accepted,
            "refused": self.tally.refused,
            "in_doubt": self.audit.in_doubt,
            "duplicates": self.tally.duplicates,
            "lost": self.lost(),
            "balanced": self.audit.balanced,
            "ingest_per_second": self.ingest_rate(),
            "delivered_per_second": self.rate(),
            "due_to_accepted_p50_ms": self.since_due_ms(0.5),
            "due_to_accepted_p99_ms": self.since_due_ms(0.99),
            "engine_memory_bytes_max": self.engine.memory_bytes_max,
            "engine_cpu_us_per_delivery": self.per_delivery_us(self.engine),
            "provider_cpu_us_per_delivery": self.per_delivery_us(self.simulator),
        })
    }

    /// Recipients that the provider neither accepted nor refused, and that are not in doubt either.
    fn lost(&self) -> u64 {
        // A delivery in doubt may have reached the provider: it is counted there and is not missing.
        self.tally.missing.saturating_sub(self.audit.in_doubt)
    }

    fn rate(&self) -> f64 {
        let first = self.tally.accepted_by_us(0.0).unwrap_or(0);
        let last = self.tally.accepted_by_us(1.0).unwrap_or(0);
        per_second(self.tally.accepted, last.saturating_sub(first))
    }

    fn ingest_rate(&self) -> f64 {
        per_second(self.audit.accepted, self.accepted_at_us.saturating_sub(self.due_at_us))
    }

    fn since_due_ms(&self, share: f64) -> f64 {
        let accepted = self.tally.accepted_by_us(share).unwrap_or(0);
        Duration::from_micros(accepted.saturating_sub(self.due_at_us)).as_secs_f64() * 1e3
    }

    #[expect(clippy::cast_precision_loss, reason = "counts of millions fit a double")]
    fn per_delivery_us(&self, usage: Usage) -> f64 {
        usage.cpu.as_secs_f64() * 1e6 / self.tally.accepted.max(1) as f64
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts of millions fit a double")]
fn per_second(count: u64, span_us: u64) -> f64 {
    count as f64 * 1e6 / span_us.max(1) as f64
}

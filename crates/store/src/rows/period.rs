//! Counts by periods of one length: of the last whole one, and of the present one.

/// A count in the last period, and in the present one.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct PeriodCounts {
    /// Number of the present period.
    pub(crate) period: i64,
    last: u32,
    present: u32,
}

// === impl PeriodCounts ===

impl PeriodCounts {
    /// Adds `count` in `period`; in the present one if that has passed: events may come late, or the clock was set back.
    pub(crate) fn add(&mut self, period: i64, count: usize) {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        match period - self.period {
            ..=0 => self.present = self.present.saturating_add(count),
            passed => {
                let last = if passed == 1 { self.present } else { 0 };
                *self = Self { period, last, present: count };
            }
        }
    }

    /// The higher one: at its beginning the count of the present period says nothing yet.
    pub(crate) fn highest(self) -> u32 {
        self.last.max(self.present)
    }
}

//! Figures that are computed from the operations of one repetition, and from several repetitions.

use std::time::Duration;

use crate::report::ConfidenceInterval;

/// Figures of one repetition.
#[derive(Debug, Clone)]
pub(super) struct Figures {
    /// Mean time of an operation, microseconds; so are the next two.
    pub(super) mean_us: f64,
    p50_us: f64,
    p99_us: f64,
    per_second: f64,
    /// Processor time of the process for each operation, microseconds.
    pub(super) cpu_us: f64,
    /// Operations of a group, on the mean.
    group: f64,
    /// Operations that were answered and are not in the store.
    pub(super) lost: u64,
    /// Operations that are in the store once more than they were answered.
    pub(super) duplicated: u64,
}

// === impl Figures ===

impl Figures {
    /// Of operations that `took` so long, within `elapsed` and with so much processor time, in so many groups.
    #[expect(clippy::cast_precision_loss, reason = "shown with few digits")]
    pub(super) fn new(
        mut took: Vec<Duration>,
        elapsed: Duration,
        cpu: Duration,
        groups: u64,
    ) -> Self {
        took.sort_unstable();
        let count = took.len().max(1) as f64;
        let at = |hundredths: usize| {
            let place = took.len() * hundredths / 100;
            took.get(place).copied().unwrap_or_default().as_secs_f64() * 1e6
        };
        Self {
            mean_us: took.iter().sum::<Duration>().as_secs_f64() * 1e6 / count,
            p50_us: at(50),
            p99_us: at(99),
            per_second: count / elapsed.as_secs_f64(),
            cpu_us: cpu.as_secs_f64() * 1e6 / count,
            group: count / groups.max(1) as f64,
            lost: 0,
            duplicated: 0,
        }
    }

    /// With the books of a store that has `stored` operations, where `answered` were answered.
    pub(super) fn with_books(self, answered: u64, stored: u64) -> Self {
        let lost = answered.saturating_sub(stored);
        Self { lost, duplicated: stored.saturating_sub(answered), ..self }
    }
}

/// One line for all repetitions of one variant.
pub(super) fn summary(repetitions: &[Figures]) -> String {
    let over = |value: fn(&Figures) -> f64| {
        ConfidenceInterval::of(&repetitions.iter().map(value).collect::<Vec<_>>())
    };
    format!(
        "mean {} us, p50 {} us, p99 {} us, {} a second, CPU {} us each, {} in a group",
        over(|it| it.mean_us),
        over(|it| it.p50_us),
        over(|it| it.p99_us),
        over(|it| it.per_second),
        over(|it| it.cpu_us),
        over(|it| it.group),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_of_all_operations() {
        let took: Vec<Duration> = (1..=100).map(Duration::from_micros).collect();
        let figures = Figures::new(took, Duration::from_secs(1), Duration::from_millis(1), 25);
        assert!((figures.mean_us - 50.5).abs() < 1e-9, "{figures:?}");
        assert!((figures.p99_us - 100.0).abs() < 1e-9, "{figures:?}");
        assert!((figures.group - 4.0).abs() < 1e-9, "{figures:?}");
    }

    #[test]
    fn books_tell_lost_from_duplicated() {
        let figures = Figures::new(Vec::new(), Duration::from_secs(1), Duration::ZERO, 1);
        let of = |answered, stored| {
            let figures = figures.clone().with_books(answered, stored);
            (figures.lost, figures.duplicated)
        };
        assert_eq!((of(5, 5), of(5, 3), of(5, 6)), ((0, 0), (2, 0), (0, 1)));
    }
}

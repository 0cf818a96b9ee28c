//! Figures that are computed from the operations of one repetition, and from several repetitions.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The figures of one repetition.
#[derive(Debug)]
pub(crate) struct Figures {
    pub(crate) mean_us: f64,
    p50_us: f64,
    p99_us: f64,
    per_second: f64,
    cpu_us: f64,
    /// Operations of a group, on the mean.
    group: f64,
}

/// Student's t for 95 %, by degrees of freedom from 1 on.
const STUDENT: [f64; 10] = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228];

// === impl Figures ===

impl Figures {
    /// Of operations that `took` so long, within `elapsed` and with so much processor time, in so many groups.
    #[expect(clippy::cast_precision_loss, reason = "shown with few digits")]
    pub(crate) fn new(
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
        }
    }
}

/// One line for the repetitions of one variant.
pub(crate) fn summary(repetitions: &[Figures]) -> String {
    let over =
        |value: fn(&Figures) -> f64| interval(&repetitions.iter().map(value).collect::<Vec<_>>());
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

/// The mean of `values`, and how far its 95 % confidence interval reaches to either side.
#[expect(clippy::cast_precision_loss, reason = "there are few")]
pub(crate) fn interval(values: &[f64]) -> String {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    let student = values.len().checked_sub(2).and_then(|place| STUDENT.get(place));
    let reach =
        student.map_or(f64::NAN, |student| student * (squares / (count - 1.0) / count).sqrt());
    let digits = if mean < 100.0 { 2 } else { 0 };
    format!("{mean:.digits$} ± {reach:.digits$}")
}

/// Of this process, all its threads.
pub(crate) fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let nanos = u32::try_from(time.tv_nsec).unwrap_or_default();
    Duration::new(time.tv_sec.cast_unsigned(), nanos)
}

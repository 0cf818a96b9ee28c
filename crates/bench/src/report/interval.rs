//! The mean of a few values, and how sure it is.

use std::fmt;

/// Mean of some values, with its 95 % confidence interval (Student).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ConfidenceInterval {
    /// The mean.
    pub mean: f64,
    /// Distance of either end from the mean; infinite for a single value.
    reach: f64,
}

/// Student's t for 95 %, by degrees of freedom from 1 on.
const STUDENT: [f64; 20] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
];

// === impl ConfidenceInterval ===

impl ConfidenceInterval {
    /// Of `values`, of which there are a few.
    #[expect(clippy::cast_precision_loss, reason = "there are few")]
    pub fn of(values: &[f64]) -> Self {
        let count = values.len().max(1) as f64;
        let mean = values.iter().sum::<f64>() / count;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        // Beyond the table its last value, which is a little too wide.
        let student =
            values.len().checked_sub(2).and_then(|place| STUDENT.get(place).or(STUDENT.last()));
        let reach = student
            .map_or(f64::INFINITY, |student| student * (squares / (count - 1.0) / count).sqrt());
        Self { mean, reach }
    }

    /// True if all of it is below all of `other`.
    pub fn is_below(self, other: Self) -> bool {
        self.mean + self.reach < other.mean - other.reach
    }

    /// True if `value` is not within it.
    pub fn leaves_out(self, value: f64) -> bool {
        (self.mean - value).abs() > self.reach
    }
}

impl fmt::Display for ConfidenceInterval {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = if self.mean < 100.0 { 2 } else { 0 };
        write!(formatter, "{:.digits$} ± {:.digits$}", self.mean, self.reach)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_as_wide_as_the_table_of_student_says() {
        let interval = ConfidenceInterval::of(&[1.0, 2.0, 3.0]);
        assert_eq!(interval.to_string(), "2.00 ± 2.48");
    }

    #[test]
    fn a_single_value_is_below_nothing() {
        let (low, high) = (ConfidenceInterval::of(&[1.0]), ConfidenceInterval::of(&[9.0, 9.1]));
        assert!(!low.is_below(high));
        assert!(ConfidenceInterval::of(&[1.0, 1.1]).is_below(high));
    }

    #[test]
    fn intervals_that_overlap_are_not_below_each_other() {
        let (one, other) =
            (ConfidenceInterval::of(&[1.0, 2.0, 3.0]), ConfidenceInterval::of(&[2.0, 3.0, 4.0]));
        assert!(one.mean < other.mean && !one.is_below(other));
    }
}

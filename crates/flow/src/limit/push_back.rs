//! The effect of explicit push-back on a learned limit.

use super::window::WindowCounts;

/// The push-back of a destination that says how much is too much.
#[derive(Debug)]
pub(super) struct PushBack {
    /// The limit at which some was pushed back, less that; it rises again while nothing is.
    ceiling: f64,
    /// Rise of the ceiling with each four hundred answers.
    step: f64,
    /// The last limit at which nothing was pushed back.
    clean: f64,
    /// Limits, and the shares that were pushed back at them, of windows in a row.
    tried: Vec<(f64, f64)>,
    /// True if a lower limit did not help: push-back is then no sign of load, and the limit stays.
    is_futile: bool,
}

/// Two limits that are lower and are pushed back as much say that push-back has another reason.
const TRIES: usize = 3;
/// Part of the push-back that a lower limit must take away to help, if only the excess over a bound were pushed back.
const HELPS: f64 = 0.3;
const STEP_MAX: f64 = 50.0;

// === impl PushBack ===

impl Default for PushBack {
    fn default() -> Self {
        Self { ceiling: f64::INFINITY, step: 1.0, clean: 0.0, tried: Vec::new(), is_futile: false }
    }
}

impl PushBack {
    /// A window with `limit` went by without any.
    pub(super) fn ended(&mut self, limit: f64) {
        self.clean = limit;
        self.tried.clear();
        self.is_futile = false;
    }

    /// True if a twentieth of a window was pushed back: the window is decided before it is full.
    pub(super) fn is_urgent(&self, counts: WindowCounts) -> bool {
        let first = self.tried.is_empty() && !self.is_futile;
        first && counts.pushed_back >= 3 && counts.pushed_back * 20 >= counts.ended
    }

    /// The limit after `limit`, at which some was pushed back; `None`: it stays.
    pub(super) fn answer(&mut self, limit: f64, counts: WindowCounts) -> Option<f64> {
        if self.is_futile {
            return None;
        }
        #[expect(clippy::cast_precision_loss, reason = "counts of attempts")]
        let share = counts.pushed_back as f64 / (counts.ended as f64).max(limit);
        self.tried.push((limit, share));
        if let Some(last) = self.tried.len().checked_sub(TRIES)
            && let Some(tried) = self.tried.get(last..)
            && !tried.windows(2).any(has_helped)
        {
            let first = self.tried.first().map(|(limit, _)| *limit);
            *self = Self { is_futile: true, ..Self::default() };
            return first;
        }
        self.step = 1.0;
        let lower = limit * (1.0 - share).clamp(0.5, 0.96);
        // The limit that went well a moment ago is tried first.
        let is_first = self.tried.len() == 1 && self.clean < limit;
        let lower = if is_first { lower.max(self.clean) } else { lower }.floor();
        self.ceiling = lower;
        Some(lower)
    }

    /// True if there was some at a limit that is known.
    pub(super) fn has_ceiling(&self) -> bool {
        self.ceiling.is_finite()
    }

    /// A grown `limit` as far as push-back allows, after `ended` answers without any.
    pub(super) fn bound(&mut self, limit: f64, ended: usize) -> f64 {
        if limit <= self.ceiling {
            return limit;
        }
        #[expect(clippy::cast_precision_loss, reason = "counts of attempts")]
        let answers = ended as f64;
        self.ceiling += self.step * answers / 400.0;
        self.step = (self.step * 1.05).min(STEP_MAX);
        limit.min(self.ceiling)
    }
}

/// True if the second of two limits was pushed back less because it is lower; each comes with its share pushed back.
fn has_helped(tried: &[(f64, f64)]) -> bool {
    let [(limit, share), (lower_limit, lower_share)] = *tried else { return false };
    let expected = (1.0 - (1.0 - share) * limit / lower_limit).max(0.0);
    lower_share < share - HELPS * (share - expected)
}

//! Scales: from a figure to pixels, with ticks at round figures.

/// A scale from figures to pixels.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Scale {
    is_log: bool,
    /// Figures at the two ends: `low < high`, and above 0 on a logarithmic scale.
    low: f64,
    high: f64,
    /// Pixels of these.
    from: f64,
    to: f64,
}

/// Figures beyond these powers of ten are drawn at the end: a ratio of two figures is a number then.
const POWER_MAX: f64 = 140.0;
/// So many decades have ticks between the powers of ten, too.
const FINE_DECADES: f64 = 2.5;
const TICKS_MAX: f64 = 7.0;
/// Greater figures have too many digits for a label.
const FIGURE_MAX: f64 = 1e12;
/// Two figures within this part of each other are the same one.
const ROUNDING: f64 = 1e-9;

// === impl Scale ===

impl Scale {
    /// A logarithmic one for `values`, of which those that are not above 0 do not count: it ends at 1, 2 or 5 times a power of ten.
    pub(super) fn log(values: &[f64], from: f64, to: f64) -> Self {
        let (least, most) = ends(positive(values)).unwrap_or((1.0, 10.0));
        let (low, high) = (round_down(least / 1.05), round_up(most * 1.05));
        Self { is_log: true, low, high: high.max(2.0 * low), from, to }
    }

    /// As [`log`](Self::log), from a power of ten that leaves the least of them a length.
    pub(super) fn log_of_lengths(values: &[f64], from: f64, to: f64) -> Self {
        let scale = Self::log(values, from, to);
        let low = power((0.8 * scale.low).log10().floor());
        Self { low, ..scale }
    }

    /// A logarithmic one that ends a little beyond the first and the last of `places`, none of which need be round.
    pub(super) fn places(places: &[f64], from: f64, to: f64) -> Self {
        let (least, most) = ends(positive(places)).unwrap_or((1.0, 10.0));
        let margin = (most / least).powf(0.04).max(1.05);
        Self { is_log: true, low: least / margin, high: most * margin, from, to }
    }

    /// A linear one from 0.
    pub(super) fn linear(values: &[f64], from: f64, to: f64) -> Self {
        let most = ends(values.iter().copied()).map_or(0.0, |(_, most)| most);
        let most = if most > 0.0 { most.min(power(POWER_MAX)) } else { 1.0 };
        let step = step(most);
        Self { is_log: false, low: 0.0, high: step * (most / step).ceil(), from, to }
    }

    /// The pixel of `value`; of an end where that is beyond it, or no number.
    pub(super) fn at(&self, value: f64) -> f64 {
        let part = if self.is_log {
            (value.max(f64::MIN_POSITIVE) / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        let part = if part.is_nan() { 0.0 } else { part.clamp(0.0, 1.0) };
        self.from + part * (self.to - self.from)
    }

    /// Round figures on it.
    pub(super) fn ticks(&self) -> Vec<f64> {
        if !self.is_log {
            let step = step(self.high);
            let next = |tick: &f64| Some(tick + step);
            let is_within = |tick: &f64| *tick <= self.high * (1.0 + ROUNDING);
            return std::iter::successors(Some(0.0), next).take_while(is_within).collect();
        }
        let (first, last) = (self.low.log10().floor(), self.high.log10().ceil());
        let decades = (self.high / self.low).log10();
        let stride = (decades / TICKS_MAX).ceil().max(1.0);
        let multiples: &[f64] = if decades < FINE_DECADES { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let is_within = |tick: &f64| {
            *tick >= self.low * (1.0 - ROUNDING) && *tick <= self.high * (1.0 + ROUNDING)
        };
        std::iter::successors(Some(first), |exponent| Some(exponent + stride))
            .take_while(|exponent| *exponent <= last)
            .flat_map(|exponent| multiples.iter().map(move |it| it * power(exponent)))
            .filter(is_within)
            .collect()
    }

    /// True if its ticks are powers.
    pub(super) const fn is_log(&self) -> bool {
        self.is_log
    }
}

/// Those that have a place on a logarithmic scale.
pub(super) fn positive(values: &[f64]) -> impl Iterator<Item = f64> {
    let limit = |value: f64| value.clamp(power(-POWER_MAX), power(POWER_MAX));
    values.iter().copied().filter(|value| *value > 0.0 && value.is_finite()).map(limit)
}

/// The least and the greatest of those that are numbers.
pub(super) fn ends(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    values.filter(|value| value.is_finite()).fold(None, |ends, value| {
        let (least, most) = ends.unwrap_or((value, value));
        Some((value.min(least), value.max(most)))
    })
}

/// A figure of a label as text: `28,330`, and `1.0e12` from there on.
pub(super) fn figure(value: f64) -> String {
    if value.abs() < FIGURE_MAX { crate::report::number(value) } else { format!("{value:.1e}") }
}

/// A tick as text: `0.5`, `64`, `100,000`, `1e12`.
pub(super) fn tick(value: f64) -> String {
    if value == 0.0 {
        return "0".into();
    }
    if !(1e-3..1e10).contains(&value.abs()) {
        return format!("{value:.0e}");
    }
    if value.abs() >= 1_000.0 {
        return crate::report::number(value);
    }
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// True for a power of ten.
pub(super) fn is_power(value: f64) -> bool {
    let exponent = value.log10();
    (exponent - exponent.round()).abs() < ROUNDING
}

fn power(exponent: f64) -> f64 {
    10_f64.powf(exponent.clamp(-POWER_MAX, POWER_MAX))
}

/// Of the figures 1, 2 and 5 times a power of ten the greatest that is not above `value`.
fn round_down(value: f64) -> f64 {
    let base = power(value.log10().floor());
    let multiple = [5.0, 2.0].into_iter().find(|multiple| multiple * base <= value);
    multiple.unwrap_or(1.0) * base
}

/// The least that is not below it.
fn round_up(value: f64) -> f64 {
    let base = power(value.log10().floor());
    let multiple = [1.0, 2.0, 5.0].into_iter().find(|multiple| multiple * base >= value);
    multiple.unwrap_or(10.0) * base
}

/// Distance of ticks from 0 to `most`.
fn step(most: f64) -> f64 {
    round_up(most / (TICKS_MAX - 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(scale: &Scale) -> Vec<String> {
        scale.ticks().into_iter().map(tick).collect()
    }

    #[test]
    fn ticks_are_round_and_within_the_scale() {
        let decades = Scale::log(&[7_299.0, 6e6], 0.0, 100.0);
        assert_eq!(words(&decades), ["10,000", "100,000", "1,000,000", "10,000,000"]);
        let fine = Scale::log(&[1.4, 9.0], 0.0, 100.0);
        assert_eq!(words(&fine), ["1", "2", "5", "10"]);
        let lengths = Scale::log_of_lengths(&[161_000.0, 2e6], 0.0, 100.0);
        assert_eq!(words(&lengths).first().unwrap(), "10,000");
        let linear = Scale::linear(&[14.57, 10.62], 0.0, 100.0);
        assert_eq!(words(&linear), ["0", "5", "10", "15"]);
        let vast = Scale::log(&[1e-300, 1e300], 0.0, 100.0);
        assert!((2..10).contains(&vast.ticks().len()), "{:?}", vast.ticks());
    }

    #[test]
    fn each_figure_has_a_pixel_between_the_ends() {
        let figures = [f64::NAN, f64::INFINITY, -1.0, 0.0, 1e-300, 1.0, 1e300];
        for values in [&[][..], &[0.0], &[5.0], &figures[..]] {
            for of in [Scale::log, Scale::log_of_lengths, Scale::places, Scale::linear] {
                let scale = of(values, 50.0, 10.0);
                assert!(scale.low < scale.high && scale.high.is_finite(), "{scale:?}");
                for figure in figures {
                    let at = scale.at(figure);
                    assert!((10.0..=50.0).contains(&at), "{figure} at {at} of {scale:?}");
                }
            }
        }
    }

    #[test]
    fn ten_times_as_much_is_one_decade_further() {
        let scale = Scale::log(&[10.0, 1_000.0], 0.0, 300.0);
        let decade = scale.at(100.0) - scale.at(10.0);
        assert!((scale.at(1_000.0) - scale.at(100.0) - decade).abs() < 1e-6);
        assert!(scale.at(10.0) > 0.0 && scale.at(1_000.0) < 300.0);
    }
}

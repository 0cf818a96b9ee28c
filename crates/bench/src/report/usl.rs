//! The Universal Scalability Law, fitted to a sweep: how throughput follows the attempts under way at a time.
//!
//! `X(N) = lambda N / (1 + sigma (N - 1) + kappa N (N - 1))`, from N. J. Gunther, "Guerrilla Capacity Planning", Springer, 2007,
//! chapters 4 to 6. `sigma` is the part of the work that only one can do at a time: it bounds the throughput. `kappa` is the work that
//! each causes to each other: beyond the knee it makes the throughput fall.
//!
//! `N / X(N)` is linear in `1 / lambda`, `sigma / lambda` and `kappa / lambda`. The fit is the one of the least squares of the relative
//! errors of that, with `0 <= sigma <= 1` and `kappa >= 0`: of the few subsets of bounds that can be active, the feasible one with the
//! least error.

use serde::{Deserialize, Serialize};

use super::{Figure, Point, RowReport};

/// The law of one sweep. All numbers are finite and at least 0.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Scalability {
    /// Throughput of one, a second: of items, or of whole jobs where the figures are seconds of a job. Above 0.
    pub lambda: f64,
    /// Contention: the part of the work that only one does at a time, 0 to 1.
    pub sigma: f64,
    /// Coherency: the work that each causes to each other, as a part of one's own.
    pub kappa: f64,
    /// The N of the greatest throughput, `sqrt((1 - sigma) / kappa)`, at least 1; none where `kappa` is 0. It can lie beyond what was
    /// measured.
    pub knee: Option<f64>,
    /// Throughput at the knee, a second; none without one.
    pub most: Option<f64>,
    /// Root of the mean squared relative error of the throughput: 0.05 is 5 %.
    pub error: f64,
    /// The N at or below the knee at which the curve has the throughput of the learned setting, at least 1; none where that is above
    /// all of the curve.
    pub auto_at: Option<f64>,
}

/// Three parameters pass through any three places, and say nothing then.
const PLACES_MIN: usize = 4;
/// A bound that worsens the error of the fit by less than this is taken as active: so small a part is rounding, not measured.
const NEGLIGIBLE: f64 = 1e-6;
/// Least determinant of normalised columns that are told apart.
const DETERMINANT_MIN: f64 = 1e-12;

/// One measured place: N, and its throughput a second.
type MeasuredPlace = (f64, f64);

/// Where `sigma` is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Contention {
    Zero,
    One,
    Free,
}

/// Which parameters are free. `kappa` is held at 0 or free.
#[derive(Debug, Clone, Copy)]
struct UslModel {
    sigma: Contention,
    is_kappa_free: bool,
}

/// Those with fewer free parameters first.
const MODELS: [UslModel; 6] = [
    UslModel { sigma: Contention::Zero, is_kappa_free: false },
    UslModel { sigma: Contention::One, is_kappa_free: false },
    UslModel { sigma: Contention::Free, is_kappa_free: false },
    UslModel { sigma: Contention::Zero, is_kappa_free: true },
    UslModel { sigma: Contention::One, is_kappa_free: true },
    UslModel { sigma: Contention::Free, is_kappa_free: true },
];

// === impl Scalability ===

impl Scalability {
    /// The law of the fixed settings of `report`.
    ///
    /// None without `auto`: then the places are no concurrency, but the sizes of audiences, say. None with fewer than four different
    /// places that have a throughput, and where the throughput of `auto` is not known.
    pub fn of(report: &RowReport) -> Option<Self> {
        let auto = throughput(report.auto.as_ref()?)?;
        let places: Vec<MeasuredPlace> = report.points.iter().filter_map(place).collect();
        let mut different: Vec<f64> = places.iter().map(|(at, _)| *at).collect();
        different.sort_unstable_by(f64::total_cmp);
        different.dedup();
        if different.len() < PLACES_MIN {
            return None;
        }
        let fits: Vec<Self> = MODELS.iter().filter_map(|model| model.fit(&places)).collect();
        let least = fits.iter().map(|fit| fit.error).reduce(f64::min)?;
        let fit = fits.into_iter().find(|fit| fit.error <= least + NEGLIGIBLE)?;
        Some(Self { auto_at: fit.place_of(auto), ..fit })
    }

    /// Throughput of `parallel`, at least 1, a second.
    pub fn throughput(&self, parallel: f64) -> f64 {
        let Self { lambda, sigma, kappa, .. } = self;
        let others = parallel - 1.0;
        lambda * parallel / (1.0 + sigma * others + kappa * parallel * others)
    }

    /// One line for a terminal: `sigma`, `kappa`, the knee, and where `auto` lies.
    pub fn to_line(&self) -> String {
        let Self { sigma, kappa, error, .. } = self;
        let places = |at: f64| {
            if at < 1_000.0 { format!("{at:.0}") } else { super::number(at) }
        };
        let kappa = if *kappa > 0.0 { format!("{kappa:.2e}") } else { "0".into() };
        let knee = self.knee.map_or("no knee".into(), |at| format!("knee at {}", places(at)));
        let auto = self.auto_at.map_or("auto is above the curve".into(), |at| {
            format!("auto is where the curve has {}", places(at))
        });
        let error = 100.0 * error;
        format!(
            "scalability: sigma {sigma:.4}, kappa {kappa}, {knee}, {auto}; fitted to {error:.1} %"
        )
    }

    /// The lesser root of `throughput(N) = wanted`.
    fn place_of(&self, wanted: f64) -> Option<f64> {
        let Self { lambda, sigma, kappa, .. } = self;
        let slope = lambda - wanted * (sigma - kappa);
        let least = wanted * (1.0 - sigma);
        let discriminant = slope * slope - 4.0 * kappa * wanted * least;
        if slope <= 0.0 || discriminant < 0.0 {
            return None;
        }
        let at = 2.0 * least / (slope + discriminant.sqrt());
        at.is_finite().then_some(at.max(1.0))
    }
}

// === impl UslModel ===

impl UslModel {
    /// The best of this model; none where it is outside of the bounds, or where the places do not tell.
    fn fit(self, places: &[MeasuredPlace]) -> Option<Scalability> {
        let [each, contention, coherency] = least_squares(places.iter().map(|it| self.row(*it)))?;
        let contention = match self.sigma {
            Contention::Zero => 0.0,
            Contention::One => each,
            Contention::Free => contention,
        };
        let (lambda, sigma, kappa) = (1.0 / each, contention / each, coherency / each);
        let is_feasible =
            lambda > 0.0 && (0.0..=1.0).contains(&sigma) && kappa >= 0.0 && kappa.is_finite();
        if !is_feasible || !lambda.is_finite() {
            return None;
        }
        let knee = (kappa > 0.0).then(|| ((1.0 - sigma) / kappa).sqrt().max(1.0));
        let law = Scalability { lambda, sigma, kappa, knee, most: None, error: 0.0, auto_at: None };
        let error = |(at, measured): &MeasuredPlace| (law.throughput(*at) / measured - 1.0).powi(2);
        let errors: Vec<f64> = places.iter().map(error).collect();
        let most = knee.map(|at| law.throughput(at));
        Some(Scalability { most, error: mean(&errors).sqrt(), ..law })
    }

    /// The shares that the three parameters have in `N / X`.
    fn row(self, (at, throughput): MeasuredPlace) -> [f64; 3] {
        let inverse = throughput / at;
        let each = if self.sigma == Contention::One { at } else { 1.0 };
        let contention = if self.sigma == Contention::Free { at - 1.0 } else { 0.0 };
        let coherency = if self.is_kappa_free { at * (at - 1.0) } else { 0.0 };
        [each * inverse, contention * inverse, coherency * inverse]
    }
}

/// The factors by which the columns of `rows` come closest to 1 in each row; 0 for a column of zeros. None where the columns are not
/// independent.
fn least_squares(rows: impl Iterator<Item = [f64; 3]>) -> Option<[f64; 3]> {
    let [mut one, mut two, mut three] = [Vec::new(), Vec::new(), Vec::new()];
    for [each, contention, coherency] in rows {
        one.push(each);
        two.push(contention);
        three.push(coherency);
    }
    let scales = [&mut one, &mut two, &mut three].map(|column| normalise(column));
    // A column has the length 1, and one of zeros gets the factor 0 by the same 1 in the diagonal.
    let first = [1.0, dot(&one, &two), dot(&one, &three)];
    let second = [dot(&two, &one), 1.0, dot(&two, &three)];
    let third = [dot(&three, &one), dot(&three, &two), 1.0];
    let right = [one, two, three].map(|column| column.iter().sum::<f64>());
    let determinant = volume(first, second, third);
    if determinant.abs() < DETERMINANT_MIN || !determinant.is_finite() {
        return None;
    }
    let factors = [
        volume(right, second, third) / determinant,
        volume(first, right, third) / determinant,
        volume(first, second, right) / determinant,
    ];
    let [one, two, three] = factors;
    let [first, second, third] = scales;
    Some([one * first, two * second, three * third])
}

/// Gives `column` the length 1, for N (N - 1) is millions of times as great as 1; by which factor. A column of zeros stays, with 0.
fn normalise(column: &mut [f64]) -> f64 {
    let length = dot(column, column).sqrt();
    let scale = if length > 0.0 { 1.0 / length } else { 0.0 };
    for value in column {
        *value *= scale;
    }
    scale
}

/// Determinant of the matrix with these columns.
fn volume(one: [f64; 3], two: [f64; 3], three: [f64; 3]) -> f64 {
    let [x, y, z] = one;
    let [second_x, second_y, second_z] = two;
    let [third_x, third_y, third_z] = three;
    x * (second_y * third_z - second_z * third_y) - y * (second_x * third_z - second_z * third_x)
        + z * (second_x * third_y - second_y * third_x)
}

fn dot(one: &[f64], other: &[f64]) -> f64 {
    one.iter().zip(other).map(|(one, other)| one * other).sum()
}

#[expect(clippy::cast_precision_loss, reason = "a sweep has a few places")]
fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// A place of a sweep, where it is one and has a throughput.
fn place(point: &Point) -> Option<MeasuredPlace> {
    let at = point.parallel.filter(|at| at.is_finite() && *at >= 1.0)?;
    Some((at, throughput(point)?))
}

/// Throughput of a point, a second.
fn throughput(point: &Point) -> Option<f64> {
    let a_second = match point.figure {
        Figure::PerMinute(rate) => rate / 60.0,
        Figure::Seconds(seconds) => 1.0 / seconds,
        Figure::MsPerOp(ms) => 1_000.0 * point.parallel? / ms,
    };
    (a_second.is_finite() && a_second > 0.0).then_some(a_second)
}

#[cfg(test)]
#[path = "usl_tests.rs"]
mod tests;

//! The law is found again in curves that follow it, and nothing is made up from those that say too little.

use super::*;
use crate::report::Unit;
use crate::report::tests::sample;

const PLACES: [f64; 8] = [4.0, 8.0, 16.0, 32.0, 64.0, 256.0, 1_024.0, 4_096.0];

fn law(lambda: f64, sigma: f64, kappa: f64) -> Scalability {
    Scalability { lambda, sigma, kappa, knee: None, most: None, error: 0.0, auto_at: None }
}

fn sweep(unit: Unit, places: &[f64], figure: impl Fn(f64) -> f64, auto: f64) -> RowReport {
    let point = |at: &f64| Point {
        parallel: Some(*at),
        ..Point::of_runs(format!("{at}"), unit, &[figure(*at)])
    };
    RowReport {
        points: places.iter().map(point).collect(),
        auto: Some(Point::of_runs("auto", unit, &[auto])),
        ..sample(unit)
    }
}

fn curve(law: Scalability) -> RowReport {
    let at_100 = 60.0 * law.throughput(100.0);
    sweep(Unit::PerMinute, &PLACES, |at| 60.0 * law.throughput(at), at_100)
}

fn assert_near(found: f64, wanted: f64, part: f64) {
    let least = 1e-12;
    assert!((found - wanted).abs() <= part * wanted.abs() + least, "{found} is not {wanted}");
}

fn assert_sound(law: &Scalability) {
    let numbers = [law.lambda, law.sigma, law.kappa, law.error];
    let others = [law.knee, law.most, law.auto_at];
    for number in numbers.into_iter().chain(others.into_iter().flatten()) {
        assert!(number.is_finite() && number >= 0.0, "{law:?}");
    }
    assert!(law.lambda > 0.0 && law.sigma <= 1.0, "{law:?}");
    assert_eq!(law.knee.is_some(), law.kappa > 0.0, "{law:?}");
    assert_eq!(law.most.is_some(), law.kappa > 0.0, "{law:?}");
}

#[test]
fn the_parameters_of_an_exact_curve_are_found_again() {
    for (lambda, sigma, kappa) in [(95.0, 0.01, 1e-5), (2_000.0, 0.2, 3e-3), (1.0, 0.0, 1e-6)] {
        let found = Scalability::of(&curve(law(lambda, sigma, kappa))).unwrap();
        assert_sound(&found);
        assert_near(found.lambda, lambda, 1e-5);
        assert!((found.sigma - sigma).abs() < 1e-5, "{found:?}");
        assert_near(found.kappa, kappa, 1e-4);
        assert_near(found.knee.unwrap(), ((1.0 - sigma) / kappa).sqrt(), 1e-4);
        assert_near(found.most.unwrap(), found.throughput(found.knee.unwrap()), 1e-9);
        assert!(found.error < 1e-5, "{found:?}");
    }
}

#[test]
fn seconds_and_milliseconds_are_the_inverse_of_a_throughput() {
    let law = law(95.0, 0.01, 1e-5);
    let seconds = sweep(Unit::Seconds, &PLACES, |at| 1.0 / law.throughput(at), 1.0);
    let each = |at: f64| 1_000.0 * at / law.throughput(at);
    let mut ms = sweep(Unit::MsPerOp, &PLACES, each, each(100.0));
    assert_eq!(Scalability::of(&ms), None, "a latency alone is no throughput");
    ms.auto.as_mut().unwrap().parallel = Some(100.0);
    for report in [seconds, ms] {
        let found = Scalability::of(&report).unwrap();
        assert_near(found.lambda, 95.0, 1e-5);
        assert_near(found.sigma, 0.01, 1e-3);
        assert_near(found.kappa, 1e-5, 1e-3);
    }
}

#[test]
fn noise_of_a_twentieth_moves_the_parameters_little() {
    for seed in 0..200 {
        let mut random = fastrand::Rng::with_seed(seed);
        let noise: Vec<f64> = PLACES.map(|_| 1.0 + 0.1 * (random.f64() - 0.5)).to_vec();
        let law = law(95.0, 0.01, 1e-5);
        let figure = |at: f64| {
            let place = PLACES.iter().position(|place| *place >= at).unwrap();
            60.0 * law.throughput(at) * noise[place]
        };
        let found = Scalability::of(&sweep(Unit::PerMinute, &PLACES, figure, 1.0)).unwrap();
        assert_sound(&found);
        assert_near(found.lambda, 95.0, 0.15);
        assert_near(found.sigma, 0.01, 0.5);
        assert_near(found.kappa, 1e-5, 0.5);
        assert!(found.error < 0.05 && found.error > 1e-3, "{found:?}");
    }
}

#[test]
fn a_linear_curve_has_no_knee() {
    let found = Scalability::of(&curve(law(95.0, 0.0, 0.0))).unwrap();
    assert_sound(&found);
    assert_near(found.lambda, 95.0, 1e-9);
    assert_eq!((found.sigma, found.kappa, found.knee, found.most), (0.0, 0.0, None, None));
    assert_near(found.auto_at.unwrap(), 100.0, 1e-6);
    assert!(found.to_line().contains("no knee"), "{}", found.to_line());
}

#[test]
fn a_curve_that_only_flattens_has_contention_alone() {
    let found = Scalability::of(&curve(law(95.0, 0.05, 0.0))).unwrap();
    assert_sound(&found);
    assert_near(found.sigma, 0.05, 1e-6);
    assert_eq!((found.kappa, found.knee), (0.0, None));
    // What is above the bound of the curve, lambda / sigma, has no place on it.
    let mut report = curve(law(95.0, 0.05, 0.0));
    report.auto = Some(Point::of_runs("auto", Unit::PerMinute, &[60.0 * 95.0 / 0.05 + 60.0]));
    assert_eq!(Scalability::of(&report).unwrap().auto_at, None);
}

#[test]
fn what_gains_more_than_its_part_or_only_loses_stays_within_the_bounds() {
    let figures: [fn(f64) -> f64; 4] =
        [|at| at * at, |at| 1e6 / at, |_| 1e6, |at| 1e6 / (at * at * at)];
    for figure in figures {
        let found = Scalability::of(&sweep(Unit::PerMinute, &PLACES, figure, 1e6)).unwrap();
        assert_sound(&found);
        assert!(found.to_line().contains("sigma"), "{found:?}");
    }
    let flat = Scalability::of(&sweep(Unit::PerMinute, &PLACES, |_| 6e6, 6e6)).unwrap();
    assert_near(flat.sigma, 1.0, 1e-9);
}

#[test]
fn the_learned_setting_is_placed_on_the_rising_side() {
    let law = law(95.0, 0.01, 1e-5);
    let mut report = curve(law);
    let at = |report: &RowReport| Scalability::of(report).unwrap().auto_at;
    assert_near(at(&report).unwrap(), 100.0, 1e-4);
    let knee = (0.99_f64 / 1e-5).sqrt();
    let most = 60.0 * law.throughput(knee);
    for (rate, is_on_it) in [(0.99 * most, true), (1.01 * most, false), (1e-9, true)] {
        report.auto = Some(Point::of_runs("auto", Unit::PerMinute, &[rate]));
        assert_eq!(at(&report).is_some(), is_on_it, "{rate}");
        assert!(at(&report).is_none_or(|at| (1.0..knee).contains(&at)), "{rate}");
    }
}

#[test]
fn too_little_says_nothing() {
    let of = |places: &[f64]| {
        Scalability::of(&sweep(Unit::PerMinute, places, |at| 60.0 * at, 600.0)).is_some()
    };
    assert!(of(&[1.0, 2.0, 4.0, 8.0]));
    assert!(!of(&[1.0, 2.0, 4.0]));
    assert!(!of(&[4.0, 4.0, 4.0, 4.0, 8.0, 8.0]), "the same places again tell nothing new");
    assert!(!of(&[0.0, -1.0, f64::NAN, f64::INFINITY, 1.0, 2.0]));
    for figure in [0.0, f64::NAN, f64::INFINITY, -1.0] {
        assert_eq!(Scalability::of(&sweep(Unit::PerMinute, &PLACES, |_| figure, 1.0)), None);
        assert_eq!(Scalability::of(&sweep(Unit::Seconds, &PLACES, |_| figure, 1.0)), None);
    }
    let mut names = curve(law(95.0, 0.01, 1e-5));
    names.points.iter_mut().for_each(|point| point.parallel = None);
    assert_eq!(Scalability::of(&names), None);
}

#[test]
fn the_sizes_of_an_audience_are_no_concurrency() {
    let mut report = curve(law(95.0, 0.01, 1e-5));
    report.auto = None;
    assert_eq!(Scalability::of(&report), None);
}

#[test]
fn a_line_says_where_the_knee_and_the_learned_setting_are() {
    let line = Scalability::of(&curve(law(95.0, 0.01, 1e-5))).unwrap().to_line();
    assert_eq!(
        line,
        "scalability: sigma 0.0100, kappa 1.00e-5, knee at 315, auto is where the curve has 100; fitted to 0.0 %"
    );
}

//! Work that is done lane by lane in simulated time, and the forecasts of its end meanwhile.

use std::collections::BTreeMap;
use std::time::Duration;

use flow::Backoff;
use flow::forecast::{Backlog, Forecast, Interval, Retries, Series, forecast};

/// One destination, and the work to be sent there.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lane {
    pub(crate) count: u64,
    /// Attempts a second, at a time in seconds.
    pub(crate) rate: fn(f64) -> f64,
    /// Relative variation of that rate from one second to the next.
    pub(crate) noise: f64,
    /// The share of attempts that are deferred.
    pub(crate) deferred: f64,
    /// True at times when every attempt is deferred.
    pub(crate) fails: fn(f64) -> bool,
}

/// Measures of the forecasts of one run, or of several.
#[derive(Debug)]
pub(crate) struct Told {
    /// Share of the points at which an interval was given.
    pub(crate) points: f64,
    /// Share of these points whose interval held the true end.
    pub(crate) held: f64,
    /// The median of the intervals' widths, as a part of the time that was left.
    pub(crate) width: f64,
}

#[derive(Debug)]
struct Run {
    lane: Lane,
    series: Series,
    due: u64,
    /// Deferred pieces by due time, in steps, and attempt.
    waiting: BTreeMap<(u64, u16), u64>,
    /// Due pieces by attempt.
    ready: BTreeMap<u16, u64>,
    /// Fraction of a piece that the rate allows beyond whole ones.
    spare: f64,
    factor: f64,
}

/// Steps in a second.
const STEPS: u64 = 10;
/// An attempt a second that tries whether the destination is there again.
const PROBES: f64 = 4.0;
const BEGIN: Duration = Duration::from_hours(500_000);

// === impl Lane ===

impl Lane {
    /// A lane of `count` pieces, tried at `rate` attempts a second at a time in seconds.
    pub(crate) fn new(count: u64, rate: fn(f64) -> f64) -> Self {
        Self { count, rate, noise: 0.0, deferred: 0.0, fails: |_| false }
    }
}

// === impl Told ===

impl Told {
    /// The mean of several runs.
    pub(crate) fn mean(runs: &[Self]) -> Self {
        let of = |value: fn(&Self) -> f64| {
            runs.iter().map(value).sum::<f64>() / f64::from(u32::try_from(runs.len()).unwrap())
        };
        Self { points: of(|run| run.points), held: of(|run| run.held), width: of(|run| run.width) }
    }
}

// === impl Run ===

impl Run {
    fn new(lane: Lane) -> Self {
        let (series, waiting) = (Series::default(), BTreeMap::new());
        let ready = BTreeMap::from([(1, lane.count)]);
        Self { lane, series, due: lane.count, waiting, ready, spare: 0.0, factor: 1.0 }
    }

    fn step(&mut self, step: u64, random: &mut fastrand::Rng) {
        let time = seconds(step);
        while let Some(entry) = self.waiting.first_entry().filter(|it| it.key().0 <= step) {
            let ((_, attempt), count) = entry.remove_entry();
            *self.ready.entry(attempt).or_default() += count;
            self.due += count;
        }
        if step.is_multiple_of(STEPS) {
            self.factor = 1.0 + self.lane.noise * (2.0 * random.f64() - 1.0);
        }
        let fails = (self.lane.fails)(time);
        let rate = if fails { PROBES } else { (self.lane.rate)(time) * self.factor };
        self.spare += rate / f64::from(u32::try_from(STEPS).unwrap());
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "small, not negative"
        )]
        let allowed = self.spare.max(0.0) as u64;
        self.spare = self.spare.fract();
        let (mut ended, mut deferred) = (0, BTreeMap::<u16, u64>::new());
        for _ in 0..allowed {
            // Those that are tried again were due earlier than those behind them.
            let Some(mut entry) = self.ready.last_entry() else { break };
            let attempt = *entry.key();
            *entry.get_mut() -= 1;
            if *entry.get() == 0 {
                entry.remove();
            }
            self.due -= 1;
            if fails || random.f64() < self.lane.deferred {
                *deferred.entry(attempt).or_default() += 1;
            } else {
                ended += 1;
            }
        }
        self.series.add(BEGIN + Duration::from_secs_f64(time), ended, deferred.values().sum());
        for (attempt, count) in deferred {
            let wait = Backoff::DEFAULT.delay(attempt, None, random);
            let due = step + 1 + u64::try_from(wait.as_millis()).unwrap() * STEPS / 1_000;
            *self.waiting.entry((due, attempt + 1)).or_default() += count;
        }
    }

    fn is_done(&self) -> bool {
        self.due == 0 && self.waiting.is_empty()
    }

    fn outlook(&self, step: u64) -> Forecast {
        let retries = self.waiting.last_key_value().map(|((due, _), _)| Retries {
            count: self.waiting.values().sum(),
            last_due: BEGIN + Duration::from_secs_f64(seconds(*due)),
            attempt: self.waiting.keys().map(|(_, attempt)| *attempt).max().unwrap(),
        });
        let backlog = Backlog { series: &self.series, due: self.due, retries, since: BEGIN };
        forecast(&backlog, &Backoff::DEFAULT, BEGIN + Duration::from_secs_f64(seconds(step)))
    }
}

/// Runs the lanes to their end. The forecast is read once a second.
pub(crate) fn run(seed: u64, lanes: &[Lane]) -> Told {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut runs: Vec<Run> = lanes.iter().copied().map(Run::new).collect();
    let (mut outlooks, mut step) = (Vec::new(), 0);
    while !runs.iter().all(Run::is_done) {
        for run in &mut runs {
            run.step(step, &mut random);
        }
        step += 1;
        if step.is_multiple_of(STEPS) {
            outlooks
                .push((seconds(step), Forecast::of_all(runs.iter().map(|run| run.outlook(step)))));
        }
    }
    let end = seconds(step);
    let points = outlooks.len();
    let mut widths = Vec::new();
    let mut held = 0;
    for (time, outlook) in outlooks {
        let Forecast::Within(Interval { earliest, latest }) = outlook else { continue };
        let of = |instant: Duration| instant.saturating_sub(BEGIN).as_secs_f64();
        // The end is known to a step.
        held += usize::from(of(earliest) <= end + 0.1 && end - 0.1 <= of(latest));
        widths.push((of(latest) - of(earliest)) / (end - time).max(1.0));
    }
    widths.sort_by(f64::total_cmp);
    let width = widths.get(widths.len() / 2).copied().unwrap_or(0.0);
    Told { points: part(widths.len(), points), held: part(held, widths.len()), width }
}

/// The seconds up to `until`, each with the second since which the forecast says that the lane is stalled, if it says so.
pub(crate) fn stalls(seed: u64, lane: Lane, until: u64) -> Vec<(u64, Option<u64>)> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut run = Run::new(lane);
    let mut stalls = Vec::new();
    for step in 0..until * STEPS {
        run.step(step, &mut random);
        if step.is_multiple_of(STEPS) {
            let since = match run.outlook(step) {
                Forecast::Stalled { since } => Some(since.saturating_sub(BEGIN).as_secs()),
                Forecast::Complete | Forecast::Within(_) | Forecast::TooEarly => None,
            };
            stalls.push((step / STEPS, since));
        }
    }
    stalls
}

fn seconds(step: u64) -> f64 {
    f64::from(u32::try_from(step).unwrap()) / f64::from(u32::try_from(STEPS).unwrap())
}

fn part(count: usize, of: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap()) / f64::from(u32::try_from(of.max(1)).unwrap())
}

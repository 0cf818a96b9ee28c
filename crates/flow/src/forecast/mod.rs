//! The forecast of the end of work that is under way: an interval, computed from its progress so far.
//!
//! Pure arithmetic, time passed in. The interval is meant to hold the true end four times out of five, if the work goes on as it
//! went; it cannot account for an outage to come. The scenarios in `tests/forecast` measure how often it does. An unknown end is
//! reported as unknown.
//!
//! - The *rate* is that of several stretches that end now, the whole time and its last half, quarter and eighth; the slowest and
//!   the fastest of them, and whether it rose or fell over the last half, bound the rates to be expected.
//! - A pause, and an outage that is over, are left out of the fastest of them.
//! - The *tail* is the pieces that have to be tried again, as often as attempts were deferred so far, each time after a longer wait.
//! - The duration of work that has not begun is estimated by [`duration_of`] from the pace of other work.
//! - Work without progress has no forecast: see [`Forecast::Stalled`].

mod pace;
mod series;

use std::time::Duration;

use crate::Backoff;
pub use pace::duration_of;
pub use series::Series;
use series::Spans;

/// The rest of the work of one lane.
#[derive(Debug, Clone, Copy)]
pub struct Backlog<'a> {
    /// Ends and deferrals of the work so far.
    pub series: &'a Series,
    /// Pieces that may be tried, and are not or have no answer yet.
    pub due: u64,
    /// Pieces that were deferred and wait for their next attempt.
    pub retries: Option<Retries>,
    /// The time from which the work could begin.
    pub since: Duration,
}

/// Pieces of work that wait for another attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retries {
    /// Number of pieces.
    pub count: u64,
    /// Due time of the last of these attempts.
    pub last_due: Duration,
    /// The highest number that one of these attempts has.
    pub attempt: u16,
}

/// Forecast of the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Forecast {
    /// No work is left.
    Complete,
    /// Interval that holds the end four times out of five.
    Within(Interval),
    /// Too few pieces have ended so far for a forecast.
    TooEarly,
    /// No piece has ended since then, though some were tried or should have been: no end is in sight.
    Stalled {
        /// Time of the last end; the time at which the work could begin, if there was none.
        since: Duration,
    },
}

/// Bounds of an instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interval {
    /// The earliest end.
    pub earliest: Duration,
    /// The latest end.
    pub latest: Duration,
}

/// Rates that are to be expected, in pieces a second.
#[derive(Debug, Clone, Copy)]
struct Rates {
    slowest: f64,
    fastest: f64,
    /// Relative change of the rate in a second.
    trend: f64,
}

/// Ends before a rate is given.
const ENDS_MIN: u64 = 8;
/// Time that must have passed before a rate is given, seconds.
const SECONDS_MIN: f64 = 1.0;
/// Time without an end after which work is stalled: longer than an attempt may wait for its answer.
const QUIET_MAX: Duration = Duration::from_secs(40);
/// Ends that should have happened in [`QUIET_MAX`] for work to be stalled.
const ENDS_MISSED: f64 = 20.0;
/// Shortest gap of the past that is a pause or an outage, seconds, if [`ENDS_MISSED`] pieces should have ended in it.
const GAP_MIN: f64 = 2.0;
/// Deferrals without an end between them that are a stall as well, once they go on for [`FAILING_MAX`].
const DEFERRED_MAX: u64 = 16;
const FAILING_MAX: Duration = Duration::from_secs(5);
/// Bounds of a trend: it is taken to go on until the rate is this part of its present value, or this multiple of it.
const TREND_DOWN: f64 = 0.15;
const TREND_UP: f64 = 2.0;
/// Standard errors from which a change of the rate counts as a trend.
const TREND_ERRORS: f64 = 2.5;
/// Factor on a falling trend, for the latest end.
const TREND_PESSIMISM: f64 = 1.5;
/// Least relative error of a rate without a trend.
const RATE_ERROR: f64 = 0.05;
/// Standard errors off the mean beyond which lies less than a tenth of chance variation, on each side.
const NINE_OF_TEN: f64 = 1.3;
/// Factor of error of a rate that was seen of other work.
const RATE_ERROR_AHEAD: f64 = 1.25;
/// Mean number of pieces that may still be undone at the latest end.
const LEFT_OVER: f64 = 0.2;
/// Part of its longest wait that a piece waits which is deferred time after time: the mean is half of it.
const WAITED: f64 = 0.75;
/// Attempts after which waits are not added up any more.
const ROUNDS_MAX: u16 = 64;
/// Time from a due time to the answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// Forecast of the end of `backlog`, whose deferred pieces are tried again by `backoff`.
pub fn forecast(backlog: &Backlog<'_>, backoff: &Backoff, now: Duration) -> Forecast {
    let Backlog { series, due, retries, since } = *backlog;
    let retried = retries.map_or(0, |retries| retries.count);
    if due + retried == 0 {
        return Forecast::Complete;
    }
    if let Some(since) = backlog.stalled_since(now) {
        return Forecast::Stalled { since };
    }
    let deferred_share = series.deferred_share();
    let (mut earliest, mut latest) = (Duration::ZERO, Duration::ZERO);
    if due > 0 {
        let began = series.first_end().map_or(since, |first| first.max(since));
        let Some(rates) = Rates::of(&series.spans(began, now)) else { return Forecast::TooEarly };
        let (soonest, longest) = rates.time_for(due, deferred_share);
        earliest = now.saturating_add(soonest);
        latest = now.saturating_add(longest).saturating_add(tail(due, deferred_share, 1, backoff));
    }
    if let Some(Retries { count, last_due, attempt }) = retries {
        let last_due = last_due.max(now);
        earliest = earliest.max(last_due);
        let waits = tail(count, deferred_share, attempt, backoff);
        latest = latest.max(last_due.saturating_add(waits));
    }
    latest = latest.saturating_add(ANSWER_WITHIN);
    Forecast::Within(Interval { earliest, latest })
}

/// Longest waits of `count` pieces that are tried for the `attempt`th time, of which `deferred_share` is deferred each time.
fn tail(count: u64, deferred_share: f64, attempt: u16, backoff: &Backoff) -> Duration {
    let mut left = real(count) * deferred_share;
    let mut waits = Duration::ZERO;
    for round in 0..ROUNDS_MAX {
        if left <= LEFT_OVER {
            break;
        }
        waits =
            waits.saturating_add(backoff.ceiling(attempt.saturating_add(round)).mul_f64(WAITED));
        left *= deferred_share;
    }
    waits
}

#[expect(clippy::cast_precision_loss, reason = "an estimate needs no 16 digits")]
fn real(count: u64) -> f64 {
    count as f64
}

// === impl Backlog ===

impl Backlog<'_> {
    fn stalled_since(&self, now: Duration) -> Option<Duration> {
        let (last_end, failed) =
            self.series.last_end().unwrap_or((self.since, self.series.deferred()));
        // The last end is told as the end of its span, which may still be ahead.
        let last_end = last_end.min(now);
        let quiet = now.saturating_sub(last_end);
        if failed >= DEFERRED_MAX && quiet >= FAILING_MAX {
            return Some(last_end);
        }
        // Before the first one there is no pace from which to tell how many are missed.
        let began = self.series.first_end()?;
        let active = last_end.saturating_sub(began).as_secs_f64().max(SECONDS_MIN);
        let missed = quiet.as_secs_f64() * real(self.series.ended()) / active;
        let is_stalled = self.due > 0 && quiet >= QUIET_MAX && missed >= ENDS_MISSED;
        is_stalled.then_some(last_end)
    }
}

// === impl Forecast ===

impl Forecast {
    /// The outlook of several parts together: the end of the last one.
    pub fn of_all(parts: impl IntoIterator<Item = Self>) -> Self {
        parts.into_iter().fold(Self::Complete, Self::and)
    }

    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Stalled { since }, Self::Stalled { since: other }) => {
                Self::Stalled { since: since.min(other) }
            }
            (stalled @ Self::Stalled { .. }, _) | (_, stalled @ Self::Stalled { .. }) => stalled,
            // The last to end may be the part of which nothing is known.
            (Self::TooEarly, _) | (_, Self::TooEarly) => Self::TooEarly,
            (Self::Within(one), Self::Within(other)) => Self::Within(Interval {
                earliest: one.earliest.max(other.earliest),
                latest: one.latest.max(other.latest),
            }),
            (one, Self::Complete) => one,
            (Self::Complete, other) => other,
        }
    }
}

// === impl Series ===

impl Series {
    /// The share of answers that were deferrals.
    fn deferred_share(&self) -> f64 {
        let (ended, deferred) = (real(self.ended()), real(self.deferred()));
        if deferred > 0.0 { deferred / (ended + deferred) } else { 0.0 }
    }
}

// === impl Rates ===

impl Rates {
    /// `None` when there is too little to go by.
    fn of(spans: &Spans) -> Option<Self> {
        let whole = spans.counts.len();
        let ended = real(spans.counts.iter().map(|counts| counts.ended).sum());
        // Longer than it takes by chance until the next one ends.
        let gap = ENDS_MISSED * spans.seconds_of_last(whole) / ended.max(1.0);
        let active = spans.without_gaps(gap.max(GAP_MIN));
        let (mut slowest, mut fastest) = (f64::INFINITY, 0.0_f64);
        for (spans, parts) in
            [spans, &active].into_iter().flat_map(|spans| [1, 2, 4, 8].map(|parts| (spans, parts)))
        {
            let Some((rate, error)) = spans.rate_of_last(spans.counts.len().div_ceil(parts)) else {
                continue;
            };
            slowest = slowest.min(rate / (1.0 + error));
            fastest = fastest.max(rate * (1.0 + error));
        }
        let is_enough = fastest > 0.0 && spans.seconds_of_last(whole) >= SECONDS_MIN;
        is_enough.then(|| Self { slowest, fastest, trend: active.trend() })
    }

    /// Least and greatest time for `due` pieces, of which a share of `deferred_share` is deferred and comes back.
    fn time_for(self, due: u64, deferred_share: f64) -> (Duration, Duration) {
        // Rates are those of ends: of what is due, some end only with a later attempt, which is a part of the rate, too.
        let fewest = real(due) * (1.0 - deferred_share);
        let least = seconds_for(fewest, self.fastest, self.trend.max(0.0));
        let most = seconds_for(real(due), self.slowest, TREND_PESSIMISM * self.trend.min(0.0));
        let span = |seconds| Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
        (span(least), span(most))
    }
}

/// The time for `count` at `rate`, which changes by the part `trend` of itself in a second, for as long as that is taken to go on.
fn seconds_for(count: f64, rate: f64, trend: f64) -> f64 {
    if trend == 0.0 {
        return count / rate;
    }
    let bound = if trend < 0.0 { TREND_DOWN } else { TREND_UP };
    let changing = (bound - 1.0) / trend;
    let meanwhile = rate * changing * f64::midpoint(1.0, bound);
    if meanwhile < count {
        return changing + (count - meanwhile) / (rate * bound);
    }
    // rate * (t + trend * t^2 / 2) = count, for the first such t.
    (f64::sqrt(2.0 * trend * count / rate + 1.0) - 1.0) / trend
}

// === impl Spans ===

impl Spans {
    /// Ends a second in the last `spans`, or in more if these have too few, and its relative error.
    fn rate_of_last(&self, spans: usize) -> Option<(f64, f64)> {
        let mut ended = 0;
        for (number, counts) in (1..).zip(self.counts.iter().rev()) {
            ended += counts.ended;
            let seconds = self.seconds_of_last(number);
            // Two, so that one of them is whole: the last is cut off by the present.
            if number >= spans.max(2) && ended >= ENDS_MIN && seconds > 0.0 {
                let ended = real(ended);
                // Ends that come one by one, by chance, differ by the root of their number.
                return Some((ended / seconds, RATE_ERROR + NINE_OF_TEN / ended.sqrt()));
            }
        }
        None
    }

    /// Relative change of the rate in a second: the last quarter compared with the one before. 0 unless that is more than the
    /// spans differ anyway.
    fn trend(&self) -> f64 {
        // The last one is not whole.
        let counts = self.counts.split_last().map_or(&[][..], |(_, whole)| whole);
        let quarter = counts.len() / 4;
        let (rest, last) = counts.split_at(counts.len() - quarter);
        let (_, before) = rest.split_at(rest.len() - quarter.min(rest.len()));
        let (Some((last, last_error)), Some((before, before_error))) = (mean(last), mean(before))
        else {
            return 0.0;
        };
        let change = last - before;
        let is_trend = change.abs() > TREND_ERRORS * (last_error + before_error).sqrt();
        let seconds = real(quarter as u64) * self.width;
        if is_trend && last > 0.0 { change / (last * seconds) } else { 0.0 }
    }
}

/// The mean of ends in a span, and the square of its standard error; `None` of too few spans.
fn mean(counts: &[series::SpanCounts]) -> Option<(f64, f64)> {
    if counts.len() < 4 {
        return None;
    }
    let count = real(counts.len() as u64);
    let ended = || counts.iter().map(|counts| real(counts.ended));
    let mean = ended().sum::<f64>() / count;
    let squares = ended().map(|ended| (ended - mean).powi(2)).sum::<f64>();
    // By chance alone, ends differ by the root of their number.
    Some((mean, (squares / (count - 1.0)).max(mean) / count))
}

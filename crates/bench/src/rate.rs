//! How many in which second.

use std::time::Duration;

/// How many of `times_us` (ascending, microseconds) lie in each whole `window` from `from_us` on, before `until_us`.
pub fn per_window(times_us: &[u64], window: Duration, from_us: u64, until_us: u64) -> Vec<u64> {
    let window_us = u64::try_from(window.as_micros()).unwrap_or(u64::MAX).max(1);
    let windows = until_us.saturating_sub(from_us) / window_us;
    let before = |instant: u64| times_us.partition_point(|time| *time < instant) as u64;
    let start = |window: u64| from_us + window * window_us;
    (0..windows).map(|window| before(start(window + 1)) - before(start(window))).collect()
}

/// How many of `times_us` (ascending, microseconds) lie in each second from the first one on; the last is cut short.
pub fn per_second(times_us: &[u64]) -> Vec<u64> {
    let (Some(first), Some(last)) = (times_us.first(), times_us.last()) else { return Vec::new() };
    // A second more, so that the last event lies in a window that is whole.
    per_window(times_us, Duration::from_secs(1), *first, last + 1_000_000)
}

/// The middle one; the lower of two middle ones; 0 of none.
pub fn median(values: &[u64]) -> u64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len().saturating_sub(1) / 2).copied().unwrap_or(0)
}

/// Events per second between the moments at which `from` and `to` (shares, 0 to 1) of `times_us` had happened: without
/// what starts and ends a run.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rank of millions needs no more precision than a double has"
)]
pub fn between(times_us: &[u64], from: f64, to: f64) -> f64 {
    let last = times_us.len().saturating_sub(1) as f64;
    let rank = |share: f64| (last * share.clamp(0.0, 1.0)) as usize;
    let at = |rank: usize| times_us.get(rank).copied().unwrap_or(0);
    let span_us = at(rank(to)).saturating_sub(at(rank(from)));
    (rank(to) - rank(from).min(rank(to))) as f64 * 1e6 / span_us.max(1) as f64
}

/// The longest time between two events that follow each other.
pub fn longest_silence(times_us: &[u64]) -> Duration {
    let gaps = times_us.windows(2).filter_map(|pair| match pair {
        [earlier, later] => Some(later.saturating_sub(*earlier)),
        _ => None,
    });
    Duration::from_micros(gaps.max().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_counted_in_whole_windows() {
        let times = [10, 11, 19, 20, 35, 41];
        let window = Duration::from_micros(10);
        assert_eq!(per_window(&times, window, 10, 42), [3, 1, 1]);
        assert_eq!(per_window(&times, window, 42, 42), [] as [u64; 0]);
        assert_eq!(per_second(&[5, 6, 1_000_005, 2_500_000]), [2, 1, 1]);
        assert_eq!(per_second(&[]), [] as [u64; 0]);
    }

    #[test]
    fn a_rate_leaves_out_the_ends() {
        let mut times: Vec<u64> = (0..=1000).map(|i| 1_000_000 + i * 1_000).collect();
        assert!((between(&times, 0.1, 0.9) - 1000.0).abs() < 1.0);
        times.push(100_000_000);
        assert!((between(&times, 0.1, 0.9) - 1000.0).abs() < 1.0);
        assert!(between(&[], 0.1, 0.9).abs() < 1.0);
    }

    #[test]
    fn the_middle_and_the_longest_silence() {
        assert_eq!(median(&[9, 1, 5]), 5);
        assert_eq!(median(&[4, 1]), 1);
        assert_eq!(median(&[]), 0);
        assert_eq!(longest_silence(&[1, 5, 6, 30]), Duration::from_micros(24));
        assert_eq!(longest_silence(&[]), Duration::ZERO);
    }
}

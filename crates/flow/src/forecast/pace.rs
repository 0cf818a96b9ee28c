//! The time that work which has not begun would take, from the pace of other work there.

use std::time::Duration;

use super::{NINE_OF_TEN, RATE_ERROR_AHEAD, real};

/// Seconds that say enough.
const SECONDS_MIN: usize = 5;

/// Least and greatest time for `count` pieces: if they go first, and if `ahead` others go before them. `per_second` holds the
/// ends in each of several seconds in which there was always more to do; `None` when these are too few, or differ too much.
pub fn duration_of(count: u64, ahead: u64, per_second: &[u32]) -> Option<(Duration, Duration)> {
    if per_second.len() < SECONDS_MIN {
        return None;
    }
    let seconds = real(per_second.len() as u64);
    let mean = per_second.iter().map(|ended| f64::from(*ended)).sum::<f64>() / seconds;
    let squares = per_second.iter().map(|ended| (f64::from(*ended) - mean).powi(2)).sum::<f64>();
    let error = NINE_OF_TEN * (squares / (seconds - 1.0) / seconds).sqrt();
    let (slowest, fastest) = ((mean - error) / RATE_ERROR_AHEAD, (mean + error) * RATE_ERROR_AHEAD);
    let span = |count: u64, rate: f64| Duration::try_from_secs_f64(real(count) / rate).ok();
    (slowest > 0.0).then_some(())?;
    Some((span(count, fastest)?, span(count.saturating_add(ahead), slowest)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_beforehand_holds_four_times_out_of_five() {
        let mut random = fastrand::Rng::with_seed(5);
        let held = (0..1_000).filter(|_| {
            // A rate that varies by a half from second to second, and is another one by a fifth when the work begins.
            let rate = 50.0 + 1_000.0 * random.f64();
            let mut second = |rate: f64| rate * (0.5 + random.f64());
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small")]
            let seen: Vec<u32> = (0..16).map(|_| second(rate) as u32).collect();
            let (mut left, mut taken) = (20_000.0, 0.0);
            let later = rate * (0.8 + 0.4 * random.f64());
            while left > 0.0 {
                left -= later * (0.5 + random.f64());
                taken += 1.0;
            }
            let (least, most) = duration_of(20_000, 0, &seen).unwrap();
            (least.as_secs_f64()..=most.as_secs_f64() + 1.0).contains(&taken)
        });
        let held = held.count();
        assert!((800..1_000).contains(&held), "{held} of 1,000");
    }

    #[test]
    fn too_little_evidence_is_none() {
        assert_eq!(duration_of(100, 0, &[100; 4]), None);
        assert_eq!(duration_of(100, 0, &[0; 16]), None);
        let (least, most) = duration_of(1_000, 9_000, &[100; 16]).unwrap();
        assert!(least < Duration::from_secs(10) && most > Duration::from_secs(100));
    }
}

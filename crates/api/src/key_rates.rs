//! Rates of keys: how many requests a key may make, in this process.
//!
//! A bucket for each key holds the requests of ten seconds and is filled at the key's rate, so ten seconds' worth may come at once. It is told
//! by the fields of draft-ietf-httpapi-ratelimit-headers-10.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use axum::http::{HeaderMap, HeaderValue};
use axum::response::{IntoResponse, Response};
use notification::Name;
use tokio::time::Instant;

use crate::problem::Problem;
use crate::problem_code::ProblemCode;
use crate::tenant_share::{LEFT, POLICY};

/// The buckets of the keys that have a rate.
#[derive(Debug, Default)]
pub(crate) struct KeyRates {
    /// When each bucket is full, if nothing more is taken.
    full_at: Mutex<HashMap<Name, Instant>>,
}

/// The rate of a key, as a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct KeyBucket {
    /// The requests that it holds.
    holds: u32,
    /// The time in which it gets another one.
    every: Duration,
}

/// The rest of a key's rate at a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RateLeft {
    bucket: KeyBucket,
    requests: u32,
    /// Until the bucket is full.
    full_in: Duration,
}

/// A request beyond the rate of its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RateExceeded {
    pub(crate) left: RateLeft,
    /// Until there is room for one.
    pub(crate) retry_after: Duration,
}

/// The span whose requests a bucket holds.
const HELD: Duration = Duration::from_secs(10);
/// Buckets from which on the full ones are forgotten: more than there are stored keys.
const BUCKETS: usize = 16_384;
const MINUTE: Duration = Duration::from_mins(1);

// === impl KeyRates ===

impl KeyRates {
    /// Takes one request at `now` out of the bucket of the key `name`.
    pub(crate) fn take(
        &self,
        name: &Name,
        per_minute: NonZeroU32,
        now: Instant,
    ) -> Result<RateLeft, RateExceeded> {
        let bucket = KeyBucket::of(per_minute);
        let mut full_at = self.full_at.lock().unwrap_or_else(PoisonError::into_inner);
        let known = full_at.get(name).copied();
        if known.is_none() && full_at.len() >= BUCKETS {
            // Those of keys that are gone are full, sooner or later.
            full_at.retain(|_, at| *at > now);
        }
        // Never more than an empty bucket takes: a rate that was raised is in force at once.
        let full_in = known.map_or(Duration::ZERO, |at| at.saturating_duration_since(now));
        let full_in = full_in.min(bucket.fills_in());
        let (after, room) = (full_in + bucket.every, bucket.fills_in());
        if after > room {
            full_at.insert(name.clone(), now + full_in);
            let left = bucket.left(full_in);
            return Err(RateExceeded { left, retry_after: after.saturating_sub(room) });
        }
        full_at.insert(name.clone(), now + after);
        Ok(bucket.left(after))
    }
}

// === impl KeyBucket ===

impl KeyBucket {
    fn of(per_minute: NonZeroU32) -> Self {
        let held = u64::from(per_minute.get()) * HELD.as_secs() / MINUTE.as_secs();
        let holds = u32::try_from(held.max(1)).unwrap_or(u32::MAX);
        Self { holds, every: MINUTE / per_minute.get() }
    }

    fn fills_in(self) -> Duration {
        self.every * self.holds
    }

    /// The requests in a bucket that is full after `full_in`.
    fn left(self, full_in: Duration) -> RateLeft {
        let there =
            self.fills_in().saturating_sub(full_in).as_nanos() / self.every.as_nanos().max(1);
        let requests = u32::try_from(there).unwrap_or(u32::MAX);
        RateLeft { bucket: self, requests, full_in }
    }
}

// === impl RateLeft ===

impl RateLeft {
    /// Tells of it in the head of an answer.
    pub(crate) fn write(self, headers: &mut HeaderMap) {
        let Self { bucket, requests, full_in } = self;
        let policy = format!("\"key\";q={};w={}", bucket.holds, seconds(bucket.fills_in()));
        let left = format!("\"key\";r={requests};t={}", seconds(full_in));
        for (name, value) in [(POLICY, policy), (LEFT, left)] {
            if let Ok(value) = HeaderValue::try_from(value) {
                headers.append(name, value);
            }
        }
    }
}

/// Whole seconds, rounded up.
fn seconds(span: Duration) -> u64 {
    span.as_secs() + u64::from(span.subsec_nanos() > 0)
}

// === impl RateExceeded ===

impl IntoResponse for RateExceeded {
    fn into_response(self) -> Response {
        let Self { left, retry_after } = self;
        let detail = "the API key has made as many requests as it may: wait, send many notifications in one request, or ask for a higher rate";
        let problem = Problem::new(ProblemCode::RateExceeded, detail);
        // Whole seconds: a part of one is a whole one.
        let whole =
            Duration::from_secs(retry_after.as_secs() + u64::from(retry_after.subsec_nanos() > 0));
        let mut response = problem.retry_after(whole).into_response();
        left.write(response.headers_mut());
        response
    }
}

#[cfg(test)]
mod tests {
    use flow::Clock;

    use super::*;

    fn rate(per_minute: u32) -> NonZeroU32 {
        NonZeroU32::new(per_minute).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn ten_seconds_worth_may_come_at_once_and_a_minutes_worth_in_each_minute_after() {
        let (rates, name) = (KeyRates::default(), "shop".parse::<Name>().unwrap());
        let start = Clock::system().monotonic();
        let take = |at: Duration| rates.take(&name, rate(60), start + at);
        for left in (0..10).rev() {
            assert_eq!(take(Duration::ZERO).unwrap().requests, left);
        }
        let exceeded = take(Duration::ZERO).unwrap_err();
        assert_eq!((exceeded.left.requests, exceeded.retry_after), (0, Duration::from_secs(1)));
        // Refused ones cost nothing. Asked four times a second, for a minute:
        let taken = (1..=240).filter(|i| take(Duration::from_millis(250) * *i).is_ok()).count();
        assert_eq!(taken, 60);
    }

    #[test]
    fn buckets_of_keys_that_are_gone_are_forgotten() {
        let (rates, now) = (KeyRates::default(), Clock::system().monotonic());
        let name = |i: usize| format!("key-{i}").parse::<Name>().unwrap();
        let later = now + MINUTE;
        for i in 0..BUCKETS * 2 {
            let at = if i < BUCKETS { now } else { later };
            assert!(rates.take(&name(i), rate(60), at).is_ok());
        }
        assert_eq!(rates.full_at.lock().unwrap().len(), BUCKETS);
    }

    #[tokio::test(start_paused = true)]
    async fn each_key_has_a_bucket_and_goes_by_a_raised_rate() {
        let (rates, now) = (KeyRates::default(), Clock::system().monotonic());
        let (shop, news): (Name, Name) = ("shop".parse().unwrap(), "news".parse().unwrap());
        assert_eq!(rates.take(&shop, rate(1), now).unwrap().requests, 0);
        let exceeded = rates.take(&shop, rate(1), now).unwrap_err();
        assert_eq!(exceeded.retry_after, MINUTE);
        assert!(rates.take(&news, rate(1), now).is_ok());
        let soon = now + Duration::from_secs(1);
        assert_eq!(rates.take(&shop, rate(60), soon).unwrap_err().retry_after.as_secs(), 1);
        assert!(rates.take(&shop, rate(60), soon + Duration::from_secs(1)).is_ok());
    }

    #[test]
    fn the_head_says_what_is_left() {
        let mut headers = HeaderMap::new();
        KeyBucket::of(rate(600)).left(Duration::from_millis(1_250)).write(&mut headers);
        assert_eq!(headers["ratelimit-policy"], "\"key\";q=100;w=10");
        assert_eq!(headers["ratelimit"], "\"key\";r=87;t=2");
        for (per_minute, expect) in [(1, (1, 60)), (u32::MAX, (715_827_882, 9))] {
            let bucket = KeyBucket::of(rate(per_minute));
            assert_eq!((bucket.holds, bucket.fills_in().as_secs()), expect);
        }
    }
}

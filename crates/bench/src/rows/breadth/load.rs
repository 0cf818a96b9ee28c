//! Load: to healthy endpoints one notification a second each, to dead ones all at once.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Result, bail};
use flow::Clock;
use tokio::time::Instant;

use super::endpoints::LocalEndpoints;
use crate::caller::LoadCaller;

/// Connections that notifications to healthy endpoints are posted over, each one at a time.
const CALLERS: u64 = 16;
/// Connections that the backlog is posted over.
const FILLERS: usize = 4;
/// After a request was turned away because too much is coming in.
const PAUSE: Duration = Duration::from_millis(50);
const NANOS_A_SECOND: u64 = 1_000_000_000;
/// No key is configured, so any will do.
const KEY: &str = "none";

/// Notifications `first..first + count`, evenly spread over time and endpoints.
#[derive(Debug, Clone, Copy)]
pub(super) struct PostSchedule {
    pub(super) first: u64,
    pub(super) count: u64,
    pub(super) a_second: u64,
}

/// A notification that was accepted.
#[derive(Debug, Clone, Copy)]
pub(super) struct AcceptedPost {
    pub(super) number: u64,
    /// Just before its POST.
    pub(super) at: Instant,
}

/// The notifications that were posted.
#[derive(Debug, Default)]
pub(super) struct Posted {
    pub(super) sent: Vec<AcceptedPost>,
    /// Turned away, or without an answer.
    pub(super) refused: u64,
    /// How much later than scheduled a POST began, at most: the times are measured from the POST.
    pub(super) late: Duration,
}

/// Posts to healthy endpoints by `schedule`.
pub(super) fn post(
    address: &str,
    healthy: &LocalEndpoints,
    schedule: PostSchedule,
) -> Result<Posted> {
    let start = Clock::system().monotonic();
    std::thread::scope(|scope| {
        let call = |caller| scope.spawn(move || schedule.post(address, healthy, caller, start));
        let callers: Vec<_> = (0..CALLERS).map(call).collect();
        let mut all = Posted::default();
        for caller in callers {
            let Ok(posted) = caller.join() else { bail!("a caller panicked") };
            all.sent.extend(posted.sent);
            all.refused += posted.refused;
            all.late = all.late.max(posted.late);
        }
        Ok(all)
    })
}

/// Sends each of `dead` a broadcast with `waiting` recipients.
pub(super) fn fill(address: &str, dead: &LocalEndpoints, waiting: u64) -> Result<()> {
    let next = AtomicU64::new(0);
    let call = || {
        let mut caller = LoadCaller::connect(address)?;
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= dead.count() {
                return Ok(());
            }
            let quoted = |recipient| format!(r#""{}""#, dead.recipient(number, recipient));
            let recipients: Vec<String> = (0..waiting).map(quoted).collect();
            let (recipients, (channel, content)) = (recipients.join(","), dead.channel());
            let body = format!(
                r#"{{"channel":"{channel}","content":{content},"recipients":[{recipients}]}}"#
            );
            post_until_taken(&mut caller, &body)?;
        }
    };
    std::thread::scope(|scope| {
        let callers: Vec<_> = (0..FILLERS).map(|_| scope.spawn(call)).collect();
        let joined =
            callers.into_iter().map(|it| it.join().unwrap_or_else(|_| bail!("a caller panicked")));
        joined.collect::<Result<()>>()
    })
}

/// Repeats what was turned away because too much is coming in.
fn post_until_taken(caller: &mut LoadCaller, body: &str) -> Result<()> {
    loop {
        match caller.request(KEY, "POST /v1/broadcasts", body)? {
            (201, _) => return Ok(()),
            (429 | 503, _) => std::thread::sleep(PAUSE),
            (status, answer) => bail!("POST /v1/broadcasts: {status} {answer}"),
        }
    }
}

// === impl PostSchedule ===

impl PostSchedule {
    /// The notifications of `caller`, each at its time, or at once when that has passed.
    fn post(self, address: &str, healthy: &LocalEndpoints, caller: u64, start: Instant) -> Posted {
        let (clock, mut posted) = (Clock::system(), Posted::default());
        let mut connection = LoadCaller::connect(address).ok();
        for place in (0..self.count).filter(|place| place % CALLERS == caller) {
            let due = start + Duration::from_nanos(place * NANOS_A_SECOND / self.a_second);
            std::thread::sleep(due.saturating_duration_since(clock.monotonic()));
            let (number, to) = (self.first + place, healthy.url(place));
            let body = format!(r#"{{"channel":"hooks","to":"{to}/","content":{number}}}"#);
            let at = clock.monotonic();
            posted.late = posted.late.max(at.saturating_duration_since(due));
            let answer =
                connection.as_mut().map(|it| it.request(KEY, "POST /v1/notifications", &body));
            if let Some(Ok((201, _))) = answer {
                posted.sent.push(AcceptedPost { number, at });
                continue;
            }
            posted.refused += 1;
            if !matches!(answer, Some(Ok(_))) {
                connection = LoadCaller::connect(address).ok();
            }
        }
        posted
    }
}

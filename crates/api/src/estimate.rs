//! When a broadcast will be complete, as far as that can be told.

use std::time::Duration;

use flow::Backoff;
use flow::forecast::{Backlog, Forecast, Interval, Retries, forecast};
use notification::{Pauses, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use store::{BroadcastPart, BroadcastStatus};

use crate::view::show;

/// Estimate of the end of a broadcast. An interval holds the end four times out of five, if things go on as they went.
#[derive(Debug, JsonSchema, Serialize, Deserialize)]
pub struct EstimateAnswer {
    /// `complete`; `running`, with an interval; `early`, when too little of it has ended to tell; `stalled`, when it does not get on;
    /// `paused`; `scheduled`, when its time has not come.
    pub state: String,
    /// Since when it is stalled; when the pause began.
    #[schemars(with = "Option<notification::Timestamp>")]
    pub since: Option<String>,
    /// Its earliest end; of a scheduled one, its beginning.
    #[schemars(with = "Option<notification::Timestamp>")]
    pub earliest: Option<String>,
    /// Its latest end.
    #[schemars(with = "Option<notification::Timestamp>")]
    pub latest: Option<String>,
    /// How long it takes at least, from now; of a paused one, from when it is resumed.
    pub least_seconds: Option<f64>,
    /// How long it takes at most, likewise.
    pub most_seconds: Option<f64>,
}

/// How soon it is found that something has expired: a destination that does not answer is looked at once a minute.
const EXPIRED_WITHIN: Duration = Duration::from_mins(1);

// === impl EstimateAnswer ===

impl EstimateAnswer {
    /// Of `broadcast`, which is retried by `backoff`, as of `now`.
    pub(crate) fn of(
        broadcast: &BroadcastStatus,
        pauses: &Pauses,
        backoff: &Backoff,
        now: Timestamp,
    ) -> Self {
        if broadcast.account.pending == 0 {
            return Self::in_state("complete");
        }
        let BroadcastStatus { id, tenant, channel, .. } = broadcast;
        if let Some(since) = pauses.since_of_all(tenant, channel, Some(*id)) {
            // As it went until then: nothing has happened since.
            let went_on_until = since.max(broadcast.due_at).min(now);
            let taken = outlook(broadcast, backoff, went_on_until);
            let known = Self { since: Some(show(since)), ..Self::in_state("paused") };
            return match taken {
                Forecast::Within(interval) => known.taking(interval, went_on_until),
                Forecast::Complete | Forecast::TooEarly | Forecast::Stalled { .. } => known,
            };
        }
        if broadcast.due_at > now {
            return Self { earliest: Some(show(broadcast.due_at)), ..Self::in_state("scheduled") };
        }
        match outlook(broadcast, backoff, now) {
            Forecast::Complete => Self::in_state("complete"),
            Forecast::TooEarly => Self::in_state("early"),
            Forecast::Stalled { since } => {
                Self { since: Some(show(Timestamp::from_unix(since))), ..Self::in_state("stalled") }
            }
            Forecast::Within(interval) => {
                let interval = until_expiry(interval, broadcast.expires_at);
                Self {
                    earliest: Some(show(Timestamp::from_unix(interval.earliest))),
                    latest: Some(show(Timestamp::from_unix(interval.latest))),
                    ..Self::in_state("running").taking(interval, now)
                }
            }
        }
    }

    fn in_state(state: &str) -> Self {
        let state = state.to_owned();
        let (since, earliest, latest) = (None, None, None);
        Self { state, since, earliest, latest, least_seconds: None, most_seconds: None }
    }

    /// It ends within `interval`, counted from `from`.
    fn taking(self, interval: Interval, from: Timestamp) -> Self {
        // Bounded by an expiry, the interval may lie before `from`.
        let seconds = |at: Duration| Some(at.saturating_sub(from.to_unix()).as_secs_f64());
        let (least_seconds, most_seconds) = (seconds(interval.earliest), seconds(interval.latest));
        Self { least_seconds, most_seconds, ..self }
    }
}

/// Bounds an interval by the expiry: notifications that are left then end soon after it.
fn until_expiry(interval: Interval, expires_at: Option<Timestamp>) -> Interval {
    let Some(expires_at) = expires_at.map(Timestamp::to_unix) else { return interval };
    let Interval { earliest, latest } = interval;
    Interval { earliest: earliest.min(expires_at), latest: latest.min(expires_at + EXPIRED_WITHIN) }
}

/// The end of the last part. Those of which too little has ended by themselves, such as the many domains of a mailing, are looked at
/// together; if that is too little as well, so is all of it.
fn outlook(broadcast: &BroadcastStatus, backoff: &Backoff, now: Timestamp) -> Forecast {
    // Nothing of it could end before either.
    let since = broadcast.accepted_at.max(broadcast.due_at).to_unix();
    let outlook_of = |part: &BroadcastPart| outlook_of(part, since, backoff, now.to_unix());
    let (mut known, mut small) = (Vec::new(), BroadcastPart::default());
    for part in &broadcast.parts {
        let outlook = outlook_of(part);
        if outlook == Forecast::TooEarly {
            small.add(part);
        } else {
            known.push(outlook);
        }
    }
    let mut of_small = outlook_of(&small);
    if of_small == Forecast::TooEarly {
        let mut whole = BroadcastPart::default();
        broadcast.parts.iter().for_each(|part| whole.add(part));
        of_small = outlook_of(&whole);
    }
    Forecast::of_all(known.into_iter().chain([of_small]))
}

fn outlook_of(part: &BroadcastPart, since: Duration, backoff: &Backoff, now: Duration) -> Forecast {
    let BroadcastPart { pending, retries, retry_attempt: attempt, series } = part;
    // A retry whose time has come waits with all the others.
    let later = retries.deferred_after(now);
    let retries = later.map(|(count, last_due)| Retries { count, last_due, attempt: *attempt });
    let due = pending.saturating_sub(retries.map_or(0, |retries| retries.count));
    forecast(&Backlog { series, due, retries, since }, backoff, now)
}

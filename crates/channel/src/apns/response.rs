//! What APNs' answers mean: one table.

use std::borrow::Cow;
use std::time::Duration;

use http::HeaderName;
use net::exchange::Reply;
use net::words;
use notification::{Answer, Timestamp};
use serde::Deserialize;

use crate::Attempt;

static APNS_UNIQUE_ID: HeaderName = HeaderName::from_static("apns-unique-id");

/// How long to wait after which kind of refusal to act.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Delays {
    /// After 5xx.
    pub(super) server_error: Duration,
    /// After 429.
    pub(super) throttle: Duration,
}

/// What else an answer asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Advice {
    /// Nothing.
    CarryOn,
    /// The provider token is old.
    RenewToken,
    /// Nothing good will come over this connection any more.
    LeaveConnection,
    /// Somebody must look at the key, its identifiers or its rights.
    Complain,
    /// No device has been accepted yet: the channel may be set up for the wrong environment or topic.
    Doubt,
}

/// What an acceptance since the start has shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Known {
    /// That the devices are of this environment.
    pub(super) environment: bool,
    /// That they belong to the topic of this notification.
    pub(super) topic: bool,
}

/// What a row of the table means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Meaning {
    Accepted,
    /// This notification will never be accepted.
    Refused,
    /// This device token will never be accepted again.
    Gone,
    /// The same, unless all of them are of the other environment.
    NotOfEnvironment,
    /// The same, unless the topic is wrong.
    NotOfTopic,
    /// Try again soon.
    Again,
    /// The provider token expired: try again with the next.
    TokenExpired,
    /// The credential is wrong: try again once somebody could have mended it.
    Credential,
    /// The connection has used up its patience: try again on another.
    ConnectionSpent,
    Throttled,
    ServerError,
}

#[derive(Debug, Deserialize)]
struct Body<'a> {
    #[serde(borrow)]
    reason: Cow<'a, str>,
    /// Since when the device is gone, in milliseconds.
    #[serde(default)]
    timestamp: serde_json::Value,
}

/// A wrong key fails every notification of a campaign alike. Refusing them would burn the campaign for a
/// mistake in the configuration, so they wait long enough for somebody to read the log and mend it.
const CREDENTIAL_DELAY: Duration = Duration::from_mins(15);

/// Every reason that Apple documents, under the status it comes with.
///
/// `BadDeviceToken` says that a token is malformed or belongs to the other environment, and `DeviceTokenNotForTopic` that
/// it belongs to another app. Either can be the sender's own mistake, which would retire every token that there is: so
/// they retire one only when an acceptance has shown, since the start, that environment and topic are right. `Forbidden`
/// is on Apple's list of what must not be tried again.
pub(super) const REASONS: &[(u16, &str, Meaning)] = &[
    (400, "BadCollapseId", Meaning::Refused),
    (400, "BadDeviceToken", Meaning::NotOfEnvironment),
    (400, "BadExpirationDate", Meaning::Refused),
    (400, "BadMessageId", Meaning::Refused),
    (400, "BadPriority", Meaning::Refused),
    (400, "BadTopic", Meaning::Refused),
    (400, "DeviceTokenNotForTopic", Meaning::NotOfTopic),
    (400, "DuplicateHeaders", Meaning::Refused),
    (400, "IdleTimeout", Meaning::Again),
    (400, "InvalidPushType", Meaning::Refused),
    (400, "MissingDeviceToken", Meaning::Refused),
    (400, "MissingTopic", Meaning::Refused),
    (400, "PayloadEmpty", Meaning::Refused),
    (400, "TopicDisallowed", Meaning::Refused),
    (403, "BadCertificate", Meaning::Credential),
    (403, "BadCertificateEnvironment", Meaning::Credential),
    (403, "ExpiredProviderToken", Meaning::TokenExpired),
    (403, "Forbidden", Meaning::Refused),
    (403, "InvalidProviderToken", Meaning::Credential),
    (403, "MissingProviderToken", Meaning::Credential),
    (404, "BadPath", Meaning::Refused),
    (405, "MethodNotAllowed", Meaning::Refused),
    (410, "ExpiredToken", Meaning::Gone),
    (410, "Unregistered", Meaning::Gone),
    (413, "PayloadTooLarge", Meaning::Refused),
    (429, "TooManyProviderTokenUpdates", Meaning::ConnectionSpent),
    (429, "TooManyRequests", Meaning::Throttled),
    (500, "InternalServerError", Meaning::ServerError),
    (503, "ServiceUnavailable", Meaning::ServerError),
    (503, "Shutdown", Meaning::ServerError),
];

/// What an answer means. Its body may be cut short, or anything at all.
pub(super) fn interpret(reply: &Reply, delays: Delays, known: Known) -> (Attempt, Advice) {
    let status = reply.status;
    let body: Option<Body<'_>> = serde_json::from_slice(&reply.body).ok();
    let (reason, timestamp) = body.map_or((Cow::Borrowed(""), None), |body| {
        (body.reason, body.timestamp.as_i64().filter(|millis| *millis > 0))
    });
    let row = REASONS.iter().find(|row| row.0 == status && row.1 == reason);
    let (meaning, detail) = match row {
        Some(&(_, reason, meaning)) => (meaning, Cow::Borrowed(reason)),
        None => (by_status(status), Cow::Owned(words::plain(&reason))),
    };
    let deferred = |after, detail| Answer::deferred(status, after, detail);
    let refused = |gone, detail| {
        let advice = if gone { Advice::CarryOn } else { Advice::Doubt };
        (Attempt::answered(Answer::refused(status, gone, detail)), advice)
    };
    match meaning {
        Meaning::Accepted => (Attempt::answered(accepted(reply)), Advice::CarryOn),
        Meaning::Refused => {
            (Attempt::answered(Answer::refused(status, false, detail)), Advice::CarryOn)
        }
        Meaning::NotOfEnvironment => refused(known.environment, detail),
        Meaning::NotOfTopic => refused(known.environment && known.topic, detail),
        Meaning::Gone => {
            let gone_since = timestamp.map(Timestamp::from_millis);
            let gone = Answer { gone_since, ..Answer::refused(status, true, detail) };
            (Attempt::answered(gone), Advice::CarryOn)
        }
        Meaning::Again => (Attempt::answered(deferred(None, detail)), Advice::CarryOn),
        Meaning::TokenExpired => (Attempt::answered(deferred(None, detail)), Advice::RenewToken),
        Meaning::Credential => {
            (Attempt::answered(deferred(Some(CREDENTIAL_DELAY), detail)), Advice::Complain)
        }
        Meaning::ConnectionSpent => {
            (Attempt::pushed_back(deferred(None, detail)), Advice::LeaveConnection)
        }
        Meaning::Throttled => {
            (Attempt::pushed_back(deferred(Some(delays.throttle), detail)), Advice::CarryOn)
        }
        Meaning::ServerError => {
            (Attempt::pushed_back(deferred(Some(delays.server_error), detail)), Advice::CarryOn)
        }
    }
}

/// The sandbox gives what it takes an identifier, under which Apple's console shows what became of it.
fn accepted(reply: &Reply) -> Answer {
    let accepted = Answer::accepted(reply.status);
    match reply.headers.get(&APNS_UNIQUE_ID).and_then(|id| id.to_str().ok()) {
        Some(id) => {
            Answer { detail: words::plain(&format!("apns-unique-id {id}")).into(), ..accepted }
        }
        None => accepted,
    }
}

/// What a status means whose reason is unknown, or has none.
fn by_status(status: u16) -> Meaning {
    match status {
        200..=299 => Meaning::Accepted,
        410 => Meaning::Gone,
        401 | 403 => Meaning::Credential,
        408 | 425 => Meaning::Again,
        429 => Meaning::Throttled,
        400..=499 => Meaning::Refused,
        // A redirect or worse is not APNs speaking: whatever stands between may go away.
        _ => Meaning::ServerError,
    }
}

#[cfg(test)]
#[path = "response_tests.rs"]
mod tests;

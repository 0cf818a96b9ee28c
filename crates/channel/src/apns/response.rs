//! The meaning of APNs' answers: one table.

use std::borrow::Cow;
use std::time::Duration;

use http::HeaderName;
use net::exchange::Reply;
use net::words;
use notification::{Answer, Timestamp};
use serde::Deserialize;

use crate::Attempt;
use crate::answers::SETTINGS_DELAY;

/// The header fields of answers that are read.
pub(super) static READ_FIELDS: [HeaderName; 1] = [HeaderName::from_static("apns-unique-id")];

/// How long to wait after which kind of refusal to act.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ApnsDelays {
    /// After 5xx.
    pub(super) server_error: Duration,
    /// After 429.
    pub(super) throttle: Duration,
}

/// The action that an answer asks for beside its verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Advice {
    /// Nothing.
    CarryOn,
    /// The provider token is old, so the notification was not looked at.
    RenewToken,
    /// Nothing good will come over this connection any more.
    LeaveConnection,
    /// An operator must check the key, its identifiers or its rights.
    Alert,
    /// No device has been accepted yet: the channel may be set up for the wrong environment or topic.
    Doubt,
}

/// Facts that acceptances since the start have confirmed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Confirmed {
    /// That the devices are of this environment.
    pub(super) environment: bool,
    /// That they belong to the topic of this notification.
    pub(super) topic: bool,
}

/// The meaning of a row of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ApnsMeaning {
    Accepted,
    /// This notification will never be accepted.
    Refused,
    /// This device token will never be accepted again.
    Unregistered,
    /// This device token will never be accepted again, unless all of them are of the other environment.
    NotOfEnvironment,
    /// This device token will never be accepted again, unless the topic is wrong.
    NotOfTopic,
    /// Try again soon.
    Again,
    /// The provider token expired: try again with the next.
    TokenExpired,
    /// The credential is wrong: try again when an operator has had time to correct it.
    Credential,
    /// APNs takes no more over this connection: try again on another.
    ConnectionSpent,
    /// Too much is sent to this device.
    DeviceRate,
    /// APNs wants less, without saying of what.
    Throttled,
    ServerError,
}

#[derive(Debug, Deserialize)]
struct ApnsErrorBody<'a> {
    #[serde(borrow)]
    reason: Cow<'a, str>,
    /// Since when the token is not registered, in milliseconds.
    #[serde(default)]
    timestamp: serde_json::Value,
}

/// Every reason that Apple documents, under the status it comes with.
///
/// `BadDeviceToken` says that a token is malformed or belongs to the other environment, and `DeviceTokenNotForTopic` that
/// it belongs to another app. Either can be the sender's own mistake, which would retire every token that there is: so
/// they retire one only when an acceptance has shown, since the start, that environment and topic are right. `Forbidden`
/// is on Apple's list of what must not be tried again.
pub(super) const REASONS: &[(u16, &str, ApnsMeaning)] = &[
    (400, "BadCollapseId", ApnsMeaning::Refused),
    (400, "BadDeviceToken", ApnsMeaning::NotOfEnvironment),
    (400, "BadExpirationDate", ApnsMeaning::Refused),
    (400, "BadMessageId", ApnsMeaning::Refused),
    (400, "BadPriority", ApnsMeaning::Refused),
    (400, "BadTopic", ApnsMeaning::Refused),
    (400, "DeviceTokenNotForTopic", ApnsMeaning::NotOfTopic),
    (400, "DuplicateHeaders", ApnsMeaning::Refused),
    (400, "IdleTimeout", ApnsMeaning::Again),
    (400, "InvalidPushType", ApnsMeaning::Refused),
    (400, "MissingDeviceToken", ApnsMeaning::Refused),
    (400, "MissingTopic", ApnsMeaning::Refused),
    (400, "PayloadEmpty", ApnsMeaning::Refused),
    (400, "TopicDisallowed", ApnsMeaning::Refused),
    (403, "BadCertificate", ApnsMeaning::Credential),
    (403, "BadCertificateEnvironment", ApnsMeaning::Credential),
    (403, "ExpiredProviderToken", ApnsMeaning::TokenExpired),
    (403, "Forbidden", ApnsMeaning::Refused),
    (403, "InvalidProviderToken", ApnsMeaning::Credential),
    (403, "MissingProviderToken", ApnsMeaning::Credential),
    (404, "BadPath", ApnsMeaning::Refused),
    (405, "MethodNotAllowed", ApnsMeaning::Refused),
    (410, "ExpiredToken", ApnsMeaning::Unregistered),
    (410, "Unregistered", ApnsMeaning::Unregistered),
    (413, "PayloadTooLarge", ApnsMeaning::Refused),
    (429, "TooManyProviderTokenUpdates", ApnsMeaning::ConnectionSpent),
    (429, "TooManyRequests", ApnsMeaning::DeviceRate),
    (500, "InternalServerError", ApnsMeaning::ServerError),
    (503, "ServiceUnavailable", ApnsMeaning::ServerError),
    (503, "Shutdown", ApnsMeaning::ServerError),
];

/// The meaning of an answer. Its body may be cut short, or anything at all.
pub(super) fn interpret(
    reply: &Reply,
    delays: ApnsDelays,
    confirmed: Confirmed,
) -> (Attempt, Advice) {
    let status = reply.status;
    // An acceptance has none, and its failure to be JSON would be allocated for each.
    let body: Option<ApnsErrorBody<'_>> = match &*reply.body {
        [] => None,
        body => serde_json::from_slice(body).ok(),
    };
    let (reason, timestamp) = body.map_or((Cow::Borrowed(""), None), |body| {
        // Read by itself: a timestamp that is no number must not cost the reason.
        (body.reason, body.timestamp.as_i64().filter(|millis| *millis > 0))
    });
    // By both: a reason under another status than Apple's is nothing that Apple documents, and its status decides.
    let row = REASONS.iter().find(|row| row.0 == status && row.1 == reason);
    let (meaning, detail) = match row {
        Some(&(_, reason, meaning)) => (meaning, Cow::Borrowed(reason)),
        None => (by_status(status), Cow::Owned(words::plain(&reason))),
    };
    let deferred = |after, detail| Answer::deferred(status, after, detail);
    let refused = |is_unregistered, detail| Answer::refused(status, is_unregistered, detail);
    let answered = |answer| (Attempt::answered(answer), Advice::CarryOn);
    // Without an acceptance it is in doubt who is wrong.
    let unless_confirmed = |is_confirmed, detail| {
        let advice = if is_confirmed { Advice::CarryOn } else { Advice::Doubt };
        (Attempt::answered(refused(is_confirmed, detail)), advice)
    };
    match meaning {
        ApnsMeaning::Accepted => answered(accepted(reply)),
        ApnsMeaning::Refused => answered(refused(false, detail)),
        ApnsMeaning::NotOfEnvironment => unless_confirmed(confirmed.environment, detail),
        ApnsMeaning::NotOfTopic => {
            unless_confirmed(confirmed.environment && confirmed.topic, detail)
        }
        ApnsMeaning::Unregistered => {
            let gone_since = timestamp.map(Timestamp::from_millis);
            answered(Answer { gone_since, ..refused(true, detail) })
        }
        ApnsMeaning::Again => answered(deferred(None, detail)),
        ApnsMeaning::TokenExpired => {
            (Attempt::answered(deferred(None, detail)), Advice::RenewToken)
        }
        ApnsMeaning::Credential => {
            (Attempt::answered(deferred(Some(SETTINGS_DELAY), detail)), Advice::Alert)
        }
        ApnsMeaning::ConnectionSpent => {
            // No wait is asked for: it is the connection that takes no more, and another one may.
            (Attempt::pushed_back(deferred(None, detail)), Advice::LeaveConnection)
        }
        // Of the load that APNs as a whole can take, it says nothing.
        ApnsMeaning::DeviceRate => answered(deferred(Some(delays.throttle), detail)),
        ApnsMeaning::Throttled => {
            (Attempt::pushed_back(deferred(Some(delays.throttle), detail)), Advice::CarryOn)
        }
        ApnsMeaning::ServerError => {
            (Attempt::pushed_back(deferred(Some(delays.server_error), detail)), Advice::CarryOn)
        }
    }
}

/// The sandbox gives what it takes an identifier, under which Apple's console shows what became of it.
fn accepted(reply: &Reply) -> Answer {
    let accepted = Answer::accepted(reply.status);
    let [unique_id] = &READ_FIELDS;
    match reply.headers.get(unique_id).and_then(|id| id.to_str().ok()) {
        Some(id) => {
            Answer { detail: words::plain(&format!("apns-unique-id {id}")).into(), ..accepted }
        }
        None => accepted,
    }
}

/// The meaning of a status whose reason is unknown, or has none.
fn by_status(status: u16) -> ApnsMeaning {
    match status {
        200..=299 => ApnsMeaning::Accepted,
        410 => ApnsMeaning::Unregistered,
        401 | 403 => ApnsMeaning::Credential,
        408 | 425 => ApnsMeaning::Again,
        429 => ApnsMeaning::Throttled,
        400..=499 => ApnsMeaning::Refused,
        // A redirect or worse is not APNs speaking: whatever stands between may go away.
        _ => ApnsMeaning::ServerError,
    }
}

#[cfg(test)]
#[path = "response_tests.rs"]
mod tests;

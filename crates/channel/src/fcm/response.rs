//! The meaning of FCM's answers.
//!
//! FCM's own code (`details[]` of the type `FcmError`) says more than the status, and the other details say what it is
//! about: `BadRequest` which field is wrong, `QuotaFailure` whose rate was too high, `ApnsError` what Apple said.

use std::time::Duration;

use http::HeaderName;
use http::header::RETRY_AFTER;
use net::exchange::Reply;
use net::words;
use notification::{Answer, Timestamp};
use serde::Deserialize;
use serde_json::Value;

use crate::Attempt;
use crate::answers::{RETRY_AFTER_MAX, SETTINGS_DELAY, retry_after};

/// The header fields of answers that are read.
pub(super) static READ_FIELDS: [HeaderName; 1] = [RETRY_AFTER];

/// The action that an answer asks for beside its verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Advice {
    /// Nothing.
    CarryOn,
    /// The access token is not accepted, so the message was not looked at.
    RenewToken,
    /// The project has used up its quota: nothing else will be accepted for so long.
    Pause(Duration),
    /// An operator must check the account, its rights, or the project.
    Alert,
}

/// The meaning of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FcmMeaning {
    /// This message will never be accepted.
    Refused,
    /// This registration token will never be accepted again.
    Unregistered,
    /// The account is not known: with another token perhaps.
    TokenRejected,
    /// The account, its rights or the project's set-up is wrong: try again when an operator has had time to correct it.
    Credential,
    /// The project sends too much.
    ProjectRate,
    /// Too much is sent to this topic.
    TopicRate,
    /// Too much is sent to this device.
    DeviceRate,
    /// FCM has too much to do, or failed.
    ServerError,
}

/// The parts of an error's body.
#[derive(Debug, Default)]
struct ErrorDetails {
    /// FCM's own code; empty when there is none.
    code: String,
    message: String,
    /// The fields that are wrong, if that is what is wrong.
    fields: Option<Vec<String>>,
    /// Apple's status, if Apple was asked.
    apns_status: Option<u64>,
    /// Subjects and descriptions of the rates that were too high, in lower case.
    quota: String,
}

#[derive(Debug, Deserialize)]
struct FcmErrorBody {
    error: FcmError,
}

#[derive(Debug, Deserialize)]
struct FcmError {
    #[serde(default)]
    status: String,
    #[serde(default)]
    message: String,
    #[serde(default)]
    details: Vec<Value>,
}

/// The least that Google asks to wait after a project's or a topic's rate was too high; also its own default.
const RATE_DELAY_MIN: Duration = Duration::from_mins(1);
/// The least that Google asks to wait after anything else; doubled with each attempt when FCM does not say how long.
const DELAY_MIN: Duration = Duration::from_secs(10);
/// How many attempts to a device double the wait.
const DOUBLINGS_MAX: u16 = 8;

/// The meaning of the answer to attempt number `attempt`, that came at `now`. Its body may be cut short, or anything at all.
pub(super) fn interpret(reply: &Reply, attempt: u16, now: Timestamp) -> (Attempt, Advice) {
    let status = reply.status;
    if (200..300).contains(&status) {
        return (Attempt::answered(Answer::accepted(status)), Advice::CarryOn);
    }
    let said = ErrorDetails::read(&reply.body);
    let detail = said.words();
    let asked = retry_after(&reply.headers, now);
    let wait = |default: Duration, min| asked.unwrap_or(default).clamp(min, RETRY_AFTER_MAX);
    // `base` after the first attempt, twice that after the second, and so on, unless FCM says how long. Bounded before the shift, which
    // would overflow for late attempts.
    let doubled = |base: Duration| {
        wait(base.saturating_mul(1 << attempt.saturating_sub(1).min(DOUBLINGS_MAX)), base)
    };
    let deferred = |after| Answer::deferred(status, Some(after), detail.clone());
    let answered = |answer| (Attempt::answered(answer), Advice::CarryOn);
    match said.meaning(status) {
        FcmMeaning::Refused => answered(Answer::refused(status, false, detail)),
        FcmMeaning::Unregistered => answered(Answer::refused(status, true, detail)),
        // This verdict counts only where no other token is tried, or that one is
        // refused as well: then it is the account.
        FcmMeaning::TokenRejected => {
            (Attempt::answered(deferred(SETTINGS_DELAY)), Advice::RenewToken)
        }
        FcmMeaning::Credential => (Attempt::answered(deferred(SETTINGS_DELAY)), Advice::Alert),
        FcmMeaning::ProjectRate => {
            let wait = wait(RATE_DELAY_MIN, RATE_DELAY_MIN);
            (Attempt::pushed_back(deferred(wait)), Advice::Pause(wait))
        }
        // Of the load that FCM as a whole can take, the next two say nothing.
        FcmMeaning::TopicRate => answered(deferred(doubled(RATE_DELAY_MIN))),
        FcmMeaning::DeviceRate => answered(deferred(doubled(DELAY_MIN))),
        FcmMeaning::ServerError => {
            (Attempt::pushed_back(deferred(doubled(DELAY_MIN))), Advice::CarryOn)
        }
    }
}

// === impl ErrorDetails ===

impl ErrorDetails {
    fn read(body: &[u8]) -> Self {
        let Ok(FcmErrorBody { error }) = serde_json::from_slice(body) else {
            return Self::default();
        };
        let mut said = Self { message: error.message, ..Self::default() };
        for detail in &error.details {
            let text = |name: &str| detail.get(name).and_then(Value::as_str).unwrap_or_default();
            let kind = text("@type");
            match kind.strip_prefix("type.googleapis.com/").unwrap_or(kind) {
                "google.firebase.fcm.v1.FcmError" => said.code = text("errorCode").to_owned(),
                "google.firebase.fcm.v1.ApnsError" => {
                    said.apns_status = detail.get("statusCode").and_then(Value::as_u64);
                }
                "google.rpc.BadRequest" => {
                    said.fields.get_or_insert_default().extend(texts(
                        detail,
                        "fieldViolations",
                        "field",
                    ));
                }
                "google.rpc.QuotaFailure" => {
                    for name in ["subject", "description"] {
                        for text in texts(detail, "violations", name) {
                            said.quota.push_str(&text.to_lowercase());
                            said.quota.push('\n');
                        }
                    }
                }
                _ => {}
            }
        }
        if said.code.is_empty() {
            said.code = error.status;
        }
        said
    }

    fn meaning(&self, status: u16) -> FcmMeaning {
        match (status, self.code.as_str()) {
            (400, "INVALID_ARGUMENT") if self.is_about_the_token() => FcmMeaning::Unregistered,
            (404, "UNREGISTERED") => FcmMeaning::Unregistered,
            // The registration token is good, but for another project: the device is not gone.
            (403, "SENDER_ID_MISMATCH") => FcmMeaning::Refused,
            // A 404 without `UNREGISTERED` is about the address, in which only the project can be wrong.
            (401, "THIRD_PARTY_AUTH_ERROR") | (403 | 404, _) => FcmMeaning::Credential,
            (401, _) => FcmMeaning::TokenRejected,
            (429, _) if self.quota.contains("device") => FcmMeaning::DeviceRate,
            (429, _) if self.quota.contains("topic") => FcmMeaning::TopicRate,
            // Not every answer says whose rate it was. Then it may be the project's, which concerns all messages.
            (429, _) => FcmMeaning::ProjectRate,
            (408 | 409 | 425, _) => FcmMeaning::ServerError,
            (400..=499, _) => FcmMeaning::Refused,
            // A redirect or worse is not FCM speaking: whatever stands between may go away.
            _ => FcmMeaning::ServerError,
        }
    }

    /// A 400 has two meanings. With `BadRequest` a field has a wrong value, and the token may be one. Without it FCM has
    /// looked at the token, or found the message too long for it, which only its words tell apart.
    fn is_about_the_token(&self) -> bool {
        match &self.fields {
            // Apple's word counts before FCM's: of its answers only 410 says that the device is gone.
            _ if self.apns_status.is_some() => self.apns_status == Some(410),
            // With another field beside it, that one may be what made the token look wrong.
            Some(fields) => {
                !fields.is_empty() && fields.iter().all(|field| field == "message.token")
            }
            None => self.message.to_lowercase().contains("registration token"),
        }
    }

    /// The words that the log keeps.
    fn words(&self) -> String {
        let fields = self.fields.iter().flatten().cloned().collect::<Vec<_>>().join(", ");
        let parts = [self.code.as_str(), &fields, &self.message];
        let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        words::plain(&parts.join(": "))
    }
}

/// The texts called `name` of the items of the list `list`, whatever else stands there.
fn texts(detail: &Value, list: &str, name: &str) -> Vec<String> {
    let items = detail.get(list).and_then(Value::as_array);
    let texts = items.into_iter().flatten().filter_map(|item| item.get(name)?.as_str());
    texts.map(str::to_owned).collect()
}

#[cfg(test)]
#[path = "response_tests.rs"]
mod tests;

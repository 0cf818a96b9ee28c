//! The checks of FCM's HTTP v1 API, and its answers; and the token endpoint beside it.
//!
//! Every project exists. A message needs an access token of the token endpoint ([`token`]), which gives them to the one
//! account that the simulator makes.

mod account;
mod token;

use std::borrow::Cow;
use std::cell::Cell;
use std::num::NonZeroU64;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http::{Method, StatusCode};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::Error;
use crate::exchange::{Finding, Request, SimAnswer, SimContent, Trouble};
use crate::options::SimulatorOptions;
use token::{Bearer, FcmTokens};

pub(crate) use account::account_path;

const PATH_PREFIX: &str = "/v1/projects/";
const PATH_SUFFIX: &str = "/messages:send";
const TOKEN_PATH: &str = "/token";
/// The name in the books of a request for an access token.
const TOKEN_ID: &str = "access-token";
const US_PER_MINUTE: u64 = 60_000_000;

/// The state that the serving threads share.
#[derive(Debug)]
pub(crate) struct FcmState {
    tokens: FcmTokens,
    /// Messages that a project may send in a minute, if that is bounded.
    quota: Option<u64>,
    minute: Mutex<Minute>,
}

/// The minute that is being counted.
#[derive(Debug, Default)]
struct Minute {
    began_us: u64,
    messages: u64,
}

/// The FCM side of a provider.
#[derive(Debug)]
pub(crate) struct Fcm {
    shared: Arc<FcmState>,
    bearer: Bearer,
    accepted: Cell<u64>,
}

/// An error of Google's APIs.
struct FcmProblem {
    status: StatusCode,
    name: &'static str,
    message: &'static str,
    details: Value,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Send<'a> {
    #[serde(default, rename = "validate_only")]
    _validate_only: bool,
    #[serde(borrow)]
    message: FcmMessage<'a>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FcmMessage<'a> {
    token: Option<&'a str>,
    topic: Option<&'a str>,
    condition: Option<&'a str>,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
    #[serde(borrow, rename = "notification")]
    _notification: Option<&'a RawValue>,
    #[serde(borrow, rename = "android")]
    _android: Option<&'a RawValue>,
    #[serde(borrow, rename = "webpush")]
    _webpush: Option<&'a RawValue>,
    #[serde(borrow, rename = "apns")]
    _apns: Option<&'a RawValue>,
    #[serde(borrow, rename = "fcm_options")]
    _fcm_options: Option<&'a RawValue>,
}

// === impl FcmState ===

impl FcmState {
    /// Makes or reads the account whose assertions are accepted.
    pub(crate) fn new(options: &SimulatorOptions) -> Result<Self, Error> {
        let key = account::public_key(&options.tls_dir)?;
        Ok(Self {
            tokens: FcmTokens::new(key, options.fcm_token_lifetime),
            quota: options.fcm_quota.map(NonZeroU64::get),
            minute: Mutex::default(),
        })
    }

    /// Counts a message, and says whether it is one too many.
    fn is_exceeded(&self, now_us: u64) -> bool {
        let Some(quota) = self.quota else { return false };
        let mut minute = self.minute.lock().unwrap_or_else(PoisonError::into_inner);
        if now_us.saturating_sub(minute.began_us) >= US_PER_MINUTE {
            *minute = Minute { began_us: now_us, messages: 0 };
        }
        minute.messages += 1;
        minute.messages > quota
    }
}

// === impl Fcm ===

impl Fcm {
    /// Longest body that is taken: more than any message that may be sent.
    pub(crate) const CONTENT_BYTES_MAX: usize = 1 << 16;

    pub(crate) fn new(shared: Arc<FcmState>) -> Self {
        Self { shared, bearer: Bearer::default(), accepted: Cell::new(0) }
    }

    pub(crate) fn examine<'a>(&self, request: &Request<'a>, now_us: u64) -> Finding<'a> {
        let finding = |recipient: &'a str, rejection: Option<SimAnswer>| Finding {
            id: Cow::Borrowed(""),
            recipient,
            // Only APNs holds a client to one stream until it is.
            authenticated: true,
            rejection,
        };
        if request.path == TOKEN_PATH {
            let answer = self.shared.tokens.exchange(request, now_us);
            // Good or bad, it is given as a rejection: the dice fall for messages only.
            return Finding { id: Cow::Borrowed(TOKEN_ID), ..finding("", Some(answer)) };
        }
        let project = request.path.strip_prefix(PATH_PREFIX);
        let project = project.and_then(|rest| rest.strip_suffix(PATH_SUFFIX));
        let Some(project) = project.filter(|_| request.method == Method::POST) else {
            // Google answers an unknown path with a page, and not with JSON.
            return finding(
                "",
                Some(SimAnswer::new(StatusCode::NOT_FOUND, Bytes::from("<html>404"))),
            );
        };
        let SimContent::Whole(body) = request.content else {
            return finding(
                "",
                Some(invalid("Request payload size exceeds the limit", "message").into()),
            );
        };
        if !self.bearer.is_known(&self.shared.tokens, request.headers, now_us) {
            return finding("", Some(UNAUTHENTICATED.into()));
        }
        match read(body) {
            Err(problem) => finding("", Some(problem.into())),
            Ok(recipient) if self.shared.is_exceeded(now_us) => {
                finding(recipient, Some(exceeded("project").into()))
            }
            Ok(recipient) => {
                self.accepted.set(self.accepted.get() + 1);
                let id = format!("projects/{project}/messages/0:{now_us}%{}", self.accepted.get());
                Finding { id: Cow::Owned(id), ..finding(recipient, None) }
            }
        }
    }

    /// The answer to a message that got the name `id`.
    pub(crate) fn accepted(id: &str) -> SimAnswer {
        SimAnswer::new(StatusCode::OK, Bytes::from(format!("{{\n  \"name\": \"{id}\"\n}}\n")))
    }

    pub(crate) fn trouble(trouble: Trouble) -> SimAnswer {
        let problem = match trouble {
            Trouble::Gone => FcmProblem {
                status: StatusCode::NOT_FOUND,
                name: "NOT_FOUND",
                message: "Requested entity was not found.",
                details: json!([fcm_error("UNREGISTERED")]),
            },
            Trouble::Throttled => exceeded("device"),
            Trouble::InternalError => FcmProblem {
                status: StatusCode::INTERNAL_SERVER_ERROR,
                name: "INTERNAL",
                message: "Internal error encountered.",
                details: json!([fcm_error("INTERNAL")]),
            },
            Trouble::Unavailable => FcmProblem {
                status: StatusCode::SERVICE_UNAVAILABLE,
                name: "UNAVAILABLE",
                message: "The service is currently unavailable.",
                details: json!([fcm_error("UNAVAILABLE")]),
            },
        };
        problem.into()
    }
}

const UNAUTHENTICATED: FcmProblem = FcmProblem {
    status: StatusCode::UNAUTHORIZED,
    name: "UNAUTHENTICATED",
    message: "Request had invalid authentication credentials.",
    details: Value::Null,
};

/// Whom a message is for.
fn read(body: &[u8]) -> Result<&str, FcmProblem> {
    let send: Send<'_> = serde_json::from_slice(body)
        .map_err(|_| invalid("Invalid JSON payload received.", "message"))?;
    let message = send.message;
    // `data` maps texts to texts: FCM takes neither numbers nor objects in it.
    if let Some(data) = message.data
        && serde_json::from_str::<std::collections::BTreeMap<String, String>>(data.get()).is_err()
    {
        return Err(invalid("Invalid value at 'message.data'", "message.data"));
    }
    match (message.token, message.topic, message.condition) {
        // FCM has two kinds of 400: this one is about the token, and comes without `BadRequest`.
        (Some(""), None, None) => Err(FcmProblem {
            status: StatusCode::BAD_REQUEST,
            name: "INVALID_ARGUMENT",
            message: "The registration token is not a valid FCM registration token",
            details: json!([fcm_error("INVALID_ARGUMENT")]),
        }),
        (Some(recipient), None, None)
        | (None, Some(recipient), None)
        | (None, None, Some(recipient)) => Ok(recipient),
        _ => Err(invalid("Recipient of the message is not set.", "message")),
    }
}

fn invalid(message: &'static str, field: &str) -> FcmProblem {
    let violation = json!({ "field": field, "description": message });
    let details = json!([{
        "@type": "type.googleapis.com/google.rpc.BadRequest",
        "fieldViolations": [violation],
    }]);
    FcmProblem { status: StatusCode::BAD_REQUEST, name: "INVALID_ARGUMENT", message, details }
}

/// Too many messages for `whom`: the project, a topic or a device.
fn exceeded(whom: &str) -> FcmProblem {
    let violation =
        json!({ "subject": whom, "description": format!("{whom} message rate exceeded") });
    let failure = json!({
        "@type": "type.googleapis.com/google.rpc.QuotaFailure",
        "violations": [violation],
    });
    FcmProblem {
        status: StatusCode::TOO_MANY_REQUESTS,
        name: "RESOURCE_EXHAUSTED",
        message: "Quota exceeded.",
        details: json!([fcm_error("QUOTA_EXCEEDED"), failure]),
    }
}

fn fcm_error(code: &str) -> Value {
    json!({ "@type": "type.googleapis.com/google.firebase.fcm.v1.FcmError", "errorCode": code })
}

// === impl SimAnswer ===

impl From<FcmProblem> for SimAnswer {
    fn from(problem: FcmProblem) -> Self {
        let FcmProblem { status, name, message, details } = problem;
        let mut error = json!({ "code": status.as_u16(), "message": message, "status": name });
        // An error about the access token comes without details.
        if let (Value::Array(_), Some(fields)) = (&details, error.as_object_mut()) {
            fields.insert("details".to_owned(), details);
        }
        Self::new(status, Bytes::from(json!({ "error": error }).to_string()))
    }
}

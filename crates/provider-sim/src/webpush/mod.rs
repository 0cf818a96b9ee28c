//! The checks of a push service (RFC 8030), and those of the browser behind it: a message counts as arrived when the
//! subscription's own key opens it.
//!
//! Every subscription that can be numbered exists. Its keys follow from its number, so it is the same in every run.

mod message;
mod subscriber;
mod vapid;

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;

use aws_lc_rs::digest;
use bytes::Bytes;
use http::{HeaderValue, Method, StatusCode};

use crate::Error;
use crate::exchange::{Finding, Request, SimAnswer, SimContent, Trouble};
use crate::fields::Fields;
use subscriber::Subscriber;
use vapid::VapidTokens;

const PATH_PREFIX: &str = "/push/";
const BODY_BYTES_MAX: usize = 4096;
const TOPIC_BYTES_MAX: usize = 32;
const URGENCIES: [&str; 4] = ["very-low", "low", "normal", "high"];
/// Subscribers kept with their keys made; beyond it they are made anew.
const SUBSCRIBERS_MAX: usize = 10_000;
const ID_BYTES: usize = 16;

/// An error answer: its status and the words in its body.
type PushRejection = (StatusCode, &'static str);

/// The Web Push side of a provider.
#[derive(Debug)]
pub(crate) struct WebPush {
    tokens: VapidTokens,
    subscribers: RefCell<HashMap<u64, Arc<Subscriber>>>,
}

/// The subscription number `number` at the push service that listens on `address`, as a browser writes it.
pub fn subscription(address: SocketAddr, number: u64) -> serde_json::Value {
    let subscriber = Subscriber::new(number);
    serde_json::json!({
        "endpoint": format!("https://{address}{PATH_PREFIX}{number}"),
        "expirationTime": null,
        "keys": subscriber.as_ref().map(Subscriber::to_json),
    })
}

// === impl WebPush ===

impl WebPush {
    /// Longest body that is taken.
    pub(crate) const CONTENT_BYTES_MAX: usize = BODY_BYTES_MAX;

    /// `public_key` is the only one that may send, if it is given: base64url, as pages subscribe with it.
    pub(crate) fn new(public_key: Option<&str>) -> Result<Self, Error> {
        Ok(Self { tokens: VapidTokens::new(public_key)?, subscribers: RefCell::default() })
    }

    pub(crate) fn examine<'a>(&self, request: &Request<'a>, now_us: u64) -> Finding<'a> {
        let (id, rejection) = match self.open(request, now_us) {
            Ok(message) => (identify(request.path, &message), None),
            Err((status, words)) => {
                (String::new(), Some(SimAnswer::new(status, Bytes::from_static(words.as_bytes()))))
            }
        };
        let id = Cow::Owned(id);
        Finding { id, recipient: request.path, authenticated: true, rejection }
    }

    /// The answer to a message that was taken.
    pub(crate) fn accepted(id: &str) -> SimAnswer {
        let mut answer = SimAnswer::new(StatusCode::CREATED, Bytes::new());
        answer.location = HeaderValue::from_str(&format!("/message/{id}")).ok();
        answer
    }

    pub(crate) const fn trouble(trouble: Trouble) -> SimAnswer {
        let status = match trouble {
            Trouble::Gone => StatusCode::GONE,
            Trouble::Throttled => StatusCode::TOO_MANY_REQUESTS,
            Trouble::InternalError => StatusCode::INTERNAL_SERVER_ERROR,
            Trouble::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        };
        SimAnswer::new(status, Bytes::new())
    }

    /// The message in the clear, if everything about the request is right.
    fn open(&self, request: &Request<'_>, now_us: u64) -> Result<Vec<u8>, PushRejection> {
        if request.method != Method::POST {
            return Err((StatusCode::METHOD_NOT_ALLOWED, "a message is posted"));
        }
        let number = request.path.strip_prefix(PATH_PREFIX).and_then(|text| text.parse().ok());
        let number = number.ok_or((StatusCode::NOT_FOUND, "there is no such subscription"))?;
        let SimContent::Whole(body) = request.content else {
            return Err((StatusCode::PAYLOAD_TOO_LARGE, "a message has at most 4096 bytes"));
        };
        self.tokens.verify(request.headers.text("authorization"), request.authority, now_us)?;
        check_headers(request.headers)?;
        if request.headers.text("content-encoding") != "aes128gcm" {
            return Err((StatusCode::UNSUPPORTED_MEDIA_TYPE, "the coding must be aes128gcm"));
        }
        self.subscriber(number)
            .and_then(|subscriber| message::open(body, &subscriber))
            .ok_or((StatusCode::BAD_REQUEST, "the message cannot be decrypted"))
    }

    fn subscriber(&self, number: u64) -> Option<Arc<Subscriber>> {
        let mut subscribers = self.subscribers.borrow_mut();
        if let Some(subscriber) = subscribers.get(&number) {
            return Some(Arc::clone(subscriber));
        }
        if subscribers.len() >= SUBSCRIBERS_MAX {
            subscribers.clear();
        }
        let subscriber = Arc::new(Subscriber::new(number)?);
        subscribers.insert(number, Arc::clone(&subscriber));
        Some(subscriber)
    }
}

fn check_headers(headers: &Fields) -> Result<(), PushRejection> {
    if headers.text("ttl").parse::<u64>().is_err() {
        return Err((StatusCode::BAD_REQUEST, "TTL must be a number of seconds"));
    }
    let urgency = headers.get("urgency");
    if urgency.is_some_and(|urgency| !URGENCIES.iter().any(|known| urgency == known.as_bytes())) {
        return Err((StatusCode::BAD_REQUEST, "Urgency is none of the four"));
    }
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let is_topic =
        |topic: &[u8]| (1..=TOPIC_BYTES_MAX).contains(&topic.len()) && topic.iter().all(is_plain);
    if headers.get("topic").is_some_and(|topic| !is_topic(topic)) {
        return Err((StatusCode::BAD_REQUEST, "Topic must be 1 to 32 characters of base64url"));
    }
    Ok(())
}

/// The identity of a message in the books: the same content for the same subscription twice is a repetition.
fn identify(path: &str, message: &[u8]) -> String {
    let mut context = digest::Context::new(&digest::SHA256);
    for part in [path.as_bytes(), b"\0", message] {
        context.update(part);
    }
    let mut id = String::new();
    for byte in context.finish().as_ref().iter().take(ID_BYTES) {
        // Nothing keeps a text from growing.
        write!(id, "{byte:02x}").ok();
    }
    id
}

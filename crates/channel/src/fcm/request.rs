//! From a notification to an HTTP/2 request. What a job's deliveries share is encoded once.

use std::cell::RefCell;
use std::rc::Rc;

use bytes::{BufMut as _, Bytes, BytesMut};
use http::HeaderValue;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::uri::{Authority, PathAndQuery};
use net::request_head::{RequestHead, SharedHead, SharedHeads};
use notification::{Content, Timestamp};
use serde_json::{Map, Value};

use crate::Invalid;
use crate::object::members;

/// The parts that all requests of one channel share.
#[derive(Debug)]
pub(super) struct FcmEncoder {
    authority: Authority,
    path: PathAndQuery,
    heads: SharedHeads,
    block: RefCell<BytesMut>,
}

/// The head of all requests with one access token.
#[derive(Debug, Clone)]
pub(super) struct FcmHead {
    pub(super) authorization: HeaderValue,
    shared: Rc<SharedHead>,
}

/// A content, encoded but for its target.
#[derive(Debug, Clone)]
pub(super) struct FcmContent {
    /// The bytes before the target.
    head: &'static str,
    /// The bytes behind the target.
    tail: Bytes,
    /// Of keys and values, as FCM counts.
    bytes: usize,
}

/// Where a message goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FcmTarget<'a> {
    /// To the app instance with this registration token.
    Token(&'a str),
    /// To all that subscribed to the topic of this name.
    Topic(&'a str),
}

/// A content that was found good.
#[derive(Debug)]
struct CheckedMessage {
    message: Map<String, Value>,
    validates_only: bool,
    bytes: usize,
}

const TOPIC_PREFIX: &str = "/topics/";
const TOPIC_BYTES_MAX: usize = 900;
const BYTES_MAX: usize = 4096;
const BYTES_MAX_TOPIC: usize = 2048;
/// The fields of a message beside its target.
const MEMBERS: &[&str] = &["data", "notification", "android", "webpush", "apns", "fcm_options"];
const TARGETS: &[&str] = &["token", "topic", "condition"];
/// The longest that FCM keeps a message: four weeks.
const TTL_SECONDS_MAX: i64 = 28 * 24 * 3600;
/// Bodies are cut from blocks of this size, so few allocations are needed.
const BLOCK_BYTES: usize = 32 * 1024;

// === impl FcmEncoder ===

impl FcmEncoder {
    /// Encodes for `project_id` at `authority`; `None` when that makes no address.
    pub(super) fn new(authority: Authority, project_id: &str) -> Option<Self> {
        let path = format!("/v1/projects/{project_id}/messages:send");
        let path = PathAndQuery::try_from(path).ok()?;
        let heads = SharedHeads::default();
        Some(Self { authority, path, heads, block: RefCell::default() })
    }

    /// The body that sends `encoded` to `target`.
    pub(super) fn body(&self, encoded: &FcmContent, target: FcmTarget<'_>) -> Bytes {
        let (name, value) = match target {
            FcmTarget::Token(token) => ("\"token\":\"", token),
            FcmTarget::Topic(topic) => ("\"topic\":\"", topic),
        };
        let parts =
            [encoded.head.as_bytes(), name.as_bytes(), value.as_bytes(), b"\"", &encoded.tail];
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        let mut block = self.block.borrow_mut();
        if block.capacity() < bytes {
            block.reserve(BLOCK_BYTES.max(bytes));
        }
        for part in parts {
            block.put_slice(part);
        }
        block.split().freeze()
    }

    /// Head of all requests with this access token.
    pub(super) fn head(&self, authorization: HeaderValue) -> FcmHead {
        // Put into the table of header fields, unlike what is sensitive: all requests of a connection have it in common, it may be a
        // kilobyte, and the provider alone reads the connection (RFC 7541, section 7.1.3, is about intermediaries).
        let mut indexed = authorization.clone();
        indexed.set_sensitive(false);
        let head = SharedHead::address(&self.authority, Some(&self.path))
            .with(&CONTENT_TYPE, HeaderValue::from_static("application/json"))
            .with(&AUTHORIZATION, indexed);
        FcmHead { authorization, shared: self.heads.unique(head) }
    }
}

// === impl FcmHead ===

impl RequestHead for FcmHead {
    fn address(&self) -> &Rc<SharedHead> {
        &self.shared
    }
}

// === impl FcmContent ===

impl FcmContent {
    /// Encodes what requests with `content` share. What is of no use after `expires_at` is not kept longer by FCM, unless
    /// the content says how long itself.
    pub(super) fn new(
        content: &Content,
        expires_at: Option<Timestamp>,
        now: Timestamp,
    ) -> Result<Self, Invalid> {
        let CheckedMessage { mut message, validates_only, bytes } =
            check(&content.payload, &content.options)?;
        if let Some(expires_at) = expires_at {
            expire(&mut message, expires_at, now);
        }
        let message = Value::Object(message).to_string();
        // The target stands in front of them, so what follows it is the same for all
        // recipients and copied in one piece.
        let members = message.trim_start_matches('{');
        let comma = if members == "}" { "" } else { "," };
        let head =
            if validates_only { "{\"validate_only\":true,\"message\":{" } else { "{\"message\":{" };
        Ok(Self { head, tail: format!("{comma}{members}}}").into(), bytes })
    }

    /// Checks that `target` takes as much: topics take less than devices.
    pub(super) fn check_size(&self, target: FcmTarget<'_>) -> Result<(), Invalid> {
        match target {
            FcmTarget::Token(_) => Ok(()),
            FcmTarget::Topic(_) => check_size(self.bytes, BYTES_MAX_TOPIC),
        }
    }
}

// === impl FcmTarget ===

impl<'a> FcmTarget<'a> {
    /// Reads a recipient. It needs no escapes in JSON.
    pub(super) fn parse(recipient: &'a str) -> Result<Self, Invalid> {
        // A slash is refused, so that a topic which is misspelt is not taken for a token.
        let is_plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\' | b'/');
        if let Some(topic) = recipient.strip_prefix(TOPIC_PREFIX) {
            let is_topic = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~%".contains(&byte);
            if (1..=TOPIC_BYTES_MAX).contains(&topic.len()) && topic.bytes().all(is_topic) {
                return Ok(Self::Topic(topic));
            }
            return Err(Invalid::new(format!(
                "is not a topic: /topics/ and 1 to {TOPIC_BYTES_MAX} letters, digits and -_.~% are needed"
            )));
        }
        if !recipient.is_empty() && every_byte(recipient, is_plain) {
            return Ok(Self::Token(recipient));
        }
        Err(Invalid::new(
            "is neither a registration token, as the app got it from FCM, nor /topics/ and the name of one",
        ))
    }
}

/// Looks at every byte without an early end: so the compiler looks at many at once.
fn every_byte(text: &str, is_good: impl Fn(u8) -> bool) -> bool {
    text.bytes().fold(true, |are_good, byte| are_good & is_good(byte))
}

/// Checks a message without its target, and its options.
pub(super) fn check_content(payload: &[u8], options: &[u8]) -> Result<(), Invalid> {
    check(payload, options).map(drop)
}

fn check(payload: &[u8], options: &[u8]) -> Result<CheckedMessage, Invalid> {
    let validates_only = read_options(options)?;
    let message: Value = serde_json::from_slice(payload)
        .map_err(|error| Invalid::new(format!("is not valid JSON: {error}")))?;
    let Value::Object(message) = message else {
        return Err(Invalid::new(
            "must be a message of FCM's HTTP v1 API without its target, such as {\"notification\":{\"title\":\"...\"}}",
        ));
    };
    for (name, value) in &message {
        let refuse = |message: String| Err(Invalid::within(&[name], message));
        if TARGETS.contains(&name.as_str()) {
            return refuse("must be left out: the recipient is the target".to_owned());
        }
        if !MEMBERS.contains(&name.as_str()) {
            return refuse(format!("is unknown: a message takes {}", MEMBERS.join(", ")));
        }
        if !value.is_object() {
            return refuse("must be a JSON object".to_owned());
        }
    }
    let data = check_data(message.get("data"))?;
    let bytes = data + message.get("notification").map_or(0, bytes_of);
    check_size(bytes, BYTES_MAX)?;
    Ok(CheckedMessage { message, validates_only, bytes })
}

/// Data are texts under names that FCM does not use itself. Gives their bytes.
fn check_data(data: Option<&Value>) -> Result<usize, Invalid> {
    let mut bytes = 0;
    for (key, value) in data.and_then(Value::as_object).into_iter().flatten() {
        let refuse = |message: &str| Err(Invalid::within(&["data", key], message));
        if matches!(key.as_str(), "from" | "message_type")
            || key.starts_with("google.")
            || key.starts_with("gcm.")
        {
            return refuse(
                "is a name that FCM keeps for itself: from, message_type, google. and gcm.",
            );
        }
        let Some(text) = value.as_str() else { return refuse("must be a text: all data are") };
        bytes += key.len() + text.len();
    }
    Ok(bytes)
}

/// The bytes of all names and texts.
fn bytes_of(value: &Value) -> usize {
    match value {
        Value::Object(members) => {
            members.iter().map(|(name, value)| name.len() + bytes_of(value)).sum()
        }
        Value::Array(values) => values.iter().map(bytes_of).sum(),
        Value::String(text) => text.len(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    }
}

fn check_size(bytes: usize, bytes_max: usize) -> Result<(), Invalid> {
    match bytes.checked_sub(bytes_max) {
        None | Some(0) => Ok(()),
        Some(over) => Err(Invalid::new(format!(
            "has {bytes} bytes of names and texts in data and notification, {over} more than the {bytes_max} that FCM takes"
        ))),
    }
}

fn read_options(options: &[u8]) -> Result<bool, Invalid> {
    let mut validates_only = false;
    for (name, value) in &members(options)? {
        let refuse = |message| Invalid::within(&[name], message);
        if name != "validate_only" {
            return Err(refuse("is unknown: an FCM notification takes validate_only"));
        }
        validates_only = value.as_bool().ok_or_else(|| refuse("must be true or false"))?;
    }
    Ok(validates_only)
}

/// Says in the words of each platform until when the message is of use.
fn expire(message: &mut Map<String, Value>, expires_at: Timestamp, now: Timestamp) {
    // What has expired meanwhile is of no use in any device's queue.
    let seconds = (expires_at.seconds() - now.seconds()).clamp(0, TTL_SECONDS_MAX);
    // 0 would mean that APNs keeps nothing, not even for a moment.
    let unix_seconds = expires_at.seconds().max(1).to_string();
    put_missing(message, &["android", "ttl"], format!("{seconds}s"));
    put_missing(message, &["apns", "headers", "apns-expiration"], unix_seconds);
    put_missing(message, &["webpush", "headers", "TTL"], seconds.to_string());
}

/// Puts `text` at `path`, unless something stands there or in its way. Names of headers know no case.
fn put_missing(object: &mut Map<String, Value>, path: &[&str], text: String) {
    match path {
        [] => {}
        [name] => {
            if !object.keys().any(|other| other.eq_ignore_ascii_case(name)) {
                object.insert((*name).to_owned(), Value::String(text));
            }
        }
        [name, rest @ ..] => {
            let inner = object.entry(*name).or_insert_with(|| Value::Object(Map::new()));
            if let Value::Object(inner) = inner {
                put_missing(inner, rest, text);
            }
        }
    }
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;

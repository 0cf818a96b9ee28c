//! From a notification to an HTTP/2 request. What a job's deliveries share is encoded once.

use std::cell::RefCell;

use bytes::{BufMut as _, Bytes, BytesMut};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, Version};
use notification::{ByteString, Chunk, Content, NotificationId, Priority};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::config::check_topic;
use crate::Invalid;

static APNS_ID: HeaderName = HeaderName::from_static("apns-id");
static APNS_COLLAPSE_ID: HeaderName = HeaderName::from_static("apns-collapse-id");
static APNS_EXPIRATION: HeaderName = HeaderName::from_static("apns-expiration");
static APNS_PRIORITY: HeaderName = HeaderName::from_static("apns-priority");
static APNS_PUSH_TYPE: HeaderName = HeaderName::from_static("apns-push-type");
static APNS_TOPIC: HeaderName = HeaderName::from_static("apns-topic");

const PUSH_TYPES: &[&str] = &[
    "alert",
    "background",
    "complication",
    "controls",
    "fileprovider",
    "liveactivity",
    "location",
    "mdm",
    "pushtotalk",
    "voip",
    "widgets",
];
const PAYLOAD_BYTES_MAX: usize = 4096;
const PAYLOAD_BYTES_MAX_VOIP: usize = 5120;
const COLLAPSE_ID_BYTES_MAX: usize = 64;
const DEVICE_TOKEN_DIGITS: std::ops::RangeInclusive<usize> = 64..=200;
/// Paths and identifiers are cut from blocks of this size: one allocation for about fifty requests.
const BLOCK_BYTES: usize = 8 * 1024;

/// What all requests to one endpoint share.
#[derive(Debug)]
pub(super) struct Encoder {
    authority: Authority,
    topic: String,
    block: RefCell<BytesMut>,
}

/// A content, encoded but for the device token and the identifier.
#[derive(Debug, Clone)]
pub(super) struct Encoded {
    headers: HeaderMap,
    /// The body.
    pub(super) payload: Bytes,
}

/// What a job's deliveries share, whatever their content.
#[derive(Debug)]
pub(super) struct Common {
    /// The `authorization` header.
    pub(super) authorization: HeaderValue,
    expiration: Option<HeaderValue>,
    priority: Priority,
}

/// What the caller asked for by options.
#[derive(Debug, Default, PartialEq, Eq)]
struct Options {
    topic: Option<String>,
    push_type: Option<&'static str>,
    collapse_id: Option<String>,
    priority: Option<&'static str>,
}

#[derive(Debug, Deserialize)]
struct Payload<'a> {
    #[serde(borrow)]
    aps: Option<&'a RawValue>,
}

#[derive(Debug, Deserialize)]
struct Aps<'a> {
    #[serde(borrow)]
    alert: Option<&'a RawValue>,
    #[serde(borrow, rename = "content-available")]
    content_available: Option<&'a RawValue>,
}

// === impl Encoder ===

impl Encoder {
    /// Encodes for `authority`; `topic` is for contents whose options name none.
    pub(super) fn new(authority: Authority, topic: String) -> Self {
        Self { authority, topic, block: RefCell::new(BytesMut::new()) }
    }

    /// Encodes what requests with `content` share.
    pub(super) fn encode(&self, content: &Content, common: &Common) -> Result<Encoded, Invalid> {
        let (options, push_type) = check_content(&content.payload, &content.options)?;
        let topic = options.topic.as_deref().unwrap_or(&self.topic);
        let priority = options.priority.unwrap_or_else(|| common.priority(push_type));
        let value = |text: &str| {
            HeaderValue::from_str(text).map_err(|_| Invalid::new("cannot be sent as a header"))
        };
        let mut headers = HeaderMap::with_capacity(8);
        headers.insert(http::header::AUTHORIZATION, common.authorization.clone());
        // Takes the place until each request puts its own.
        headers.insert(APNS_ID.clone(), HeaderValue::from_static(""));
        headers.insert(APNS_TOPIC.clone(), value(topic)?);
        headers.insert(APNS_PUSH_TYPE.clone(), HeaderValue::from_static(push_type));
        headers.insert(APNS_PRIORITY.clone(), HeaderValue::from_static(priority));
        if let Some(expiration) = &common.expiration {
            headers.insert(APNS_EXPIRATION.clone(), expiration.clone());
        }
        if let Some(collapse_id) = &options.collapse_id {
            headers.insert(APNS_COLLAPSE_ID.clone(), value(collapse_id)?);
        }
        Ok(Encoded { headers, payload: content.payload.clone() })
    }

    /// The request that sends `encoded` to the device with `token` as the notification `id`; `None` when
    /// the token is not one.
    pub(super) fn request(
        &self,
        encoded: &Encoded,
        token: &ByteString,
        id: NotificationId,
    ) -> Option<Request<()>> {
        let mut block = self.block.borrow_mut();
        let mut buffer = [0; 36];
        let id = id.encode(&mut buffer).as_bytes();
        let path = [b"/3/device/".as_slice(), token.as_bytes()];
        let bytes = path.iter().map(|part| part.len()).sum::<usize>() + id.len();
        if block.capacity() < bytes {
            block.reserve(BLOCK_BYTES.max(bytes));
        }
        for part in path {
            block.put_slice(part);
        }
        let path = block.split().freeze();
        block.put_slice(id);
        let mut id = HeaderValue::from_maybe_shared(block.split().freeze()).ok()?;
        // Apple asks that its value stays out of the connection's header table; this does that.
        id.set_sensitive(true);

        let mut uri = http::uri::Parts::default();
        uri.scheme = Some(Scheme::HTTPS);
        uri.authority = Some(self.authority.clone());
        uri.path_and_query = Some(PathAndQuery::from_maybe_shared(path).ok()?);

        let mut request = Request::new(());
        *request.method_mut() = Method::POST;
        *request.version_mut() = Version::HTTP_2;
        *request.uri_mut() = Uri::from_parts(uri).ok()?;
        *request.headers_mut() = encoded.headers.clone();
        *request.headers_mut().get_mut(&APNS_ID)? = id;
        Some(request)
    }
}

// === impl Common ===

impl Common {
    /// What the deliveries of `chunk` share.
    pub(super) fn new(chunk: &Chunk, authorization: HeaderValue) -> Self {
        // Without the header APNs keeps what it cannot deliver at once for its own longest time.
        let expiration = chunk.envelope.expires_at.map(|at| HeaderValue::from(at.seconds().max(1)));
        Self { authorization, expiration, priority: chunk.envelope.lane.priority }
    }

    /// APNs refuses to treat background notifications as urgent.
    fn priority(&self, push_type: &str) -> &'static str {
        match self.priority {
            _ if push_type == "background" => "5",
            Priority::Urgent | Priority::Normal => "10",
            Priority::Bulk => "5",
        }
    }
}

/// Checks a device token.
pub(super) fn check_token(token: &str) -> Result<(), Invalid> {
    let digits = token.len();
    let well_formed = DEVICE_TOKEN_DIGITS.contains(&digits)
        && digits.is_multiple_of(2)
        && token.bytes().all(|byte| byte.is_ascii_hexdigit());
    if well_formed {
        return Ok(());
    }
    Err(Invalid::new(format!(
        "is not a device token: an even number of hexadecimal digits is needed, {} to {}; this has {digits} bytes",
        DEVICE_TOKEN_DIGITS.start(),
        DEVICE_TOKEN_DIGITS.end(),
    )))
}

/// Checks a payload with its options, and says of which push type it is.
pub(super) fn check_payload(payload: &[u8], options: &[u8]) -> Result<(), Invalid> {
    check_content(payload, options).map(|_| ())
}

fn check_content(payload: &[u8], options: &[u8]) -> Result<(Options, &'static str), Invalid> {
    let options = read_options(options)?;
    let is_voip = options.push_type == Some("voip");
    let bytes_max = if is_voip { PAYLOAD_BYTES_MAX_VOIP } else { PAYLOAD_BYTES_MAX };
    if payload.len() > bytes_max {
        let bytes = payload.len();
        return Err(Invalid::new(format!("has {bytes} bytes: APNs takes at most {bytes_max}")));
    }
    let is_background = read_payload(payload)?;
    let inferred = if is_background { "background" } else { "alert" };
    let push_type = options.push_type.unwrap_or(inferred);
    if push_type == "background" && options.priority == Some("10") {
        return Err(Invalid::at("/priority", "must be 5 or 1 for a background notification"));
    }
    Ok((options, push_type))
}

/// Whether the payload asks for work in the background and shows nothing.
fn read_payload(payload: &[u8]) -> Result<bool, Invalid> {
    let is_object = payload.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{');
    if !is_object {
        return Err(Invalid::new("must be a JSON object such as {\"aps\":{\"alert\":\"...\"}}"));
    }
    let payload: Payload<'_> = serde_json::from_slice(payload)
        .map_err(|error| Invalid::new(format!("is not valid JSON: {error}")))?;
    let Some(aps) = payload.aps else { return Ok(false) };
    if !aps.get().starts_with('{') {
        return Err(Invalid::at("/aps", "must be a JSON object"));
    }
    let aps: Aps<'_> = serde_json::from_str(aps.get())
        .map_err(|error| Invalid::at("/aps", format!("is not valid: {error}")))?;
    let is_background = aps.content_available.is_some_and(|value| value.get() == "1");
    Ok(is_background && aps.alert.is_none())
}

fn read_options(bytes: &[u8]) -> Result<Options, Invalid> {
    let mut options = Options::default();
    if bytes.is_empty() {
        return Ok(options);
    }
    let fields: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(bytes)
        .map_err(|error| Invalid::new(format!("must be a JSON object: {error}")))?;
    for (key, value) in fields {
        let refuse = |message: String| Err(Invalid::at(pointer(&key), message));
        match (key.as_str(), value.as_str()) {
            ("topic", Some(topic)) => match check_topic(topic) {
                Ok(()) => options.topic = Some(topic.to_owned()),
                Err(invalid) => return refuse(invalid.message),
            },
            ("push_type", text) => {
                match PUSH_TYPES.iter().find(|push_type| Some(**push_type) == text) {
                    Some(push_type) => options.push_type = Some(push_type),
                    None => return refuse(format!("must be one of {}", PUSH_TYPES.join(", "))),
                }
            }
            ("collapse_id", Some(id)) => match check_collapse_id(id) {
                Ok(()) => options.collapse_id = Some(id.to_owned()),
                Err(invalid) => return refuse(invalid.message),
            },
            ("priority", _) => match value.as_u64() {
                Some(1) => options.priority = Some("1"),
                Some(5) => options.priority = Some("5"),
                Some(10) => options.priority = Some("10"),
                _ => return refuse("must be 1, 5 or 10".to_owned()),
            },
            ("topic" | "collapse_id", None) => return refuse("must be a text".to_owned()),
            _ => {
                return refuse(
                    "is unknown: an APNs notification takes topic, push_type, collapse_id and priority"
                        .to_owned(),
                );
            }
        }
    }
    Ok(options)
}

fn check_collapse_id(id: &str) -> Result<(), Invalid> {
    let visible = id.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    if visible && (1..=COLLAPSE_ID_BYTES_MAX).contains(&id.len()) {
        return Ok(());
    }
    Err(Invalid::new(format!(
        "must have 1 to {COLLAPSE_ID_BYTES_MAX} visible ASCII characters; this has {} bytes",
        id.len()
    )))
}

/// The JSON pointer of a member.
fn pointer(key: &str) -> String {
    format!("/{}", key.replace('~', "~0").replace('/', "~1"))
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;

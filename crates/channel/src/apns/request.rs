//! From a notification to an HTTP/2 request. What a job's deliveries share is encoded once.

use std::borrow::Cow;
use std::rc::Rc;

use bytes::Bytes;
use http::header::AUTHORIZATION;
use http::uri::Authority;
use http::{HeaderName, HeaderValue};
use net::request_head::{OwnField, RequestHead, SharedHead, SharedHeads};
use notification::{Chunk, Content, Delivery, Envelope, Guarantee, Priority};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::config::check_topic;
use crate::Invalid;
use crate::object::members;

static APNS_ID: HeaderName = HeaderName::from_static("apns-id");
static APNS_COLLAPSE_ID: HeaderName = HeaderName::from_static("apns-collapse-id");
static APNS_EXPIRATION: HeaderName = HeaderName::from_static("apns-expiration");
static APNS_PRIORITY: HeaderName = HeaderName::from_static("apns-priority");
static APNS_PUSH_TYPE: HeaderName = HeaderName::from_static("apns-push-type");
static APNS_TOPIC: HeaderName = HeaderName::from_static("apns-topic");

/// Every push type, with what its topic ends in: the app's bundle identifier comes before it.
const PUSH_TYPES: &[(&str, &str)] = &[
    ("alert", ""),
    ("background", ""),
    ("complication", ".complication"),
    ("controls", ".push-type.controls"),
    ("fileprovider", ".pushkit.fileprovider"),
    ("liveactivity", ".push-type.liveactivity"),
    ("location", ".location-query"),
    ("mdm", ""),
    ("pushtotalk", ".voip-ptt"),
    ("voip", ".voip"),
    ("widgets", ".push-type.widgets"),
];
const PAYLOAD_BYTES_MAX: usize = 4096;
const PAYLOAD_BYTES_MAX_VOIP: usize = 5120;
const COLLAPSE_ID_BYTES_MAX: usize = 64;
const DEVICE_TOKEN_DIGITS: std::ops::RangeInclusive<usize> = 64..=200;

/// Encodes what requests share.
#[derive(Debug)]
pub(super) struct ApnsEncoder {
    authority: Authority,
    topic: String,
    collapses_on_retry: bool,
    heads: SharedHeads,
}

/// A content, encoded but for the device token and the identifier.
#[derive(Debug, Clone)]
pub(super) struct ApnsContent {
    shared: Rc<SharedHead>,
    /// True if each collapses with its own repetition.
    collapses_with_itself: bool,
    /// True if it goes to the channel's own topic.
    pub(super) is_own_topic: bool,
    /// The body.
    pub(super) payload: Bytes,
}

/// The head of the request that sends an [`ApnsContent`] to a device.
#[derive(Debug)]
pub(super) struct ApnsHead<'a> {
    /// APNs, with the provider token if there is one.
    pub(super) address: &'a Rc<SharedHead>,
    pub(super) encoded: &'a ApnsContent,
    pub(super) chunk: &'a Chunk,
    /// To the device with its recipient as token.
    pub(super) delivery: &'a Delivery,
}

/// The options of a notification.
#[derive(Debug, Default, PartialEq, Eq)]
struct ApnsOptions {
    topic: Option<String>,
    push_type: Option<&'static str>,
    collapse_id: Option<String>,
    priority: Option<&'static str>,
    /// Seconds since the Unix epoch; 0 is now or never.
    expiration: Option<i64>,
}

/// A content that was found good.
#[derive(Debug)]
struct CheckedOptions {
    options: ApnsOptions,
    push_type: &'static str,
    /// The ending of topics of that type.
    suffix: &'static str,
}

/// The properties of a payload that decide about its headers.
#[derive(Debug, Default)]
struct PayloadTraits {
    /// Work in the background.
    work: bool,
    /// Something to be seen or heard.
    show: bool,
    /// An event of a live activity, at a time.
    event: bool,
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
    #[serde(borrow)]
    badge: Option<&'a RawValue>,
    #[serde(borrow)]
    sound: Option<&'a RawValue>,
    #[serde(borrow, rename = "content-available")]
    content_available: Option<&'a RawValue>,
    #[serde(borrow)]
    event: Option<&'a RawValue>,
    #[serde(borrow)]
    timestamp: Option<&'a RawValue>,
}

// === impl ApnsEncoder ===

impl ApnsEncoder {
    /// Encodes for `authority`; `topic` is for contents whose options name none. With `collapses_on_retry` what has no collapse
    /// identifier collapses with its own repetition.
    pub(super) fn new(authority: Authority, topic: String, collapses_on_retry: bool) -> Self {
        Self { authority, topic, collapses_on_retry, heads: SharedHeads::default() }
    }

    /// APNs, with the provider token `authorization` if there is one.
    pub(super) fn address(&self, authorization: Option<HeaderValue>) -> Rc<SharedHead> {
        let mut address = SharedHead::address(&self.authority, None);
        if let Some(authorization) = authorization {
            address.push(&AUTHORIZATION, authorization);
        }
        self.heads.unique(address)
    }

    /// Encodes what requests with `content` share.
    pub(super) fn encode(
        &self,
        content: &Content,
        envelope: &Envelope,
    ) -> Result<ApnsContent, Invalid> {
        let CheckedOptions { options, push_type, suffix } =
            check_content(&content.payload, &content.options)?;
        let topic = match &options.topic {
            Some(topic) => Cow::Borrowed(topic.as_str()),
            // The settings may name the whole topic of a channel for one push type.
            None if self.topic.ends_with(suffix) => Cow::Borrowed(self.topic.as_str()),
            None => Cow::Owned(format!("{}{suffix}", self.topic)),
        };
        let priority = options.priority.unwrap_or_else(|| priority(envelope, push_type));
        let value = |text: &str| {
            HeaderValue::from_str(text).map_err(|_| Invalid::new("cannot be sent as a header"))
        };
        let mut shared = SharedHead::default()
            .with(&APNS_TOPIC, value(&topic)?)
            .with(&APNS_PUSH_TYPE, HeaderValue::from_static(push_type))
            .with(&APNS_PRIORITY, HeaderValue::from_static(priority));
        if let Some(expiration) = expiration(envelope, options.expiration) {
            shared.push(&APNS_EXPIRATION, HeaderValue::from(expiration));
        }
        let shows = matches!(push_type, "alert" | "background");
        // What is sent at most once has no repetition to collapse with.
        let collapses_with_itself = options.collapse_id.is_none()
            && self.collapses_on_retry
            && envelope.guarantee == Guarantee::AtLeastOnce
            && shows;
        if let Some(collapse_id) = &options.collapse_id {
            shared.push(&APNS_COLLAPSE_ID, value(collapse_id)?);
        }
        // A topic of its own confirms nothing about the channel's: see `Confirmed`.
        let (is_own_topic, payload) = (options.topic.is_none(), content.payload.clone());
        let shared = self.heads.unique(shared);
        Ok(ApnsContent { shared, collapses_with_itself, is_own_topic, payload })
    }
}

// === impl ApnsHead ===

impl RequestHead for ApnsHead<'_> {
    fn address(&self) -> &Rc<SharedHead> {
        self.address
    }

    fn shared(&self) -> Option<&Rc<SharedHead>> {
        Some(&self.encoded.shared)
    }

    fn path(&self) -> [&[u8]; 2] {
        [b"/3/device/", self.delivery.recipient.as_bytes()]
    }

    fn put_own(&self, put: &mut dyn FnMut(OwnField<'_>)) {
        let mut buffer = [0; 36];
        let id = self.chunk.notification_id(self.delivery.index);
        let value = id.encode(&mut buffer).as_bytes();
        // Apple asks that its value stays out of the connection's header table; this does that.
        put(OwnField { name: &APNS_ID, value, is_sensitive: true });
        if self.encoded.collapses_with_itself {
            put(OwnField { name: &APNS_COLLAPSE_ID, value, is_sensitive: true });
        }
    }
}

/// Until when APNs keeps what it cannot deliver at once, in seconds since the Unix epoch; 0 is not at all. Without it
/// APNs keeps it for its own longest time. Never longer than the notification is of use.
fn expiration(envelope: &Envelope, asked: Option<i64>) -> Option<i64> {
    // 0 would have APNs keep nothing at all, which is another meaning.
    let expires_at = envelope.expires_at.map(|at| at.seconds().max(1));
    match (asked, expires_at) {
        (Some(asked), Some(expires_at)) => Some(asked.min(expires_at)),
        (asked, expires_at) => asked.or(expires_at),
    }
}

/// APNs refuses to treat background notifications as urgent, and wants nothing else of those of a conversation.
fn priority(envelope: &Envelope, push_type: &str) -> &'static str {
    match envelope.lane.priority {
        _ if push_type == "background" => "5",
        _ if push_type == "pushtotalk" => "10",
        Priority::Urgent | Priority::Normal => "10",
        Priority::Bulk => "5",
    }
}

/// The one spelling of a device token: in lower case.
pub(super) fn canonical_token(token: &str) -> Cow<'_, str> {
    if every_byte(token, |byte| !byte.is_ascii_uppercase()) {
        Cow::Borrowed(token)
    } else {
        Cow::Owned(token.to_ascii_lowercase())
    }
}

/// Looks at every byte without an early end: so the compiler looks at many at once.
fn every_byte(text: &str, is_good: impl Fn(u8) -> bool) -> bool {
    text.bytes().fold(true, |are_good, byte| are_good & is_good(byte))
}

/// Checks a device token.
pub(super) fn check_token(token: &str) -> Result<(), Invalid> {
    let digits = token.len();
    let well_formed = DEVICE_TOKEN_DIGITS.contains(&digits)
        && digits.is_multiple_of(2)
        && every_byte(token, |byte| byte.is_ascii_hexdigit());
    if well_formed {
        return Ok(());
    }
    Err(Invalid::new(format!(
        "is not a device token: an even number of hexadecimal digits is needed, {} to {}; this has {digits} bytes",
        DEVICE_TOKEN_DIGITS.start(),
        DEVICE_TOKEN_DIGITS.end(),
    )))
}

/// Checks a payload with its options.
pub(super) fn check_payload(payload: &[u8], options: &[u8]) -> Result<(), Invalid> {
    check_content(payload, options).map(|_| ())
}

fn check_content(payload: &[u8], options: &[u8]) -> Result<CheckedOptions, Invalid> {
    let options = read_options(options)?;
    let is_voip = options.push_type == Some("voip");
    let bytes_max = if is_voip { PAYLOAD_BYTES_MAX_VOIP } else { PAYLOAD_BYTES_MAX };
    if payload.len() > bytes_max {
        let (bytes, over) = (payload.len(), payload.len() - bytes_max);
        let message =
            format!("has {bytes} bytes, {over} more than the {bytes_max} that APNs takes");
        return Err(Invalid::new(message));
    }
    let asked = read_payload(payload)?;
    let inferred = if asked.work && !asked.show { "background" } else { "alert" };
    let push_type = options.push_type.unwrap_or(inferred);
    check_push_type(push_type, &options, &asked)?;
    let row = PUSH_TYPES.iter().find(|(name, _)| *name == push_type);
    let suffix = row.map_or("", |(_, suffix)| suffix);
    if options.topic.as_ref().is_some_and(|topic| !topic.ends_with(suffix)) {
        let message = format!("must end with {suffix} for a {push_type} notification");
        return Err(Invalid::at("/topic", message));
    }
    Ok(CheckedOptions { options, push_type, suffix })
}

/// The rules that APNs documents about types, priorities and payloads that do not go together.
fn check_push_type(
    push_type: &str,
    options: &ApnsOptions,
    asked: &PayloadTraits,
) -> Result<(), Invalid> {
    match (push_type, options.priority) {
        ("background", Some("10")) => {
            Err(Invalid::at("/priority", "must be 5 or 1 for a background notification"))
        }
        ("pushtotalk", Some("1" | "5")) => {
            Err(Invalid::at("/priority", "must be 10 for a pushtotalk notification"))
        }
        ("background", _) if asked.show || !asked.work => Err(Invalid::at(
            "/push_type",
            "does not match the payload: background takes \"content-available\": 1, and neither alert nor badge nor sound",
        )),
        ("liveactivity", _) if !asked.event => Err(Invalid::at(
            "/push_type",
            "does not match the payload: liveactivity takes event and timestamp in aps",
        )),
        _ => Ok(()),
    }
}

fn read_payload(payload: &[u8]) -> Result<PayloadTraits, Invalid> {
    // `serde` takes an array for a structure as well, value by value.
    let is_object = payload.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{');
    if !is_object {
        return Err(Invalid::new("must be a JSON object such as {\"aps\":{\"alert\":\"...\"}}"));
    }
    let payload: Payload<'_> = serde_json::from_slice(payload)
        .map_err(|error| Invalid::new(format!("is not valid JSON: {error}")))?;
    let Some(aps) = payload.aps else { return Ok(PayloadTraits::default()) };
    // As above: an array would be read value by value.
    if !aps.get().starts_with('{') {
        return Err(Invalid::at("/aps", "must be a JSON object"));
    }
    let aps: Aps<'_> = serde_json::from_str(aps.get())
        .map_err(|error| Invalid::at("/aps", format!("is not valid: {error}")))?;
    Ok(PayloadTraits {
        work: aps.content_available.is_some_and(|value| value.get() == "1"),
        show: aps.alert.or(aps.badge).or(aps.sound).is_some(),
        event: aps.event.and(aps.timestamp).is_some(),
    })
}

fn read_options(bytes: &[u8]) -> Result<ApnsOptions, Invalid> {
    let mut options = ApnsOptions::default();
    for (key, value) in members(bytes)? {
        let refuse = |message: &str| Invalid::within(&[&key], message);
        let text = || value.as_str().ok_or_else(|| refuse("must be a text"));
        match key.as_str() {
            "topic" => {
                let topic = text()?;
                check_topic(topic).map_err(|invalid| refuse(&invalid.message))?;
                options.topic = Some(topic.to_owned());
            }
            "push_type" => {
                let mut names = PUSH_TYPES.iter().map(|(name, _)| *name);
                options.push_type = names.find(|name| Some(*name) == value.as_str());
                if options.push_type.is_none() {
                    return Err(refuse(&format!("must be one of {}", push_types())));
                }
            }
            "collapse_id" => {
                let id = text()?;
                check_collapse_id(id).map_err(|invalid| refuse(&invalid.message))?;
                options.collapse_id = Some(id.to_owned());
            }
            "priority" => match value.as_u64() {
                Some(1) => options.priority = Some("1"),
                Some(5) => options.priority = Some("5"),
                Some(10) => options.priority = Some("10"),
                _ => return Err(refuse("must be 1, 5 or 10")),
            },
            "expiration" => {
                options.expiration = value.as_u64().and_then(|seconds| i64::try_from(seconds).ok());
                if options.expiration.is_none() {
                    return Err(refuse("must be seconds since 1970, or 0 for now or never"));
                }
            }
            _ => {
                return Err(refuse(
                    "is unknown: an APNs notification takes topic, push_type, collapse_id, priority and expiration",
                ));
            }
        }
    }
    Ok(options)
}

fn push_types() -> String {
    PUSH_TYPES.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
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

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;

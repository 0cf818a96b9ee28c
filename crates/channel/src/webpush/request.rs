//! From a notification to the head of a request (RFC 8030, section 5).

use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE};
use http::uri::PathAndQuery;
use http::{HeaderName, HeaderValue};
use net::request_head::{OwnField, RequestHead, SharedHead, SharedHeads};
use notification::{Content, Priority, Timestamp};
use serde::Deserialize;

use super::encryption::PLAINTEXT_BYTES_MAX;
use crate::Invalid;
use crate::object::{ByName, check_json};

/// How long push services keep a message at most: four weeks, in seconds. Some refuse more.
pub(super) const TTL_SECONDS_MAX: u64 = 28 * 24 * 3600;
const TOPIC_BYTES_MAX: usize = 32;

static TTL: HeaderName = HeaderName::from_static("ttl");
static URGENCY: HeaderName = HeaderName::from_static("urgency");
static TOPIC: HeaderName = HeaderName::from_static("topic");

const CODING: HeaderValue = HeaderValue::from_static("aes128gcm");
const OCTETS: HeaderValue = HeaderValue::from_static("application/octet-stream");

/// A content, ready but for what differs per attempt.
#[derive(Debug, Clone)]
pub(super) struct WebPushContent {
    pub(super) plaintext: Bytes,
    ttl_seconds: Option<u64>,
    shared: Rc<SharedHead>,
}

/// How long a message is of use.
#[derive(Debug, Clone, Copy)]
pub(super) struct Terms {
    pub(super) expires_at: Option<Timestamp>,
    /// For notifications that neither their options nor their end give one.
    pub(super) ttl: Duration,
}

/// The head of the request that sends a [`WebPushContent`] to a subscription.
#[derive(Debug)]
pub(super) struct WebPushHead<'a, Now> {
    /// The push service.
    pub(super) address: &'a Rc<SharedHead>,
    pub(super) prepared: &'a WebPushContent,
    /// Of the subscription.
    pub(super) path: &'a PathAndQuery,
    pub(super) authorization: &'a HeaderValue,
    /// Of the body.
    pub(super) bytes: usize,
    pub(super) terms: Terms,
    /// Asked for each try: the time to live goes on while a stream is waited for.
    pub(super) now: Now,
}

/// How much a message matters to a device that saves its battery.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Urgency {
    VeryLow,
    Low,
    Normal,
    High,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct WebPushOptions {
    ttl: Option<u64>,
    urgency: Option<Urgency>,
    topic: Option<String>,
}

// === impl WebPushContent ===

impl WebPushContent {
    /// Prepares `content`, to be sent at `priority`. What requests share becomes one of `heads`.
    pub(super) fn new(
        content: &Content,
        priority: Priority,
        heads: &SharedHeads,
    ) -> Result<Self, Invalid> {
        let WebPushOptions { ttl, urgency, topic } = read_options(&content.options)?;
        let topic = topic.map(HeaderValue::try_from).transpose();
        let topic = topic.map_err(|error| Invalid::at("/topic", error.to_string()))?;
        let urgency = urgency.unwrap_or_else(|| Urgency::of(priority));
        let mut shared = SharedHead::default()
            .with(&CONTENT_ENCODING, CODING)
            .with(&CONTENT_TYPE, OCTETS)
            .with(&URGENCY, HeaderValue::from_static(urgency.as_str()));
        if let Some(topic) = topic {
            shared.push(&TOPIC, topic);
        }
        let (plaintext, shared) = (content.payload.clone(), heads.unique(shared));
        Ok(Self { plaintext, ttl_seconds: ttl, shared })
    }

    /// The value of the options; else the time left until the notification's end; else the setting. Never longer than
    /// until its end.
    fn ttl_seconds(&self, terms: Terms, now: Timestamp) -> u64 {
        let left = terms.expires_at.map(|expires_at| expires_at.since(now).as_secs());
        let asked = self.ttl_seconds.or_else(|| left.is_none().then_some(terms.ttl.as_secs()));
        let [asked, left] = [asked, left].map(|seconds| seconds.unwrap_or(TTL_SECONDS_MAX));
        asked.min(left).min(TTL_SECONDS_MAX)
    }
}

// === impl WebPushHead ===

impl<Now: Fn() -> Timestamp> RequestHead for WebPushHead<'_, Now> {
    fn address(&self) -> &Rc<SharedHead> {
        self.address
    }

    fn shared(&self) -> Option<&Rc<SharedHead>> {
        Some(&self.prepared.shared)
    }

    fn path(&self) -> [&[u8]; 2] {
        [self.path.as_str().as_bytes(), &[]]
    }

    fn put_own(&self, put: &mut dyn FnMut(OwnField<'_>)) {
        let value = self.authorization.as_bytes();
        put(OwnField { name: &AUTHORIZATION, value, is_sensitive: true });
        let ttl_seconds = self.prepared.ttl_seconds(self.terms, (self.now)());
        let numbers = [(&CONTENT_LENGTH, self.bytes.to_string()), (&TTL, ttl_seconds.to_string())];
        for (name, value) in &numbers {
            put(OwnField { name, value: value.as_bytes(), is_sensitive: false });
        }
    }
}

// === impl Urgency ===

impl Urgency {
    const fn of(priority: Priority) -> Self {
        match priority {
            Priority::Urgent => Self::High,
            Priority::Normal => Self::Normal,
            Priority::Bulk => Self::Low,
        }
    }

    const fn as_str(self) -> &'static str {
        match self {
            Self::VeryLow => "very-low",
            Self::Low => "low",
            Self::Normal => "normal",
            Self::High => "high",
        }
    }
}

/// Checks a payload with its options.
pub(super) fn check_content(payload: &[u8], options: &[u8]) -> Result<(), Invalid> {
    // Its bytes reach the service worker as they came, so whether they are JSON is all there is to check.
    check_json(payload)?;
    let over = payload.len().saturating_sub(PLAINTEXT_BYTES_MAX);
    if over > 0 {
        return Err(Invalid::new(format!(
            "has {} bytes, {over} more than the {PLAINTEXT_BYTES_MAX} that push services take",
            payload.len()
        )));
    }
    read_options(options).map(drop)
}

fn read_options(options: &[u8]) -> Result<WebPushOptions, Invalid> {
    if options.is_empty() {
        return Ok(WebPushOptions::default());
    }
    let ByName(read): ByName<WebPushOptions> =
        serde_json::from_slice(options).map_err(|error| {
            Invalid::new(format!("must be a JSON object with ttl, urgency, topic: {error}"))
        })?;
    if read.ttl.is_some_and(|seconds| seconds > TTL_SECONDS_MAX) {
        let message = format!("must be at most {TTL_SECONDS_MAX} seconds (four weeks)");
        return Err(Invalid::at("/ttl", message));
    }
    // A topic has at most 32 characters of base64url (RFC 8030, section 5.4).
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    if let Some(topic) = &read.topic
        && !((1..=TOPIC_BYTES_MAX).contains(&topic.len()) && topic.bytes().all(is_plain))
    {
        let message =
            format!("must be 1 to {TOPIC_BYTES_MAX} letters, digits, hyphens and underscores");
        return Err(Invalid::at("/topic", message));
    }
    Ok(read)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::content_check;
    use http::HeaderMap;
    use http::uri::Authority;

    const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_500);

    fn head(options: &str, priority: Priority, left: Option<Duration>) -> HeaderMap {
        let options = Bytes::copy_from_slice(options.as_bytes());
        let content = Content { payload: Bytes::from_static(b"{}"), options, fallback: None };
        let expires_at = left.map(|left| NOW.plus(left));
        let head = WebPushHead {
            address: &Rc::new(SharedHead::address(&Authority::from_static("push.example"), None)),
            prepared: &WebPushContent::new(&content, priority, &SharedHeads::default()).unwrap(),
            path: &PathAndQuery::from_static("/a?b=c"),
            authorization: &HeaderValue::from_static("vapid t=x, k=y"),
            bytes: 103,
            terms: Terms { expires_at, ttl: Duration::from_mins(10) },
            now: || NOW,
        };
        assert!(head.is_writable());
        assert_eq!(head.address().get(":authority").unwrap(), "push.example");
        assert_eq!(head.path().concat(), b"/a?b=c");
        head.headers().unwrap()
    }

    #[test]
    fn a_head_says_all_that_the_standard_asks_for() {
        let headers = head("", Priority::Normal, None);
        let mut lines: Vec<_> = headers
            .iter()
            .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
            .collect();
        lines.sort();
        let expect = [
            "authorization: vapid t=x, k=y",
            "content-encoding: aes128gcm",
            "content-length: 103",
            "content-type: application/octet-stream",
            "ttl: 600",
            "urgency: normal",
        ];
        assert_eq!(lines, expect);
    }

    #[test]
    fn options_go_before_priority_and_setting_but_not_past_the_end() {
        let check = |options: &str, left: Option<u64>, expect: [&str; 3]| {
            let headers = head(options, Priority::Bulk, left.map(Duration::from_secs));
            let found = ["ttl", "urgency", "topic"]
                .map(|name| headers.get(name).map_or("", |value| value.to_str().unwrap()));
            assert_eq!(found, expect, "{options} {left:?}");
        };
        check("{}", None, ["600", "low", ""]);
        check("{}", Some(7_200), ["7200", "low", ""]);
        check("{}", Some(100 * 24 * 3600), ["2419200", "low", ""]);
        check(
            r#"{"ttl":0,"urgency":"very-low","topic":"a-B_9"}"#,
            None,
            ["0", "very-low", "a-B_9"],
        );
        check(r#"{"ttl":5000}"#, Some(60), ["60", "low", ""]);
        check(r#"{"ttl":5}"#, Some(60), ["5", "low", ""]);
        check(r#"{"urgency":"high"}"#, None, ["600", "high", ""]);
    }

    #[test]
    fn what_a_push_service_would_refuse_is_refused_before_it_is_stored() {
        let check = content_check(check_content);
        check(&format!("\"{}\"", "x".repeat(PLAINTEXT_BYTES_MAX - 2)), "", None);
        let over = format!("\"{}\"", "x".repeat(4_094));
        check(&over, "", Some(("", "has 4096 bytes, 103 more than the 3993")));
        check("{", "", Some(("", "is not valid JSON")));
        check("", "", Some(("", "is not valid JSON")));
        check("{}", "[]", Some(("", "must be a JSON object")));
        check("{}", r#"[60,"high","x"]"#, Some(("", "must be a JSON object")));
        check("{}", r#"{"tll":1}"#, Some(("", "unknown field `tll`")));
        check("{}", r#"{"ttl":-1}"#, Some(("", "ttl, urgency, topic")));
        check("{}", r#"{"ttl":2419201}"#, Some(("/ttl", "at most 2419200 seconds")));
        check("{}", r#"{"urgency":"now"}"#, Some(("", "unknown variant `now`")));
        check("{}", r#"{"topic":""}"#, Some(("/topic", "1 to 32 letters")));
        check("{}", r#"{"topic":"a b"}"#, Some(("/topic", "1 to 32 letters")));
        check(
            "{}",
            &format!(r#"{{"topic":"{}"}}"#, "x".repeat(33)),
            Some(("/topic", "1 to 32 letters")),
        );
    }
}

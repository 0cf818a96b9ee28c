//! From a notification to a signed request.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST, USER_AGENT};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request};
use http_body_util::Full;
use net::endpoint::Endpoint;
use notification::{Content, NotificationId, Timestamp, TraceContext};

use super::endpoints::Profile;
use super::headers::check_header;
use crate::Invalid;
use crate::object::{check_json, members};

static WEBHOOK_ID: HeaderName = HeaderName::from_static("webhook-id");
static WEBHOOK_TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");
static WEBHOOK_SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");

/// The header by which a trace goes on (W3C Trace Context).
static TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

const AGENT: HeaderValue = HeaderValue::from_static(concat!("Belfry/", env!("CARGO_PKG_VERSION")));
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// A content, ready but for what differs per attempt.
#[derive(Debug, Clone)]
pub(super) struct WebhookContent {
    headers: HeaderMap,
    payload: Bytes,
}

// === impl WebhookContent ===

impl WebhookContent {
    /// Prepares `content`.
    pub(super) fn new(content: &Content) -> Result<Self, Invalid> {
        let mut headers = read_options(&content.options)?;
        headers.insert(CONTENT_TYPE, JSON);
        headers.insert(USER_AGENT, AGENT);
        Ok(Self { headers, payload: content.payload.clone() })
    }

    /// The request to `endpoint` as the notification `id`, signed as of `now`, with what it causes as part of `trace`; `None` when
    /// something of it cannot be written as a header.
    pub(super) fn request(
        &self,
        endpoint: &Endpoint,
        id: NotificationId,
        profile: &Profile,
        (now, trace): (Timestamp, Option<TraceContext>),
    ) -> Option<Request<Full<Bytes>>> {
        let mut buffer = [0; 36];
        let id: &str = id.encode(&mut buffer);
        // Of this attempt and not of the notification: receivers refuse what is some minutes old.
        let timestamp = now.seconds().to_string();
        let signature = profile.signer.sign(id, &timestamp, &self.payload);
        let mut request = Request::new(Full::new(self.payload.clone()));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = endpoint.path.clone().into();
        let headers = request.headers_mut();
        headers.clone_from(&profile.headers);
        // These replace fields of the same name in the profile: a notification may say it otherwise.
        headers.extend(self.headers.clone());
        // Last, so that nothing which the settings or a caller add stands in their place.
        headers.insert(HOST, HeaderValue::from_str(&endpoint.origin.authority()).ok()?);
        headers.insert(WEBHOOK_ID.clone(), HeaderValue::from_str(id).ok()?);
        headers.insert(WEBHOOK_TIMESTAMP.clone(), HeaderValue::from_str(&timestamp).ok()?);
        headers.insert(WEBHOOK_SIGNATURE.clone(), HeaderValue::from_str(&signature).ok()?);
        if let Some(trace) = trace {
            headers.insert(TRACEPARENT.clone(), HeaderValue::from_str(&trace.traceparent()).ok()?);
        }
        Some(request)
    }
}

/// Checks a payload with its options.
pub(super) fn check_content(payload: &[u8], options: &[u8]) -> Result<(), Invalid> {
    // Its bytes are signed and sent as they came, so whether they are JSON is all there is to check.
    check_json(payload)?;
    read_options(options).map(drop)
}

fn read_options(options: &[u8]) -> Result<HeaderMap, Invalid> {
    let mut headers = HeaderMap::new();
    for (key, value) in &members(options)? {
        if key != "headers" {
            return Err(Invalid::within(&[key], "is unknown: a webhook takes headers"));
        }
        let refuse = || Invalid::at("/headers", "must be a JSON object of names and texts");
        for (name, value) in value.as_object().ok_or_else(refuse)? {
            let refuse = |message: &str| Invalid::within(&["headers", name], message);
            let text = value.as_str().ok_or_else(|| refuse("must be a text"))?;
            let (name, value) = check_header(name, text).map_err(refuse)?;
            headers.insert(name, value);
        }
    }
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use super::super::headers::RESERVED;
    use super::*;
    use crate::test_support::content_check;

    #[test]
    fn a_payload_is_any_json_and_options_are_headers() {
        let check = content_check(check_content);
        check("{}", "", None);
        check(" [1, 2] ", "{}", None);
        check("{", "", Some(("", "is not valid JSON")));
        check("", "", Some(("", "is not valid JSON")));
        check("{}", r#"{"headers":{"X-Tenant":"a","authorization":"Bearer x"}}"#, None);
        check("{}", r#"{"header":{}}"#, Some(("/header", "is unknown")));
        check("{}", r#"{"headers":[]}"#, Some(("/headers", "must be a JSON object")));
        check("{}", r#"{"headers":{"a b":"x"}}"#, Some(("/headers/a b", "is not a header name")));
        check("{}", r#"{"headers":{"":"x"}}"#, Some(("/headers/", "is not a header name")));
        check("{}", r#"{"headers":{"a":1}}"#, Some(("/headers/a", "must be a text")));
        check("{}", r#"{"headers":{"a":"x\r\ny: z"}}"#, Some(("/headers/a", "visible ASCII")));
        for name in RESERVED.iter().chain(&["Host", "Webhook-Id", "webhook-anything"]) {
            let options = serde_json::json!({ "headers": { *name: "x" } }).to_string();
            let pointer = format!("/headers/{name}");
            check("{}", &options, Some((&pointer, "is set by Belfry itself")));
        }
    }
}

//! The checks of a webhook receiver after Standard Webhooks 1.0.0. Every POST path is an endpoint.

use aws_lc_rs::hmac;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode};

use crate::Error;
use crate::exchange::{Answer, Content, Finding, Request};
use crate::provider::Trouble;

const SECRET_BYTES: std::ops::RangeInclusive<usize> = 24..=64;
/// How old or how far ahead a signed timestamp may be.
const TOLERANCE_SECONDS: u64 = 300;
const US_PER_SECOND: u64 = 1_000_000;

/// The webhook side of a provider.
#[derive(Debug)]
pub(crate) struct Webhook {
    secret: Option<Box<hmac::Key>>,
}

impl Webhook {
    /// Longest body that is taken.
    pub(crate) const CONTENT_BYTES_MAX: usize = 1 << 20;

    /// `secret` is `whsec_` and base64; without one every signature passes.
    pub(crate) fn new(secret: Option<&str>) -> Result<Self, Error> {
        Ok(Self { secret: secret.map(parse_secret).transpose()? })
    }

    pub(crate) fn examine<'a>(&self, request: &Request<'a>, now_us: u64) -> Finding<'a> {
        let id = text(request.headers, "webhook-id");
        let status = match request.content {
            _ if request.method != Method::POST => Some(StatusCode::METHOD_NOT_ALLOWED),
            Content::TooLong => Some(StatusCode::PAYLOAD_TOO_LARGE),
            Content::Whole(_) if id.is_empty() || id.contains('.') => Some(StatusCode::BAD_REQUEST),
            Content::Whole(body) if !self.is_signed(request.headers, id, body, now_us) => {
                Some(StatusCode::UNAUTHORIZED)
            }
            Content::Whole(_) => None,
        };
        let rejection = status.map(|status| Answer::new(status, Bytes::new()));
        Finding { id, recipient: request.path, authenticated: true, rejection }
    }

    pub(crate) const fn trouble(trouble: Trouble) -> Answer {
        let status = match trouble {
            Trouble::Gone => StatusCode::GONE,
            Trouble::Throttled => StatusCode::TOO_MANY_REQUESTS,
            Trouble::InternalError => StatusCode::INTERNAL_SERVER_ERROR,
            Trouble::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        };
        Answer::new(status, Bytes::new())
    }

    /// One of the signatures is ours, and its time is now.
    fn is_signed(&self, headers: &HeaderMap, id: &str, body: &[u8], now_us: u64) -> bool {
        let Some(secret) = &self.secret else {
            return true;
        };
        let timestamp = text(headers, "webhook-timestamp");
        let Ok(timestamp_s) = timestamp.parse::<u64>() else {
            return false;
        };
        if timestamp_s.abs_diff(now_us / US_PER_SECOND) > TOLERANCE_SECONDS {
            return false;
        }
        let mut context = hmac::Context::with_key(secret);
        for part in [id.as_bytes(), b".", timestamp.as_bytes(), b".", body] {
            context.update(part);
        }
        let expected = BASE64_STANDARD.encode(context.sign());
        text(headers, "webhook-signature")
            .split(' ')
            .filter_map(|signature| signature.strip_prefix("v1,"))
            .any(|signature| signature == expected)
    }
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

fn parse_secret(secret: &str) -> Result<Box<hmac::Key>, Error> {
    let encoded = secret.strip_prefix("whsec_").ok_or(Error::WebhookSecret)?;
    let bytes = BASE64_STANDARD.decode(encoded).map_err(|_| Error::WebhookSecret)?;
    if !SECRET_BYTES.contains(&bytes.len()) {
        return Err(Error::WebhookSecret);
    }
    Ok(Box::new(hmac::Key::new(hmac::HMAC_SHA256, &bytes)))
}

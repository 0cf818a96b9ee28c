//! The checks of APNs, in the order the provider makes them, and its error answers.

mod token;

use std::borrow::Cow;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, StatusCode};

use crate::Error;
use crate::exchange::{Finding, Request, SimAnswer, SimContent, Trouble};
use crate::fields::Fields;
use token::ApnsTokens;

const PATH_PREFIX: &str = "/3/device/";
const TOKEN_HEX_DIGITS: std::ops::RangeInclusive<usize> = 64..=200;
const PAYLOAD_BYTES_MAX: usize = 4096;
const VOIP_PAYLOAD_BYTES_MAX: usize = 5120;
const COLLAPSE_ID_BYTES_MAX: usize = 64;
const US_PER_DAY: u64 = 86_400_000_000;
const PUSH_TYPES: [&[u8]; 11] = [
    b"alert",
    b"background",
    b"location",
    b"voip",
    b"complication",
    b"fileprovider",
    b"mdm",
    b"liveactivity",
    b"pushtotalk",
    b"widgets",
    b"controls",
];

/// An error answer: its status and the `reason` in its body.
type ApnsRejection = (StatusCode, &'static str);

/// The APNs side of a provider.
#[derive(Debug)]
pub(crate) struct Apns {
    tokens: ApnsTokens,
}

/// The headers that matter; an empty one is an absent one.
#[derive(Debug, Default)]
struct ApnsHeaders<'a> {
    authorization: &'a [u8],
    collapse_id: &'a [u8],
    expiration: &'a [u8],
    id: &'a [u8],
    priority: &'a [u8],
    push_type: &'a [u8],
    topic: &'a [u8],
    /// One of them came more than once.
    repeated: bool,
}

impl Apns {
    /// Longest payload of any push type.
    pub(crate) const CONTENT_BYTES_MAX: usize = VOIP_PAYLOAD_BYTES_MAX;

    /// `public_key` is the file with the key that provider tokens are signed for.
    pub(crate) fn new(public_key: Option<&Path>, token_interval: Duration) -> Result<Self, Error> {
        Ok(Self { tokens: ApnsTokens::new(public_key, token_interval)? })
    }

    pub(crate) fn examine<'a>(&self, request: &Request<'a>, now_us: u64) -> Finding<'a> {
        let fields = ApnsHeaders::read(request.headers);
        let recipient = request.path.strip_prefix(PATH_PREFIX).unwrap_or_default();
        // Set on the way: a valid token lifts the limit of one stream, also where the request is refused for something
        // else.
        let mut authenticated = false;
        let mut check = || {
            check_address(request, recipient)?;
            if fields.repeated {
                return Err((StatusCode::BAD_REQUEST, "DuplicateHeaders"));
            }
            if fields.topic.is_empty() {
                return Err((StatusCode::BAD_REQUEST, "MissingTopic"));
            }
            self.tokens.verify(fields.authorization, now_us)?;
            authenticated = true;
            check_payload(request.content, fields.push_type)?;
            fields.check()
        };
        let rejection = check().err().map(|(status, reason)| answer(status, reason));
        Finding {
            // What is no text is no UUID either, and is refused as `BadMessageId`; the books show it so.
            id: Cow::Borrowed(str::from_utf8(fields.id).unwrap_or("?")),
            recipient,
            authenticated,
            rejection,
        }
    }

    pub(crate) fn trouble(trouble: Trouble, now_us: u64) -> SimAnswer {
        match trouble {
            // The token is said to have died a day ago.
            Trouble::Gone => {
                let timestamp_ms = now_us.saturating_sub(US_PER_DAY) / 1000;
                let body = format!(r#"{{"reason":"Unregistered","timestamp":{timestamp_ms}}}"#);
                SimAnswer::new(StatusCode::GONE, body.into())
            }
            Trouble::Throttled => answer(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests"),
            Trouble::InternalError => {
                answer(StatusCode::INTERNAL_SERVER_ERROR, "InternalServerError")
            }
            Trouble::Unavailable => answer(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable"),
        }
    }
}

impl<'a> ApnsHeaders<'a> {
    /// One pass over the headers: cheaper than a look-up for each.
    fn read(headers: &'a Fields) -> Self {
        let mut fields = Self::default();
        for (name, value) in headers.iter() {
            let field = match name {
                b"authorization" => &mut fields.authorization,
                b"apns-collapse-id" => &mut fields.collapse_id,
                b"apns-expiration" => &mut fields.expiration,
                b"apns-id" => &mut fields.id,
                b"apns-priority" => &mut fields.priority,
                b"apns-push-type" => &mut fields.push_type,
                b"apns-topic" => &mut fields.topic,
                _ => continue,
            };
            fields.repeated |= !field.is_empty();
            *field = value;
        }
        fields
    }

    fn check(&self) -> Result<(), ApnsRejection> {
        let bad = |reason| Err((StatusCode::BAD_REQUEST, reason));
        if !self.id.is_empty() && !is_uuid(self.id) {
            return bad("BadMessageId");
        }
        if !matches!(self.priority, b"" | b"1" | b"5" | b"10") {
            return bad("BadPriority");
        }
        if !self.expiration.iter().all(u8::is_ascii_digit) {
            return bad("BadExpirationDate");
        }
        if !self.push_type.is_empty() && !PUSH_TYPES.contains(&self.push_type) {
            return bad("InvalidPushType");
        }
        if self.collapse_id.len() > COLLAPSE_ID_BYTES_MAX {
            return bad("BadCollapseId");
        }
        Ok(())
    }
}

fn check_address(request: &Request<'_>, token: &str) -> Result<(), ApnsRejection> {
    if request.method != Method::POST {
        return Err((StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed"));
    }
    if !request.path.starts_with(PATH_PREFIX) {
        return Err((StatusCode::NOT_FOUND, "BadPath"));
    }
    if token.is_empty() {
        return Err((StatusCode::BAD_REQUEST, "MissingDeviceToken"));
    }
    let is_whole = TOKEN_HEX_DIGITS.contains(&token.len()) && token.len().is_multiple_of(2);
    if !is_whole || !is_hex(token.as_bytes()) {
        return Err((StatusCode::BAD_REQUEST, "BadDeviceToken"));
    }
    Ok(())
}

/// A payload is a JSON object; only its first and last letter are looked at.
fn check_payload(content: SimContent<'_>, push_type: &[u8]) -> Result<(), ApnsRejection> {
    let bytes_max = if push_type == b"voip" { VOIP_PAYLOAD_BYTES_MAX } else { PAYLOAD_BYTES_MAX };
    match content {
        SimContent::Whole(bytes) if bytes.len() <= bytes_max => {
            let object = bytes.trim_ascii();
            if object.starts_with(b"{") && object.ends_with(b"}") {
                Ok(())
            } else {
                Err((StatusCode::BAD_REQUEST, "PayloadEmpty"))
            }
        }
        SimContent::Whole(_) | SimContent::TooLong => {
            Err((StatusCode::PAYLOAD_TOO_LARGE, "PayloadTooLarge"))
        }
    }
}

fn is_uuid(text: &[u8]) -> bool {
    let groups = [(0, 8), (9, 13), (14, 18), (19, 23), (24, 36)];
    text.len() == 36
        && [8, 13, 18, 23].iter().all(|dash| text.get(*dash) == Some(&b'-'))
        && groups.iter().all(|(start, end)| text.get(*start..*end).is_some_and(is_hex))
}

/// Looks at every byte whatever the first ones are: that can be done for many at once.
fn is_hex(bytes: &[u8]) -> bool {
    bytes.iter().fold(true, |is_hex, byte| is_hex & byte.is_ascii_hexdigit())
}

fn answer(status: StatusCode, reason: &str) -> SimAnswer {
    SimAnswer::new(status, Bytes::from(format!(r#"{{"reason":"{reason}"}}"#)))
}

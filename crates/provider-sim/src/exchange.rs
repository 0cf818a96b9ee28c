//! The types that pass between the HTTP side and a provider.

use std::borrow::Cow;

use bytes::Bytes;
use http::header::{LOCATION, RETRY_AFTER};
use http::{HeaderValue, Method, StatusCode};

use crate::fields::Fields;

/// A complete request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request<'a> {
    pub(crate) method: &'a Method,
    /// Host and port as the client names them.
    pub(crate) authority: &'a str,
    pub(crate) path: &'a str,
    pub(crate) headers: &'a Fields,
    pub(crate) content: SimContent<'a>,
}

/// The body of a request.
#[derive(Debug, Clone, Copy)]
pub(crate) enum SimContent<'a> {
    Whole(&'a [u8]),
    /// Longer than what the provider takes; the rest was not read.
    TooLong,
}

/// The finding of a protocol's checks about a request.
#[derive(Debug)]
pub(crate) struct Finding<'a> {
    /// For the journal; empty when the request has none.
    pub(crate) id: Cow<'a, str>,
    pub(crate) recipient: &'a str,
    /// It brought a valid provider token (APNs).
    pub(crate) authenticated: bool,
    pub(crate) rejection: Option<SimAnswer>,
}

/// The time of a reply that is never made: the request is left without a word.
pub(crate) const NEVER_US: u64 = u64::MAX;

/// The action of a provider on a request, once its record is written.
#[derive(Debug)]
pub(crate) struct SimVerdict {
    pub(crate) reply: SimReply,
    /// Number of its record in the journal.
    pub(crate) record: u64,
    /// When to reply, in microseconds since the Unix epoch; 0 is at once, [`NEVER_US`] never.
    pub(crate) due_us: u64,
    pub(crate) authenticated: bool,
}

/// The reply on the wire. Small: it is moved from one queue to another while it waits for its record and its time.
#[derive(Debug)]
pub(crate) enum SimReply {
    Answer(Box<SimAnswer>),
    /// Nothing: the request is dropped.
    Silence,
    /// Nothing, and the connection ends.
    Disconnect,
    /// `REFUSED_STREAM`.
    Refuse,
}

/// Why a request is answered with an error by the provider's own choice.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Trouble {
    Gone,
    Throttled,
    InternalError,
    Unavailable,
}

/// An HTTP answer.
#[derive(Debug, Clone)]
pub(crate) struct SimAnswer {
    pub(crate) status: StatusCode,
    /// `apns-id` (APNs only).
    pub(crate) apns_id: Option<HeaderValue>,
    pub(crate) retry_after_seconds: Option<u32>,
    /// Where the message is (Web Push only).
    pub(crate) location: Option<HeaderValue>,
    pub(crate) body: Bytes,
}

impl SimAnswer {
    pub(crate) const fn new(status: StatusCode, body: Bytes) -> Self {
        Self { status, apns_id: None, retry_after_seconds: None, location: None, body }
    }

    /// The answer as an HTTP response that carries `body` in its own way.
    pub(crate) fn into_response<Body>(
        self,
        body: impl FnOnce(Bytes) -> Body,
    ) -> http::Response<Body> {
        let mut response = http::Response::new(body(self.body));
        *response.status_mut() = self.status;
        if let Some(mut apns_id) = self.apns_id {
            // Never the same twice: kept out of the header compression tables of both sides.
            apns_id.set_sensitive(true);
            response.headers_mut().insert("apns-id", apns_id);
        }
        if let Some(seconds) = self.retry_after_seconds {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        if let Some(location) = self.location {
            response.headers_mut().insert(LOCATION, location);
        }
        response
    }
}

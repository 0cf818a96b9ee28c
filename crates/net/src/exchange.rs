//! One request and its answer, over any version of HTTP: what a pool asks before it sends, what it gives back, and what is
//! certain when there is no answer.

use flow::Timing;
use http::HeaderMap;
use notification::Priority;

use crate::connect::ConnectFailure;
use crate::guard::Forbidden;

/// Decides about a request that waits to be sent: the pool knows when to ask, the caller knows the answer.
pub trait Permit: Copy {
    /// Why a request is withheld.
    type Refusal;

    /// The priority by which requests wait for a stream.
    fn priority(self) -> Priority;

    /// True if the server must never see the request twice.
    fn is_at_most_once(self) -> bool;

    /// Asked with the stream or connection in hand, right before the first byte of each try: to get there may have taken so
    /// long that the answer is another one than before. It may wait.
    ///
    /// # Errors
    /// When it must not be sent, or not any more.
    fn begin(self) -> impl Future<Output = Result<(), Self::Refusal>>;
}

/// The answer to a request.
#[derive(Debug)]
pub struct Reply {
    /// The status code.
    pub status: u16,
    /// The header fields.
    pub headers: HeaderMap,
    /// The beginning of the body, without the request's credentials: at most [`crate::ANSWER_BYTES`] over HTTP/2, and
    /// [`DETAIL_BYTES`](notification::limits::DETAIL_BYTES) over HTTP/1.1; empty for an acceptance.
    pub body: Vec<u8>,
    /// How long the try took that was answered.
    pub timing: Timing,
}

/// Why there is no answer, and what is certain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure<Refusal> {
    /// The server certainly did not process the request.
    Unsent(Unsent<Refusal>),
    /// The request may have been sent, and processed; in words.
    Lost(String),
}

/// Why a request was not sent, or not processed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unsent<Refusal> {
    /// The server's address must not be connected to.
    Forbidden(Forbidden),
    /// There is no connection; in words.
    Unreachable(String),
    /// The server does not speak this version of HTTP, or not for this request; in words. Another version may do.
    NotSpoken(String),
    /// All streams or connections were in use for as long as a request waits.
    Full,
    /// The server refused every try, and processed none; in words.
    Declined(String),
    /// The request cannot be written.
    Unwritable,
    /// The [`Permit`] was refused.
    Withheld(Refusal),
}

// === impl Failure ===

impl<Refusal> From<Unsent<Refusal>> for Failure<Refusal> {
    fn from(unsent: Unsent<Refusal>) -> Self {
        Self::Unsent(unsent)
    }
}

// === impl Unsent ===

impl<Refusal> From<ConnectFailure> for Unsent<Refusal> {
    fn from(failure: ConnectFailure) -> Self {
        match failure {
            ConnectFailure::Forbidden(forbidden) => Self::Forbidden(forbidden),
            ConnectFailure::NotSpoken(words) => Self::NotSpoken(words),
            ConnectFailure::Unreachable(_, words) => Self::Unreachable(words),
        }
    }
}

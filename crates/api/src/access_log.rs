//! The access log: a line for a request, written when its answer has ended, or when it is given up since its caller is gone. Every
//! answer of a process that works has the identifier of its request.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use aws_lc_rs::rand;
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderName, HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::Response;
use flow::Clock;
use hyper::body::{Frame, SizeHint};
use notification::Name;
use serde::Deserialize;
use tokio::time::Instant;

use crate::request_mark::RequestMark;

/// The requests that have a line in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AccessLog {
    /// None.
    None,
    /// Those that change what was handed in or how it is sent, those for which a known key is not good, and those that fail with a 500.
    #[default]
    Acts,
    /// All.
    All,
}

/// The access log of a process.
#[derive(Debug)]
pub(crate) struct RequestLog {
    shown: AccessLog,
    clock: Clock,
    /// Begins the identifiers of this process.
    process: u64,
    next: AtomicU64,
}

/// A line of the log. It is written when this is dropped.
#[derive(Debug)]
struct AccessLine {
    shown: AccessLog,
    mark: RequestMark,
    method: Method,
    route: Option<MatchedPath>,
    /// `None` until the answer begins.
    status: Option<StatusCode>,
    /// Bytes of the answer that were sent.
    bytes: u64,
    started: Instant,
    clock: Clock,
}

/// The body of an answer that has a line in the log.
struct LoggedBody {
    inner: Body,
    line: AccessLine,
}

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// An identifier that a caller gives: bytes.
const ID_BYTES: usize = 128;

/// Gives the answer its identifier, and the log its line.
pub(crate) async fn log(
    State(log): State<Arc<RequestLog>>,
    mut request: Request,
    next: Next,
) -> Response {
    let given = request.headers().get(&REQUEST_ID).filter(|id| is_plain(id)).cloned();
    let id = given.unwrap_or_else(|| log.new_id());
    let mark = RequestMark::new(id.clone());
    request.extensions_mut().insert(mark.clone());
    let mut line = AccessLine {
        shown: log.shown,
        mark,
        method: request.method().clone(),
        route: request.extensions().get::<MatchedPath>().cloned(),
        status: None,
        bytes: 0,
        started: log.clock.monotonic(),
        clock: log.clock,
    };
    let mut response = next.run(request).await;
    response.headers_mut().insert(REQUEST_ID, id);
    line.status = Some(response.status());
    if !line.is_shown() {
        return response;
    }
    response.map(|inner| Body::new(LoggedBody { inner, line }))
}

/// True for an identifier that may stand in a log and in a header.
fn is_plain(id: &HeaderValue) -> bool {
    (1..=ID_BYTES).contains(&id.len()) && id.as_bytes().iter().all(u8::is_ascii_graphic)
}

// === impl RequestLog ===

impl RequestLog {
    pub(crate) fn new(shown: AccessLog, clock: Clock) -> Self {
        let mut process = [0; 8];
        // Without random numbers identifiers are those of this process alone, and nothing depends on them.
        let _none = rand::fill(&mut process);
        Self { shown, clock, process: u64::from_le_bytes(process), next: AtomicU64::new(1) }
    }

    fn new_id(&self) -> HeaderValue {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let id = format!("{:016x}-{number:x}", self.process);
        HeaderValue::try_from(id).unwrap_or_else(|_| HeaderValue::from_static("-"))
    }
}

// === impl LoggedBody ===

impl HttpBody for LoggedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = Pin::new(&mut self.inner).poll_frame(context);
        if let Poll::Ready(Some(Ok(frame))) = &polled {
            self.line.bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

// === impl AccessLine ===

impl AccessLine {
    fn is_shown(&self) -> bool {
        match self.shown {
            AccessLog::None => false,
            AccessLog::Acts => self.mark.is_act() || self.is_refused() || self.has_failed(),
            AccessLog::All => true,
        }
    }

    /// True if the key is known and not good for the request. Requests without a known key could fill the log.
    fn is_refused(&self) -> bool {
        let refusals = [Some(StatusCode::UNAUTHORIZED), Some(StatusCode::FORBIDDEN)];
        self.mark.caller().is_some() && refusals.contains(&self.status)
    }

    fn has_failed(&self) -> bool {
        self.status == Some(StatusCode::INTERNAL_SERVER_ERROR)
    }
}

impl Drop for AccessLine {
    fn drop(&mut self) {
        if !self.is_shown() {
            return;
        }
        let id = self.mark.id();
        let caller = self.mark.caller();
        let key = caller.and_then(|caller| caller.key.as_ref()).map(Name::as_str);
        let tenant = caller.map(|caller| caller.tenant.as_str());
        let (method, bytes) = (self.method.as_str(), self.bytes);
        let route = self.route.as_ref().map(MatchedPath::as_str);
        let status = self.status.map(|status| status.as_u16());
        let ms = self.clock.monotonic().duration_since(self.started).as_millis();
        let ms = u64::try_from(ms).unwrap_or(u64::MAX);
        tracing::info!(id, key, tenant, method, route, status, bytes, ms, "request");
    }
}

//! The access log: a line for a request, written when its answer has ended. Every answer has the identifier of its request.

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

use crate::keys::{Act, Caller};

/// The requests that have a line in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AccessLog {
    /// None.
    None,
    /// Those that change what was handed in or how it is sent, those that are refused for their key, and those that fail here.
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

/// A line of the log, as far as it is known when the answer begins.
#[derive(Debug)]
struct AccessLine {
    id: HeaderValue,
    caller: Option<(Option<Name>, Name)>,
    method: Method,
    route: Option<MatchedPath>,
    status: StatusCode,
    started: Instant,
    clock: Clock,
}

/// The body of an answer that has a line in the log.
struct LoggedBody {
    inner: Body,
    bytes: u64,
    line: AccessLine,
}

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// An identifier that a caller gives: bytes.
const ID_BYTES: usize = 128;

/// Gives the answer its identifier, and the log its line.
pub(crate) async fn log(
    State(log): State<Arc<RequestLog>>,
    request: Request,
    next: Next,
) -> Response {
    let started = log.clock.monotonic();
    let given = request.headers().get(&REQUEST_ID).filter(|id| is_plain(id)).cloned();
    let id = given.unwrap_or_else(|| log.new_id());
    let method = request.method().clone();
    let route = request.extensions().get::<MatchedPath>().cloned();
    let mut response = next.run(request).await;
    response.headers_mut().insert(REQUEST_ID, id.clone());
    if !log.shows(&response) {
        return response;
    }
    let status = response.status();
    let caller = response.extensions().get::<Caller>().map(Caller::names);
    let line = AccessLine { id, caller, method, route, status, started, clock: log.clock };
    response.map(|inner| Body::new(LoggedBody { inner, bytes: 0, line }))
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

    fn shows(&self, response: &Response) -> bool {
        let status = response.status();
        match self.shown {
            AccessLog::None => false,
            AccessLog::Acts => {
                response.extensions().get::<Act>().is_some()
                    || [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN].contains(&status)
                    || status == StatusCode::INTERNAL_SERVER_ERROR
            }
            AccessLog::All => true,
        }
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
            self.bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
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

impl Drop for LoggedBody {
    fn drop(&mut self) {
        self.line.write(self.bytes);
    }
}

// === impl AccessLine ===

impl AccessLine {
    /// Writes it, with the `bytes` of the answer that were sent.
    fn write(&self, bytes: u64) {
        let id = self.id.to_str().unwrap_or_default();
        let (key, tenant) = match &self.caller {
            Some((key, tenant)) => (key.as_ref().map(Name::as_str), Some(tenant.as_str())),
            None => (None, None),
        };
        let (method, status) = (self.method.as_str(), self.status.as_u16());
        let route = self.route.as_ref().map(MatchedPath::as_str);
        let ms = self.clock.monotonic().duration_since(self.started).as_millis();
        let ms = u64::try_from(ms).unwrap_or(u64::MAX);
        tracing::info!(id, key, tenant, method, route, status, bytes, ms, "request");
    }
}

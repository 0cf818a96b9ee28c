//! The access log: a line for a request, written when its answer has ended, or when it is given up since its caller is gone. Every
//! answer of a process that works has the identifier of its request.

use std::future::Future;
use std::io::Write as _;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use aws_lc_rs::rand;
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{MatchedPath, Request};
use axum::http::{HeaderName, HeaderValue, Method, StatusCode};
use axum::response::Response;
use flow::Clock;
use hyper::body::{Frame, SizeHint};
use notification::Name;
use pin_project_lite::pin_project;
use serde::Deserialize;
use tokio::time::Instant;
use tower::{Layer, Service};

use crate::ApiState;
use crate::request_mark::RequestMark;
use crate::request_times::RequestTimes;
use crate::request_traces::{AnsweredRequest, RequestSpan, RequestTraces};

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
    /// An identifier of this process, whose number is still to be written behind [`PROCESS_BYTES`].
    unnumbered: [u8; PROCESS_BYTES + NUMBER_BYTES],
    next: AtomicU64,
    times: RequestTimes,
    traces: Option<Arc<RequestTraces>>,
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
    times: RequestTimes,
    span: Option<RequestSpan>,
}

/// Gives each answer its identifier, and the log its line. A layer of its own and no function with `Next`, which copies the routes and
/// allocates its future for each request.
#[derive(Debug, Clone)]
pub(crate) struct LogLayer(pub(crate) Arc<RequestLog>);

/// A service whose requests have lines in the log.
#[derive(Debug, Clone)]
pub(crate) struct LoggedService<S> {
    inner: S,
    log: Arc<RequestLog>,
}

pin_project! {
    /// An answer on its way. Its line is written also when this is dropped before, since its caller is gone.
    pub(crate) struct LoggedAnswer<F> {
        #[pin]
        answer: F,
        line: Option<AccessLine>,
    }
}

/// The body of an answer that has a line in the log.
struct LoggedBody {
    inner: Body,
    line: AccessLine,
}

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// An identifier that a caller gives: bytes.
const ID_BYTES: usize = 128;
/// Bytes of an identifier that are the same in all of a process: a number in hexadecimal digits, and a dash.
const PROCESS_BYTES: usize = 17;
/// Bytes of the number behind them, at most.
const NUMBER_BYTES: usize = 16;

/// True for an identifier that may stand in a log and in a header.
fn is_plain(id: &HeaderValue) -> bool {
    (1..=ID_BYTES).contains(&id.len()) && id.as_bytes().iter().all(u8::is_ascii_graphic)
}

// === impl RequestLog ===

impl RequestLog {
    /// The log of the process with `shared`, whose requests it times as well.
    pub(crate) fn of(shared: &ApiState) -> Self {
        let (shown, clock) = (shared.access_log, shared.intake.clock());
        let (times, traces) = (shared.request_times.clone(), shared.traces.clone());
        let mut process = [0; 8];
        // Without random numbers identifiers are those of this process alone, and nothing depends on them.
        let _none = rand::fill(&mut process);
        let mut unnumbered = [0; PROCESS_BYTES + NUMBER_BYTES];
        // There is room.
        let _written = write!(unnumbered.as_mut_slice(), "{:016x}-", u64::from_le_bytes(process));
        Self { shown, clock, unnumbered, next: AtomicU64::new(1), times, traces }
    }

    /// The line of `request`.
    fn begin(&self, request: &Request) -> AccessLine {
        let given = request.headers().get(&REQUEST_ID).filter(|id| is_plain(id)).cloned();
        let route = request.extensions().get::<MatchedPath>().cloned();
        let span = self.traces.as_ref().and_then(|traces| {
            RequestTraces::begin(traces, request.headers(), route.as_ref()?.as_str())
        });
        let trace = span.as_ref().map(RequestSpan::context);
        AccessLine {
            shown: self.shown,
            mark: RequestMark::new(given.unwrap_or_else(|| self.new_id()), trace),
            method: request.method().clone(),
            route,
            status: None,
            bytes: 0,
            started: self.clock.monotonic(),
            clock: self.clock,
            times: self.times.clone(),
            span,
        }
    }

    fn new_id(&self) -> HeaderValue {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        // Each answer has one: it is written without the detour by a text.
        let mut id = self.unnumbered;
        let (_, mut room) = id.split_at_mut(PROCESS_BYTES);
        let _written = write!(room, "{number:x}");
        let left = room.len();
        let (id, _) = id.split_at(id.len() - left);
        HeaderValue::from_bytes(id).unwrap_or_else(|_| HeaderValue::from_static("-"))
    }
}

// === impl LogLayer ===

impl<S> Layer<S> for LogLayer {
    type Service = LoggedService<S>;

    fn layer(&self, inner: S) -> LoggedService<S> {
        LoggedService { inner, log: Arc::clone(&self.0) }
    }
}

// === impl LoggedService ===

impl<S: Service<Request, Response = Response>> Service<Request> for LoggedService<S> {
    type Response = Response;
    type Error = S::Error;
    type Future = LoggedAnswer<S::Future>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request) -> LoggedAnswer<S::Future> {
        let line = self.log.begin(&request);
        request.extensions_mut().insert(line.mark.clone());
        LoggedAnswer { answer: self.inner.call(request), line: Some(line) }
    }
}

// === impl LoggedAnswer ===

impl<F, E> Future for LoggedAnswer<F>
where
    F: Future<Output = Result<Response, E>>,
{
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let answered = ready!(this.answer.poll(context));
        Poll::Ready(answered.map(|response| match this.line.take() {
            Some(line) => line.on(response),
            None => response,
        }))
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
    /// `response` with the identifier of its request, and with this line if it is shown.
    fn on(mut self, mut response: Response) -> Response {
        response.headers_mut().insert(REQUEST_ID, self.mark.header());
        self.status = Some(response.status());
        self.time();
        if !self.is_shown() {
            return response;
        }
        response.map(|inner| Body::new(LoggedBody { inner, line: self }))
    }

    /// Counts the request, whose answer begins now, or will not, and tells of it if it is traced.
    fn time(&mut self) {
        let route = self.route.as_ref().map(MatchedPath::as_str);
        let took = self.clock.monotonic().duration_since(self.started);
        self.times.add((&self.method, route), self.status, took);
        if let Some(span) = self.span.take() {
            let asked = AnsweredRequest {
                method: &self.method,
                route: route.unwrap_or_default(),
                status: self.status,
                mark: &self.mark,
            };
            span.ended(&asked, self.clock.wall(), took);
        }
    }

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
        if self.status.is_none() {
            self.time();
        }
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
        let trace = self.mark.trace().map(|context| tracing::field::display(context.trace));
        tracing::info!(id, trace, key, tenant, method, route, status, bytes, ms, "request");
    }
}

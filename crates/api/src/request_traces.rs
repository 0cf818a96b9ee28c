//! Traces of requests: which are recorded, and the span of each that is.
//!
//! A request that its caller records is recorded here as well, and one that its caller does not record is not (W3C Trace Context,
//! section 3.2.2.5). Of those that come without a context a part is recorded, which begin traces.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::http::{HeaderMap, HeaderName, Method, StatusCode};
use notification::{SpanId, TraceContext, TraceId, TraceParent};
use pipeline::spans::{SpanKind, SpanSink, SpanValue, TraceSpan};

use crate::request_mark::RequestMark;

/// Decides which requests are traced, and tells of those.
#[derive(Debug)]
pub struct RequestTraces {
    sink: Arc<dyn SpanSink>,
    /// Part of the requests without a context that is recorded, 0 to 1.
    ratio: f64,
    /// True if callers decide of those that come with a context.
    follows_callers: bool,
    seed: [u64; 3],
    next: AtomicU64,
}

/// The span of a request that is not answered yet.
#[derive(Debug)]
pub(crate) struct RequestSpan {
    traces: Arc<RequestTraces>,
    context: TraceContext,
    parent: Option<SpanId>,
}

/// A request whose answer begins, or that was given up.
#[derive(Debug)]
pub(crate) struct AnsweredRequest<'a> {
    pub(crate) method: &'a Method,
    /// Template of its path.
    pub(crate) route: &'a str,
    /// `None` if its caller was gone before.
    pub(crate) status: Option<StatusCode>,
    pub(crate) mark: &'a RequestMark,
}

/// Routes that are traced: those of the API, and not what probes and scrapers ask for.
const TRACED: &str = "/v1/";
/// Stands for a method that is not named.
const OTHER: &str = "_OTHER";
/// Methods that are named; others are `_OTHER`, as the conventions have it, since a caller may make up any number of them.
const METHODS: [Method; 7] = [
    Method::GET,
    Method::HEAD,
    Method::POST,
    Method::PUT,
    Method::PATCH,
    Method::DELETE,
    Method::OPTIONS,
];
/// The header with the context of the caller.
static TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

// === impl RequestTraces ===

impl RequestTraces {
    /// Traces for `sink`: a part of `ratio`, from 0 to 1, of the requests without a context, and of the others those that their callers
    /// record, or, if it does not follow these, the same part. The numbers of `seed` are another process's by no chance.
    pub fn new(sink: Arc<dyn SpanSink>, ratio: f64, follows_callers: bool, seed: [u64; 3]) -> Self {
        Self { sink, ratio, follows_callers, seed, next: AtomicU64::new(0) }
    }

    /// The span of a request to `route` with these headers; `None` if it is not traced.
    pub(crate) fn begin(
        traces: &Arc<Self>,
        headers: &HeaderMap,
        route: &str,
    ) -> Option<RequestSpan> {
        if !route.starts_with(TRACED) {
            return None;
        }
        let mut given = headers.get_all(&TRACEPARENT).iter();
        // Two contexts are none (section 3.2).
        let parent = match (given.next(), given.next()) {
            (Some(value), None) => TraceParent::parse(value.as_bytes()),
            _ => None,
        };
        let number = traces.next.fetch_add(1, Ordering::Relaxed);
        let [high, low, span] = traces.seed;
        let drawn = TraceId::of_number([high, low], number);
        let is_recorded = match parent {
            Some(parent) if traces.follows_callers => parent.is_sampled,
            _ => drawn.part() < traces.ratio,
        };
        is_recorded.then(|| RequestSpan {
            traces: Arc::clone(traces),
            context: TraceContext {
                trace: parent.map_or(drawn, |parent| parent.context.trace),
                span: SpanId::of_number(span, number),
            },
            parent: parent.map(|parent| parent.context.span),
        })
    }
}

// === impl RequestSpan ===

impl RequestSpan {
    /// The context of what the request causes.
    pub(crate) fn context(&self) -> TraceContext {
        self.context
    }

    /// Tells of the request, which has ended at `ended_at` since the Unix epoch and `took` so long.
    pub(crate) fn ended(self, asked: &AnsweredRequest<'_>, ended_at: Duration, took: Duration) {
        let AnsweredRequest { method, route, status, mark } = *asked;
        // Callers without a known key could fill the way to the receiver, and the traces of others.
        let Some(caller) = mark.caller() else { return };
        let method = METHODS.into_iter().find(|known| known == method);
        let method = method.as_ref().map_or(OTHER, Method::as_str);
        let mut attributes: Vec<(&'static str, SpanValue)> = vec![
            ("http.request.method", method.to_owned().into()),
            ("http.route", route.to_owned().into()),
            ("belfry.request.id", mark.id().to_owned().into()),
            ("belfry.tenant", caller.tenant.to_string().into()),
        ];
        if let Some(status) = status {
            attributes.push(("http.response.status_code", status.as_u16().into()));
        }
        // As the conventions have it: what a caller does wrong is no error of the server.
        let error = match status {
            Some(status) if status.is_server_error() => Some(status.as_u16().to_string().into()),
            Some(_) => None,
            None => Some("caller_gone".into()),
        };
        self.traces.sink.record(TraceSpan {
            context: self.context,
            parent: self.parent,
            kind: SpanKind::Server,
            name: format!("{} {route}", if method == OTHER { "HTTP" } else { method }).into(),
            began_at: ended_at.saturating_sub(took),
            ended_at,
            attributes,
            error,
        });
    }
}

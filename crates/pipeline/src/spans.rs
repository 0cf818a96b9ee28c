//! Spans: what is told of traced requests and attempts to a collector of traces. One is told when it has ended. Where nothing is traced
//! there is no sink, and nothing is done for it.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use notification::{SpanId, TraceContext};

/// A piece of work that has ended, of a trace that is recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceSpan {
    /// Its trace, and its own identifier within that.
    pub context: TraceContext,
    /// The span that caused it, in another process; `None` for the first of a trace.
    pub parent: Option<SpanId>,
    /// Which side of a call it is.
    pub kind: SpanKind,
    /// The kind of work: few names, known beforehand.
    pub name: Cow<'static, str>,
    /// Time of its beginning, since the Unix epoch.
    pub began_at: Duration,
    /// Time of its end, likewise.
    pub ended_at: Duration,
    /// More about it, by the names of the semantic conventions of OpenTelemetry; those that begin with `belfry.` are ours.
    pub attributes: Vec<(&'static str, SpanValue)>,
    /// The code of what failed; `None` if nothing did.
    pub error: Option<Cow<'static, str>>,
}

/// The sides of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpanKind {
    /// A request of a caller is answered.
    Server,
    /// A provider is asked.
    Client,
}

/// The value of an attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SpanValue {
    /// A text.
    Text(Cow<'static, str>),
    /// A number.
    Number(i64),
}

/// Takes spans. It is called between two attempts, so it must not wait: it drops what it has no room for.
pub trait SpanSink: Send + Sync + fmt::Debug {
    /// Takes a span.
    fn record(&self, span: TraceSpan);

    /// Hands over what it has, once, at the end of the process, from a thread that may wait. Default: it has nothing.
    fn close(&self) {}
}

// === impl SpanValue ===

impl From<String> for SpanValue {
    fn from(text: String) -> Self {
        Self::Text(text.into())
    }
}

impl From<&'static str> for SpanValue {
    fn from(text: &'static str) -> Self {
        Self::Text(text.into())
    }
}

impl From<u128> for SpanValue {
    fn from(number: u128) -> Self {
        Self::Number(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl From<u16> for SpanValue {
    fn from(number: u16) -> Self {
        Self::Number(number.into())
    }
}

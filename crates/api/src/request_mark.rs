//! A note on a request, which says on the way out what was found on the way in.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use axum::http::HeaderValue;
use notification::{Name, TraceContext};

/// A note on a request, shared by all who see the request or its answer. It outlives a handler that is given up.
#[derive(Debug, Clone)]
pub(crate) struct RequestMark(Arc<MarkState>);

#[derive(Debug)]
struct MarkState {
    id: HeaderValue,
    trace: Option<TraceContext>,
    caller: OnceLock<CallerNames>,
    is_act: AtomicBool,
}

/// The names of a caller.
#[derive(Debug, Clone)]
pub(crate) struct CallerNames {
    /// Of its key, if there are any.
    pub(crate) key: Option<Name>,
    pub(crate) tenant: Name,
}

// === impl RequestMark ===

impl RequestMark {
    /// A mark on the request with this identifier, of which what it causes is part of `trace`.
    pub(crate) fn new(id: HeaderValue, trace: Option<TraceContext>) -> Self {
        let (caller, is_act) = (OnceLock::new(), AtomicBool::new(false));
        Self(Arc::new(MarkState { id, trace, caller, is_act }))
    }

    /// The identifier of the request, as a header has it.
    pub(crate) fn header(&self) -> HeaderValue {
        self.0.id.clone()
    }

    /// The identifier of the request.
    pub(crate) fn id(&self) -> &str {
        self.0.id.to_str().unwrap_or_default()
    }

    /// The trace that what it causes is part of; `None` if it is not traced.
    pub(crate) fn trace(&self) -> Option<TraceContext> {
        self.0.trace
    }

    /// Notes who asks, once.
    pub(crate) fn set_caller(&self, caller: CallerNames) {
        let _first = self.0.caller.set(caller);
    }

    /// Notes that the request changes what was handed in, or how it is sent.
    pub(crate) fn set_act(&self) {
        self.0.is_act.store(true, Ordering::Relaxed);
    }

    /// The caller, if it is known.
    pub(crate) fn caller(&self) -> Option<&CallerNames> {
        self.0.caller.get()
    }

    /// True if the request changes what was handed in, or how it is sent.
    pub(crate) fn is_act(&self) -> bool {
        self.0.is_act.load(Ordering::Relaxed)
    }
}

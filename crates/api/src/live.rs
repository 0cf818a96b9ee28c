//! `GET /v1/status`: where work stands, once, or as it changes.
//!
//! Those who follow share one look at the store a second: ten open pages cost about what one does. Nothing runs while there are none.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::{Extension, State};
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use notification::limits::OVERLOAD_RETRY_AFTER;
use store::{ErrorKind, StoreError};
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep};

use crate::ApiState;
use crate::caller::Caller;
use crate::events::{HEARTBEAT, HEARTBEAT_COMMENT, STREAM_HEADERS, wants_stream};
use crate::grants::KeyScope;
use crate::limits::{LIVE_INTERVAL, LIVE_STREAMS};
use crate::problem::Problem;
use crate::problem_code::ProblemCode;
use crate::status::current;

/// The last look at the status, shared by those who follow it.
#[derive(Debug)]
pub struct LiveStatus {
    last: Mutex<Option<Look>>,
    /// Room for those who follow. Not that of streams of events, which the applications of a tenant may use up.
    room: Arc<Semaphore>,
}

/// A look at the status.
#[derive(Debug, Clone)]
struct Look {
    at: Instant,
    /// The event that tells of it.
    event: Bytes,
}

/// One who follows the status.
struct StatusStream {
    shared: Arc<ApiState>,
    caller: Caller,
    /// The event that was sent last; empty before the first.
    sent: Bytes,
    sent_at: Instant,
    /// Held as long as the stream.
    _room: OwnedSemaphorePermit,
}

/// Answers with the status, or, with `Accept: text/event-stream`, with a stream of it.
pub(crate) async fn status(
    State(shared): State<Arc<ApiState>>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    if wants_stream(&headers) {
        return follow(shared, caller);
    }
    Ok(Json(current(&shared).await?).into_response())
}

/// Answers with the status at once, and again whenever it has changed, [`LIVE_INTERVAL`] apart at least, until the caller leaves, its key
/// or session ends, or the server stops. While the store is away, the event `unavailable` tells so, with the problem that a single
/// answer would be.
fn follow(shared: Arc<ApiState>, caller: Caller) -> Result<Response, Problem> {
    let room = shared.live.open()?;
    let sent_at = shared.intake.clock().monotonic();
    let following = StatusStream { shared, caller, sent: Bytes::new(), sent_at, _room: room };
    let events = stream::try_unfold(following, StatusStream::next);
    Ok((STREAM_HEADERS, Body::from_stream(events)).into_response())
}

// === impl LiveStatus ===

impl LiveStatus {
    fn open(&self) -> Result<OwnedSemaphorePermit, Problem> {
        Arc::clone(&self.room).try_acquire_owned().map_err(|_| {
            let detail = format!(
                "{LIVE_STREAMS} callers follow the status: close one, or ask GET /v1/status"
            );
            Problem::new(ProblemCode::TooManyStreams, detail).retry_after(OVERLOAD_RETRY_AFTER)
        })
    }

    /// The event of the last look, or of a new one if that is [`LIVE_INTERVAL`] old. Who comes while one is taken waits for it.
    async fn event(&self, shared: &ApiState) -> Result<Bytes, StoreError> {
        let mut last = self.last.lock().await;
        let now = shared.intake.clock().monotonic();
        let is_fresh = |look: &&Look| now.saturating_duration_since(look.at) < LIVE_INTERVAL;
        if let Some(look) = last.as_ref().filter(is_fresh) {
            return Ok(look.event.clone());
        }
        let event = match current(shared).await {
            Ok(status) => event("status", &status),
            Err(error) if error.kind() == ErrorKind::Unavailable => {
                event("unavailable", &Problem::from(error).details())
            }
            Err(error) => return Err(error),
        };
        let event = event.map_err(|error| StoreError::Damaged(error.to_string()))?;
        // By the clock after the look: who waited for one that took long has this one.
        let at = shared.intake.clock().monotonic();
        *last = Some(Look { at, event: event.clone() });
        Ok(event)
    }
}

impl Default for LiveStatus {
    fn default() -> Self {
        Self { last: Mutex::default(), room: Arc::new(Semaphore::new(LIVE_STREAMS)) }
    }
}

fn event(name: &str, data: &impl serde::Serialize) -> serde_json::Result<Bytes> {
    let mut event = format!("event: {name}\ndata: ").into_bytes();
    serde_json::to_writer(&mut event, data)?;
    event.extend_from_slice(b"\n\n");
    Ok(event.into())
}

// === impl StatusStream ===

impl StatusStream {
    /// The next bytes, and the stream behind them; none once the server stops or the caller is let in no more. After an error the
    /// connection is cut.
    async fn next(mut self) -> Result<Option<(Bytes, Self)>, StoreError> {
        loop {
            if !self.sent.is_empty() {
                sleep(LIVE_INTERVAL).await;
            }
            if self.shared.is_stopping() || !self.is_let_in() {
                return Ok(None);
            }
            let event = tokio::select! {
                event = self.shared.live.event(&self.shared) => event?,
                // While the store does not answer, the reader still knows that the stream lives.
                () = sleep(HEARTBEAT) => return Ok(Some((HEARTBEAT_COMMENT, self))),
            };
            let now = self.shared.intake.clock().monotonic();
            if event != self.sent {
                (self.sent, self.sent_at) = (event.clone(), now);
                return Ok(Some((event, self)));
            }
            if now.saturating_duration_since(self.sent_at) >= HEARTBEAT {
                self.sent_at = now;
                return Ok(Some((HEARTBEAT_COMMENT, self)));
            }
        }
    }

    /// True while its key, and its session if it came by one, are good for this.
    fn is_let_in(&self) -> bool {
        let now = self.shared.intake.now();
        self.caller.still_has(&[KeyScope::Read, KeyScope::Operate], now)
    }
}

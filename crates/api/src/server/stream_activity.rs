//! The requests under way on one HTTP/2 connection: how many there are, and which wait for the caller to take their answers.
//!
//! Over HTTP/1.1 a caller that does not read its answer fills the socket, which [`Patient`](super::patient) notices. Over HTTP/2 it may
//! leave the window of one stream shut and the socket empty. Each body of an answer therefore notes when it has given a piece and was not
//! asked for the next one: hyper asks once the piece has left for the caller's window.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, HttpBody};
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use notification::limits::IDLE_TIMEOUT;
use tokio::task::Id;

use crate::limits::{FIRST_HEAD_TIMEOUT, HEAD_TIMEOUT, STREAM_SEND_BYTES};
use crate::tenant_connections::TenantStream;

/// Between two looks at a connection; its times are counted in looks.
pub(super) const LOOK_EVERY: Duration = Duration::from_secs(5);

/// The requests of a connection.
#[derive(Debug, Clone, Default)]
pub(super) struct StreamActivity(Arc<Mutex<ActivityState>>);

#[derive(Debug, Default)]
struct ActivityState {
    /// Requests under way, by number.
    open: BTreeMap<u64, OpenState>,
    next_number: u64,
    /// Looks since the last request has ended.
    idle_looks: u32,
}

#[derive(Debug, Default)]
struct OpenState {
    /// The task that answers it, once it runs.
    task: Option<Id>,
    /// Looks since the last piece of the answer was given, or `None` while the caller waits for the engine.
    untaken_looks: Option<u32>,
}

/// A request under way.
#[derive(Debug)]
pub(super) struct OpenStream {
    activity: StreamActivity,
    number: u64,
    /// Its place in the share of its tenant.
    tenant: Option<TenantStream>,
}

/// The body of an answer, noted piece by piece.
#[derive(Debug)]
pub(super) struct NotedBody {
    inner: Body,
    /// Left over of a piece of `inner`, to be given in smaller ones: a caller that takes a long answer slowly takes some of it.
    rest: Bytes,
    stream: OpenStream,
    has_begun: bool,
}

/// The state that a look finds a connection in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ConnectionState {
    /// In use, or not unused for long. The callers of these tasks have not taken a piece of their answers for [`IDLE_TIMEOUT`].
    Good(Vec<Id>),
    /// Without a request for [`HEAD_TIMEOUT`].
    Idle,
    /// As before, although the caller was told to go.
    Gone,
}

// === impl StreamActivity ===

impl StreamActivity {
    /// Notes that a request has begun.
    pub(super) fn begin(&self) -> OpenStream {
        let mut state = self.lock();
        let number = state.next_number;
        state.next_number += 1;
        state.idle_looks = 0;
        state.open.insert(number, OpenState::default());
        OpenStream { activity: self.clone(), number, tenant: None }
    }

    /// Looks at the connection, [`LOOK_EVERY`] after the look before.
    pub(super) fn look(&self) -> ConnectionState {
        let mut state = self.lock();
        if state.open.is_empty() {
            state.idle_looks += 1;
            return match LOOK_EVERY * state.idle_looks {
                idle if idle >= HEAD_TIMEOUT + FIRST_HEAD_TIMEOUT => ConnectionState::Gone,
                idle if idle >= HEAD_TIMEOUT => ConnectionState::Idle,
                _ => ConnectionState::Good(Vec::new()),
            };
        }
        let mut stalled = Vec::new();
        for OpenState { task, untaken_looks } in state.open.values_mut() {
            let Some(looks) = untaken_looks else { continue };
            *looks += 1;
            // One more: the first look may have come right behind the piece.
            if LOOK_EVERY * *looks > IDLE_TIMEOUT {
                stalled.extend(*task);
            }
        }
        ConnectionState::Good(stalled)
    }

    fn lock(&self) -> MutexGuard<'_, ActivityState> {
        // Every critical section leaves the state whole, even if it panicked.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl OpenStream ===

impl OpenStream {
    /// Notes that it is answered by the task that runs.
    pub(super) fn set_task(&self) {
        self.change(|state| state.task = tokio::task::try_id());
    }

    /// Holds its place in the share of its tenant until it ends.
    pub(super) fn hold(&mut self, tenant: Option<TenantStream>) {
        self.tenant = tenant;
    }

    /// Notes whether the caller is to take a piece, from now on.
    fn set_waits_for_caller(&self, waits: bool) {
        self.change(|state| state.untaken_looks = waits.then_some(0));
    }

    fn change(&self, change: impl FnOnce(&mut OpenState)) {
        if let Some(state) = self.activity.lock().open.get_mut(&self.number) {
            change(state);
        }
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.activity.lock().open.remove(&self.number);
    }
}

// === impl NotedBody ===

impl NotedBody {
    /// The body of the answer to the request of `stream`.
    pub(super) fn new(inner: Body, stream: OpenStream) -> Self {
        Self { inner, rest: Bytes::new(), stream, has_begun: false }
    }

    /// The next piece of `inner`, or the beginning of a long one.
    fn poll_inner(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let mut polled = Pin::new(&mut self.inner).poll_frame(context);
        if let Poll::Ready(Some(Ok(frame))) = &mut polled
            && let Some(data) = frame.data_mut()
            && data.len() > STREAM_SEND_BYTES
        {
            self.rest = data.split_off(STREAM_SEND_BYTES);
        }
        polled
    }
}

impl HttpBody for NotedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = if self.rest.is_empty() {
            self.poll_inner(context)
        } else {
            let length = self.rest.len().min(STREAM_SEND_BYTES);
            Poll::Ready(Some(Ok(Frame::data(self.rest.split_to(length)))))
        };
        self.has_begun = true;
        self.stream.set_waits_for_caller(polled.is_ready());
        polled
    }

    fn is_end_stream(&self) -> bool {
        // Once it has given a piece it is asked for another one, even if that was the last: until then it is known to be under way.
        !self.has_begun && self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (inner, rest) = (self.inner.size_hint(), self.rest.len() as u64);
        let mut hint = SizeHint::new();
        if let Some(upper) = inner.upper() {
            hint.set_upper(upper + rest);
        }
        hint.set_lower(inner.lower() + rest);
        hint
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;

    use super::*;

    /// Looks until the connection is not good any more, or a stream is stalled, and counts them.
    fn looks_until(activity: &StreamActivity, is_it: impl Fn(&ConnectionState) -> bool) -> u32 {
        (1..100).find(|_| is_it(&activity.look())).unwrap()
    }

    #[tokio::test]
    async fn a_long_answer_is_given_in_pieces_of_which_one_has_to_be_taken_in_time() {
        let activity = StreamActivity::default();
        let stream = activity.begin();
        let mut tasks = tokio::task::JoinSet::new();
        let task = tasks.spawn(async {}).id();
        stream.change(|state| state.task = Some(task));
        let mut body = NotedBody::new(Body::from(vec![1; 3 * STREAM_SEND_BYTES]), stream);
        assert_eq!(body.size_hint().exact(), Some(3 * STREAM_SEND_BYTES as u64));
        for left in [2, 1, 0] {
            for _ in 0..5 {
                assert_eq!(activity.look(), ConnectionState::Good(Vec::new()));
            }
            let piece = body.frame().await.unwrap().unwrap().into_data().unwrap();
            assert_eq!(piece.len(), STREAM_SEND_BYTES);
            assert_eq!(body.size_hint().exact(), Some(left * STREAM_SEND_BYTES as u64));
            assert!(!body.is_end_stream());
        }
        let is_stalled = |state: &ConnectionState| matches!(state, ConnectionState::Good(stalled) if !stalled.is_empty());
        assert_eq!(LOOK_EVERY * looks_until(&activity, is_stalled), Duration::from_secs(35));
        assert!(body.frame().await.is_none());
        drop(body);
        let idle = looks_until(&activity, |state| *state == ConnectionState::Idle);
        assert_eq!(LOOK_EVERY * idle, HEAD_TIMEOUT);
        assert_eq!(activity.look(), ConnectionState::Gone);
    }
}

//! One request, tried over streams of a pool until it is answered, or must not be tried again.

use std::future::poll_fn;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use crate::exchange::{Failure, Permit, Reply, Unsent};
use crate::http2::{Http2Pool, Http2Stream, RequestOutcomes, StreamQueue};
use crate::request_head::RequestHead;

/// How often a request that was certainly not processed is sent again within its attempt.
const TRIES_MAX: u8 = 3;

/// Sends a request with `head` and `payload` over `pool` when it is its turn, and waits for the answer; the stream says over which
/// connection. A request that was certainly not processed is sent again, a few times. `since` is when it was sent before, if it
/// was: the waits for a stream count from its first byte on, since the attempt must not end in the last one, in doubt, when it is
/// certain that it was not processed.
///
/// # Errors
/// Why there is no answer.
pub async fn exchange<P: Permit>(
    pool: &Http2Pool,
    permit: P,
    payload: &Bytes,
    head: &impl RequestHead,
    since: Option<Instant>,
) -> Result<(Reply, Http2Stream), Failure<P::Refusal>> {
    let mut queue = StreamQueue::new(pool, permit.priority());
    // All waits of one request count from the first one on.
    let (mut waiting_since, mut tries) = (since, 0);
    loop {
        tries += 1;
        let now = || pool.clock().monotonic();
        let stream = if let Some(stream) = queue.take() {
            stream
        } else {
            queue.push((), *waiting_since.get_or_insert_with(now));
            poll_fn(|context| queue.poll_next(context)).await.2?
        };
        // Before it is begun: what cannot be written must not be marked as sent.
        if !head.is_writable() {
            return Err(Unsent::Unwritable.into());
        }
        permit.begin().await.map_err(Unsent::Withheld)?;
        // Behind the permit: it may wait for a commit, and that is no time of the server's.
        let sent_at = now();
        let outcomes = Rc::<RequestOutcomes>::default();
        let begun = stream.begun(head, payload, (&outcomes, 0));
        let mut stream = begun.ok_or(Unsent::Unwritable)?;
        let (_, outcome) = outcomes.next().await;
        match stream.conclude(outcome, head, sent_at) {
            Err(Failure::Unsent(Unsent::Declined(_))) if tries < TRIES_MAX => {
                waiting_since.get_or_insert(sent_at);
            }
            concluded => {
                let mut reply = concluded?.reply;
                reply.timing.waited = waiting_since.map_or(Duration::ZERO, |since| sent_at - since);
                return Ok((reply, stream));
            }
        }
    }
}

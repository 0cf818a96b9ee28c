//! A stream that a pool has given out, and the request that is under way on it.

use std::rc::Rc;

use bytes::Bytes;
use tokio::time::Instant;

use super::answer::{IncomingReply, NoReply};
use super::connection::Connection;
use super::outcomes::{RequestOutcome, RequestOutcomes};
use super::pool::PoolState;
use crate::exchange::{Failure, Unsent};
use crate::redact::CredentialHeaders;
use crate::request_head::RequestHead;

/// A stream that may be used, and the request that was begun over it. Dropping it gives up a request whose outcome has not come, and
/// frees the stream.
#[derive(Debug)]
pub struct Http2Stream {
    connection: Rc<Connection>,
    pool: Rc<PoolState>,
    /// `None` while no request is under way.
    number: Option<u32>,
}

// === impl Http2Stream ===

impl Http2Stream {
    /// Takes a free stream of `pool`, where more than `beyond` are free.
    pub(super) fn take(pool: &Rc<PoolState>, beyond: usize) -> Option<Self> {
        let connection =
            pool.find_free().filter(|_| beyond == 0 || pool.free_streams() > beyond)?;
        connection.take_stream();
        Some(Self { connection, pool: Rc::clone(pool), number: None })
    }

    /// Takes the stream's connection out of use. Says whether it was in use.
    pub fn leave_connection(&self) -> bool {
        self.pool.leave(&self.connection)
    }

    /// Begins a request with `head` and `payload` over it; its outcome goes to `outcomes`, under `key`. It leaves in the same turn of
    /// the thread. `None` when it cannot be written. No [`Permit`](crate::exchange::Permit) is asked: it was just before.
    pub fn begun(
        mut self,
        head: &impl RequestHead,
        payload: &Bytes,
        (outcomes, key): (&Rc<RequestOutcomes>, u16),
    ) -> Option<Self> {
        if !head.is_writable() {
            return None;
        }
        let send =
            self.connection.act(|session| session.send(head, payload.clone(), (outcomes, key)));
        match send {
            Ok(number) => self.number = Some(number),
            Err(why) => outcomes.put(key, RequestOutcome(Err(Box::new(why)))),
        }
        Some(self)
    }

    /// The answer to the request, which has `head` and was sent at `sent_at`, from its `outcome`.
    ///
    /// # Errors
    /// Why there is none: [`Unsent::Declined`] when the server certainly did not process it, and it may be sent again.
    pub fn conclude<Refusal>(
        &mut self,
        RequestOutcome(outcome): RequestOutcome,
        head: &impl RequestHead,
        sent_at: Instant,
    ) -> Result<Box<IncomingReply>, Failure<Refusal>> {
        if self.number.take().is_some() {
            self.connection.note(outcome.as_ref().ok().map(|answer| answer.reply.status));
        }
        match outcome.map_err(|why| *why) {
            Ok(mut answer) => {
                let reply = &mut answer.reply;
                // When the bytes came in, not when this task had its turn: the sample is about the server.
                let read_at = self.connection.read_at.get();
                reply.timing.on_wire = read_at.saturating_duration_since(sent_at);
                // Built again only for an answer with a body, which is seldom: acceptances keep none.
                if !reply.body.is_empty()
                    && let Some(headers) = head.headers()
                {
                    CredentialHeaders::of(&headers).remove_from(&mut reply.body);
                }
                Ok(answer)
            }
            Err(NoReply::NotProcessed) => {
                let provider = self.pool.dial.provider;
                let message = format!("{provider} refused the stream and did not process it");
                Err(Unsent::Declined(message).into())
            }
            Err(NoReply::Http11Required) => {
                self.leave_connection();
                Err(Unsent::NotSpoken(self.pool.dial.not_spoken()).into())
            }
            Err(NoReply::Lost(words)) => Err(Failure::Lost(words)),
        }
    }
}

impl Drop for Http2Stream {
    fn drop(&mut self) {
        self.connection.give_back(self.number);
        if self.connection.is_unresponsive() && self.leave_connection() {
            let provider = self.pool.dial.provider;
            tracing::warn!(provider, "a connection answers no requests: it is replaced");
        }
        self.pool.came_back(&self.connection);
    }
}

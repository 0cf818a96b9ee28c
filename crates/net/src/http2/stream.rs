//! A stream that a pool has given out, and the request that is under way on it.

use std::rc::Rc;

use bytes::Bytes;
use tokio::time::Instant;

use super::answer::{IncomingReply, NoReply};
use super::connection::Connection;
use super::head::RequestHead;
use super::outcomes::{RequestOutcome, RequestOutcomes};
use super::pool_state::PoolState;
use crate::exchange::{Failure, Unsent};
use crate::redact::CredentialHeaders;

/// A stream that may be used, and the request that was begun over it. Dropping it gives up a request whose outcome has not come, and
/// frees the stream.
#[derive(Debug)]
pub struct Http2Stream {
    pub(super) connection: Rc<Connection>,
    pub(super) shared: Rc<PoolState>,
    /// `None` while no request is under way.
    pub(super) number: Option<u32>,
}

/// The outcome of a request that has no answer.
#[derive(Debug)]
pub enum Unanswered<Refusal> {
    /// The server certainly did not process it, and it may be sent again. The waits for a stream count from its first byte on, which
    /// left at `since`: the attempt must not end in the last one, in doubt, when it is certain that it was not processed.
    Again {
        /// When that was.
        since: Instant,
    },
    /// It is not sent again.
    Failed(Failure<Refusal>),
}

// === impl Http2Stream ===

impl Http2Stream {
    /// Takes the stream's connection out of use. Says whether it was in use.
    pub fn leave_connection(&self) -> bool {
        self.shared.leave(&Rc::downgrade(&self.connection))
    }

    fn leave_if_asked(&self, why: &NoReply) {
        if matches!(why, NoReply::NotProcessed { leave: true } | NoReply::Http11Required) {
            self.leave_connection();
        }
    }

    /// Begins a request with `head` and `payload` over it; its outcome goes where `to` says, under its key. It leaves in the same turn of
    /// the thread. `None` when that is not possible: [`exchange`](super::Http2Pool::exchange) says why. No
    /// [`Permit`](crate::exchange::Permit) is asked: it was just before.
    pub fn begun(
        mut self,
        head: &impl RequestHead,
        payload: &Bytes,
        to: (&Rc<RequestOutcomes>, u16),
    ) -> Option<Self> {
        let is_begun = head.is_writable() && self.begin(head, payload.clone(), to).is_ok();
        is_begun.then_some(self)
    }

    /// Begins a request; its outcome goes where `to` says, under its key. It leaves in the same turn of the thread.
    ///
    /// # Errors
    /// Its outcome, when it cannot be begun here: nothing of it is written.
    pub(super) fn begin(
        &mut self,
        head: &impl RequestHead,
        payload: Bytes,
        to: (&Rc<RequestOutcomes>, u16),
    ) -> Result<(), RequestOutcome> {
        let begun = self.connection.link.act(|session| session.send(head, payload, to));
        self.number = Some(begun.map_err(|why| {
            self.leave_if_asked(&why);
            RequestOutcome(Err(Box::new(why)))
        })?);
        Ok(())
    }

    /// The answer to the request, which has `head` and was sent at `sent_at`, from its `outcome`.
    ///
    /// # Errors
    /// Why there is none.
    pub fn conclude<Refusal>(
        &mut self,
        outcome: RequestOutcome,
        head: &impl RequestHead,
        sent_at: Instant,
    ) -> Result<Box<IncomingReply>, Unanswered<Refusal>> {
        let RequestOutcome(outcome) = outcome;
        if self.number.take().is_some() {
            self.connection.note(outcome.as_ref().ok().map(|answer| answer.reply.status));
        }
        let why = match outcome {
            Ok(mut answer) => {
                let reply = &mut answer.reply;
                // When the bytes came in, not when this task had its turn: the sample is about the server.
                let read_at = self.connection.link.read_at.get();
                reply.timing.on_wire = read_at.saturating_duration_since(sent_at);
                // Built again only for an answer with a body, which is seldom: acceptances keep none.
                if !reply.body.is_empty()
                    && let Some(request) = head.to_request()
                {
                    CredentialHeaders::of(request.headers()).remove_from(&mut reply.body);
                }
                return Ok(answer);
            }
            Err(why) => why,
        };
        self.leave_if_asked(&why);
        Err(match *why {
            NoReply::NotProcessed { .. } => Unanswered::Again { since: sent_at },
            NoReply::Http11Required => {
                Unanswered::Failed(Unsent::NotSpoken(self.shared.dial.not_spoken()).into())
            }
            NoReply::Lost(words) => Unanswered::Failed(Failure::Lost(words)),
        })
    }
}

impl Drop for Http2Stream {
    fn drop(&mut self) {
        self.connection.give_back(self.number);
        let first_free = &self.shared.first_free;
        // Lowered at most: the places before it were found full.
        first_free.set(first_free.get().min(self.connection.place.get()));
        if self.connection.is_unresponsive() && self.leave_connection() {
            let provider = self.shared.dial.provider;
            tracing::warn!(provider, "a connection answers no requests: it is replaced");
        }
        self.shared.wake();
    }
}

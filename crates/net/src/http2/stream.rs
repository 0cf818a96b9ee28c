//! A stream that a pool has given out, and the request that was begun over it.

use std::rc::Rc;

use tokio::time::Instant;

use super::answer::NoReply;
use super::connection::Connection;
use super::head::RequestHead;
use super::outcomes::RequestOutcome;
use super::pool_state::PoolState;
use crate::exchange::{Failure, Reply, Unsent};
use crate::redact::CredentialHeaders;

/// A stream that may be used. Dropping it frees the stream.
#[derive(Debug)]
pub struct Http2Stream {
    pub(super) connection: Rc<Connection>,
    pub(super) shared: Rc<PoolState>,
}

/// A request that was begun, and whose outcome comes to [`RequestOutcomes`]. One that is dropped before that is given up.
#[derive(Debug)]
pub struct BegunRequest {
    pub(super) stream: Http2Stream,
    /// `None` when its outcome has come.
    pub(super) number: Option<u32>,
    pub(super) sent_at: Instant,
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

    pub(super) fn leave_if_asked(&self, why: &NoReply) {
        if matches!(why, NoReply::NotProcessed { leave: true } | NoReply::Http11Required) {
            self.leave_connection();
        }
    }

    /// Interprets the outcome of a request with `head` that was sent at `sent_at`.
    pub(super) fn conclude<Refusal>(
        &self,
        outcome: Result<Reply, NoReply>,
        head: &impl RequestHead,
        sent_at: Instant,
    ) -> Result<Reply, Unanswered<Refusal>> {
        let why = match outcome {
            Ok(mut reply) => {
                // When the bytes came in, not when this task had its turn: the sample is about the server.
                let read_at = self.connection.read_at();
                reply.timing.on_wire = read_at.saturating_duration_since(sent_at);
                // Built again only for an answer with a body, which is seldom: acceptances keep none.
                if !reply.body.is_empty()
                    && let Some(request) = head.to_request()
                {
                    CredentialHeaders::of(request.headers()).remove_from(&mut reply.body);
                }
                return Ok(reply);
            }
            Err(why) => why,
        };
        self.leave_if_asked(&why);
        Err(match why {
            NoReply::NotProcessed { .. } => Unanswered::Again { since: sent_at },
            NoReply::Http11Required => {
                Unanswered::Failed(Unsent::NotSpoken(self.shared.not_spoken()).into())
            }
            NoReply::Lost(words) => Unanswered::Failed(Failure::Lost(words)),
        })
    }
}

// === impl BegunRequest ===

impl BegunRequest {
    /// The answer to this request, which has `head`, from its `outcome`.
    ///
    /// # Errors
    /// Why there is none.
    pub fn conclude<Refusal>(
        &mut self,
        outcome: RequestOutcome,
        head: &impl RequestHead,
    ) -> Result<Reply, Unanswered<Refusal>> {
        self.number = None;
        let outcome = outcome.reply();
        self.stream.connection.note(&outcome);
        self.stream.conclude(outcome, head, self.sent_at)
    }

    /// Its stream, which is free again when this is dropped.
    pub const fn stream(&self) -> &Http2Stream {
        &self.stream
    }
}

impl Drop for BegunRequest {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.stream.connection.give_up(number);
        }
    }
}

impl Drop for Http2Stream {
    fn drop(&mut self) {
        self.connection.give_stream_back();
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

//! How the deliveries of a job are attempted: begun at once where nothing has to be waited for, otherwise as futures.

use std::convert::Infallible;
use std::rc::Rc;

use net::exchange::{Failure, Unsent};
use net::http2::{Http2Pool, Http2Stream, RequestOutcome, RequestOutcomes};
use notification::{Delivery, Report};
use tokio::time::Instant;

use crate::Attempt;

/// The attempts of a job. What is begun at once costs a few words of memory until its outcome comes, and no future, and so does what
/// waits for a stream; tens of thousands may be under way.
pub(crate) trait Attempts<'job> {
    /// An attempt that was begun. Dropping it gives it up.
    type Begun: Unpin;

    /// The pool whose streams attempts are begun over; `None` where they need none.
    fn pool(&self) -> Option<&Http2Pool>;

    /// Begins the attempt of a delivery that may start, at once, over a stream of the [`pool`](Self::pool). Its outcome comes to the
    /// [`RequestOutcomes`] under the key. `None` when it has to wait for anything else, or may not be possible: then it is made by
    /// [`attempt`](Self::attempt).
    fn begin(
        &self,
        delivery: &'job Delivery,
        stream: Option<Http2Stream>,
        to: (&Rc<RequestOutcomes>, u16),
    ) -> Option<Self::Begun>;

    /// Interprets the outcome of an attempt that was begun, and sent at `sent_at`.
    ///
    /// # Errors
    /// The provider certainly did not process it, and it is made again.
    fn conclude(
        &self,
        delivery: &'job Delivery,
        begun: Self::Begun,
        sent_at: Instant,
        outcome: RequestOutcome,
    ) -> Result<Attempt, Again>;

    /// Makes an attempt, and waits for what it needs.
    ///
    /// # Errors
    /// The result of an attempt that ended early.
    fn attempt(
        &self,
        delivery: &'job Delivery,
        again: Again,
    ) -> impl Future<Output = Result<Attempt, Attempt>>;
}

/// How an attempt goes on that was begun and is made again; the default is one that was not.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Again {
    /// Since when it waits for streams, or when it was sent first; `None` if neither.
    pub(crate) since: Option<Instant>,
    /// True if its credential was refused, which is not renewed twice.
    pub(crate) is_refused: bool,
}

// === impl Again ===

impl Again {
    /// The result of an attempt without an answer that was sent at `sent_at`, unless it is made again.
    pub(crate) fn unless(failure: Failure<Report>, sent_at: Instant) -> Result<Attempt, Self> {
        match failure {
            Failure::Unsent(Unsent::Declined(_)) => {
                Err(Self { since: Some(sent_at), is_refused: false })
            }
            failure @ (Failure::Unsent(_) | Failure::Lost(_)) => Ok(failure.into()),
        }
    }

    /// It is made again, since its credential was refused.
    pub(crate) const fn with_another_credential() -> Self {
        Self { since: None, is_refused: true }
    }
}

/// Attempts that are futures, all of them.
impl<'job, Make, Attempting> Attempts<'job> for Make
where
    Make: Fn(&'job Delivery) -> Attempting,
    Attempting: Future<Output = Result<Attempt, Attempt>>,
{
    type Begun = Infallible;

    fn pool(&self) -> Option<&Http2Pool> {
        None
    }

    fn begin(
        &self,
        _delivery: &'job Delivery,
        _stream: Option<Http2Stream>,
        _to: (&Rc<RequestOutcomes>, u16),
    ) -> Option<Infallible> {
        None
    }

    fn conclude(
        &self,
        _delivery: &'job Delivery,
        begun: Infallible,
        _sent_at: Instant,
        _outcome: RequestOutcome,
    ) -> Result<Attempt, Again> {
        match begun {}
    }

    fn attempt(
        &self,
        delivery: &'job Delivery,
        _again: Again,
    ) -> impl Future<Output = Result<Attempt, Attempt>> {
        self(delivery)
    }
}

//! Requests of callers to a writer: data, so that a writer can run one again in another transaction.

use std::time::Duration;

use async_trait::async_trait;
use flow::Clock;
use flow::merge::{self, Groups, MergeHandle};
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;

use super::transaction::{RunError, TenantKey, Transaction};
use crate::StoreError;
use crate::rows::TRANSACTION;

/// A request as its writer sees it. It may run several times: only the last run counts.
#[async_trait]
pub(super) trait Command: Send + std::fmt::Debug {
    /// Runs the request's part of a transaction. A refusal comes before anything is written.
    async fn run(&mut self, transaction: &mut Transaction<'_>) -> Result<(), RunError>;

    /// Answers with the result of the last run, or with the reason why nothing of it was done.
    fn finish(self: Box<Self>, impossible: Option<StoreError>);

    /// Name of the request for the log, which must not have its contents.
    fn name(&self) -> &'static str;

    /// Idempotency keys that it names: those of a transaction are looked up at once.
    fn keys(&self) -> Vec<TenantKey>;

    /// Notifications that it brings in.
    fn items(&self) -> usize;

    /// Time at which it is given up if none of it was done; `None`: never.
    fn deadline(&self) -> Option<Instant>;
}

/// A request of a caller: data, so that it can be run again in another transaction.
#[async_trait]
pub(super) trait WriterRequest: Send + Sync + std::fmt::Debug + 'static {
    /// The answer to the caller.
    type Answer: Send + std::fmt::Debug;

    /// Runs the request's part of a transaction.
    async fn run(&self, transaction: &mut Transaction<'_>) -> Result<Self::Answer, RunError>;

    /// Idempotency keys that it names.
    fn keys(&self) -> Vec<TenantKey> {
        Vec::new()
    }

    /// Notifications that it brings in.
    fn items(&self) -> usize {
        0
    }
}

/// A request, and the caller that waits for its answer.
#[derive(Debug)]
struct PendingRequest<R: WriterRequest> {
    request: R,
    answer: Option<Result<R::Answer, StoreError>>,
    reply: oneshot::Sender<Result<R::Answer, StoreError>>,
    deadline: Option<Instant>,
}

/// Sends requests to a writer.
#[derive(Debug, Clone)]
pub(super) struct WriterHandle {
    commands: MergeHandle<Box<dyn Command>>,
    failed: watch::Receiver<Option<StoreError>>,
    clock: Clock,
}

/// Time for which a request that may be given up waits for a database that is away.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

// === impl WriterHandle ===

impl WriterHandle {
    /// A handle on the writer whose failure is `failed`, and the queue of its requests.
    pub(super) fn new(
        failed: watch::Receiver<Option<StoreError>>,
        clock: Clock,
    ) -> (Self, Groups<Box<dyn Command>>) {
        let ([commands], groups) = merge::shared(TRANSACTION);
        (Self { commands, failed, clock }, groups)
    }

    /// Runs a request, and waits without a limit.
    pub(super) async fn run<R: WriterRequest>(&self, request: R) -> Result<R::Answer, StoreError> {
        self.send(request, None).await
    }

    /// Runs a request; gives up when the database is away for [`PATIENCE`].
    pub(super) async fn run_or_give_up<R: WriterRequest>(
        &self,
        request: R,
    ) -> Result<R::Answer, StoreError> {
        // From now on, so the time in the queue counts as well.
        self.send(request, Some(self.clock.monotonic() + PATIENCE)).await
    }

    async fn send<R: WriterRequest>(
        &self,
        request: R,
        deadline: Option<Instant>,
    ) -> Result<R::Answer, StoreError> {
        let pending = |reply| -> Box<dyn Command> {
            Box::new(PendingRequest { request, answer: None, reply, deadline })
        };
        self.commands.call(pending).await.unwrap_or_else(|_closed| Err(self.refusal()))
    }

    fn refusal(&self) -> StoreError {
        let reason = self.failed.borrow().clone();
        reason.unwrap_or_else(|| StoreError::Broken("it was closed".to_owned()))
    }
}

// === impl PendingRequest ===

#[async_trait]
impl<R: WriterRequest> Command for PendingRequest<R> {
    async fn run(&mut self, transaction: &mut Transaction<'_>) -> Result<(), RunError> {
        self.answer = Some(match self.request.run(transaction).await {
            Ok(answer) => Ok(answer),
            Err(RunError::Refused(refusal)) => Err(refusal),
            Err(failure) => return Err(failure),
        });
        Ok(())
    }

    fn finish(self: Box<Self>, impossible: Option<StoreError>) {
        let answer = match (impossible, self.answer) {
            (None, Some(answer)) => answer,
            (None, None) => Err(StoreError::Broken("a request was passed over".to_owned())),
            // The last run may have had an answer, but its transaction was undone.
            (Some(reason), _) => Err(reason),
        };
        // A caller that has gone needs no answer.
        let _caller_may_be_gone = self.reply.send(answer);
    }

    fn name(&self) -> &'static str {
        std::any::type_name::<R>()
    }

    fn keys(&self) -> Vec<TenantKey> {
        self.request.keys()
    }

    fn items(&self) -> usize {
        self.request.items()
    }

    fn deadline(&self) -> Option<Instant> {
        self.deadline
    }
}

// === impl Command ===

impl merge::Weighted for Box<dyn Command> {
    fn weight(&self) -> usize {
        self.items()
    }
}

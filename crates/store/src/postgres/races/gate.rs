//! The gate at which a writer is held up.

use tokio::sync::{mpsc, oneshot};
use tokio_postgres::Error;

use super::super::errors;

/// The gate that a writer's connections pass before each statement.
#[derive(Debug, Clone)]
pub(crate) struct Gate {
    pub(super) actor: usize,
    pub(super) arrivals: mpsc::Sender<Arrival>,
}

/// A writer that waits before a statement.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(super) actor: usize,
    /// The server's process of its session.
    pub(super) backend: i32,
    pub(super) statement: &'static str,
    pub(super) go: oneshot::Sender<Verdict>,
}

/// Continuation of a writer that is held up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The writer runs the statement.
    Go,
    /// The writer loses its connection.
    Cut,
}

// === impl Gate ===

impl Gate {
    /// Waits for the scheduler. An error stands for a connection that is lost.
    pub(crate) async fn pass(&self, backend: i32, statement: &'static str) -> Result<(), Error> {
        let (go, verdict) = oneshot::channel();
        let arrival = Arrival { actor: self.actor, backend, statement, go };
        if self.arrivals.send(arrival).await.is_err() {
            return Err(errors::silence());
        }
        match verdict.await {
            Ok(Verdict::Go) => Ok(()),
            Ok(Verdict::Cut) | Err(_) => Err(errors::silence()),
        }
    }
}

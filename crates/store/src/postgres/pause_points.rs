//! Pause points: before each statement of a transaction, and before and after its commit, a test may hold a writer up, go on with
//! another one, or take its connection away. Elsewhere there is nothing to wait for.

use tokio_postgres::Error;

use super::connection::PostgresSession;

/// The pause point between a commit and what follows from it.
pub(super) const COMMITTED: &str = "-- committed";

// === impl PostgresSession ===

impl PostgresSession {
    /// The pause point before `statement`. An error stands for a connection that is lost there.
    #[cfg(not(test))]
    #[expect(clippy::unused_async, reason = "a test waits here")]
    #[inline]
    pub(super) async fn pause(&self, _statement: &'static str) -> Result<(), Error> {
        Ok(())
    }

    /// The pause point before `statement`. An error stands for a connection that is lost there.
    #[cfg(test)]
    pub(super) async fn pause(&self, statement: &'static str) -> Result<(), Error> {
        match &self.gate {
            Some(gate) => gate.pass(self.backend, statement).await,
            None => Ok(()),
        }
    }
}

//! Commits, and what became of one that was not answered.
//!
//! Each transaction of a writer that writes anything writes its *token*, too: a row of `commit_token` that no other transaction
//! writes. A transaction was committed if and only if its token is there. The number that the server gave it is no proof: a
//! server that crashed before the transaction was on its disk gives that number to another one (decision 0024).

use tokio_postgres::Error;

use super::connection::PostgresSession;
use super::errors::ErrorRemedy;

/// A commit that is about to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SentCommit {
    /// The number that the server gave the transaction.
    xid: String,
    /// The server's process behind its session.
    backend: i32,
    session: String,
    number: i64,
}

/// Outcome of a commit that was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CommitOutcome {
    Committed,
    RolledBack,
    /// The server is still at it.
    UnderWay,
}

/// Gives no row for a transaction that has written nothing: it has no number.
const WRITE: &str = "INSERT INTO commit_token (session, number) \
     SELECT $1::text::uuid, $2 WHERE pg_current_xact_id_if_assigned() IS NOT NULL \
     RETURNING pg_current_xact_id()::text";
const FIND: &str = "SELECT FROM commit_token WHERE session = $1::text::uuid AND number = $2";
/// Deletes the tokens between two numbers: rows that were removed before stay in the index as long as a transaction may read
/// them.
const FORGET: &str =
    "DELETE FROM commit_token WHERE session = $1::text::uuid AND number >= $2 AND number < $3";
/// Selects true if a transaction is under way. After a crash another session may have its number.
const IS_UNDER_WAY: &str = "SELECT pg_xact_status($1::text::xid8) = 'in progress' AND NOT EXISTS ( \
     SELECT FROM pg_stat_activity WHERE backend_xid = $1::text::xid8::xid AND pid <> $2)";
/// Ends the session that a transaction is lost in. One that waits for a synchronous standby is left: its transaction is
/// committed here, and would be called so although no standby has it.
const END_SESSION: &str = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
     WHERE pid = $2 AND backend_xid = $1::text::xid8::xid AND wait_event IS DISTINCT FROM 'SyncRep'";
/// Transactions of a session between two removals of its tokens.
const FORGET_EVERY: i64 = 256;

// === impl SentCommit ===

impl SentCommit {
    /// Writes the token of the transaction that is open in `session`, as the last of its rows. `None`: it has written
    /// nothing, and may be done again.
    pub(super) async fn prepare(session: &PostgresSession) -> Result<Option<Self>, Error> {
        let number = session.next_number();
        let write = session.prepared(WRITE).await?;
        session.pause(WRITE).await?;
        let row = session.client.query_opt(&write, &[&session.id, &number]).await?;
        let Some(row) = row else { return Ok(None) };
        if number % FORGET_EVERY == 0 {
            // Twice as many: the last removal may have been rolled back.
            let from = number - 2 * FORGET_EVERY;
            let forget = session.prepared(FORGET).await?;
            session.client.execute(&forget, &[&session.id, &from, &number]).await?;
        }
        let (backend, session) = (session.backend, session.id.clone());
        Ok(Some(Self { xid: row.try_get(0)?, backend, session, number }))
    }

    /// Asks the server by another session; ends the one of the transaction if it is still at it.
    ///
    /// # Errors
    /// When that session is lost as well.
    pub(super) async fn outcome(&self, session: &PostgresSession) -> Result<CommitOutcome, Error> {
        if self.is_under_way(session).await? {
            // The server may not notice for long that the session was cut off. An error is met again by the next look.
            let ended = session.client.query(END_SESSION, &[&self.xid, &self.backend]).await;
            tracing::debug!(ended = ended.is_ok(), "waiting for the end of a lost session");
            return Ok(CommitOutcome::UnderWay);
        }
        // A statement of its own: it sees all that was committed while the first one ran.
        let token = session.client.query_opt(FIND, &[&self.session, &self.number]).await?;
        Ok(if token.is_some() { CommitOutcome::Committed } else { CommitOutcome::RolledBack })
    }

    async fn is_under_way(&self, session: &PostgresSession) -> Result<bool, Error> {
        session.pause(IS_UNDER_WAY).await?;
        let row = session.client.query_one(IS_UNDER_WAY, &[&self.xid, &self.backend]).await;
        match row.and_then(|row| row.try_get::<_, Option<bool>>(0)) {
            // A number that is too old for the server to know is over.
            Ok(is_under_way) => Ok(is_under_way == Some(true)),
            // It has not come to that number: it crashed, and forgot it, or it is another server.
            Err(error) if !ErrorRemedy::of(&error).passes() => Ok(false),
            Err(error) => Err(error),
        }
    }
}

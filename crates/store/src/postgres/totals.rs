//! The running totals: changes are only ever added, and now and then put together.

use super::connection::Session;
use super::round::Interrupted;

/// Of the advisory lock that lets one process fold at a time: "totals" in ASCII.
const LOCK: i64 = 0x746f_7461_6c73;

/// Puts the changes together; somebody else may be at it already.
pub(super) async fn fold(session: &Session) -> Result<(), Interrupted> {
    let lock = session.prepared("SELECT pg_try_advisory_xact_lock($1)").await?;
    session.client.batch_execute("BEGIN").await?;
    if session.client.query_one(&lock, &[&LOCK]).await?.try_get(0)? {
        let fold = "WITH gone AS (DELETE FROM totals_delta RETURNING state, change) \
                    INSERT INTO totals_delta (state, change) \
                    SELECT state, sum(change) FROM gone GROUP BY state";
        session.client.batch_execute(fold).await?;
    }
    session.client.batch_execute("COMMIT").await?;
    Ok(())
}

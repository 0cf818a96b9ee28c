//! The running totals: changes are only ever added, and now and then put together.

use super::connection::Session;
use super::round::{Interrupted, WRITING_MAX, ask, in_time};

/// Of the advisory lock that lets one process fold at a time: "totals" in ASCII.
const LOCK: i64 = 0x746f_7461_6c73;
const FOLD: &str = "WITH gone AS (DELETE FROM totals_delta RETURNING state, change) \
     INSERT INTO totals_delta (state, change) SELECT state, sum(change) FROM gone GROUP BY state";

/// Puts the changes together; somebody else may be at it already.
pub(super) async fn fold(session: &Session) -> Result<(), Interrupted> {
    in_time(WRITING_MAX, session.client.batch_execute("BEGIN")).await??;
    let locked = ask(session, "SELECT pg_try_advisory_xact_lock($1)", &[&LOCK]).await?;
    if locked.first().is_some_and(|row| row.try_get(0).is_ok_and(|is_ours| is_ours)) {
        ask(session, FOLD, &[]).await?;
    }
    in_time(WRITING_MAX, session.client.batch_execute("COMMIT")).await??;
    Ok(())
}

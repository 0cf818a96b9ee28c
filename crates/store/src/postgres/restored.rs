//! A dump, restored: it carries numbers of transactions that its new server has not given yet, perhaps not for years.
//!
//! New rows would stand before old ones, behind every position that was read, and no transaction after a number that is not
//! reached counts as complete. All numbers of ours are therefore the server's and a shift, which is raised until new ones come
//! after all that were ever given. Old ones stay as they are, and with them every position that an application keeps.
//!
//! The outbox uses the server's own numbers. The rows taken from it are known to the former server only, so the others are given
//! the lowest number, and then no row counts as taken.

use tokio_postgres::Client;

use crate::StoreError;
use crate::rows::GIVEN_SINCE;

/// The highest number that was given, and the next one. Both from one snapshot: the numbers in it were given before. The suppression
/// list outlives the log and the events that told of it; its marks have no index by number, and are read whole, once for each start.
const NUMBERS: &str = "SELECT greatest((SELECT max(txid) FROM log), (SELECT max(txid) FROM suppression_event), \
         (SELECT max(txid) FROM suppression), (SELECT max(txid) FROM suppression_lift), \
         (SELECT max(greatest(txid, until_txid)) FROM feed), 0), \
     pg_snapshot_xmax(pg_current_snapshot())::text::bigint + value \
     FROM meta WHERE key = 'transaction_shift'";
const SHIFT: &str = "UPDATE meta SET value = value + $1 WHERE key = 'transaction_shift'";
const OUTBOX_IS_AHEAD: &str = "SELECT pg_snapshot_xmax(snapshot) > pg_snapshot_xmax(pg_current_snapshot()) \
     FROM outbox_position";
/// A row with a number that this server gave was inserted since, and stays. 3 is the first number that is given.
const TAKE_OUTBOX: &str = "BEGIN; \
     DELETE FROM outbox USING outbox_position AS taken \
         WHERE outbox.txid >= pg_snapshot_xmax(pg_current_snapshot()) \
           AND (pg_visible_in_snapshot(outbox.txid, taken.snapshot) \
                OR (outbox.txid = taken.txid AND outbox.id <= taken.id)); \
     UPDATE outbox SET txid = '3' WHERE txid >= pg_snapshot_xmax(pg_current_snapshot()); \
     UPDATE outbox_position SET snapshot = '3:3:', txid = NULL, id = NULL; \
     COMMIT";

/// Brings new numbers behind those that the rows have. Every process does so before it opens the store.
pub(super) async fn renumber(client: &Client) -> Result<(), StoreError> {
    // The caller holds the lock of migrations, so two processes never raise it both.
    if let Some(shift) = missing_shift(client).await? {
        client.execute(SHIFT, &[&shift]).await?;
        tracing::warn!(
            shift,
            "the store was restored from a dump: transactions are numbered anew, and every position stays good"
        );
    }
    if client.query_one(OUTBOX_IS_AHEAD, &[]).await?.try_get(0)? {
        client.batch_execute(TAKE_OUTBOX).await?;
        tracing::warn!("the outbox was restored from a dump: what was not taken is taken now");
    }
    Ok(())
}

/// Checks that a reader sees every transaction.
pub(super) async fn check(client: &Client) -> Result<(), StoreError> {
    match missing_shift(client).await? {
        None => Ok(()),
        Some(_) => Err(StoreError::Schema(
            "the store was restored from a dump, and no engine has opened it since: start `belfry serve` once".to_owned(),
        )),
    }
}

/// Amount by which the shift is too low; `None` if it is high enough.
async fn missing_shift(client: &Client) -> Result<Option<i64>, StoreError> {
    let row = client.query_one(NUMBERS, &[]).await?;
    let (highest, next): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
    Ok((highest >= next).then(|| highest - next + GIVEN_SINCE))
}

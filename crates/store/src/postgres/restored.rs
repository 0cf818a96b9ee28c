//! A dump, restored: it carries numbers of transactions that its new server has not given yet, perhaps not for years.
//!
//! New rows would stand before old ones, behind every position that was read, and nothing after a number that is not
//! reached counts as complete. So all numbers of ours are the server's and a shift, which is raised until new ones come
//! after all that were ever given. Old ones stay as they are, and with them every position that somebody keeps.

use tokio_postgres::Client;

use crate::StoreError;

/// The highest number that was given, and what the next one is. Both from one snapshot: what it shows was given before.
const NUMBERS: &str = "SELECT greatest((SELECT max(txid) FROM log), (SELECT max(txid) FROM suppression_event), \
         (SELECT max(greatest(txid, until_txid)) FROM feed), 0), \
     pg_snapshot_xmax(pg_current_snapshot())::text::bigint + value \
     FROM meta WHERE key = 'transaction_shift'";
const SHIFT: &str = "UPDATE meta SET value = value + $1 WHERE key = 'transaction_shift'";
/// What the former server may have given after the dump was made, and somebody keeps: that is passed over, too.
const GIVEN_SINCE: i64 = 1 << 32;

/// Brings new numbers behind those that the rows have. Nobody else has the store open who has not done so.
pub(super) async fn renumber(client: &Client) -> Result<(), StoreError> {
    if let Some(shift) = missing_shift(client).await? {
        client.execute(SHIFT, &[&shift]).await?;
        tracing::warn!(
            shift,
            "the store was restored from a dump: transactions are numbered anew, and every position stays good"
        );
    }
    Ok(())
}

/// Whether a reader sees all.
pub(super) async fn check(client: &Client) -> Result<(), StoreError> {
    match missing_shift(client).await? {
        None => Ok(()),
        Some(_) => Err(StoreError::Schema(
            "the store was restored from a dump, and no engine has opened it since: start `belfry serve` once".to_owned(),
        )),
    }
}

/// By how much the shift is too low.
async fn missing_shift(client: &Client) -> Result<Option<i64>, StoreError> {
    let row = client.query_one(NUMBERS, &[]).await?;
    let (highest, next): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
    Ok((highest >= next).then(|| highest - next + GIVEN_SINCE))
}

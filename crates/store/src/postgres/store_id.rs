//! The id of the store, a part of each notification's identifier: drawn once by the first process that opens the store.

use super::connection::PostgresSession;
use crate::StoreError;

/// The store's id: `drawn`, if it has none yet.
///
/// Its key is called `realm`, as the id was in the first stores. It stays: in a rolling upgrade, an older process that had
/// checked the schema just before the key was renamed would find no id, and draw another.
pub(super) async fn draw(session: &PostgresSession, drawn: i64) -> Result<u16, StoreError> {
    // Read after the insert, since several processes may start at once: the number of the first one is that of the store.
    let insert = "INSERT INTO meta (key, value) VALUES ('realm', $1) ON CONFLICT DO NOTHING";
    session.client.execute(insert, &[&drawn]).await?;
    read(session).await
}

/// The id of a store that has one.
pub(super) async fn read(session: &PostgresSession) -> Result<u16, StoreError> {
    let row = session.client.query_one("SELECT value FROM meta WHERE key = 'realm'", &[]).await?;
    let damaged = |_| StoreError::Damaged("the store's id".to_owned());
    u16::try_from(row.try_get::<_, i64>(0)?).map_err(damaged)
}

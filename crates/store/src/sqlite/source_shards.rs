//! Shards of the streams that sources read.

use std::collections::BTreeMap;

use notification::{Name, Timestamp};
use rusqlite::params;

use super::read::Snapshot;
use super::transaction::Transaction;
use crate::{ShardCursor, StoreError};

impl Transaction<'_> {
    /// Moves a shard from one state to another; true if it was in the first.
    pub(super) fn move_shard(
        &mut self,
        (source, shard): (&Name, &str),
        from: Option<&ShardCursor>,
        to: Option<&ShardCursor>,
    ) -> Result<bool, StoreError> {
        let source = source.as_str();
        let changed = match (from, to) {
            (None, None) => 0,
            (None, Some(to)) => {
                let insert = "INSERT INTO source_shard (source, shard, position, reader, until) VALUES (?1, ?2, ?3, ?4, ?5) \
                     ON CONFLICT DO NOTHING";
                let (reader, until) = (to.reader.cast_signed(), to.until.millis());
                self.sql(insert)?.execute(params![source, shard, to.position, reader, until])?
            }
            (Some(from), Some(to)) => {
                let update = "UPDATE source_shard SET position = ?6, reader = ?7, until = ?8 \
                     WHERE source = ?1 AND shard = ?2 AND position = ?3 AND reader = ?4 AND until = ?5";
                self.sql(update)?.execute(params![
                    source,
                    shard,
                    from.position,
                    from.reader.cast_signed(),
                    from.until.millis(),
                    to.position,
                    to.reader.cast_signed(),
                    to.until.millis()
                ])?
            }
            (Some(from), None) => {
                let delete = "DELETE FROM source_shard \
                     WHERE source = ?1 AND shard = ?2 AND position = ?3 AND reader = ?4 AND until = ?5";
                let (reader, until) = (from.reader.cast_signed(), from.until.millis());
                self.sql(delete)?.execute(params![source, shard, from.position, reader, until])?
            }
        };
        Ok(changed == 1)
    }
}

impl Snapshot {
    /// The shards of a source that are known.
    pub(super) fn shards(
        &self,
        source: &Name,
    ) -> Result<BTreeMap<String, ShardCursor>, StoreError> {
        let select = "SELECT shard, position, reader, until FROM source_shard WHERE source = ?1";
        let mut select = self.connection.prepare_cached(select)?;
        let rows = select.query_map([source.as_str()], |row| {
            let reader = row.get::<_, i64>(2)?.cast_unsigned();
            let until = Timestamp::from_millis(row.get(3)?);
            Ok((row.get(0)?, ShardCursor { position: row.get(1)?, reader, until }))
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }
}

//! Shards of the streams that sources read.

use std::collections::BTreeMap;

use async_trait::async_trait;
use notification::{Name, Timestamp};

use super::read::Snapshot;
use super::request::WriterRequest;
use super::transaction::{RunError, Transaction};
use crate::{ShardCursor, StoreError};

/// Moves a shard from one state to another.
#[derive(Debug)]
pub(super) struct MoveShard {
    pub(super) source: Name,
    pub(super) shard: String,
    pub(super) from: Option<ShardCursor>,
    pub(super) to: Option<ShardCursor>,
}

#[async_trait]
impl WriterRequest for MoveShard {
    type Answer = bool;

    async fn run(&self, transaction: &mut Transaction<'_>) -> Result<bool, RunError> {
        let (source, shard) = (self.source.as_str(), &self.shard);
        let changed = match (&self.from, &self.to) {
            (None, None) => 0,
            (None, Some(to)) => {
                let insert = "INSERT INTO source_shard (source, shard, position, reader, until) VALUES ($1, $2, $3, $4, $5) \
                     ON CONFLICT DO NOTHING";
                let (reader, until) = (to.reader.cast_signed(), to.until.millis());
                transaction
                    .execute(insert, &[&source, shard, &to.position, &reader, &until])
                    .await?
            }
            (Some(from), Some(to)) => {
                let update = "UPDATE source_shard SET position = $6, reader = $7, until = $8 \
                     WHERE source = $1 AND shard = $2 AND position = $3 AND reader = $4 AND until = $5";
                let (reader, until) = (from.reader.cast_signed(), from.until.millis());
                let (next_reader, next_until) = (to.reader.cast_signed(), to.until.millis());
                transaction
                    .execute(
                        update,
                        &[
                            &source,
                            shard,
                            &from.position,
                            &reader,
                            &until,
                            &to.position,
                            &next_reader,
                            &next_until,
                        ],
                    )
                    .await?
            }
            (Some(from), None) => {
                let delete = "DELETE FROM source_shard \
                     WHERE source = $1 AND shard = $2 AND position = $3 AND reader = $4 AND until = $5";
                let (reader, until) = (from.reader.cast_signed(), from.until.millis());
                transaction
                    .execute(delete, &[&source, shard, &from.position, &reader, &until])
                    .await?
            }
        };
        Ok(changed == 1)
    }
}

impl Snapshot<'_> {
    /// The shards of a source that are known.
    pub(super) async fn shards(
        &self,
        source: &Name,
    ) -> Result<BTreeMap<String, ShardCursor>, StoreError> {
        let select = "SELECT shard, position, reader, until FROM source_shard WHERE source = $1";
        let rows = self.transaction.query(select, &[&source.as_str()]).await?;
        let mut shards = BTreeMap::new();
        for row in rows {
            let reader = row.try_get::<_, i64>(2)?.cast_unsigned();
            let until = Timestamp::from_millis(row.try_get(3)?);
            let cursor = ShardCursor { position: row.try_get(1)?, reader, until };
            shards.insert(row.try_get(0)?, cursor);
        }
        Ok(shards)
    }
}

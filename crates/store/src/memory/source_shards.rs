//! The shards of sources.

use std::collections::BTreeMap;

use notification::Name;

use super::books::Books;
use crate::ShardCursor;

impl Books {
    pub(super) fn shards_of(&self, source: &Name) -> BTreeMap<String, ShardCursor> {
        let shards = self.shards.iter().filter(|((of, _), _)| of == source);
        shards.map(|((_, shard), cursor)| (shard.clone(), cursor.clone())).collect()
    }

    pub(super) fn move_shard(
        &mut self,
        key: (Name, String),
        from: Option<&ShardCursor>,
        to: Option<ShardCursor>,
    ) -> bool {
        let is_moved = self.shards.get(&key) == from && (from.is_some() || to.is_some());
        if is_moved {
            match to {
                Some(to) => self.shards.insert(key, to),
                None => self.shards.remove(&key),
            };
        }
        is_moved
    }
}

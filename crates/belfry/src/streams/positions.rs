//! The shards of a Kinesis stream, divided among the engines that share a store, with their positions in it.
//!
//! Every reader has a row for itself, by which the others count it, and takes its part of the shards that are not finished. Every change
//! names the state that it replaces (decision 0046): a reader that was taken for dead writes no position any more.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use flow::Clock;
use notification::{Name, Timestamp};
use store::{Operations, ReadStore, ShardCursor, StoreError};
use stream::StreamError;
use stream::kinesis::{Positions, ShardLease, ShardPosition};
use tokio::sync::Mutex;

/// Positions of one reader of a source.
#[derive(Debug)]
pub(crate) struct StorePositions {
    source: Name,
    /// No other reader's.
    reader: u64,
    operations: Arc<dyn Operations>,
    reads: Arc<dyn ReadStore>,
    clock: Clock,
    /// The shards of this reader, as it wrote them. Locked for as long as one is written.
    held: Mutex<BTreeMap<String, ShardCursor>>,
}

/// Time after its last word at which a reader is taken for dead. It speaks every 5 s.
const LEASE: Duration = Duration::from_secs(20);
/// The beginning of the names of the rows of readers. No shard has it.
const READER: char = '@';
/// The words of positions.
const AFTER: &str = "after ";
const FINISHED: &str = "finished";

// === impl StorePositions ===

impl StorePositions {
    /// Positions of the source called `source`; `reader` is drawn at random.
    pub(crate) fn new(
        source: Name,
        reader: u64,
        operations: Arc<dyn Operations>,
        reads: Arc<dyn ReadStore>,
        clock: Clock,
    ) -> Self {
        Self { source, reader, operations, reads, clock, held: Mutex::default() }
    }

    fn now(&self) -> Timestamp {
        pipeline::timestamp(self.clock)
    }

    fn cursor(&self, position: &str, until: Timestamp) -> ShardCursor {
        ShardCursor { position: position.to_owned(), reader: self.reader, until }
    }

    fn own_row(&self) -> String {
        format!("{READER}{:016x}", self.reader)
    }

    async fn move_shard(
        &self,
        shard: &str,
        from: Option<&ShardCursor>,
        to: Option<&ShardCursor>,
    ) -> Result<bool, StreamError> {
        let (source, shard) = (self.source.clone(), shard.to_owned());
        let moved = self.operations.move_shard(source, shard, from.cloned(), to.cloned()).await;
        moved.map_err(|error| unavailable(&error))
    }

    /// Says that this reader lives, forgets readers that do not, and counts those that do.
    async fn register(
        &self,
        known: &BTreeMap<String, ShardCursor>,
        now: Timestamp,
    ) -> Result<usize, StreamError> {
        let own = self.own_row();
        let mut readers = 1;
        for (row, cursor) in known.range(READER.to_string()..) {
            if !row.starts_with(READER) {
                break;
            }
            if *row == own {
                continue;
            }
            if cursor.until > now {
                readers += 1;
            } else {
                self.move_shard(row, Some(cursor), None).await?;
            }
        }
        self.move_shard(&own, known.get(&own), Some(&self.cursor("", now.plus(LEASE)))).await?;
        Ok(readers)
    }
}

#[async_trait]
impl Positions for StorePositions {
    async fn lease(&self, shards: &[String]) -> Result<Vec<ShardLease>, StreamError> {
        let mut held = self.held.lock().await;
        let mut known =
            self.reads.shards(self.source.clone()).await.map_err(|error| unavailable(&error))?;
        let now = self.now();
        let readers = self.register(&known, now).await?;
        held.retain(|shard, cursor| known.get(shard) == Some(&*cursor));
        let is_open =
            |shard: &&String| known.get(*shard).is_none_or(|cursor| cursor.position != FINISHED);
        let open: Vec<&String> = shards.iter().filter(is_open).collect();
        let share = open.len().div_ceil(readers);
        let mut mine = 0;
        for shard in open {
            let current = known.get(shard).cloned();
            let is_own = held.contains_key(shard);
            let is_free = current.as_ref().is_none_or(|cursor| cursor.until <= now);
            if !is_own && (!is_free || mine >= share) {
                continue;
            }
            let position = current.as_ref().map_or("", |cursor| &cursor.position);
            // One beyond the share goes to the next reader that asks.
            let until = if mine < share { now.plus(LEASE) } else { now };
            let next = self.cursor(position, until);
            if !self.move_shard(shard, current.as_ref(), Some(&next)).await? {
                held.remove(shard);
                continue;
            }
            known.insert(shard.clone(), next.clone());
            if mine < share {
                held.insert(shard.clone(), next);
                mine += 1;
            } else {
                held.remove(shard);
            }
        }
        let lease = |shard: &String| ShardLease {
            position: known.get(shard).and_then(|cursor| position(&cursor.position)),
            is_held: held.contains_key(shard),
        };
        Ok(shards.iter().map(lease).collect())
    }

    async fn save(&self, shard: &str, position: &ShardPosition) -> Result<(), StreamError> {
        let mut held = self.held.lock().await;
        let Some(current) = held.get(shard) else { return Err(lost(shard)) };
        let text = match position {
            ShardPosition::After(number) => format!("{AFTER}{number}"),
            ShardPosition::Finished => FINISHED.to_owned(),
        };
        let next = self.cursor(&text, self.now().plus(LEASE));
        if !self.move_shard(shard, Some(current), Some(&next)).await? {
            held.remove(shard);
            return Err(lost(shard));
        }
        held.insert(shard.to_owned(), next);
        Ok(())
    }

    async fn release(&self) {
        let mut held = self.held.lock().await;
        let now = self.now();
        for (shard, cursor) in std::mem::take(&mut *held) {
            let free = self.cursor(&cursor.position, now);
            // Where it fails, the others take it after a while.
            if self.move_shard(&shard, Some(&cursor), Some(&free)).await.is_err() {
                return;
            }
        }
        if let Ok(known) = self.reads.shards(self.source.clone()).await
            && let Some(cursor) = known.get(&self.own_row())
        {
            let _counted_a_while_longer =
                self.move_shard(&self.own_row(), Some(cursor), None).await;
        }
    }
}

fn position(text: &str) -> Option<ShardPosition> {
    match text.strip_prefix(AFTER) {
        Some(number) => Some(ShardPosition::After(number.to_owned())),
        None => (text == FINISHED).then_some(ShardPosition::Finished),
    }
}

fn unavailable(error: &StoreError) -> StreamError {
    StreamError::Unavailable(format!("positions of shards: {error}"))
}

fn lost(shard: &str) -> StreamError {
    StreamError::Refused(format!("another reader has {shard} by now"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use store::Memory;

    fn names(count: usize) -> Vec<String> {
        (0..count).map(|number| format!("shard-{number}")).collect()
    }

    async fn held(reader: &StorePositions, shards: &[String]) -> usize {
        let leases = reader.lease(shards).await.unwrap();
        leases.iter().filter(|lease| lease.is_held).count()
    }

    #[tokio::test(start_paused = true)]
    async fn readers_share_the_shards_and_take_over_those_of_a_dead_one() {
        let store = Arc::new(Memory::new());
        let reads: Arc<dyn ReadStore> = Arc::clone(&store) as _;
        let clock = Clock::starting_at(Duration::from_hours(500_000));
        let reader = |number| {
            let operations = Arc::clone(&store) as _;
            let source = "orders".parse().unwrap();
            StorePositions::new(source, number, operations, Arc::clone(&reads), clock)
        };
        let (shards, one, two) = (names(5), reader(1), reader(2));
        assert_eq!(held(&one, &shards).await, 5);
        assert_eq!(held(&two, &shards).await, 0, "all are taken");
        assert_eq!(held(&one, &shards).await, 3, "there are two readers");
        assert_eq!(held(&two, &shards).await, 2);
        // A position goes with its shard.
        let after = ShardPosition::After("7".to_owned());
        let first = one.lease(&shards).await.unwrap().iter().position(|lease| lease.is_held);
        let first = &shards[first.unwrap()];
        one.save(first, &after).await.unwrap();
        tokio::time::advance(LEASE).await;
        assert_eq!(held(&two, &shards).await, 5, "the other one is silent");
        assert!(matches!(one.save(first, &after).await, Err(StreamError::Refused(_))));
        let leases = two.lease(std::slice::from_ref(first)).await.unwrap();
        assert_eq!(leases, [ShardLease { position: Some(after), is_held: true }]);
        two.save(first, &ShardPosition::Finished).await.unwrap();
        two.release().await;
        assert_eq!(held(&one, &shards).await, 4, "one is finished, the rest is free at once");
        assert_eq!(one.reads.shards("orders".parse().unwrap()).await.unwrap().len(), 6);
    }
}

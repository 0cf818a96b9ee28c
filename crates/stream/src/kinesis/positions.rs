//! How far a source has come in each shard, and which reader has it; kept outside of Kinesis.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;

use crate::StreamError;

/// Keeps the positions of a source of one stream, by shard, and divides the shards among its readers.
#[async_trait]
pub trait Positions: Send + Sync + std::fmt::Debug {
    /// Takes or keeps a share of `shards` for this reader, and says of each, in order, how far it is and whether this reader has it.
    /// Called every few seconds: a reader that does not call loses its shards to others after a while.
    async fn lease(&self, shards: &[String]) -> Result<Vec<ShardLease>, StreamError>;

    /// Keeps the position in `shard`, which this reader has, durably. Those of one shard are saved one after the other, and only move
    /// forward.
    ///
    /// # Errors
    /// [`StreamError::Refused`] when another reader has it by now.
    async fn save(&self, shard: &str, position: &ShardPosition) -> Result<(), StreamError>;

    /// Gives up all shards, so that others need not wait.
    async fn release(&self);
}

/// The state of a shard for a reader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardLease {
    /// How far it is read; `None` at the start.
    pub position: Option<ShardPosition>,
    /// True if this reader has it.
    pub is_held: bool,
}

/// A position in a shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ShardPosition {
    /// All records up to the one with this sequence number are acknowledged.
    After(String),
    /// The shard is closed, and all of its records are acknowledged.
    Finished,
}

/// Positions of one reader for as long as the process lives: after that, a source begins anew.
#[derive(Debug, Default)]
pub struct MemoryPositions(Mutex<BTreeMap<String, ShardPosition>>);

// === impl MemoryPositions ===

#[async_trait]
impl Positions for MemoryPositions {
    async fn lease(&self, shards: &[String]) -> Result<Vec<ShardLease>, StreamError> {
        let positions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let lease =
            |shard: &String| ShardLease { position: positions.get(shard).cloned(), is_held: true };
        Ok(shards.iter().map(lease).collect())
    }

    async fn save(&self, shard: &str, position: &ShardPosition) -> Result<(), StreamError> {
        let mut positions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        positions.insert(shard.to_owned(), position.clone());
        Ok(())
    }

    async fn release(&self) {}
}

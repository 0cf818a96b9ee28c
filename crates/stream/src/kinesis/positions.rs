//! How far a source has come in each shard, kept outside of Kinesis.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;

use crate::StreamError;

/// Keeps the positions of a source of one stream, by shard.
#[async_trait]
pub trait Positions: Send + Sync + std::fmt::Debug {
    /// The position in `shard`; `None` if none was saved.
    async fn load(&self, shard: &str) -> Result<Option<ShardPosition>, StreamError>;

    /// Keeps the position in `shard`, durably. Those of one shard are saved one after the other, and only move forward.
    async fn save(&self, shard: &str, position: &ShardPosition) -> Result<(), StreamError>;
}

/// A position in a shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ShardPosition {
    /// All records up to the one with this sequence number are acknowledged.
    After(String),
    /// The shard is closed, and all of its records are acknowledged.
    Finished,
}

/// Positions for as long as the process lives: after that, a source begins anew.
#[derive(Debug, Default)]
pub struct MemoryPositions(Mutex<BTreeMap<String, ShardPosition>>);

// === impl MemoryPositions ===

#[async_trait]
impl Positions for MemoryPositions {
    async fn load(&self, shard: &str) -> Result<Option<ShardPosition>, StreamError> {
        Ok(self.0.lock().unwrap_or_else(PoisonError::into_inner).get(shard).cloned())
    }

    async fn save(&self, shard: &str, position: &ShardPosition) -> Result<(), StreamError> {
        let mut positions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        positions.insert(shard.to_owned(), position.clone());
        Ok(())
    }
}

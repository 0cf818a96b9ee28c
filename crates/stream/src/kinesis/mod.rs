//! Streams of Amazon Kinesis as sources and targets.
//!
//! A [`KinesisSource`] reads the shards of a stream that its [`Positions`] give it, which the caller keeps: by these, readers of several
//! processes share a stream. A shard is read after those that it came from are finished, by any reader. Records that Amazon's producer library has aggregated are
//! given as they are, and not taken apart.

mod positions;
mod settings;
mod shards;
mod source;
mod target;

pub use positions::{MemoryPositions, Positions, ShardLease, ShardPosition};
pub use settings::{KinesisSettings, ReadFrom};
pub use source::KinesisSource;
pub use target::KinesisTarget;

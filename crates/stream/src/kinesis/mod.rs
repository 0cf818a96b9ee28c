//! Streams of Amazon Kinesis as sources and targets.
//!
//! A [`KinesisSource`] reads all shards of a stream in one process: there are no leases between processes yet, so two that read one
//! stream each read all of it. Its [`Positions`] are kept by the caller. Records that Amazon's producer library has aggregated are
//! given as they are, and not taken apart.

mod positions;
mod settings;
mod shards;
mod source;
mod target;

pub use positions::{MemoryPositions, Positions, ShardPosition};
pub use settings::{KinesisSettings, ReadFrom};
pub use source::KinesisSource;
pub use target::{KinesisTarget, KinesisTargets};

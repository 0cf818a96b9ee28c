//! Streams of Amazon Kinesis as sources and targets.
//!
//! A [`KinesisSource`] reads all shards of a stream in one process: there are no leases between processes yet, so two that read one
//! stream each read all of it. Its positions are kept by whoever has the engine's store ([`Positions`]). Records that Amazon's
//! producer library has aggregated are given as they are, and not taken apart.

mod settings;
mod target;

pub use settings::{KinesisSettings, ReadFrom};
pub use target::KinesisTarget;

//! Dry run: everything but the last byte. For rehearsals, for sizing, for tests of the pipeline.

mod channel;
mod config;

pub use channel::DryRunChannel;
pub use config::Settings;

//! From a source to a target without a store: a message is acknowledged to its source once its target took it.
//!
//! What is fetched and not answered for is bounded, in messages and bytes; nothing is fetched while that is full. Records go in batches,
//! several puts at a time, and messages are acknowledged in batches. A record that was not taken is put again alone, later; where the target
//! keeps the order of a key, those of its key wait for it. One that the target refuses goes to the dead letters, or ends the relay.
//!
//! - `options`: bounds, guarantee, and how it ends.
//! - `held`: how much is in hand, and how much more may be fetched.
//! - `waiting`: the records that wait for a put, and which go next.
//! - `window`: how many records may be under way.
//! - `run`: the loop, and what begins.
//! - `settle`: what follows when a call has ended.

mod held;
mod options;
mod run;
mod settle;
mod waiting;
mod window;

pub use options::{RelayBuffer, RelayCounts, RelayEnd, RelayError, RelayGuarantee, RelayOptions};
pub use run::StreamRelay;

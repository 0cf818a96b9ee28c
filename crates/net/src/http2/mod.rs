//! HTTP/2: the connections of one thread to one origin.
//!
//! ```text
//! Pool (one per origin and thread)
//!   ├─ waiting      requests that wait for a stream, in the order of priority
//!   └─ Connection   up to `connections_max`, each with as many streams as its peer grants
//!        └─ tcp::connect   resolves the name, and refuses addresses that must not be connected to
//! ```
//!
//! A connection never leaves its thread, and its frames are written many at a time. A quiet one is sent a ping; one that answers
//! pings and no requests is replaced.

mod answer;
mod connection;
mod driver;
mod frames;
#[cfg(test)]
mod hostile_tests;
mod hpack;
mod inbound;
#[cfg(test)]
mod judge_tests;
mod outbox;
mod pool;
mod session;
mod streams;
#[cfg(test)]
mod testing;
mod waiting;

pub use connection::{Dial, Priming};
pub use pool::{Pool, Stream};

//! HTTP/2 to providers, as APNs, FCM and Web Push share it.
//!
//! ```text
//! Pool (one per origin and sender thread)
//!   ├─ waiting      who is next for a stream
//!   └─ Connection   up to `connections_max`, each with as many streams as its peer grants
//!        └─ tcp::connect   finds the addresses, refuses those that must not be reached
//! ```
//!
//! A connection never leaves its thread, and its frames are written many at a time. One that is quiet is asked
//! for a sign of life; one that gives it and answers no request is replaced.

mod connection;
mod pool;
mod waiting;

pub(crate) use connection::{Dial, Priming, Reply};
pub(crate) use pool::{NoAnswer, Pool, Stream};

//! The store on PostgreSQL.
#![cfg_attr(not(test), expect(dead_code, reason = "what uses it is not here yet"))]

mod audit;
mod connection;
mod errors;
mod read;
#[cfg(test)]
mod read_tests;
mod reader;
mod schema;
mod tls;
mod xid;

pub use reader::PostgresReader;

/// Held by every transaction that writes to the log, so that its reader can tell which ones are not complete yet. The
/// function `log_horizon` of the schema knows it by its numbers.
const LOG_WRITERS: &str = "SELECT pg_advisory_xact_lock_shared(4782301, 1)";

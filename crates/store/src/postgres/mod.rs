//! The store on PostgreSQL.
#![cfg_attr(not(test), expect(dead_code, reason = "what uses it is not here yet"))]

mod audit;
mod connection;
mod errors;
mod read;
mod reader;
mod schema;
mod tls;
mod xid;

pub use reader::PostgresReader;

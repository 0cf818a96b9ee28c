//! The store on PostgreSQL.
#![cfg_attr(not(test), expect(dead_code, reason = "what uses it is not here yet"))]

mod connection;
mod errors;
mod tls;

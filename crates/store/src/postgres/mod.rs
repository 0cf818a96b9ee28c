//! The store on PostgreSQL.

mod connection;
mod errors;
mod schema;

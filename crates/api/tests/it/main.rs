//! The API over an in-memory store, through its router and over real sockets.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "all of it is test code: a failure here fails the test"
)]

mod access_log;
mod accounts;
mod acts;
mod bad_input;
mod cancel;
mod create;
mod dashboard;
mod described;
mod description;
mod estimate;
mod events;
mod fallback;
mod grants;
mod gzip;
mod http2;
mod key_routes;
mod keys;
mod labels;
mod late_retries;
mod listeners;
mod lists;
mod live;
mod operate;
mod problems;
mod provider;
mod recipients;
mod requeue;
mod reschedule;
mod resolve;
mod senders;
mod sessions;
mod shares;
mod sockets;
mod support;
mod suppressions;
mod templates;
mod tenants;
mod traces;

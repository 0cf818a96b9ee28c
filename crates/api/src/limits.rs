//! The bounds of the API alone. Those that other crates share stand in [`notification::limits`].

use std::time::Duration;

/// Connections served at a time; more wait in the listen queue. With [`CONNECTION_BYTES`] at most 64 MiB.
pub const CONNECTIONS: usize = 1_024;
/// Connections of one address at a time by which no key came so far; further ones are closed.
pub const UNAUTHENTICATED_OF_ADDRESS: usize = CONNECTIONS / 2;
/// From the beginning of a connection to the end of the head of its first request.
pub const FIRST_HEAD_TIMEOUT: Duration = Duration::from_secs(5);
/// Read buffer of a connection, bytes; also the longest request head.
pub const CONNECTION_BYTES: usize = 64 * 1024;
/// From the first byte of a request's head, or the end of the last request, to the end of the head.
pub const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// For the whole body of an atomic request, or for one line of a stream: both are counted against [`notification::limits::INGEST_BYTES`] meanwhile.
/// So a body has a least rate: its bytes within this time.
pub const BODY_TIMEOUT: Duration = Duration::from_mins(1);
/// How long the rest of a refused body is read, so that its sender gets to see the answer.
pub const DISCARD_TIMEOUT: Duration = Duration::from_secs(10);
/// How long requests under way may take when the server stops.
pub const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a caller may wait for something to happen; below what proxies allow.
pub const LONG_POLL: Duration = Duration::from_secs(25);
/// Faults named in one answer.
pub const FAULTS: usize = 100;
/// Streams of events that are open at a time, each with up to a thousand events in memory, and one that the socket takes.
pub const EVENT_STREAMS: usize = 64;
/// Items of a list asked of the store at once: their contents are in memory for a moment.
pub const LIST_SLICE: usize = 100;
/// Entries of the log in one answer.
pub const LOG_ENTRIES: usize = 10_000;
/// The Retry-After of an answer when the disk is full: an operator has to free some space.
pub const DISK_RETRY_AFTER: Duration = Duration::from_secs(30);
/// How long a rotated key is good beside the new one, unless it is said.
pub const FORMER_KEY_USUAL: Duration = Duration::from_hours(24);
/// How long it may be.
pub const FORMER_KEY_MAX: Duration = Duration::from_hours(90 * 24);

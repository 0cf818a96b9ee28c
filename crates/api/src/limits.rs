//! The bounds of the API alone. Those that other crates share stand in [`notification::limits`].

use std::time::Duration;

/// Connections of a listener that are served at a time; more wait in the listen queue. With [`CONNECTION_BYTES`] at most 64 MiB, where
/// they speak HTTP/1.1.
pub const CONNECTIONS: usize = 1_024;
/// Likewise of each listener for operators.
pub const OPERATOR_CONNECTIONS: usize = 128;
/// The share of a listener's connections, one in so many, that one address may have by which no key came so far; further ones are
/// closed. A Unix socket has no addresses, and no such share.
pub const UNAUTHENTICATED_SHARE: usize = 2;
/// The share of a listener's connections, one in so many, that a tenant may have whatever others do. It may have more while as many are free;
/// then a request by a further one is answered with 429, and that connection is closed. With [`UNAUTHENTICATED_SHARE`], an address without a key
/// and a tenant leave a part to others.
pub const TENANT_SHARE: usize = 4;
/// Requests of one tenant over HTTP/2 that are under way at a listener; more is answered with 429.
pub const TENANT_STREAMS: usize = 1_024;
/// From the beginning of a connection to the end of the head of its first request, a TLS handshake included.
pub const FIRST_HEAD_TIMEOUT: Duration = Duration::from_secs(5);
/// Requests of an HTTP/2 connection under way at a time. RFC 9113 (section 5.1.2) advises no less.
pub const STREAMS: u32 = 100;
/// Fields of a request's head over HTTP/2, bytes as RFC 9113 (section 6.5.2) counts them.
pub const HEADER_LIST_BYTES: u32 = 16 * 1024;
/// Bytes of one request's body over HTTP/2 that are not read yet.
pub const STREAM_WINDOW_BYTES: u32 = 256 * 1024;
/// Likewise of all requests of a connection together.
pub const CONNECTION_WINDOW_BYTES: u32 = 1024 * 1024;
/// Bytes of an answer over HTTP/2 that wait for the caller to take them. A caller that takes fewer within
/// [`IDLE_TIMEOUT`](notification::limits::IDLE_TIMEOUT) loses the answer.
pub const STREAM_SEND_BYTES: usize = 64 * 1024;
/// Streams that a caller has reset and that are still to be looked at; with more the connection ends (CVE-2023-44487).
pub const RESET_STREAMS: usize = 20;
/// Streams of a connection that were reset for errors of the caller; with more the connection ends.
pub const FAULTY_STREAMS: usize = 256;
/// Between two pings of an HTTP/2 connection by which nothing comes.
pub const PING_INTERVAL: Duration = Duration::from_secs(30);
/// For the answer to a ping; without one the connection ends.
pub const PING_TIMEOUT: Duration = Duration::from_secs(20);
/// Read buffer of a connection, bytes; also the longest request head.
pub const CONNECTION_BYTES: usize = 64 * 1024;
/// From the first byte of a request's head, or the end of the last request, to the end of the head. An HTTP/2 connection without a request
/// under way for so long is closed.
pub const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// For the whole body of an atomic request, or for one line of a stream: both are counted against [`notification::limits::INGEST_BYTES`] meanwhile.
/// So a body has a least rate: its bytes within this time.
pub const BODY_TIMEOUT: Duration = Duration::from_mins(1);
/// Bytes that come out of a gzip body at a time.
pub const INFLATED_BYTES: usize = 16 * 1024;
/// Memory that is reserved while a gzip body is read: the window and tables of its decoder, and one piece. A stream keeps it to its
/// end, also while it waits for a line, so a tenant has 512 of them at most.
pub const GZIP_BYTES: usize = 64 * 1024;
/// Shortest answer that is compressed, bytes: it goes out in one packet or two either way, and costs less so.
pub const COMPRESSED_FROM: u64 = 1024;
/// Bytes of an answer that are compressed before other requests have their turn: a millisecond or less.
pub const COMPRESSED_AT_ONCE: usize = 64 * 1024;
/// Answers that are compressed at a time; each takes 300 KiB beside itself. More are sent as they are.
pub const COMPRESSIONS: usize = 4;
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
/// Those of one tenant; more is answered with 429.
pub const TENANT_EVENT_STREAMS: usize = 16;
/// Requests for metrics and status of operators that are answered at a time; more wait. Those of tenants are answered one at a time.
pub const OPERATOR_WATCHES: usize = 2;
/// Requests for metrics of one tenant that are answered or wait; more is answered with 429.
pub const TENANT_WATCHES: usize = 8;
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
/// Sessions of the dashboard in one process, 80 bytes each; beyond them the oldest ends.
pub const SESSIONS: usize = 1_024;
/// Those of one key; beyond them its oldest ends.
pub const KEY_SESSIONS: usize = 64;
/// From the log-in to the end of a session: one watch of an operator.
pub const SESSION_LASTS: Duration = Duration::from_hours(12);
/// Between two looks at the status for those who follow it, all of them together.
pub const LIVE_INTERVAL: Duration = Duration::from_secs(1);
/// Callers who follow the status at a time.
pub const LIVE_STREAMS: usize = 64;

const _: () = assert!(
    CONNECTIONS / UNAUTHENTICATED_SHARE + CONNECTIONS / TENANT_SHARE < CONNECTIONS,
    "silent sockets of an address and a tenant at its limit leave connections to others"
);
const _: () = assert!(TENANT_EVENT_STREAMS < EVENT_STREAMS, "one tenant leaves room");

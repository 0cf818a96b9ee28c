//! Connections to other machines, as all channels use them, and TLS for the rest of the workspace. Knows no channel and no
//! notification.
//!
//! ```text
//! endpoint  which URLs are accepted         guard     which addresses may be connected to
//! connect   TCP and TLS to an origin, for HTTP
//! connection_counts  how many are open, and why others are not
//! tcp       the only maker of connections   tls       trusted roots, client certificates, handshakes
//! ticking   sockets read by readiness or by ticks
//! tls_server  TLS of a server: its certificate, and those of callers
//! idle      connections kept after use      tasks     tasks that end with their owner
//! redact    secrets stay out of logs        words     errors as the log keeps them
//! setting   keys in settings or files
//! http1, http2  pools of connections        exchange  their reply, their failure, what they ask before they send
//! request_head  what they send in front of a body
//! tries     one request over http2, again while it was not processed
//! ```
//!
//! The last three lines are behind the feature `http`: the store needs only the rest. Of `notification` this crate uses the priority by
//! which requests wait for a stream, and how much the log keeps of an answer; of `flow` the clock, the backoff between connects
//! that fail, and the timing of a sample.

#[cfg(feature = "http")]
mod connect;
pub mod connection_counts;
pub mod endpoint;
#[cfg(feature = "http")]
pub mod exchange;
pub mod guard;
#[cfg(feature = "http")]
pub mod http1;
#[cfg(feature = "http")]
pub mod http2;
pub mod idle;
#[cfg(feature = "http")]
mod read_ahead;
pub mod redact;
#[cfg(feature = "http")]
pub mod request_head;
pub mod setting;
pub mod tasks;
pub mod tcp;
#[cfg(feature = "http")]
mod ticking;
pub mod tls;
pub mod tls_server;
#[cfg(feature = "http")]
pub mod tries;
pub mod words;

/// Bytes of an answer that are read at most. Providers answer with a few hundred; the log keeps
/// [`DETAIL_BYTES`](notification::limits::DETAIL_BYTES).
pub const ANSWER_BYTES: usize = 16 * 1024;

//! HTTP/2: the connections of one thread to one origin.
//!
//! ```text
//! Http2Pool (one per origin and thread)
//!   ├─ StreamQueue  requests of one caller that wait for streams, as many as it has; `exchange` waits in one of its own
//!   ├─ Http2Stream  a stream that was given out, and the request on it; its outcome goes into RequestOutcomes, of one or of thousands
//!   ├─ Dial         makes connections, by `net::connect`
//!   └─ Connection   up to `connections_max`, each with as many streams as its peer grants
//!        ├─ Http2Session  its state, without I/O: streams, write buffer and hpack; `inbound` has what comes in, `answer` what it is for a request
//!        └─ Wire          the task that moves it: socket and timer
//! ```
//!
//! A connection never leaves its thread, and its frames are written many at a time. A quiet one is sent a ping; one that answers
//! pings and no requests is replaced. `docs/http2.md` says how it works, with each rule of the protocol and its test.

mod answer;
mod connection;
mod dial;
mod driver;
mod frames;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
#[cfg(test)]
mod hostile_bytes_tests;
#[cfg(test)]
mod hostile_tests;
#[cfg(test)]
mod hostile_tls_tests;
mod hpack;
mod inbound;
#[cfg(test)]
mod judge_tests;
mod outcomes;
#[cfg(any(test, feature = "fuzzing"))]
mod playing;
mod pool;
#[cfg(test)]
mod scripted_server;
mod session;
mod stream;
mod stream_queue;
mod streams;
#[cfg(any(test, feature = "fuzzing"))]
mod testing;
mod write_buffer;

pub use answer::IncomingReply;
pub use connection::Priming;
pub use dial::Dial;
pub use outcomes::{RequestOutcome, RequestOutcomes};
pub use pool::Http2Pool;
pub use stream::Http2Stream;
pub use stream_queue::StreamQueue;

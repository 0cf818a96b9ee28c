//! The HTTP/2 client before servers of others: over TLS on loopback, through the pool, as the channels use it.
//!
//! Each story is told once, to every server that can hear it. What a server has noted of requests is held against what the
//! client says of them: none is lost, none is processed twice, and none of those is processed that the client calls unsent.

#[cfg(test)]
mod account;
#[cfg(test)]
mod client;
#[cfg(test)]
mod samples;
#[cfg(test)]
mod stories;

//! Apple Push Notification service: HTTP/2 over TLS, with a provider token or a client certificate.
//!
//! ```text
//! ProviderTokens (one per process)
//!   └─ ProviderToken          the provider token of one team and key, kept over restarts
//! ApnsChannel (shared)        settings, endpoint, TLS, its token, what is known of its environment
//!   └─ ApnsSender (one per sender thread)
//!        └─ Http2Pool              connections of this channel alone: one team and key, one environment
//! ```
//!
//! The cost of a request decides how many notifications a core can send, so whatever is the same for a
//! whole job is encoded once per job ([`request`]), and a connection's frames are written many at a time.
//!
//! Sources: Apple's "Establishing a token-based connection to APNs", "Establishing a certificate-based connection to
//! APNs", "Sending notification requests to APNs" and "Handling notification responses from APNs".

mod channel;
mod config;
mod request;
mod response;
mod state;
#[cfg(test)]
mod suppression_tests;
mod token;

pub use channel::ApnsChannel;
pub use config::Settings;
pub use token::ProviderTokens;

//! Apple Push Notification service: HTTP/2 over TLS, with a provider token.
//!
//! ```text
//! ApnsChannel (shared)   settings, endpoint, TLS, the provider token
//!   └─ ApnsSender (one per sender thread)
//!        └─ Pool         up to `connections_max` connections, each with as many streams as it grants
//! ```
//!
//! What each request costs decides how many notifications a core can send, so whatever is the same for a
//! whole job is encoded once per job ([`request`]), and a connection's frames are written many at a time.

mod channel;
mod config;
mod request;
mod response;
mod token;

pub use channel::ApnsChannel;
pub use config::Settings;

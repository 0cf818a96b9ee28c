//! Web Push: to browsers, through the push service that each of them chose
//! (RFC 8030; encrypted as RFC 8291 says, sent in the name that RFC 8292 proves).
//!
//! ```text
//! content ──> request      TTL, Urgency, Topic
//! recipient ─> subscription  where to, and the keys of the browser
//!                └─> encryption  a body that only this browser can read: one key agreement each
//! origin ────> vapid       a token, good for hours
//!                └─> routes     HTTP/2, or HTTP/1.1 where nothing else is spoken
//! answer ────> response    what it means for the subscription
//! ```
//!
//! The push service comes with the subscription, so a caller chooses it, like the endpoint of a webhook: the guard
//! passes every address before it is connected to, and no redirect is followed.

mod channel;
mod config;
mod encryption;
mod encryption_turns;
mod request;
mod response;
mod routes;
mod subscription;
#[cfg(test)]
mod suppression_tests;
mod vapid;

pub use channel::WebPushChannel;
pub use config::Settings;
pub use vapid::VapidKey;

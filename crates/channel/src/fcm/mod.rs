//! Firebase Cloud Messaging, HTTP v1: HTTP/2 over TLS, with an OAuth token that a service account signs for.
//!
//! ```text
//! FcmChannel (shared)        settings, endpoint, TLS
//!   ├─ TokenSource           the access token of all threads: asked for by one, renewed at 80 % of its life
//!   └─ FcmSender (one per sender thread)
//!        └─ Http2Pool
//! ```
//!
//! Sources: <https://firebase.google.com/docs/reference/fcm/rest/v1/projects.messages>,
//! <https://firebase.google.com/docs/reference/fcm/rest/v1/ErrorCode>,
//! <https://firebase.google.com/docs/cloud-messaging/error-codes>,
//! <https://firebase.google.com/docs/cloud-messaging/throttling-and-quotas>,
//! <https://firebase.google.com/docs/cloud-messaging/scale-fcm>, RFC 7523 for the assertion.

mod account;
mod channel;
mod config;
mod oauth;
mod request;
mod response;
#[cfg(test)]
mod suppression_tests;
mod token;

pub use channel::FcmChannel;
pub use config::Settings;

//! Webhooks: a signed POST to an endpoint that a caller chose
//! (Standard Webhooks 1.0.0, <https://github.com/standard-webhooks/standard-webhooks>).
//!
//! Because a caller chose the endpoint, nothing is connected to before the guard has passed the very
//! address; a redirect is a refusal and never followed; and of an answer that is not an acceptance the first words are
//! kept, escaped.

mod channel;
mod config;
mod endpoints;
mod headers;
mod request;
mod response;
mod signature;
#[cfg(test)]
mod suppression_tests;

pub use channel::WebhookChannel;
pub use config::{EndpointSettings, Settings};

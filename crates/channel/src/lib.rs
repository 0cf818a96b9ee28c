//! The channel seam: how a delivery reaches its provider, and what the provider's answer means.
//!
//! A [`Channel`] is one configured way out. It checks what a caller wants to send, without I/O, and opens a
//! [`Sender`] on every sender thread. A sender takes a [`Job`], some deliveries of one chunk, and reports
//! per delivery; [`drive`] is the loop that most senders share. Channels know nothing of stores and queues.

mod answers;
pub mod apns;
mod attempt;
mod attempts;
mod checks;
mod concurrency;
#[cfg(feature = "conformance")]
pub mod conformance;
#[cfg(feature = "double")]
pub mod double;
mod drive;
pub mod dry_run;
mod endpoint_rules;
mod error;
pub mod fcm;
mod fence;
mod from_pattern;
mod job;
mod jwt;
mod lane_quota;
mod object;
mod settings;
pub mod smtp;
pub mod stream;
#[cfg(test)]
mod test_support;
mod time;
mod under_way;
pub mod webhook;
pub mod webpush;

use std::borrow::Cow;
use std::sync::Arc;

use async_trait::async_trait;
use flow::Clock;

pub use attempt::Attempt;
pub(crate) use attempt::own_or_shared;
pub use concurrency::{Concurrency, LearnedBounds, SendBounds};
pub(crate) use drive::drive_all;
pub use drive::{drive, drive_patiently};
pub use error::{ChannelError, Invalid};
pub use fence::Fence;
pub use from_pattern::FromPattern;
pub use job::{Job, Reports, Start};
pub use lane_quota::LaneQuota;
pub use net::connection_counts::{ConnectFault, ConnectionCounts};
pub use net::endpoint::{Endpoint, EndpointPrefix};
pub use net::guard::Resolve;
pub use net::redact::Secret;
pub use net::setting::SettingError;
pub(crate) use time::is_stale;
pub use time::timestamp;

/// One configured way out. Shared by all threads.
pub trait Channel: Send + Sync + std::fmt::Debug {
    /// The one spelling of `recipient` that is stored, so that the suppression list knows it again; borrowed when
    /// it is as given. Default: any is.
    fn canonical<'a>(&self, recipient: &'a str) -> Result<Cow<'a, str>, Invalid> {
        Ok(Cow::Borrowed(recipient))
    }

    /// Checks a recipient, in its [canonical](Self::canonical) spelling, and says which destination it belongs to: what
    /// shares connections and limits. The same recipient always has the same destination.
    fn destination(&self, recipient: &str) -> Result<Arc<str>, Invalid>;

    /// Checks a payload and its options (empty when there are none).
    fn check_content(&self, payload: &[u8], options: &[u8]) -> Result<(), Invalid>;

    /// Top-level keys of the payload whose strings are HTML: what a template puts there is escaped. Default: none.
    fn html_fields(&self) -> &'static [&'static str] {
        &[]
    }

    /// The address in `From` of a message with a payload that was checked, in one spelling: a key may be good for some addresses
    /// alone. Default: none, as of channels whose messages have no sender that callers choose.
    fn sender_address(&self, _payload: &[u8]) -> Option<String> {
        None
    }

    /// The endpoint that a recipient that was checked is the URL of: a key may be good for some endpoints alone. Default: none, as of
    /// channels whose recipients are no endpoints of callers.
    fn endpoint_of(&self, _recipient: &str) -> Option<Endpoint> {
        None
    }

    /// The credentials that end, each with when; `clock` says what time it is. Cheap: it is asked at each scrape. Default: none end, or
    /// it is not known.
    fn credentials(&self, _clock: Clock) -> Vec<ExpiringCredential> {
        Vec::new()
    }

    /// How much may be sent.
    fn bounds(&self) -> SendBounds;

    /// Key of the quota that deliveries to `destination` count against, as its provider counts. Default: the destination. A channel that logs in
    /// there adds its credential.
    fn quota_key(&self, destination: &Arc<str>) -> Arc<str> {
        Arc::clone(destination)
    }

    /// Opens a sender for the calling thread, a single-threaded runtime. Connects to nothing yet.
    fn open(&self, tools: Tools) -> Result<Box<dyn Sender>, ChannelError>;
}

/// Sends, on one thread.
#[async_trait(?Send)]
pub trait Sender: std::fmt::Debug {
    /// Sends the deliveries of `job`, and reports each exactly once, before it returns. Never panics because
    /// of what a delivery or a provider says. Several jobs may be under way at a time.
    ///
    /// Every attempt holds a pass of the job's gate, and asks [`Start::begin`] before its first byte; none starts after [`Job::may_start`] says no; none takes
    /// longer than [`notification::limits::ATTEMPT_TIMEOUT`], or than
    /// [`notification::limits::PATIENT_ATTEMPT_TIMEOUT`] where the protocol asks for that patience and so much more of
    /// the lease is left ([`drive_patiently`]). What the provider certainly did not process
    /// may be tried again within the attempt. Anything else is reported, not retried.
    async fn send(&self, job: Job<'_>);

    /// Ends idle connections in the protocol's own way. Called when no job is under way.
    async fn close(&self);
}

/// A credential of a channel that is good for a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExpiringCredential {
    /// Its kind: `client_certificate`, of several the one that ends first, which an operator replaces; `access_token`, which the channel
    /// renews by itself before it ends.
    pub what: &'static str,
    /// Second of Unix time at which it ends.
    pub expires_at: i64,
}

/// The tools that a sender gets from its thread.
#[derive(Debug, Clone)]
pub struct Tools {
    /// The time.
    pub clock: Clock,
    /// Seeds the sender's own generator.
    pub seed: u64,
    /// Counts its connections.
    pub connections: Arc<ConnectionCounts>,
}

// === impl ExpiringCredential ===

impl ExpiringCredential {
    /// The kind of a client certificate.
    pub const CERTIFICATE: &'static str = "client_certificate";

    pub(crate) const fn certificate(expires_at: i64) -> Self {
        Self { what: Self::CERTIFICATE, expires_at }
    }
}

// === impl Tools ===

impl Tools {
    /// Tools whose connections are counted by themselves.
    pub fn new(clock: Clock, seed: u64) -> Self {
        Self { clock, seed, connections: Arc::default() }
    }
}

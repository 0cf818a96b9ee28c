//! The conformance suite of channels and their doubles. Call [`exercise`] in a test of yours, on a
//! single-threaded runtime, inside a `LocalSet`.
//!
//! The checks fail by panicking, with what was expected.

mod checks;
mod fixtures;

use flow::Clock;
use notification::Content;

use crate::Channel;

/// How the provider behaves that a check needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Behaviour {
    /// Accepts everything.
    Accepts,
    /// Reads requests and then closes the connection without a word.
    CutsOff,
}

/// A channel under test, and what a test provides about it.
pub trait TestedChannel {
    /// A channel to a provider that behaves so; `None` when that cannot be had.
    fn channel(&self, provider: Behaviour) -> Option<Box<dyn Channel>>;

    /// The recipient number `number` of that provider: another for another number.
    fn recipient(&self, provider: Behaviour, number: u16) -> String;

    /// A content that is acceptable.
    fn content(&self) -> Content;
}

/// Exercises the channel of `subject`. `clock` is what its senders are given.
pub async fn exercise(subject: &dyn TestedChannel, clock: Clock) {
    checks::recipients_and_contents(subject);
    checks::each_delivery_is_reported_once(subject, clock).await;
    checks::the_gate_is_kept(subject, clock).await;
    checks::several_jobs_share_a_sender(subject, clock).await;
    checks::what_must_not_start_is_reported_without_an_attempt(subject, clock).await;
    checks::what_cannot_be_begun_is_not_sent(subject, clock).await;
    checks::a_delivery_without_a_content_is_refused(subject, clock).await;
    checks::own_contents_come_first(subject, clock).await;
    checks::a_job_that_is_given_up_frees_its_places(subject, clock).await;
    checks::a_provider_that_cuts_off_leaves_it_unknown(subject, clock).await;
}

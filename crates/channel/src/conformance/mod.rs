//! The conformance suite of channels and their doubles. Call [`exercise`] in a test of yours, on a
//! single-threaded runtime, inside a `LocalSet`.
//!
//! The checks fail by panicking, with what was expected.

mod checks;
mod fixtures;

use flow::Clock;
use notification::Content;

use self::fixtures::ChannelRig;
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
    let accepts = (subject, Behaviour::Accepts, clock);
    check(accepts, checks::each_delivery_is_reported_once).await;
    check(accepts, checks::the_gate_is_kept).await;
    check(accepts, checks::several_jobs_share_a_sender).await;
    check(accepts, checks::what_must_not_start_is_reported_without_an_attempt).await;
    check(accepts, checks::what_cannot_be_begun_is_not_sent).await;
    check(accepts, checks::a_delivery_without_a_content_is_refused).await;
    check(accepts, checks::own_contents_come_first).await;
    check(accepts, checks::a_job_that_is_given_up_frees_its_places).await;
    let cuts_off = (subject, Behaviour::CutsOff, clock);
    check(cuts_off, checks::a_provider_that_cuts_off_leaves_it_unknown).await;
}

/// Makes one check with a sender of its own, if there is such a provider.
async fn check(
    (subject, provider, clock): (&dyn TestedChannel, Behaviour, Clock),
    check: impl AsyncFnOnce(&ChannelRig<'_>),
) {
    let Some(rig) = ChannelRig::new(subject, provider, clock) else { return };
    check(&rig).await;
    rig.sender.close().await;
}

//! The channel seam: how a delivery reaches its provider, and what the provider's answer means.
//!
//! A [`Channel`] is one configured way out. It checks what a caller wants to send, without I/O, and opens a
//! [`Sender`] on every sender thread. A sender takes a [`Job`], some deliveries of one chunk, and reports
//! per delivery; [`drive`] is the loop that most senders share. Channels know nothing of stores and queues.

mod answers;
pub mod apns;
mod checks;
#[cfg(feature = "conformance")]
pub mod conformance;
#[cfg(feature = "double")]
pub mod double;
mod drive;
pub mod dry_run;
pub mod fcm;
mod fence;
mod settings;
pub mod smtp;
#[cfg(test)]
mod test_support;
pub mod webhook;
pub mod webpush;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use flow::{Clock, Gate, Signal, Tenure, Timing};
use net::endpoint::Malformed;
use net::exchange::{Failure, Unsent};
use net::tls;
use notification::{Answer, Chunk, Delivery, Priority, Report, Timestamp, limits};
use tokio::sync::watch;

pub use drive::{drive, drive_patiently};
pub use fence::{Fence, Start};
pub use net::guard::Resolve;
pub use net::redact::Secret;

/// One configured way out. Shared by all threads.
pub trait Channel: Send + Sync + std::fmt::Debug {
    /// The kind, as the configuration spells it.
    fn kind(&self) -> &'static str;

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

    /// How many attempts may be under way at a time per lane and sender thread, at least 1.
    fn concurrency(&self) -> usize;

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

/// What a sender needs from its thread.
#[derive(Debug, Clone, Copy)]
pub struct Tools {
    /// The time.
    pub clock: Clock,
    /// Seeds the sender's own generator.
    pub seed: u64,
}

/// Some deliveries of one chunk, to be sent now.
#[derive(Debug, Clone, Copy)]
pub struct Job<'a> {
    /// The chunk they belong to.
    pub chunk: &'a Chunk,
    /// Those to send: all of the chunk's, or a run of them.
    pub deliveries: &'a [Delivery],
    /// Admits attempts.
    pub gate: &'a Gate,
    /// Begins each delivery before its first byte; `None` where one may be sent more than once.
    pub fence: Option<&'a dyn Fence>,
    /// Takes the reports.
    pub reports: &'a dyn Reports,
    /// The time.
    pub clock: Clock,
    /// Turns true when no attempt may start any more: the process is being stopped.
    pub stopping: &'a watch::Receiver<bool>,
    /// Until when this process may start attempts at all.
    pub tenure: &'a Tenure,
}

/// Takes reports, a batch at a time. Waits when settle cannot keep up: that is back-pressure.
#[async_trait(?Send)]
pub trait Reports: std::fmt::Debug {
    /// Takes reports of deliveries by their index.
    async fn report(&self, reports: Vec<(u16, Report)>);
}

/// What one attempt came to, and what it says about load.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    /// For settle.
    pub report: Report,
    /// For the gate: what it says about load.
    pub signal: Signal,
    /// For the gate: how long the provider took to answer; `None` when it did not.
    pub timing: Option<Timing>,
}

/// Whether an attempt may start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MayStart {
    /// It may.
    Yes,
    /// The notification's time is over.
    Expired,
    /// Too little is left of the lease, the process is being stopped, or others may be taking over from it: hand it back.
    No {
        /// Due again after so long.
        after: Duration,
    },
}

/// How soon a delivery is due again that found all streams or connections in use.
const FULL_DELAY: Duration = Duration::from_secs(1);

/// Why a recipient or a content is not acceptable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Invalid {
    /// JSON pointer below the field that was checked; empty when it is the field itself.
    pub pointer: String,
    /// What is wrong and what would be right.
    pub message: String,
}

/// Why a channel cannot be built or opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChannelError {
    /// A setting makes no sense.
    #[error("{setting}: {message}")]
    Setting {
        /// The setting's name within the channel's table.
        setting: &'static str,
        /// What is wrong and what would be right.
        message: String,
    },
    /// A file cannot be read or has the wrong content.
    #[error("{path}: {message}")]
    File {
        /// Which file.
        path: String,
        /// What is wrong and what would be right.
        message: String,
    },
    /// Several things are wrong; none of them is this variant.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Several(Vec<ChannelError>),
}

// === impl ChannelError ===

impl ChannelError {
    /// Each thing that is wrong, one at least.
    pub fn each(self) -> Vec<Self> {
        match self {
            Self::Several(errors) => errors,
            error @ (Self::Setting { .. } | Self::File { .. }) => vec![error],
        }
    }

    /// This and what `other` says beyond it.
    pub(crate) fn and(self, other: Self) -> Self {
        let mut errors = self.each();
        for error in other.each() {
            if !errors.contains(&error) {
                errors.push(error);
            }
        }
        match errors.len() {
            1 => errors.remove(0),
            _ => Self::Several(errors),
        }
    }
}

impl From<tls::Error> for ChannelError {
    fn from(error: tls::Error) -> Self {
        let tls::Error { subject, message } = error;
        match subject {
            tls::Subject::File(path) => Self::File { path, message },
            tls::Subject::Setting(setting) => Self::Setting { setting, message },
        }
    }
}

// === impl Job ===

impl Job<'_> {
    /// Whether an attempt may start now.
    pub fn may_start(&self) -> MayStart {
        self.may_start_with(limits::LEASE_MARGIN)
    }

    /// Whether an attempt may start now that needs `margin` of the lease.
    fn may_start_with(&self, margin: Duration) -> MayStart {
        let now = timestamp(self.clock);
        if self.chunk.envelope.expires_at.is_some_and(|expires_at| expires_at <= now) {
            return MayStart::Expired;
        }
        if now.plus(margin) >= self.chunk.lease_until || *self.stopping.borrow() {
            return MayStart::No { after: Duration::ZERO };
        }
        if !self.tenure.holds(self.chunk.tenure, self.clock) {
            // Claimed again at once, it would go to and fro until this process is sure that it is alive.
            return MayStart::No { after: limits::WORKER_BEAT };
        }
        MayStart::Yes
    }

    /// The priority of the job's lane.
    pub fn priority(&self) -> Priority {
        self.chunk.envelope.lane.priority
    }
}

// === impl MayStart ===

impl MayStart {
    /// What is reported of a delivery that must not start; `None` when it may.
    pub fn report_otherwise(self) -> Option<Report> {
        match self {
            Self::Yes => None,
            Self::Expired => Some(Report::Expired),
            Self::No { after } => Some(Report::HandedBack { after }),
        }
    }
}

// === impl Invalid ===

impl Invalid {
    /// The checked field itself is wrong.
    pub fn new(message: impl Into<String>) -> Self {
        Self { pointer: String::new(), message: message.into() }
    }

    /// The part at `pointer` is wrong.
    pub fn at(pointer: impl Into<String>, message: impl Into<String>) -> Self {
        Self { pointer: pointer.into(), message: message.into() }
    }

    /// The part that the member names `path` lead to is wrong.
    pub(crate) fn within(path: &[&str], message: impl Into<String>) -> Self {
        let escaped = path.iter().map(|name| name.replace('~', "~0").replace('/', "~1"));
        Self::at(escaped.fold(String::new(), |pointer, name| pointer + "/" + &name), message)
    }
}

impl From<Malformed> for Invalid {
    fn from(malformed: Malformed) -> Self {
        Self::new(malformed.to_string())
    }
}

// === impl Attempt ===

impl Attempt {
    const fn new(report: Report, signal: Signal) -> Self {
        Self { report, signal, timing: None }
    }

    /// This attempt, whose answer took so long.
    #[must_use]
    pub fn timed(self, timing: Timing) -> Self {
        Self { timing: Some(timing), ..self }
    }

    /// The provider answered in its normal way.
    pub fn answered(answer: Answer) -> Self {
        Self::new(Report::Attempted(answer), Signal::Answered)
    }

    /// The provider answered that it has too much to do.
    pub fn pushed_back(answer: Answer) -> Self {
        Self::new(Report::Attempted(answer), Signal::PushedBack)
    }

    /// What the provider said, for a line in the log.
    pub(crate) fn words(&self) -> Cow<'_, str> {
        match &self.report {
            Report::Attempted(answer) if answer.status > 0 => {
                format!("{} {}", answer.status, answer.detail).into()
            }
            Report::Attempted(answer) => Cow::Borrowed(&answer.detail),
            Report::HandedBack { .. } | Report::Expired => Cow::Borrowed("not tried"),
        }
    }

    /// Nobody knows what became of it.
    pub fn lost(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Report::Attempted(Answer::unknown(detail)), Signal::Dropped)
    }

    /// It failed before a byte of it reached the provider: due again `after`, one attempt poorer.
    pub fn unsent(detail: impl Into<Cow<'static, str>>, after: Option<Duration>) -> Self {
        let answer = Answer::deferred(0, after, detail);
        Self::new(Report::Attempted(answer), Signal::Silent)
    }

    /// The provider had no room for it, so it was never tried: due again `after`, no attempt poorer.
    pub fn handed_back(after: Duration) -> Self {
        Self::new(Report::HandedBack { after }, Signal::PushedBack)
    }

    /// It was not tried, for a reason that [`MayStart::report_otherwise`] gives.
    pub fn not_started(report: Report) -> Self {
        Self::new(report, Signal::Silent)
    }

    /// It cannot be tried: the store is damaged.
    pub(crate) fn without_content() -> Self {
        Self::impossible("the store holds no content for it")
    }

    /// It cannot be tried, now or ever: what the store holds is not what was checked when it came in.
    pub fn impossible(detail: impl Into<Cow<'static, str>>) -> Self {
        let answer = Answer::refused(0, false, detail);
        Self::new(Report::Attempted(answer), Signal::Silent)
    }
}

impl From<Failure<Report>> for Attempt {
    fn from(failure: Failure<Report>) -> Self {
        match failure {
            Failure::Lost(words) => Self::lost(words),
            Failure::Unsent(unsent) => unsent.into(),
        }
    }
}

impl From<Unsent<Report>> for Attempt {
    fn from(unsent: Unsent<Report>) -> Self {
        match unsent {
            Unsent::Forbidden(forbidden) => Self::impossible(forbidden.to_string()),
            Unsent::Unreachable(words) | Unsent::NotSpoken(words) => Self::unsent(words, None),
            Unsent::Full => Self::handed_back(FULL_DELAY),
            Unsent::Declined(words) => Self::pushed_back(Answer::deferred(0, None, words)),
            Unsent::Unwritable => Self::impossible("it cannot be written as a request"),
            Unsent::Withheld(report) => Self::not_started(report),
        }
    }
}

/// What a delivery sends, encoded: its own content, or what its chunk shares. Otherwise what is to be reported.
pub(crate) fn own_or_shared<'a, Encoded>(
    own: Option<&'a Result<Encoded, Invalid>>,
    shared: Option<&'a Result<Encoded, Invalid>>,
) -> Result<&'a Encoded, Attempt> {
    match own.or(shared) {
        Some(Ok(encoded)) => Ok(encoded),
        Some(Err(invalid)) => Err(Attempt::impossible(invalid.message.clone())),
        None => Err(Attempt::without_content()),
    }
}

/// Whether a token that says it was made at `made` is to be replaced: it is too old, or its time lies ahead because the
/// clock was set back, and the provider would not take it.
pub(crate) fn is_stale(made: Timestamp, now: Timestamp, renew_after: Duration) -> bool {
    now.since(made) >= renew_after || made.since(now) > limits::CLOCK_TOLERANCE
}

/// The wall time as the vocabulary has it.
pub fn timestamp(clock: Clock) -> Timestamp {
    Timestamp::from_millis(i64::try_from(clock.wall().as_millis()).unwrap_or(i64::MAX))
}

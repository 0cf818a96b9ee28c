//! The result of one attempt: for settle, and for the gate.

use std::borrow::Cow;
use std::time::Duration;

use flow::{Signal, Timing};
use net::exchange::{Failure, Unsent};
use notification::{Answer, Report};

use crate::Invalid;

/// The result of one attempt, with what it says about load.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    /// For settle.
    pub report: Report,
    /// For the gate: what it says about load.
    pub signal: Signal,
    /// For the gate: how long the provider took to answer; `None` when it did not.
    pub timing: Option<Timing>,
}

/// How soon a delivery is due again that found all streams or connections in use.
const FULL_DELAY: Duration = Duration::from_secs(1);

// === impl Attempt ===

impl Attempt {
    pub(crate) const fn new(report: Report, signal: Signal) -> Self {
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

    /// The provider answered that more is sent to it than it lets through. Not of a rate of one recipient, where that can be told.
    pub fn over_rate(answer: Answer) -> Self {
        Self::new(Report::Attempted(answer), Signal::OverRate)
    }

    /// The provider's words, for a line in the log.
    pub(crate) fn words(&self) -> Cow<'_, str> {
        match &self.report {
            Report::Attempted(answer) if answer.status > 0 => {
                format!("{} {}", answer.status, answer.detail).into()
            }
            Report::Attempted(answer) => Cow::Borrowed(&answer.detail),
            Report::HandedBack { .. } | Report::Expired => Cow::Borrowed("not tried"),
        }
    }

    /// It is unknown whether the provider acted on it.
    pub fn lost(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Report::Attempted(Answer::unknown(detail)), Signal::Dropped)
    }

    /// It failed before a byte of it reached the provider: due again `after`, one attempt poorer.
    pub fn unsent(detail: impl Into<Cow<'static, str>>, after: Option<Duration>) -> Self {
        let answer = Answer::deferred(0, after, detail).unsent();
        Self::new(Report::Attempted(answer), Signal::Silent)
    }

    /// The provider had no room for it, so it was never tried: due again `after`, no attempt poorer.
    pub fn handed_back(after: Duration) -> Self {
        Self::new(Report::HandedBack { after }, Signal::PushedBack)
    }

    /// It was not tried, for a reason that [`Job::may_start`](crate::Job::may_start) gives.
    pub fn not_started(report: Report) -> Self {
        Self::new(report, Signal::Silent)
    }

    /// It cannot be tried: the store is damaged.
    pub(crate) fn without_content() -> Self {
        Self::impossible("the store holds no content for it")
    }

    /// It cannot be tried, now or ever: what the store holds is not what was checked when it came in.
    pub fn impossible(detail: impl Into<Cow<'static, str>>) -> Self {
        let answer = Answer::refused(0, false, detail).unsent();
        Self::new(Report::Attempted(answer), Signal::Silent)
    }
}

impl From<Invalid> for Attempt {
    fn from(invalid: Invalid) -> Self {
        Self::impossible(invalid.message)
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
            // A channel that speaks HTTP/1.1 as well has tried that by now.
            Unsent::Unreachable(words) | Unsent::NotSpoken(words) => Self::unsent(words, None),
            Unsent::Full => Self::handed_back(FULL_DELAY),
            Unsent::Declined(words) => Self::pushed_back(Answer::deferred(0, None, words)),
            Unsent::Unwritable => Self::impossible("it cannot be written as a request"),
            Unsent::Withheld(report) => Self::not_started(report),
        }
    }
}

/// The encoded content of a delivery: its own, or the chunk's.
///
/// # Errors
/// The result of its attempt, when it has none that can be sent.
pub(crate) fn own_or_shared<'a, Encoded>(
    own: Option<&'a Result<Encoded, Invalid>>,
    shared: Option<&'a Result<Encoded, Invalid>>,
) -> Result<&'a Encoded, Attempt> {
    match own.or(shared) {
        Some(Ok(encoded)) => Ok(encoded),
        Some(Err(invalid)) => Err(invalid.clone().into()),
        None => Err(Attempt::without_content()),
    }
}

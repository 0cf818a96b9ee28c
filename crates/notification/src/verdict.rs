//! What came of trying: the only thing that crosses from deliver to settle.

use std::borrow::Cow;
use std::time::Duration;

/// What the provider said to an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The provider took it.
    Accepted,
    /// The provider will never take it.
    Refused {
        /// Whether the recipient itself is gone and must not be tried again.
        gone: bool,
    },
    /// Not now. The provider certainly did not act on this attempt.
    Deferred {
        /// How long the provider asked to wait, if it said.
        after: Option<Duration>,
    },
    /// The answer was lost: the provider may or may not have acted.
    Unknown,
}

/// The verdict of one attempt, and the words it came in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// What it means.
    pub verdict: Verdict,
    /// The protocol's status code, 0 when there was none.
    pub status: u16,
    /// The provider's reason, or what went wrong; empty for a plain acceptance. Never a secret, at most
    /// [`crate::limits::DETAIL_BYTES`] bytes.
    pub detail: Cow<'static, str>,
}

/// What deliver reports of one delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Report {
    /// An attempt was made, or began and failed.
    Attempted(Answer),
    /// No byte was sent and no attempt counted: due again after this long.
    HandedBack {
        /// Zero means at once.
        after: Duration,
    },
    /// Its time was over before it could be sent.
    Expired,
}

// === impl Answer ===

impl Answer {
    /// The provider took it.
    pub const fn accepted(status: u16) -> Self {
        Self { verdict: Verdict::Accepted, status, detail: Cow::Borrowed("") }
    }

    /// The provider will never take it; `gone` when the recipient is the reason.
    pub fn refused(status: u16, gone: bool, detail: impl Into<Cow<'static, str>>) -> Self {
        Self { verdict: Verdict::Refused { gone }, status, detail: detail.into() }
    }

    /// Not now.
    pub fn deferred(
        status: u16,
        after: Option<Duration>,
        detail: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self { verdict: Verdict::Deferred { after }, status, detail: detail.into() }
    }

    /// The answer was lost.
    pub fn unknown(detail: impl Into<Cow<'static, str>>) -> Self {
        Self { verdict: Verdict::Unknown, status: 0, detail: detail.into() }
    }
}

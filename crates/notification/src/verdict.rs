//! Verdicts and reports of attempts: the only thing that crosses from deliver to settle.

use std::borrow::Cow;
use std::time::Duration;

use crate::time::Timestamp;

/// The provider's verdict on an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The provider took it.
    Accepted,
    /// The provider will never take it.
    Refused {
        /// True if the recipient itself is gone and must not be tried again.
        gone: bool,
    },
    /// Not now. Whether the provider may have acted all the same is told by [`Answer::may_have_acted`].
    Deferred {
        /// How long the provider asked to wait, if it said.
        after: Option<Duration>,
    },
    /// The answer was lost: the provider may or may not have acted.
    Unknown,
}

/// The verdict of one attempt, and the words it came in.
#[derive(Debug, Clone, Eq)]
pub struct Answer {
    /// The verdict that the answer stands for.
    pub verdict: Verdict,
    /// The protocol's status code, 0 when there was none.
    pub status: u16,
    /// The provider's reason, or what went wrong; empty for a plain acceptance. Never a secret, at most
    /// [`crate::limits::DETAIL_BYTES`] bytes.
    pub detail: Cow<'static, str>,
    /// Since when the recipient is gone by the provider's own clock, if it said.
    pub gone_since: Option<Timestamp>,
    /// True if the provider may have acted on the attempt although it did not accept it.
    pub may_have_acted: bool,
    /// True if it is no answer of the provider: nothing was sent that the provider could act on.
    pub is_unsent: bool,
}

/// The report of one delivery, from deliver to settle.
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

impl PartialEq for Answer {
    fn eq(&self, other: &Self) -> bool {
        let Self { verdict, status, detail, gone_since, may_have_acted, is_unsent } = self;
        // Mostly both are empty, and to compare no bytes at an address that is none takes some processors a tenth of a microsecond.
        let is_detail = match (detail.is_empty(), other.detail.is_empty()) {
            (false, false) => *detail == other.detail,
            (is_empty, is_other_empty) => is_empty == is_other_empty,
        };
        is_detail
            && (verdict, status) == (&other.verdict, &other.status)
            && (gone_since, may_have_acted) == (&other.gone_since, &other.may_have_acted)
            && *is_unsent == other.is_unsent
    }
}

impl Answer {
    /// The provider took it.
    pub fn accepted(status: u16) -> Self {
        Self::new(Verdict::Accepted, status, "")
    }

    /// The provider will never take it; `gone` when the recipient is the reason.
    pub fn refused(status: u16, gone: bool, detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Verdict::Refused { gone }, status, detail)
    }

    /// Not now. It may have been acted on when `status` is the one of an HTTP server that failed at an unknown point
    /// (5xx, 408, and what HTTP does not know); 429 and 503 say that it was declined (RFC 9110, section 15.6; RFC 6585, section 4).
    pub fn deferred(
        status: u16,
        after: Option<Duration>,
        detail: impl Into<Cow<'static, str>>,
    ) -> Self {
        let may_have_acted = matches!(status, 1..=199 | 408 | 500..=502 | 504..);
        Self::new(Verdict::Deferred { after }, status, detail).acted(may_have_acted)
    }

    /// This answer, where the channel knows better than the status says whether the provider may have acted.
    #[must_use]
    pub fn acted(self, may_have_acted: bool) -> Self {
        Self { may_have_acted, ..self }
    }

    /// This answer, in place of one of the provider: nothing was sent.
    #[must_use]
    pub fn unsent(self) -> Self {
        Self { is_unsent: true, ..self }
    }

    /// The answer was lost.
    pub fn unknown(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Verdict::Unknown, 0, detail).acted(true)
    }

    /// This answer, of a recipient that has been gone since `at` by the provider's own clock.
    #[must_use]
    pub fn gone_since(self, at: Timestamp) -> Self {
        Self { gone_since: Some(at), ..self }
    }

    fn new(verdict: Verdict, status: u16, detail: impl Into<Cow<'static, str>>) -> Self {
        let (detail, gone_since) = (detail.into(), None);
        Self { verdict, status, detail, gone_since, may_have_acted: false, is_unsent: false }
    }
}

//! One notification of a request, as a draft.

use axum::http::HeaderMap;
use notification::{ByteString, Draft, Timestamp};
use pipeline::Intake;
use pipeline::ingest::json::ParseError;
use pipeline::ingest::{IngestError, InvalidField, Submission, parse};

use crate::caller::Caller;
use crate::problem::Problem;
use crate::problem_code::ProblemCode;

/// Why there is no draft of a notification.
#[derive(Debug)]
pub(crate) enum DraftError {
    /// It is not as it must be, or not granted to the caller's key.
    Wrong(ParseError),
    /// The header with its key does not go with it.
    Header(&'static str),
}

/// Reads one notification from `json`, a part of `whole`. The outer error is not of the notification: there is too much
/// under way to look at it.
pub(crate) async fn read_draft(
    intake: &Intake,
    caller: &Caller,
    (whole, json): (&ByteString, &str),
    header_key: Option<&str>,
    now: Timestamp,
) -> Result<Result<Draft, DraftError>, IngestError> {
    let read = || {
        let (mut submission, to) = parse::notification(whole, json)?;
        add_key(&mut submission, header_key)?;
        caller.check_sending(&mut submission, now)?;
        Ok((submission, to))
    };
    let (submission, to) = match read() {
        Ok(read) => read,
        Err(error) => return Ok(Err(error)),
    };
    match intake.check_in_turn(&caller.tenant, submission, to, now).await {
        Ok(draft) => Ok(Ok(draft)),
        Err(IngestError::Invalid(invalid)) => Ok(Err(invalid.into())),
        Err(error) => Err(error),
    }
}

/// The key in the header, if there is one.
pub(crate) fn header_key(headers: &HeaderMap) -> Result<Option<&str>, Problem> {
    let Some(value) = headers.get("idempotency-key") else { return Ok(None) };
    let unreadable =
        |_| Problem::new(ProblemCode::InvalidHeader, "Idempotency-Key must be plain ASCII");
    value.to_str().map(Some).map_err(unreadable)
}

/// Gives `submission` the key in the header, which must be the same if both are given.
pub(crate) fn add_key(
    submission: &mut Submission<'_>,
    header_key: Option<&str>,
) -> Result<(), DraftError> {
    match (&submission.idempotency_key, header_key) {
        (Some(own), Some(key)) if &**own != key => {
            let message = "the header Idempotency-Key and idempotency_key differ: give one of them";
            Err(DraftError::Header(message))
        }
        (None, Some(key)) => {
            submission.idempotency_key = Some(key.into());
            Ok(())
        }
        _ => Ok(()),
    }
}

// === impl DraftError ===

impl From<InvalidField> for DraftError {
    fn from(invalid: InvalidField) -> Self {
        Self::Wrong(invalid.into())
    }
}

impl From<ParseError> for DraftError {
    fn from(error: ParseError) -> Self {
        Self::Wrong(error)
    }
}

impl From<DraftError> for Problem {
    fn from(error: DraftError) -> Self {
        match error {
            DraftError::Wrong(error) => error.into(),
            DraftError::Header(detail) => Self::new(ProblemCode::InvalidHeader, detail),
        }
    }
}

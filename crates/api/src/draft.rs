//! One notification of a request, as a draft.

use axum::http::HeaderMap;
use notification::{ByteString, Draft, Name, Timestamp};
use pipeline::Intake;
use pipeline::ingest::json::ParseError;
use pipeline::ingest::{IngestError, Submission, parse};

use crate::problem::Problem;

/// Reads one notification from `json`, a part of `whole`. The outer error is not of the notification: there is too much
/// under way to look at it.
pub(crate) async fn read_draft(
    intake: &Intake,
    tenant: &Name,
    (whole, json): (&ByteString, &str),
    header_key: Option<&str>,
    now: Timestamp,
) -> Result<Result<Draft, ParseError>, IngestError> {
    let read = || {
        let (mut submission, to) = parse::notification(whole, json)?;
        add_key(&mut submission, header_key)?;
        Ok((submission, to))
    };
    let (submission, to) = match read() {
        Ok(read) => read,
        Err(error) => return Ok(Err(error)),
    };
    match intake.check_in_turn(tenant, submission, to, now).await {
        Ok(draft) => Ok(Ok(draft)),
        Err(IngestError::Invalid(invalid)) => Ok(Err(invalid.into())),
        Err(error) => Err(error),
    }
}

/// The key in the header, if there is one.
pub(crate) fn header_key(headers: &HeaderMap) -> Result<Option<&str>, Problem> {
    let Some(value) = headers.get("idempotency-key") else { return Ok(None) };
    let unreadable = |_| Problem::bad_request("Idempotency-Key must be plain ASCII");
    value.to_str().map(Some).map_err(unreadable)
}

/// Gives `submission` the key in the header, which must be the same if both are given.
pub(crate) fn add_key(
    submission: &mut Submission<'_>,
    header_key: Option<&str>,
) -> Result<(), ParseError> {
    match (&submission.idempotency_key, header_key) {
        (Some(own), Some(key)) if &**own != key => {
            let message = "the header Idempotency-Key and idempotency_key differ: give one of them";
            Err(ParseError::Syntax(message.to_owned()))
        }
        (None, Some(key)) => {
            submission.idempotency_key = Some(key.into());
            Ok(())
        }
        _ => Ok(()),
    }
}

//! Errors as problem details (RFC 9457).

use std::borrow::Cow;
use std::time::Duration;

use axum::http::StatusCode;
use axum::http::header::{
    ACCEPT_ENCODING, CONTENT_TYPE, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE,
};
use axum::response::{IntoResponse, Response};
use notification::limits;
use pipeline::ingest::json::ParseError;
use pipeline::ingest::{IngestError, InvalidField};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use store::{ErrorKind, StoreError};

use crate::limits::{DISK_RETRY_AFTER, FAULTS};
use crate::problem_code::ProblemCode;
use crate::tenant_share::TenantShare;

/// An answer that says no, and why.
#[derive(Debug)]
pub(crate) struct Problem {
    pub(crate) code: ProblemCode,
    pub(crate) detail: String,
    pub(crate) errors: Vec<Located>,
    /// The seconds after which to come back.
    retry_after: Option<u64>,
    /// The share of the caller's tenant that is exhausted.
    share: Option<TenantShare>,
}

/// A fault and where it stands.
#[derive(Debug, Clone, JsonSchema, Serialize, Deserialize)]
pub struct Located {
    /// JSON pointer to the field.
    pub pointer: Cow<'static, str>,
    /// Line of an NDJSON body, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u64>,
    /// The fault, and what would be right.
    pub message: String,
}

/// Problem details (RFC 9457).
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "Problem")]
pub(crate) struct Details<'a> {
    /// Reference of the page of its code, relative to the address of the engine.
    r#type: &'static str,
    /// A summary, the same for every problem with this code.
    title: &'static str,
    /// The status of the answer.
    status: u16,
    code: ProblemCode,
    /// The fault of this request, and what would be right, for people.
    detail: &'a str,
    /// The faults, where several fields may be wrong.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    errors: &'a [Located],
}

// === impl Problem ===

impl Problem {
    pub(crate) fn new(code: ProblemCode, detail: impl Into<String>) -> Self {
        Self { code, detail: detail.into(), errors: Vec::new(), retry_after: None, share: None }
    }

    /// A parameter has a value that it cannot have, or does not go with the others.
    pub(crate) fn parameter(detail: impl Into<String>) -> Self {
        Self::new(ProblemCode::InvalidParameter, detail)
    }

    /// A parameter is absent that the request needs.
    pub(crate) fn missing_parameter(detail: impl Into<String>) -> Self {
        Self::new(ProblemCode::MissingParameter, detail)
    }

    pub(crate) fn not_found(detail: impl Into<String>) -> Self {
        Self::new(ProblemCode::NotFound, detail)
    }

    /// The details that its answer has.
    pub(crate) fn details(&self) -> Details<'_> {
        Details {
            r#type: self.code.page(),
            title: self.code.title(),
            status: self.status().as_u16(),
            code: self.code,
            detail: &self.detail,
            errors: &self.errors,
        }
    }

    /// The status of its answer.
    pub(crate) fn status(&self) -> StatusCode {
        self.code.status()
    }

    /// The body, or one line of it, is longer than it may be.
    pub(crate) fn too_large(bytes_max: usize) -> Self {
        let detail =
            format!("the body has more than {bytes_max} bytes: send several requests or a stream");
        Self::new(ProblemCode::TooLarge, detail)
    }

    /// One or more fields are wrong.
    pub(crate) fn unprocessable(errors: Vec<Located>) -> Self {
        let detail = match errors.as_slice() {
            [only] => only.to_string(),
            several if several.len() >= FAULTS => {
                format!("{FAULTS} or more fields are invalid; the first ones are listed")
            }
            several => format!("{} fields are invalid", several.len()),
        };
        Self { errors, ..Self::new(ProblemCode::InvalidField, detail) }
    }

    /// The caller's key has not the scope that this takes.
    pub(crate) fn missing_scope(detail: impl Into<String>) -> Self {
        Self::new(ProblemCode::MissingScope, detail)
    }

    /// The caller's key is not granted what stands there.
    pub(crate) fn not_granted(located: Located) -> Self {
        let detail = located.to_string();
        Self { errors: vec![located], ..Self::new(ProblemCode::NotGranted, detail) }
    }

    /// The tenant of the caller has no more of `share`.
    pub(crate) fn beyond(share: TenantShare, detail: impl Into<String>) -> Self {
        let code = match share {
            TenantShare::IngestBytes
            | TenantShare::Rendering
            | TenantShare::Reads
            | TenantShare::Watches
            | TenantShare::Requests => ProblemCode::TenantOverloaded,
            TenantShare::Connections(_) => ProblemCode::TenantConnections,
            TenantShare::EventStreams => ProblemCode::TenantStreams,
        };
        Self { share: Some(share), ..Self::new(code, detail) }
    }

    /// This problem, for a caller that is to come back after `wait`, whole seconds.
    pub(crate) fn retry_after(self, wait: Duration) -> Self {
        Self { retry_after: Some(wait.as_secs()), ..self }
    }

    /// The problem for an error of the store, where `pointer` leads to an item.
    pub(crate) fn from_store(
        error: &StoreError,
        pointer: impl FnOnce(usize) -> Cow<'static, str>,
    ) -> Self {
        if let StoreError::KeyReused { index } = error {
            let message = "was used before for something else: take a new key";
            let pointer = format!("{}/idempotency_key", pointer(*index));
            let invalid = InvalidField::new(pointer, message);
            let conflict = Self::new(ProblemCode::IdempotencyKeyReused, invalid.to_string());
            return Self { errors: vec![invalid.into()], ..conflict };
        }
        if let StoreError::BoundPassed { index, bound, now } = error {
            let InvalidField { pointer: field, message, .. } = InvalidField::passed(*bound, *now);
            let invalid = InvalidField::new(format!("{}{field}", pointer(*index)), message);
            return invalid.into();
        }
        // Apart from what passes by itself: an operator must free some space, so the caller is to wait longer.
        if let StoreError::NoSpace(words) = error {
            return Self::new(ProblemCode::DiskFull, words.as_str()).retry_after(DISK_RETRY_AFTER);
        }
        let wait = limits::OVERLOAD_RETRY_AFTER;
        if let StoreError::TenantReads = error {
            let seconds = wait.as_secs();
            let detail =
                format!("{error}: try again in {seconds} s, with fewer requests at a time");
            return Self::beyond(TenantShare::Reads, detail).retry_after(wait);
        }
        if let StoreError::TenantsReads = error {
            return Self::new(ProblemCode::Overloaded, error.to_string()).retry_after(wait);
        }
        // In the database's words: no check of ours has found what is wrong.
        if let StoreError::Invalid(_) = error {
            return Self::new(ProblemCode::RefusedValue, error.to_string());
        }
        match error.kind() {
            ErrorKind::Failed => Self::new(ProblemCode::InternalError, error.to_string()),
            // Of these only that a broadcast is not open is left.
            ErrorKind::Request => Self::new(ProblemCode::UploadEnded, error.to_string()),
            ErrorKind::Unavailable => Self::new(ProblemCode::StoreUnavailable, error.to_string())
                .retry_after(limits::OVERLOAD_RETRY_AFTER),
            ErrorKind::Fatal => {
                // Without Retry-After: the process ends by this, and it is not known when the next one is ready.
                tracing::error!(%error, "store failed");
                let detail = "the store failed and takes no more work until a restart";
                Self::new(ProblemCode::StoreFailed, detail)
            }
        }
    }
}

impl From<ParseError> for Problem {
    fn from(error: ParseError) -> Self {
        match error {
            ParseError::Syntax(detail) => Self::new(ProblemCode::InvalidJson, detail),
            ParseError::Invalid(invalid) => invalid.into(),
        }
    }
}

impl From<InvalidField> for Problem {
    fn from(invalid: InvalidField) -> Self {
        if invalid.is_not_granted {
            return Self::not_granted(invalid.into());
        }
        Self::unprocessable(vec![invalid.into()])
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        Self::from_store(&error, |_| Cow::Borrowed(""))
    }
}

impl From<IngestError> for Problem {
    fn from(error: IngestError) -> Self {
        match error {
            IngestError::Invalid(invalid) => invalid.into(),
            IngestError::Store(error) => error.into(),
            IngestError::TenantOverloaded { share, retry_after } => {
                Self::beyond(share.into(), error.to_string()).retry_after(retry_after)
            }
            IngestError::Overloaded { retry_after } => {
                Self::new(ProblemCode::Overloaded, error.to_string()).retry_after(retry_after)
            }
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = self.status();
        let body = serde_json::to_vec(&self.details()).unwrap_or_default();
        let content_type = [(CONTENT_TYPE, "application/problem+json")];
        let mut response = (status, content_type, body).into_response();
        if let Some(seconds) = self.retry_after {
            response.headers_mut().insert(RETRY_AFTER, seconds.into());
        }
        if let Some(share) = self.share {
            share.write(response.headers_mut(), self.retry_after);
        }
        // It names what would have been right (RFC 9110, section 15.5.16).
        if self.code == ProblemCode::UnsupportedCoding {
            response.headers_mut().insert(ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
        }
        // Every such answer names the scheme that is asked for (RFC 9110, section 15.5.2).
        if status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

// === impl Located ===

impl Located {
    /// `fault` of the item at `index` of an array.
    pub(crate) fn in_item(index: usize, invalid: InvalidField) -> Self {
        let pointer = format!("/{index}{}", invalid.pointer);
        Self { pointer: pointer.into(), line: None, message: invalid.message }
    }

    /// `fault` in a line of a stream.
    pub(crate) fn in_line(line: u64, invalid: InvalidField) -> Self {
        Self { pointer: invalid.pointer, line: Some(line), message: invalid.message }
    }
}

impl From<InvalidField> for Located {
    fn from(invalid: InvalidField) -> Self {
        Self { pointer: invalid.pointer, line: None, message: invalid.message }
    }
}

impl std::fmt::Display for Located {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(line) = self.line {
            write!(formatter, "line {line}: ")?;
        }
        match self.pointer.strip_prefix('/') {
            Some(field) => write!(formatter, "{field}: {}", self.message),
            None => formatter.write_str(&self.message),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_invalid_fields_are_counted_up_to_a_bound_and_one_is_named() {
        let detail = |count: usize| {
            let invalid = |_| InvalidField::new("/to", "is missing").into();
            Problem::unprocessable((0..count).map(invalid).collect()).detail
        };
        assert_eq!(detail(1), "to: is missing");
        assert_eq!(detail(3), "3 fields are invalid");
        let most = format!("{FAULTS} or more fields are invalid; the first ones are listed");
        assert_eq!(detail(FAULTS), most);
    }

    #[test]
    fn what_the_database_refuses_of_one_request_is_its_fault_or_ours_and_says_why() {
        let words = || "integer out of range, SQLSTATE 22003".to_owned();
        let status = |error: StoreError| {
            let problem = Problem::from(error);
            assert!(problem.detail.ends_with(&words()), "{}", problem.detail);
            problem.status()
        };
        assert_eq!(status(StoreError::Invalid(words())), StatusCode::UNPROCESSABLE_ENTITY);
        assert_eq!(status(StoreError::Undone(words())), StatusCode::INTERNAL_SERVER_ERROR);
    }

    #[test]
    fn a_question_that_was_not_asked_is_the_tenants_fault_or_that_of_all() {
        for (error, code, policy) in [
            (StoreError::TenantReads, ProblemCode::TenantOverloaded, Some("\"reads\"")),
            (StoreError::TenantsReads, ProblemCode::Overloaded, None),
        ] {
            let problem = Problem::from(error);
            assert_eq!(problem.code, code);
            let response = problem.into_response();
            assert_eq!(response.headers()[RETRY_AFTER], "1");
            let told = response.headers().get("ratelimit").map(|value| value.to_str().unwrap());
            assert_eq!(told.and_then(|told| told.split(';').next()), policy);
        }
    }

    #[test]
    fn a_full_disk_is_a_507_that_says_what_to_do_and_when_to_come_back() {
        let problem = Problem::from(StoreError::NoSpace("free some space".to_owned()));
        assert_eq!(problem.detail, "free some space");
        let response = problem.into_response();
        assert_eq!(response.status(), StatusCode::INSUFFICIENT_STORAGE);
        assert_eq!(response.headers()[RETRY_AFTER], "30");
        assert_eq!(response.headers()[CONTENT_TYPE], "application/problem+json");
    }
}

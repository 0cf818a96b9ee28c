//! The meaning of failures: of a call, and of one entry of a batch.

use std::error::Error;
use std::time::Duration;

use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
use aws_smithy_runtime_api::client::result::{DispatchFailure, SdkError};
use aws_smithy_types::error::metadata::ProvideErrorMetadata;
use hyper_util::client::legacy;

use crate::{PutError, StreamError};

/// Why a call, or an entry of one, failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AwsFailure {
    /// Its meaning.
    pub kind: AwsFailureKind,
    /// The service's code, such as `QueueDoesNotExist`.
    pub code: Option<String>,
    /// Time after which to try again, if the service said so.
    pub after: Option<Duration>,
    /// Words for operators, without secrets.
    pub text: String,
}

/// The meanings of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AwsFailureKind {
    /// Too fast: it was not done.
    Throttled,
    /// It was not done, and will not be before something is changed: a credential, a right, a name.
    Refused,
    /// It was not done for what is in it, and never will be.
    Invalid,
    /// It was not done, and may be later.
    NotDone,
    /// It may have been done.
    Unclear,
}

/// Codes that mean "too fast"; the SDK's own list, and those of SQS and Kinesis.
const THROTTLING: &[&str] = &[
    "Throttling",
    "ThrottlingException",
    "ThrottledException",
    "RequestThrottledException",
    "TooManyRequestsException",
    "ProvisionedThroughputExceededException",
    "RequestLimitExceeded",
    "BandwidthLimitExceeded",
    "LimitExceededException",
    "RequestThrottled",
    "SlowDown",
    "OverLimit",
    "KMSThrottlingException",
    "KmsThrottled",
];

/// Codes of a call that is wrong for what is in its entries. Each entry is checked before, so these are not expected.
const CONTENT: &[&str] = &[
    "BatchRequestTooLong",
    "InvalidArgumentException",
    "InvalidMessageContents",
    "InvalidParameterValue",
    "MessageTooLong",
    "ValidationException",
];

/// Codes of credentials that are not known or do not fit. Their messages are not repeated: they quote the request that was signed,
/// with its session token.
const CREDENTIALS: &[&str] = &[
    "InvalidClientTokenId",
    "UnrecognizedClientException",
    "InvalidAccessKeyId",
    "InvalidSecurity",
    "SignatureDoesNotMatch",
    "InvalidSignatureException",
    "IncompleteSignature",
    "IncompleteSignatureException",
    "MissingAuthenticationToken",
    "MissingAuthenticationTokenException",
    "AuthFailure",
];

/// Bytes of a service's message that are repeated.
const MESSAGE_BYTES: usize = 300;
/// The longest word of a service's message that is repeated, bytes: names and URLs are shorter, and the token of a session is longer.
const WORD_BYTES: usize = 160;
/// The header with the time to wait, milliseconds.
const RETRY_AFTER: &str = "x-amz-retry-after";

// === impl AwsFailure ===

impl AwsFailure {
    /// The meaning of `error`, which `place` (a service and where it is) gave.
    pub fn of<E>(error: &SdkError<E, HttpResponse>, place: &str) -> Self
    where
        E: ProvideErrorMetadata + Error + 'static,
    {
        let status = error.raw_response().map_or(0, |response| response.status().as_u16());
        let has_code = error.code().is_some_and(|code| !code.is_empty());
        // Not every server has more to say in these.
        if matches!(status, 401 | 403) && !has_code {
            return entry_failure("AuthFailure", true, "", place);
        }
        let (kind, text) = match error {
            // The request was not made.
            SdkError::ConstructionFailure(_) => {
                (AwsFailureKind::NotDone, format!("no request to {place} ({})", causes(error)))
            }
            SdkError::TimeoutError(_) => {
                (AwsFailureKind::Unclear, format!("{place} did not answer in time"))
            }
            SdkError::DispatchFailure(failure) => of_dispatch(failure, place, &causes(error)),
            SdkError::ServiceError(_) => return Self::of_service(error, place),
            // Something came that is no answer.
            SdkError::ResponseError(_) | _ => {
                let text = format!("{place} gave no proper answer ({})", causes(error));
                (AwsFailureKind::Unclear, text)
            }
        };
        Self { kind, code: None, after: None, text }
    }

    /// The meaning of an answer of the service.
    fn of_service<E: ProvideErrorMetadata>(error: &SdkError<E, HttpResponse>, place: &str) -> Self {
        let response = error.raw_response();
        let status = response.map_or(0, |response| response.status().as_u16());
        let code = error.code().unwrap_or_default();
        // Some servers say no more than this.
        let code =
            if code.is_empty() && matches!(status, 401 | 403) { "AuthFailure" } else { code };
        let is_sender = (400..500).contains(&status);
        let mut failure =
            entry_failure(code, is_sender, error.message().unwrap_or_default(), place);
        if code.is_empty() {
            failure.text = format!("{place} answered with status {status}");
        }
        if failure.kind == AwsFailureKind::Invalid && !failure.is(CONTENT) {
            // Not for the content, as far as is known: a record that it was for is not given up.
            failure.kind = AwsFailureKind::Refused;
        }
        let header = response.and_then(|response| response.headers().get(RETRY_AFTER));
        failure.after = header.and_then(|text| text.parse().ok()).map(Duration::from_millis);
        failure
    }

    /// True if the service's code is one of `codes`, or ends with one behind a dot.
    pub fn is(&self, codes: &[&str]) -> bool {
        let code = self.code.as_deref().unwrap_or_default();
        codes.iter().any(|known| code == *known || code.ends_with(&format!(".{known}")))
    }

    /// The failure of a call as that of each of its `entries`. A call of several that is wrong for its content does not say which.
    #[must_use]
    pub fn of_each(mut self, entries: usize) -> Self {
        if self.kind == AwsFailureKind::Invalid && entries > 1 {
            self.kind = AwsFailureKind::NotDone;
        }
        self
    }

    /// As a source says it.
    pub fn into_stream_error(self) -> StreamError {
        match self.kind {
            AwsFailureKind::Refused | AwsFailureKind::Invalid => StreamError::Refused(self.text),
            AwsFailureKind::Throttled | AwsFailureKind::NotDone | AwsFailureKind::Unclear => {
                StreamError::Unavailable(self.text)
            }
        }
    }

    /// As a target says it.
    pub fn into_put_error(self) -> PutError {
        match self.kind {
            AwsFailureKind::Throttled => PutError::Throttled { after: self.after, why: self.text },
            AwsFailureKind::Invalid => PutError::Refused(self.text),
            // Nothing is wrong with the record: it waits until the cause is removed.
            AwsFailureKind::Refused | AwsFailureKind::NotDone => PutError::NotTaken(self.text),
            AwsFailureKind::Unclear => PutError::Unknown(self.text),
        }
    }
}

/// The meaning of `code`, which stands for a whole answer or for an entry of one; `is_sender` if the service blames the request.
pub fn entry_failure(code: &str, is_sender: bool, message: &str, place: &str) -> AwsFailure {
    let is_of_key = code.starts_with("KMS.") || code.starts_with("Kms");
    // Some servers put a name space in front.
    let code = code.rsplit(['#', '.']).next().unwrap_or_default();
    let message: String = message.chars().take(MESSAGE_BYTES).collect();
    let shown = |word| if str::len(word) > WORD_BYTES { "[hidden]" } else { word };
    let message = message.split(' ').map(shown).collect::<Vec<_>>().join(" ");
    let (kind, text) = if THROTTLING.contains(&code) {
        (AwsFailureKind::Throttled, format!("{place}: {code}: {message}"))
    } else if CREDENTIALS.contains(&code) {
        let remedy = "correct the access key, the profile or the role";
        (AwsFailureKind::Refused, format!("{place} refuses these credentials ({code}): {remedy}"))
    } else if code.starts_with("ExpiredToken") {
        let remedy = "they are taken anew; fixed ones must be changed";
        (AwsFailureKind::NotDone, format!("{place}: the credentials have expired: {remedy}"))
    } else if code.starts_with("RequestExpired") || code.starts_with("RequestTimeTooSkewed") {
        (AwsFailureKind::Refused, format!("{place} ({code}): set the clock of this machine"))
    } else if code.starts_with("AccessDenied") {
        (
            AwsFailureKind::Refused,
            format!("{place} denies a right ({message}): grant it to this role or user"),
        )
    } else if matches!(code, "NonExistentQueue" | "QueueDoesNotExist" | "ResourceNotFoundException")
    {
        (
            AwsFailureKind::Refused,
            format!("{place} does not exist: correct name, region or account"),
        )
    } else if is_of_key {
        (AwsFailureKind::Refused, format!("{place}: its key is not usable ({code}: {message})"))
    } else if is_sender {
        (AwsFailureKind::Invalid, format!("{place}: {code}: {message}"))
    } else {
        (AwsFailureKind::Unclear, format!("{place}: {code}: {message}"))
    };
    AwsFailure { kind, code: Some(code.to_owned()), after: None, text }
}

/// A request that had no answer: without credentials or a connection it was not sent.
fn of_dispatch(failure: &DispatchFailure, place: &str, causes: &str) -> (AwsFailureKind, String) {
    let connector = failure.as_connector_error();
    let mut cause = connector.and_then(Error::source);
    let mut is_connect = false;
    while let Some(error) = cause {
        let client = error.downcast_ref::<legacy::Error>();
        is_connect |= client.is_some_and(legacy::Error::is_connect);
        cause = error.source();
    }
    if is_connect {
        let text =
            format!("cannot reach {place} ({causes}): is it running, and is the address right?");
        return (AwsFailureKind::NotDone, text);
    }
    if failure.is_other() || failure.is_user() {
        return (AwsFailureKind::NotDone, format!("no request to {place} ({causes})"));
    }
    (AwsFailureKind::Unclear, format!("the connection to {place} failed ({causes})"))
}

/// The reasons of `error`, the outermost one left out: it says only in which step it happened.
fn causes(error: &dyn Error) -> String {
    let mut text = String::new();
    let mut cause = error.source();
    while let Some(error) = cause {
        let said = error.to_string();
        if !text.ends_with(&said) {
            text.push_str(if text.is_empty() { "" } else { ": " });
            text.push_str(&said);
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_has_its_meaning() {
        use AwsFailureKind::{Invalid, NotDone, Refused, Throttled, Unclear};
        for (code, is_sender, expected) in [
            ("ProvisionedThroughputExceededException", true, Throttled),
            ("RequestThrottled", true, Throttled),
            ("AWS.SimpleQueueService.OverLimit", true, Throttled),
            ("KmsThrottled", true, Throttled),
            ("InvalidClientTokenId", true, Refused),
            ("AccessDeniedException", true, Refused),
            ("AWS.SimpleQueueService.NonExistentQueue", true, Refused),
            ("ResourceNotFoundException", true, Refused),
            ("KMS.DisabledException", true, Refused),
            ("KmsAccessDenied", true, Refused),
            ("InvalidMessageContents", true, Invalid),
            ("ExpiredTokenException", true, NotDone),
            ("InternalFailure", false, Unclear),
            ("ServiceUnavailable", false, Unclear),
        ] {
            assert_eq!(entry_failure(code, is_sender, "m", "SQS").kind, expected, "{code}");
        }
    }

    #[test]
    fn a_record_is_given_up_for_its_own_content_alone() {
        let put = |code: &str, entries: usize| {
            entry_failure(code, true, "m", "SQS").of_each(entries).into_put_error()
        };
        assert!(matches!(put("InvalidMessageContents", 1), PutError::Refused(_)));
        for (code, entries) in
            [("InvalidMessageContents", 2), ("AccessDenied", 1), ("QueueDoesNotExist", 1)]
        {
            assert!(matches!(put(code, entries), PutError::NotTaken(_)), "{code}");
        }
    }

    #[test]
    fn the_token_of_a_session_is_not_repeated() {
        let token = "canary".repeat(40);
        let failure =
            entry_failure("Odd", true, &format!("you said: {token} at 1:2"), "SQS at eu-central-1");
        assert_eq!(failure.text, "SQS at eu-central-1: Odd: you said: [hidden] at 1:2");
        let failure = entry_failure("Odd", true, &format!("<{token}{token}>"), "SQS");
        assert!(!failure.text.contains("canary"), "{}", failure.text);
    }

    #[test]
    fn a_refused_signature_is_not_quoted() {
        let message = "The Canonical String should have been x-amz-security-token:canary";
        let failure = entry_failure("SignatureDoesNotMatch", true, message, "SQS at eu-central-1");
        assert!(
            !failure.text.contains("canary") && failure.text.contains("correct the access key")
        );
    }
}

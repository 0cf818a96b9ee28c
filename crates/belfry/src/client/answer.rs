//! Answers of the engine, and its errors (problem+json, RFC 9457).

use std::time::Duration;

use anyhow::Context as _;
use api::ProblemCode;
use bytes::Bytes;
use hyper::StatusCode;
use hyper::header::RETRY_AFTER;
use hyper::http::response::Parts;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::exit::{CliError, FailureKind};

/// One answer of the engine.
#[derive(Debug)]
pub(crate) struct EngineAnswer {
    /// Its HTTP status.
    pub(crate) status: StatusCode,
    /// How long to wait, if the engine said.
    pub(crate) retry_after: Option<Duration>,
    body: Bytes,
}

/// The mistake in one field of a request.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct FieldError {
    /// JSON pointer to the field.
    pub(crate) pointer: String,
    /// Line of a broadcast's body, from 1, which is its head.
    line: Option<u64>,
    /// The mistake, and what would be right.
    pub(crate) message: String,
}

const NO_SENSE: &str =
    "the engine's answer makes no sense: is there another server at this address?";

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ProblemBody {
    code: String,
    title: String,
    detail: String,
    errors: Vec<FieldError>,
}

// === impl EngineAnswer ===

impl EngineAnswer {
    pub(super) fn new(head: &Parts, body: Bytes) -> Self {
        // Of the two forms (RFC 9110, section 10.2.3) the engine writes seconds, never a date.
        let seconds =
            head.headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
        Self { status: head.status, retry_after: seconds.map(Duration::from_secs), body }
    }

    /// The answer, if the engine did what it was asked; what it complains of otherwise.
    pub(crate) fn into_result(self) -> Result<Self, CliError> {
        if self.status.is_success() { Ok(self) } else { Err(self.failure()) }
    }

    /// The body as a text.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON.
    pub(crate) fn json<T: DeserializeOwned>(&self) -> anyhow::Result<T> {
        serde_json::from_slice(&self.body).context(NO_SENSE)
    }

    /// The body as lines of JSON, the last of which is of another kind.
    pub(crate) fn json_lines<T, L>(&self) -> anyhow::Result<(Vec<T>, L)>
    where
        T: DeserializeOwned,
        L: DeserializeOwned,
    {
        let mut lines = self.body.split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
        let last = lines.next_back().unwrap_or_default();
        let lines = lines.map(serde_json::from_slice).collect::<Result<_, _>>();
        let last = serde_json::from_slice(last);
        Ok((lines.context(NO_SENSE)?, last.context(NO_SENSE)?))
    }

    /// The fields that the engine complains of.
    pub(crate) fn field_errors(&self) -> Vec<FieldError> {
        self.problem().errors
    }

    /// The failure that it tells of.
    pub(crate) fn failure(&self) -> CliError {
        self.failure_in(&[])
    }

    /// The failure that it tells of, for a request whose list `to` was read from these lines of a file.
    pub(crate) fn failure_in(&self, lines: &[u64]) -> CliError {
        let kind = match self.status.as_u16() {
            // None of these is about what was sent: the same input may be right.
            401 | 403 | 408 | 429 | 500.. => FailureKind::Failed,
            _ => FailureKind::BadInput,
        };
        let problem = self.problem();
        let is_of_configuration = problem.code == ProblemCode::ConfigurationRefused.as_str();
        let kind = if is_of_configuration { FailureKind::Config } else { kind };
        let words = |error: FieldError| error.in_file(lines).to_string();
        let errors: Vec<String> = problem.errors.into_iter().map(words).collect();
        // The most exact words first: the title is the same for every problem of a kind.
        let said = [errors.join("\n"), problem.detail, problem.title];
        let said = said.into_iter().find(|text| !text.is_empty());
        let message = said.unwrap_or_else(|| format!("the engine answered {}", self.status));
        CliError::new(kind, message)
    }

    fn problem(&self) -> ProblemBody {
        // A server between here and the engine answers with a page of its own: then the status is all that can be told.
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

// === impl FieldError ===

impl FieldError {
    /// The field as people write it: `/content/aps/alert` is `content.aps.alert`.
    pub(crate) fn field(&self) -> String {
        field_of(&self.pointer)
    }

    /// Says the line instead of the place in the list `to`, which is what a file became; without lines, `to` was one.
    fn in_file(self, lines: &[u64]) -> Self {
        let place = self.pointer.strip_prefix("/to/").and_then(|index| index.parse::<usize>().ok());
        let Some(place) = place else { return self };
        match lines.get(place) {
            // Counted as in the body of a broadcast, whose head is the first line: `Display` takes it off.
            Some(line) => Self { pointer: String::new(), line: Some(line + 1), ..self },
            None => Self { pointer: "/to".to_owned(), ..self },
        }
    }

    /// For a request that is an array: the index of the item, and the field within it.
    pub(crate) fn item(&self) -> Option<(usize, String)> {
        let rest = self.pointer.strip_prefix('/')?;
        let (index, field) = rest.split_once('/').unwrap_or((rest, ""));
        Some((index.parse().ok()?, field_of(field)))
    }
}

impl std::fmt::Display for FieldError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The head is line 1 of the body and no recipient's: an error in it has no line to name.
        if let Some(recipients_line @ 1..) = self.line.and_then(|line| line.checked_sub(1)) {
            write!(formatter, "line {recipients_line}: ")?;
        }
        match self.field().as_str() {
            "" => formatter.write_str(&self.message),
            field => write!(formatter, "field `{field}`: {}", self.message),
        }
    }
}

fn field_of(pointer: &str) -> String {
    let steps = pointer.trim_start_matches('/').split('/');
    // `~1` before `~0`, or the `~` that `~0` stands for would begin another escape (RFC 6901, section 4).
    let steps: Vec<String> = steps.map(|step| step.replace("~1", "/").replace("~0", "~")).collect();
    steps.join(".")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_in_a_list_is_told_as_the_line_of_the_file() {
        let check = |pointer: &str, lines: &[u64], expect: &str| {
            let message = "is no token".to_owned();
            let error = FieldError { pointer: pointer.to_owned(), line: None, message };
            assert_eq!(error.in_file(lines).to_string(), expect, "{pointer}");
        };
        check("/to/1", &[3, 7], "line 7: is no token");
        check("/to/0", &[], "field `to`: is no token");
        check("/to", &[3], "field `to`: is no token");
        check("/channel", &[3], "field `channel`: is no token");
    }

    #[test]
    fn a_line_of_a_body_is_told_as_that_of_its_recipients() {
        let check = |line: u64, expect: &str| {
            let message = "is no token".to_owned();
            let error = FieldError { pointer: String::new(), line: Some(line), message };
            assert_eq!(error.to_string(), expect, "{line}");
        };
        check(3, "line 2: is no token");
        check(1, "is no token");
        check(0, "is no token");
    }

    #[test]
    fn a_pointer_names_an_item_and_its_field() {
        let check = |pointer: &str, expect: Option<(usize, &str)>| {
            let error =
                FieldError { pointer: pointer.to_owned(), line: None, message: String::new() };
            let expect = expect.map(|(index, field)| (index, field.to_owned()));
            assert_eq!(error.item(), expect, "{pointer}");
        };
        check("/17/to", Some((17, "to")));
        check("/0/content/aps/a~1b", Some((0, "content.aps.a/b")));
        check("/3", Some((3, "")));
        check("/to", None);
        check("", None);
    }
}

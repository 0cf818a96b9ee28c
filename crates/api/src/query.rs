//! Query parameters: known by name, given once.

use std::fmt::Display;
use std::str::FromStr;

use axum::http::Uri;
use notification::id::IdError;
use notification::limits::RECIPIENT_BYTES;

use crate::problem::Problem;
use crate::problem_code::ProblemCode;

/// The parameters of one request.
#[derive(Debug)]
pub(crate) struct Query {
    given: Vec<(String, String)>,
}

/// The identifier in a path.
pub(crate) fn parse_id<T: FromStr<Err = IdError>>(text: &str) -> Result<T, Problem> {
    text.parse().map_err(|error: IdError| Problem::not_found(error.to_string()))
}

// === impl Query ===

impl Query {
    /// Reads the query of `uri`, which has no other parameters than `known`.
    pub(crate) fn read(uri: &Uri, known: &[&str]) -> Result<Self, Problem> {
        let axum::extract::Query(given) =
            axum::extract::Query::<Vec<(String, String)>>::try_from_uri(uri)
                .map_err(|rejection| Problem::parameter(rejection.body_text()))?;
        for (position, (name, value)) in given.iter().enumerate() {
            // A mistyped filter that is passed over would match everything.
            if !known.contains(&name.as_str()) {
                let known = known.join(", ");
                let detail = format!("parameter {name:?} is unknown: the parameters are {known}");
                return Err(Problem::new(ProblemCode::UnknownParameter, detail));
            }
            if given.iter().skip(position + 1).any(|(other, _)| other == name) {
                return Err(Problem::parameter(format!("parameter {name} is given twice")));
            }
            // Nothing that is looked for has such a value, and a store may not be able to be asked for it.
            if value.len() > RECIPIENT_BYTES || value.bytes().any(|byte| byte.is_ascii_control()) {
                let detail = format!(
                    "parameter {name}: must have at most {RECIPIENT_BYTES} bytes and no control characters"
                );
                return Err(Problem::parameter(detail));
            }
        }
        Ok(Self { given })
    }

    /// True if there is a value of `name` that was not read yet.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.given.iter().any(|(given, _)| given == name)
    }

    /// The value of `name`.
    pub(crate) fn parse<T: FromStr<Err: Display>>(
        &mut self,
        name: &str,
    ) -> Result<Option<T>, Problem> {
        let Some(position) = self.given.iter().position(|(given, _)| given == name) else {
            return Ok(None);
        };
        // In whatever order the rest is left: no name is given twice.
        let (_, text) = self.given.swap_remove(position);
        text.parse()
            .map(Some)
            .map_err(|error: T::Err| Problem::parameter(format!("parameter {name}: {error}")))
    }

    /// The value of `name`, which must be given.
    pub(crate) fn required<T: FromStr<Err: Display>>(&mut self, name: &str) -> Result<T, Problem> {
        let missing = || Problem::missing_parameter(format!("parameter {name} is missing"));
        self.parse(name)?.ok_or_else(missing)
    }

    /// `limit`: 1 to `most`, or `usual`.
    pub(crate) fn limit(&mut self, usual: usize, most: usize) -> Result<usize, Problem> {
        let limit = self.parse("limit")?.unwrap_or(usual);
        if (1..=most).contains(&limit) {
            return Ok(limit);
        }
        Err(Problem::parameter(format!("parameter limit: must be 1 to {most}")))
    }
}

//! The places that arguments name.

use channel::Secret;

use crate::config::ServerUrl;
use crate::exit::{CliError, FailureKind};
use crate::streams::StreamPlace;

/// The place of `url`, which `argument` gave.
pub(super) fn place(argument: &str, url: &Secret) -> Result<StreamPlace, CliError> {
    let url: ServerUrl = url.expose().parse().map_err(|message: &str| usage(argument, &message))?;
    StreamPlace::parse(&url, None).map_err(|error| usage(argument, &error))
}

/// A wrong `argument`.
pub(super) fn usage(argument: &str, error: &dyn std::fmt::Display) -> CliError {
    CliError::new(FailureKind::Usage, format!("{argument}: {error}"))
}

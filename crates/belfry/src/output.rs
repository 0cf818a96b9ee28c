//! Standard output. A failed write is an error like any other, and a closed pipe is told apart.

use std::fmt::Display;
use std::io::{self, Write as _};
use std::process::ExitCode;

use serde::Serialize;

/// Prints `text` as it is, and that was it.
pub(crate) fn print(text: &str) -> anyhow::Result<ExitCode> {
    io::stdout().lock().write_all(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// Prints one line.
pub(crate) fn line(text: impl Display) -> io::Result<()> {
    writeln!(io::stdout().lock(), "{text}")
}

/// Prints one line of JSON.
pub(crate) fn json(value: &impl Serialize) -> anyhow::Result<()> {
    Ok(line(serde_json::to_string(value)?)?)
}

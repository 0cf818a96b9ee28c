//! Standard output. A failed write is an error like any other, and a closed pipe is told apart.

use std::fmt::Display;
use std::io::{self, Write as _};

use serde::Serialize;

/// Prints `text` as it is.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    Ok(io::stdout().lock().write_all(text.as_bytes())?)
}

/// Prints one line.
pub(crate) fn line(text: impl Display) -> anyhow::Result<()> {
    Ok(writeln!(io::stdout().lock(), "{text}")?)
}

/// Prints one line of JSON.
pub(crate) fn json(value: &impl Serialize) -> anyhow::Result<()> {
    line(serde_json::to_string(value)?)
}

/// Prints `value` as one line of JSON, or the lines that say it to people.
pub(crate) fn json_or<T: Display>(
    is_json: bool,
    value: &impl Serialize,
    text: impl FnOnce() -> T,
) -> anyhow::Result<()> {
    if is_json { json(value) } else { line(text()) }
}

/// `text` without what moves the cursor: a provider's words must not play with the terminal.
pub(crate) fn plain(text: &str) -> String {
    let text: String = text.chars().filter(|character| !character.is_control()).collect();
    text.trim_end().to_owned()
}

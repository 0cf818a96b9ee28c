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

/// A number of bytes in the largest unit of which there is one.
pub(crate) fn bytes(number: u64) -> String {
    let units = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
    let fits = |(_, power): &&(&str, u32)| number >> power > 0;
    match units.iter().find(fits) {
        Some((unit, power)) => {
            let tenths = (u128::from(number) * 10) >> power;
            format!("{}.{} {unit}", tenths / 10, tenths % 10)
        }
        None => format!("{number} B"),
    }
}

/// `text` without what moves the cursor: a provider's words must not play with the terminal.
pub(crate) fn plain(text: &str) -> String {
    let text: String = text.chars().filter(|character| !character.is_control()).collect();
    text.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    #[test]
    fn bytes_have_a_unit_and_a_decimal() {
        let texts = [0, 1_023, 1_024, 1_536, 5 << 30, u64::MAX].map(super::bytes);
        assert_eq!(texts, ["0 B", "1023 B", "1.0 KiB", "1.5 KiB", "5.0 GiB", "16777215.9 TiB"]);
    }
}

//! One row of a file: good, as the JSON that the engine gets, or bad, with the reason.

use std::{fmt, io};

use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// A row that can be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ImportRow {
    /// The line it begins on, from 1.
    pub(super) line: u64,
    /// A JSON object.
    pub(super) json: String,
    /// The bytes it was read from, when they are not `json`.
    pub(super) raw: Option<Vec<u8>>,
}

/// A row that cannot be imported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct BadRow {
    /// The line it begins on, from 1.
    pub(super) line: u64,
    /// The field that is wrong; empty when it is the row as a whole.
    pub(super) field: String,
    /// The mistake, and what would be right.
    pub(super) message: String,
    /// The bytes it was read from; none when there are too many to keep.
    pub(super) raw: Option<Vec<u8>>,
    /// True if the rows behind it cannot be told apart.
    pub(super) hides_the_rest: bool,
}

/// The next row, as a format reads it.
pub(super) type Parsed = Result<ImportRow, BadRow>;

/// A file in one of the formats, row by row.
pub(super) trait Rows: Send {
    /// The next row from line `from` on; `None` at the end.
    fn next(&mut self, from: u64) -> io::Result<Option<Parsed>>;

    /// The line that the next row begins on, or an empty one before it.
    fn next_line(&self) -> u64;

    /// Bytes read so far.
    fn offset(&self) -> u64;

    /// The header as it is written, without its line end, if the format has one.
    fn header(&self) -> Option<&[u8]> {
        None
    }
}

/// The fields of a row that are needed before it is sent. Reading it checks the syntax of the whole.
#[derive(Debug, Deserialize)]
struct RowFields<'a> {
    /// As it stands in the text, also a `null`.
    #[serde(borrow, default, deserialize_with = "some_value")]
    idempotency_key: Option<&'a RawValue>,
}

// === impl ImportRow ===

impl ImportRow {
    /// A row whose bytes are JSON already.
    pub(super) fn from_json(line: u64, raw: Vec<u8>) -> Parsed {
        let json = String::from_utf8(raw).map_err(|error| {
            let column = error.utf8_error().valid_up_to() + 1;
            let message =
                format!("is not UTF-8 at byte {column} of the row: convert the file to UTF-8");
            BadRow::new(line, "", message).with(error.into_bytes())
        })?;
        Self { line, json, raw: None }.check()
    }

    /// A row whose JSON was made of `raw`.
    pub(super) fn made(line: u64, json: String, raw: Vec<u8>) -> Self {
        Self { line, json, raw: Some(raw) }
    }

    /// Gives the row a key, unless it has one.
    #[must_use]
    pub(super) fn key(mut self, key: &str) -> Self {
        // Every row has been read as JSON once; one that cannot be read again is left for the engine to refuse.
        let Ok(fields) = serde_json::from_str::<RowFields>(&self.json) else { return self };
        let key = serde_json::Value::from(key);
        // Written into the text: read and written anew, numbers and the order of fields could change.
        let json = match fields.idempotency_key.map(RawValue::get) {
            // To the engine it is absent, and a second field of this name one too many.
            Some(null @ "null") => {
                // It is borrowed from the text, so its address says where in the text it stands.
                let start = null.as_ptr().addr() - self.json.as_ptr().addr();
                let (before, after) = self.json.split_at(start);
                format!("{before}{key}{}", after.strip_prefix(null).unwrap_or(after))
            }
            Some(_) => return self,
            None => {
                let Some(fields) = self.json.trim_end().strip_suffix('}') else { return self };
                let comma = if fields.trim_end().ends_with('{') { "" } else { "," };
                format!("{fields}{comma}\"idempotency_key\":{key}}}")
            }
        };
        // A row that is rejected goes to the rejects as it was, without the key.
        let raw = self.raw.take().unwrap_or_else(|| std::mem::take(&mut self.json).into_bytes());
        Self { line: self.line, json, raw: Some(raw) }
    }

    /// The row as bad, because of `field`.
    pub(super) fn into_bad(self, field: &str, message: impl Into<String>) -> BadRow {
        let raw = self.raw.unwrap_or_else(|| self.json.into_bytes());
        BadRow::new(self.line, field, message).with(raw)
    }

    fn check(self) -> Parsed {
        // Looked at beforehand: serde reads a structure from an array as well, item by item.
        if !self.json.trim_start().starts_with('{') {
            return Err(self.into_bad("", "must be a JSON object: {\"channel\":...,\"to\":...}"));
        }
        match serde_json::from_str::<RowFields>(&self.json) {
            Ok(_) => Ok(self),
            Err(error) => {
                let message = format!("is not JSON: {error}");
                Err(self.into_bad("", message))
            }
        }
    }
}

// === impl BadRow ===

impl BadRow {
    /// A bad row of which nothing is kept yet.
    pub(super) fn new(line: u64, field: &str, message: impl Into<String>) -> Self {
        let (field, message) = (field.to_owned(), message.into());
        Self { line, field, message, raw: None, hides_the_rest: false }
    }

    /// Keeps the bytes it was read from.
    pub(super) fn with(self, raw: Vec<u8>) -> Self {
        Self { raw: Some(raw), ..self }
    }
}

impl fmt::Display for BadRow {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.field.as_str() {
            "" => write!(formatter, "the row {}", self.message),
            field => write!(formatter, "field `{field}`: {}", self.message),
        }
    }
}

// === helpers ===

/// Reads a value that is there: `None` is left to a field that is not.
fn some_value<'de, D: Deserializer<'de>>(reader: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(reader).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_its_own_key_or_the_one_that_it_is_given_and_never_both() {
        let check = |json: &str, expect: &str| {
            let row = ImportRow::from_json(1, json.into()).unwrap().key("k-1");
            assert_eq!(row.json, expect);
            let raw = (json != expect).then(|| json.as_bytes().to_vec());
            assert_eq!(row.raw, raw, "a row that is rejected is written as it was");
        };
        check(r#"{"to":"a"}"#, r#"{"to":"a","idempotency_key":"k-1"}"#);
        check("{ }", r#"{ "idempotency_key":"k-1"}"#);
        check(r#"{"idempotency_key":"own","to":"a"}"#, r#"{"idempotency_key":"own","to":"a"}"#);
        check(
            r#"{"idempotency_key" : null, "to":1.0}"#,
            r#"{"idempotency_key" : "k-1", "to":1.0}"#,
        );
        check(r#"{"to":"a","idempotency_key":null}"#, r#"{"to":"a","idempotency_key":"k-1"}"#);
    }
}

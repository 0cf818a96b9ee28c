//! From a content to the parts of a record.

use bytes::Bytes;
use notification::Content;

use crate::Invalid;
use crate::object::{check_json, members};

/// A content, ready to be a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RecordContent {
    /// The key that its order goes by.
    pub(super) key: Option<Bytes>,
    pub(super) body: Bytes,
}

/// Bytes of a key: those of a message group of SQS. Kinesis would take 256 characters.
const KEY_BYTES: usize = 128;

// === impl RecordContent ===

impl RecordContent {
    pub(super) fn new(content: &Content) -> Result<Self, Invalid> {
        Ok(Self { key: key(&content.options)?, body: content.payload.clone() })
    }
}

/// Checks a payload with its options.
pub(super) fn check_content(payload: &[u8], options: &[u8]) -> Result<(), Invalid> {
    check_json(payload)?;
    key(options).map(drop)
}

fn key(options: &[u8]) -> Result<Option<Bytes>, Invalid> {
    let mut key = None;
    for (name, value) in members(options)? {
        if name != "key" {
            return Err(Invalid::within(&[&name], "is not an option of a stream: only `key` is"));
        }
        let message = format!("must be a text of 1 to {KEY_BYTES} bytes");
        let text = value.as_str().filter(|text| !text.is_empty() && text.len() <= KEY_BYTES);
        let text = text.ok_or_else(|| Invalid::within(&["key"], message))?;
        key = Some(Bytes::copy_from_slice(text.as_bytes()));
    }
    Ok(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_one_option_is_a_key() {
        assert_eq!(key(b""), Ok(None));
        assert_eq!(key(br#"{"key":"customer 7"}"#), Ok(Some(Bytes::from_static(b"customer 7"))));
        for (options, pointer) in [
            (r#"{"key":""}"#.to_owned(), "/key"),
            (r#"{"key":7}"#.to_owned(), "/key"),
            (format!("{{\"key\":\"{}\"}}", "x".repeat(129)), "/key"),
            (r#"{"partition":1}"#.to_owned(), "/partition"),
        ] {
            assert_eq!(key(options.as_bytes()).unwrap_err().pointer, pointer, "{options}");
        }
    }
}

//! Dead letters: messages that could not be used, each with the reason, as JSON.

use std::borrow::Cow;

use aws_lc_rs::digest;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::Serialize;

use crate::hex::hex;
use crate::{BatchLimits, Record, StreamMessage};

/// A dead letter.
#[derive(Serialize)]
struct DeadLetter<'a> {
    /// The name of its source, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<&'a str>,
    id: &'a str,
    /// Its key, if it has one; bytes that are no UTF-8 are replaced.
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<Cow<'a, str>>,
    reason: &'a str,
    /// The content, if it is UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<&'a str>,
    /// The content otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    body_base64: Option<String>,
    /// The length of the content, where the letter has only its beginning.
    #[serde(skip_serializing_if = "Option::is_none")]
    cut_from_bytes: Option<usize>,
}

/// Bytes of an identifier, a key and a reason that a letter has at most, when it is cut to fit.
const HEAD_BYTES: usize = 4 * 1024;
/// How much longer a text may be in JSON: every byte an escape.
const ESCAPED: usize = 6;

/// Bytes of the identifier of a record at most.
pub const RECORD_ID_BYTES: usize = 128;

/// The record of the letter of a message of `source`, for a target of these limits; see [`letter`]. A key that leaves no room is left out.
pub fn letter_record(
    source: Option<&str>,
    message: &StreamMessage,
    reason: &str,
    limits: BatchLimits,
) -> Record {
    let key = message.key.clone().filter(|key| key.len() < HEAD_BYTES);
    let room = limits.record_bytes.saturating_sub(key.as_ref().map_or(0, bytes::Bytes::len));
    Record { key, body: letter(source, message, reason, room).into(), id: record_id(&message.id) }
}

/// The letter of a message of `source`: JSON of at most `room` bytes, or of the smallest size that says anything. A body that has no room
/// is cut.
pub fn letter(source: Option<&str>, message: &StreamMessage, reason: &str, room: usize) -> Vec<u8> {
    let whole = message.body.as_deref().unwrap_or_default();
    let key = message.key.as_deref().map(String::from_utf8_lossy);
    let of = |body: &[u8]| {
        // The end of a part may be within a character.
        let text = match std::str::from_utf8(body) {
            Ok(text) => Some(text),
            Err(error) if error.error_len().is_none() && body.len() < whole.len() => {
                std::str::from_utf8(body.get(..error.valid_up_to()).unwrap_or_default()).ok()
            }
            Err(_bytes) => None,
        };
        let letter = DeadLetter {
            source,
            id: &message.id,
            key: key.clone(),
            reason,
            body: text.filter(|_| message.body.is_some()),
            body_base64: text.is_none().then(|| BASE64_STANDARD.encode(body)),
            cut_from_bytes: (body.len() < whole.len()).then_some(whole.len()),
        };
        // Texts alone: there is nothing that JSON could not hold.
        serde_json::to_vec(&letter).unwrap_or_default()
    };
    let letter = of(whole);
    if letter.len() <= room {
        return letter;
    }
    let length = room.saturating_sub(HEAD_BYTES) / ESCAPED;
    of(whole.get(..length.min(whole.len())).unwrap_or_default())
}

/// The identifier of a record of the message `id`, its SHA-256 if it is too long: the same each time, so that a target that drops
/// repeated ones knows them.
pub fn record_id(id: &str) -> String {
    if id.len() <= RECORD_ID_BYTES {
        return id.to_owned();
    }
    hex(digest::digest(&digest::SHA256, id.as_bytes()).as_ref())
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::StreamReceipt;

    static LONG_KEY: [u8; HEAD_BYTES] = [b'k'; HEAD_BYTES];

    fn message(key: Option<&'static [u8]>, body: Option<&[u8]>) -> StreamMessage {
        StreamMessage {
            id: "7".to_owned(),
            key: key.map(Bytes::from_static),
            body: body.map(Bytes::copy_from_slice),
            receipt: StreamReceipt(1),
        }
    }

    fn letter_of(body: Option<&[u8]>, room: usize) -> serde_json::Value {
        let letter = letter(Some("orders"), &message(Some(b"k"), body), "too odd", room);
        assert!(letter.len() <= room.max(200), "{}", letter.len());
        serde_json::from_slice(&letter).unwrap()
    }

    #[test]
    fn a_letter_has_the_reason_and_as_much_of_the_body_as_fits() {
        let whole = letter_of(Some("é".as_bytes()), usize::MAX);
        let expected = serde_json::json!(
            {"source": "orders", "id": "7", "key": "k", "reason": "too odd", "body": "é"}
        );
        assert_eq!(whole, expected);
        assert_eq!(letter_of(None, usize::MAX)["body"], serde_json::Value::Null);
        assert_eq!(letter_of(Some(b"\xff\x00"), usize::MAX)["body_base64"], "/wA=");
        let cut = letter_of(Some(&vec![b'\n'; 20_000]), 10_000);
        assert_eq!(cut["cut_from_bytes"], 20_000);
        assert_eq!(cut["body"].as_str().unwrap().len(), (10_000 - HEAD_BYTES) / ESCAPED);
        assert_eq!(letter_of(Some(b"x"), 0)["body"], "");
        let of_none = letter(None, &message(None, None), "why", usize::MAX);
        assert_eq!(of_none, br#"{"id":"7","reason":"why"}"#);
    }

    #[test]
    fn a_record_of_a_letter_is_within_the_limits_of_its_target() {
        let limits = BatchLimits { records: 10, bytes: 20_000, record_bytes: 10_000 };
        for (key, keeps_key) in
            [(None, false), (Some(&b"k"[..]), true), (Some(&LONG_KEY[..]), false)]
        {
            let record =
                letter_record(None, &message(key, Some(&vec![b'x'; 30_000])), "large", limits);
            assert!(record.bytes() <= limits.record_bytes, "{}", record.bytes());
            assert_eq!((record.key.is_some(), record.id.as_str()), (keeps_key, "7"));
        }
        assert_eq!(record_id(&"7".repeat(128)), "7".repeat(128));
        assert_eq!(record_id(&"7".repeat(129)).len(), 64);
    }
}

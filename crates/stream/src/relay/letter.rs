//! Dead letters: what a target, or the map, refused.

use serde::Serialize;

use super::map::record_id;
use crate::{Record, StreamMessage};

/// A dead letter, as JSON.
#[derive(Serialize)]
struct RelayLetter<'a> {
    id: &'a str,
    reason: &'a str,
    /// The content, if it is text.
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<&'a str>,
    /// The content, if it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    body_base64: Option<String>,
}

/// The record of a dead letter: the message with its key, and the reason. A tombstone has neither `body` nor `body_base64`.
pub(super) fn letter(message: &StreamMessage, reason: &str) -> Record {
    use base64::Engine as _;
    let text = message.body.as_deref().map(std::str::from_utf8);
    let body = text.and_then(Result::ok);
    let binary = message.body.as_deref().filter(|_| body.is_none());
    let body_base64 = binary.map(|bytes| base64::engine::general_purpose::STANDARD.encode(bytes));
    let letter = RelayLetter { id: &message.id, reason, body, body_base64 };
    // Texts alone: there is nothing that JSON could not hold.
    let body = serde_json::to_vec(&letter).unwrap_or_default().into();
    Record { key: message.key.clone(), body, id: record_id(&message.id) }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::StreamReceipt;

    #[test]
    fn a_letter_has_the_whole_message() {
        let letter = |body: Option<&'static [u8]>| {
            let (body, receipt) = (body.map(Bytes::from_static), StreamReceipt(1));
            let message = StreamMessage { id: "m".to_owned(), key: None, body, receipt };
            String::from_utf8(letter(&message, "why").body.to_vec()).unwrap()
        };
        assert_eq!(letter(Some(b"\"t\"")), r#"{"id":"m","reason":"why","body":"\"t\""}"#);
        assert_eq!(letter(Some(b"\xff")), r#"{"id":"m","reason":"why","body_base64":"/w=="}"#);
        assert_eq!(letter(None), r#"{"id":"m","reason":"why"}"#);
    }
}

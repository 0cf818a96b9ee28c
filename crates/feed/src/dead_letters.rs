//! Dead letters of a source: messages that are no notifications, each with the reason.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use aws_lc_rs::digest;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use notification::Name;
use serde::Serialize;
use stream::{PutError, Record, StreamMessage, Target};

/// Where dead letters go.
#[derive(Debug, Clone)]
pub enum DeadLetters {
    /// To a stream, one record each. A body that the stream cannot carry whole is cut, and its letter says so.
    Stream(Arc<dyn Target>),
    /// To the end of a file, one line each, on disk before the message is acknowledged. Bodies are whole.
    File(PathBuf),
    /// Nowhere: they are counted, and the first of a batch is logged.
    Dropped,
}

/// A dead letter.
#[derive(Serialize)]
struct DeadLetter<'a> {
    source: &'a str,
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

// === impl DeadLetters ===

impl DeadLetters {
    /// Puts messages there; answers for each, in order, durably.
    pub(crate) async fn bury(
        &self,
        source: &Name,
        dead: &[(StreamMessage, String)],
    ) -> Vec<Result<(), String>> {
        match self {
            Self::Stream(target) => put_letters(&**target, source, dead).await,
            Self::File(file) => {
                let lines = dead.iter().flat_map(|(message, reason)| {
                    let mut line = letter(source, message, reason, usize::MAX);
                    line.push(b'\n');
                    line
                });
                let (file, lines) = (file.clone(), lines.collect::<Vec<u8>>());
                let written = tokio::task::spawn_blocking(move || append(&file, &lines)).await;
                let written = written.unwrap_or_else(|ended| Err(io::Error::other(ended)));
                vec![written.map_err(|error| error.to_string()); dead.len()]
            }
            Self::Dropped => vec![Ok(()); dead.len()],
        }
    }

    /// Ends the connection, if there is one.
    pub(crate) async fn close(&self) {
        if let Self::Stream(target) = self {
            target.close().await;
        }
    }
}

/// Puts letters to `target`, as many in a call as fit.
async fn put_letters(
    target: &dyn Target,
    source: &Name,
    dead: &[(StreamMessage, String)],
) -> Vec<Result<(), String>> {
    let limits = target.limits();
    let record = |(message, reason): &(StreamMessage, String)| {
        let key = message.key.clone().filter(|key| key.len() < HEAD_BYTES);
        let room = limits.record_bytes.saturating_sub(key.as_ref().map_or(0, bytes::Bytes::len));
        let body = letter(source, message, reason, room).into();
        Record { key, body, id: hashed(&message.id) }
    };
    let records: Vec<Record> = dead.iter().map(record).collect();
    let mut buried = Vec::with_capacity(records.len());
    while let Some(open) = records.get(buried.len()..)
        && !open.is_empty()
    {
        let count = limits.fitting(open).max(1).min(open.len());
        let answers = target.put(open.get(..count).unwrap_or(open)).await;
        for (answer, (message, reason)) in answers.into_iter().zip(dead.iter().skip(buried.len())) {
            buried.push(match answer {
                // Smaller than what it says that it takes: once more with the reason alone.
                Err(PutError::Refused(_too_large)) => {
                    let body = letter(source, message, reason, 0).into();
                    let record = Record { key: None, body, id: hashed(&message.id) };
                    let again = target.put(&[record]).await.into_iter().next();
                    again.unwrap_or(Ok(())).map_err(|error| error.to_string())
                }
                answer => answer.map_err(|error| error.to_string()),
            });
        }
    }
    buried
}

/// The letter of a message, JSON of at most `room` bytes, or of the smallest size that says anything.
fn letter(source: &Name, message: &StreamMessage, reason: &str, room: usize) -> Vec<u8> {
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
            source: source.as_str(),
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

/// Writes `lines` to the end of `file`, which is made if it is missing, and has them on disk.
fn append(file: &Path, lines: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().create(true).append(true).open(file)?;
    file.write_all(lines)?;
    file.sync_data()
}

/// The SHA-256 of `id`, hexadecimal.
pub(crate) fn hashed(id: &str) -> String {
    let digest = digest::digest(&digest::SHA256, id.as_bytes());
    digest.as_ref().iter().fold(String::new(), |mut text, byte| {
        // A text takes everything.
        let _written = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use stream::StreamReceipt;

    fn letter_of(body: Option<&[u8]>, room: usize) -> serde_json::Value {
        let message = StreamMessage {
            id: "7".to_owned(),
            key: Some(Bytes::from_static(b"k")),
            body: body.map(Bytes::copy_from_slice),
            receipt: StreamReceipt(1),
        };
        let letter = letter(&"orders".parse().unwrap(), &message, "too odd", room);
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
    }
}

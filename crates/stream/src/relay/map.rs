//! The record that a message becomes.

use aws_lc_rs::digest;

use crate::{Record, StreamMessage};

/// Makes the record of a message.
pub trait RelayMap: Send + Sync + std::fmt::Debug {
    /// The record of `message`.
    ///
    /// # Errors
    /// Why there is none, in words: the message is then a dead letter.
    fn record(&self, message: &StreamMessage) -> Result<Record, String>;
}

/// Key and content as they are.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unchanged;

/// Bytes of the identifier of a record.
const ID_BYTES: usize = 128;

impl RelayMap for Unchanged {
    fn record(&self, message: &StreamMessage) -> Result<Record, String> {
        let Some(body) = message.body.clone() else {
            return Err("it has no content (a tombstone), and a record must have one".to_owned());
        };
        Ok(Record { key: message.key.clone(), body, id: record_id(&message.id) })
    }
}

/// The identifier of a record of the message `id`: the same each time, so that a target that drops repeated ones knows them.
pub(super) fn record_id(id: &str) -> String {
    use std::fmt::Write as _;
    if id.len() <= ID_BYTES {
        return id.to_owned();
    }
    let digest = digest::digest(&digest::SHA256, id.as_bytes());
    digest.as_ref().iter().fold(String::new(), |mut text, byte| {
        // A text takes everything.
        let _written = write!(text, "{byte:02x}");
        text
    })
}

//! The record that a message becomes.

use crate::dead_letter::record_id;
use crate::{Record, StreamMessage};

/// Makes the record of a message.
pub trait RecordMap: Send + Sync + std::fmt::Debug {
    /// The record of `message`.
    ///
    /// # Errors
    /// Why there is none, in words: the message is then a dead letter.
    fn record(&self, message: &StreamMessage) -> Result<Record, String>;
}

/// Key and content as they are.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unchanged;

impl RecordMap for Unchanged {
    fn record(&self, message: &StreamMessage) -> Result<Record, String> {
        let Some(body) = message.body.clone() else {
            return Err("it has no content (a tombstone), and a record must have one".to_owned());
        };
        Ok(Record { key: message.key.clone(), body, id: record_id(&message.id) })
    }
}

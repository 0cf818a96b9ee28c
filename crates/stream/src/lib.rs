//! The stream seam: queues, logs and subjects of other systems, which messages are read from and records are put into.
//!
//! A [`Source`] gives messages and is told when each is no longer needed there. A [`Target`] takes records, a batch in one call,
//! and answers for each. Both move bytes: what these mean is for the caller.

#[cfg(feature = "aws")]
pub mod aws;
#[cfg(feature = "conformance")]
pub mod conformance;
#[cfg(any(feature = "nats", feature = "rabbitmq"))]
pub mod connect;
#[cfg(feature = "dead-letter")]
pub mod dead_letter;
#[cfg(feature = "double")]
pub mod double;
#[cfg(any(feature = "aws", feature = "dead-letter"))]
mod hex;
#[cfg(feature = "kafka")]
pub mod kafka;
#[cfg(feature = "kinesis")]
pub mod kinesis;
#[cfg(feature = "nats")]
pub mod nats;
#[cfg(feature = "rabbitmq")]
pub mod rabbitmq;
#[cfg(feature = "dead-letter")]
pub mod record_map;
#[cfg(feature = "relay")]
pub mod relay;
#[cfg(feature = "sqs")]
pub mod sqs;

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

/// Where messages are read from. Several engines may read from one; each message is then with one of them at a time.
#[async_trait]
pub trait Source: Send + Sync + std::fmt::Debug {
    /// Gives up to `messages` that wait, in their order where the source has one; an empty list when none came within `wait`.
    /// Nothing is fetched ahead of calls but what one call to the source brings, or what a bound of the source says where it pushes.
    /// Dropping the future loses nothing.
    ///
    /// A message that was given is held until it is [acknowledged](Self::acknowledge) or [given back](Self::give_back): meanwhile
    /// no other reader gets it, however long that takes, as far as the source can promise that. One that is neither comes again after a
    /// restart.
    ///
    /// # Errors
    /// When the source cannot be read now. Calling again connects again.
    async fn fetch(
        &self,
        messages: usize,
        wait: Duration,
    ) -> Result<Vec<StreamMessage>, StreamError>;

    /// Has the source forget messages, and answers per message, in order. One that fails comes again.
    async fn acknowledge(&self, receipts: &[StreamReceipt]) -> Vec<Result<(), StreamError>>;

    /// Gives messages back: they come again, to any reader that asks. What fails comes again by itself, later.
    async fn give_back(&self, receipts: &[StreamReceipt]);

    /// Acknowledges what is still to be, gives the rest back, and ends the connection in good order.
    async fn close(&self);
}

/// Where records are put.
#[async_trait]
pub trait Target: Send + Sync + std::fmt::Debug {
    /// Bounds of one [`put`](Self::put) may have.
    fn limits(&self) -> BatchLimits;

    /// True if records of one key are read in the order in which they were put, provided that no two puts of one key are under way
    /// at a time.
    fn keeps_order(&self) -> bool;

    /// Puts records that are within the [`limits`](Self::limits) in one call, in order, and answers per record, in order. Nothing
    /// is repeated here.
    async fn put(&self, records: &[Record]) -> Vec<Result<(), PutError>>;

    /// Ends the connection in good order.
    async fn close(&self);
}

/// Opens the targets of one system by the names that they have there.
pub trait OpenTargets: Send + Sync + std::fmt::Debug {
    /// Checks that there could be a target called `name`, without I/O.
    ///
    /// # Errors
    /// [`StreamError::Refused`], with what a name is like.
    fn check(&self, name: &str) -> Result<(), StreamError>;

    /// Opens the target called `name`, on the runtime that will use it. Connects to nothing yet.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    fn open(&self, name: &str) -> Result<Box<dyn Target>, StreamError>;
}

/// A message of a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamMessage {
    /// Identifier in its source: no other message's, and the same when it comes again, where the source has such a thing
    /// (the source's page says when not). At most 255 bytes.
    pub id: String,
    /// The key that its order goes by, if it has one.
    pub key: Option<Bytes>,
    /// Its content; `None` for one that says that its key is gone (a tombstone of Kafka).
    pub body: Option<Bytes>,
    /// The source's handle on it.
    pub receipt: StreamReceipt,
}

/// A source's handle on a message that it gave. A number of this connection's: it says nothing to another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamReceipt(pub u64);

/// A record for a target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Key that its order goes by, where the target has keys.
    pub key: Option<Bytes>,
    /// Its content.
    pub body: Bytes,
    /// Identifier: a target that drops repeated ones compares this. At most 128 bytes.
    pub id: String,
}

/// Bounds of one call to a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchLimits {
    /// Records of a batch.
    pub records: usize,
    /// Bytes of a batch, keys included.
    pub bytes: usize,
    /// Bytes of a record, its key included.
    pub record_bytes: usize,
}

/// Why a source cannot be read, or did not take an acknowledgement.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StreamError {
    /// It may work later.
    #[error("{0}")]
    Unavailable(String),
    /// It will not work before something is changed: the address, a credential, a right, a name.
    #[error("{0}")]
    Refused(String),
}

/// Why a record was not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PutError {
    /// The target will never take it as it is.
    #[error("{0}")]
    Refused(String),
    /// The target takes no more at this rate: it was certainly not taken.
    #[error("too fast: {why}")]
    Throttled {
        /// When to try again, if it said so.
        after: Option<Duration>,
        /// The words of the target.
        why: String,
    },
    /// It was certainly not taken, and may be later.
    #[error("{0}")]
    NotTaken(String),
    /// It may have been taken.
    #[error("{0}")]
    Unknown(String),
}

// === impl Record ===

impl Record {
    /// Its size as targets count it: key and content.
    pub fn bytes(&self) -> usize {
        self.key.as_ref().map_or(0, Bytes::len) + self.body.len()
    }
}

// === impl BatchLimits ===

impl BatchLimits {
    /// How many of `records`, from the first on, one batch may have: one at least, unless there is none or the first is too large.
    pub fn fitting(&self, records: &[Record]) -> usize {
        let mut bytes = 0;
        let fits = |record: &&Record| {
            bytes += record.bytes();
            record.bytes() <= self.record_bytes && bytes <= self.bytes
        };
        records.iter().take(self.records).take_while(fits).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records(sizes: &[usize]) -> Vec<Record> {
        let record = |bytes: &usize| Record {
            key: Some(Bytes::from_static(b"k")),
            body: Bytes::from(vec![0; *bytes - 1]),
            id: String::new(),
        };
        sizes.iter().map(record).collect()
    }

    #[test]
    fn a_batch_has_what_fits() {
        let limits = BatchLimits { records: 3, bytes: 10, record_bytes: 6 };
        for (sizes, expected) in [
            (&[][..], 0),
            (&[1, 1], 2),
            (&[1, 1, 1, 1], 3),
            (&[5, 5, 1], 2),
            (&[5, 6], 1),
            (&[1, 7, 1], 1),
            (&[7, 1], 0),
        ] {
            assert_eq!(limits.fitting(&records(sizes)), expected, "{sizes:?}");
        }
    }
}

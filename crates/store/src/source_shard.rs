//! Shards of the streams that sources read: who reads each, and how far it is read.

use notification::Timestamp;

/// The state of a shard. The store compares it and understands nothing of it: every change names the state that it replaces, so
/// a reader that was replaced changes nothing any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardCursor {
    /// How far it is read, in the words of its readers, without NUL; at most 1 KiB.
    pub position: String,
    /// The number of the reader that has it.
    pub reader: u64,
    /// The time up to which no other reader takes it.
    pub until: Timestamp,
}

//! Erasure of what is stored about a recipient.

/// The answer to erasing one notification.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Erased {
    /// Its recipient and its content are gone, and what providers said of it. When, where, with which status and how it ended is
    /// kept, so it is counted as before.
    Erased,
    /// It has not ended: nothing has changed.
    Pending,
    /// The tenant has no such notification, or its recipient is gone already.
    Unknown,
}

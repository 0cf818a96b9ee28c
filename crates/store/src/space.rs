//! Room on the disk.

/// The room that a store takes, and that is left for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreSpace {
    /// Bytes that it takes, without those that it would use again before it takes more.
    pub used: u64,
    /// Bytes that it may still take before new notifications are refused; `None` where a server knows that alone.
    pub left: Option<u64>,
}

//! What a store finds after a process ended without handing its work back.

/// What a store did about the work that was under way when its last owner ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Recovery {
    /// Notifications that are due again.
    pub returned: u64,
    /// At-most-once notifications that had begun: nobody can say what became of them.
    pub in_doubt: u64,
    /// Notifications that were in flight in too many crashes and are dead.
    pub quarantined: u64,
    /// Broadcasts that were never sealed and are gone.
    pub abandoned_broadcasts: u64,
}

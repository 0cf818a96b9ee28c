//! Recovery: the work of a process that ended without handing it back.

/// The way in which a process that held claims ended, as far as can be told. Decision 0018 gives the consequences.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Ending {
    /// The process ended by itself and in order, with its machine, or not at all: it was only declared dead. No delivery is the
    /// cause.
    #[default]
    Left,
    /// The cause is unknown: killed by an operator, by the system for its memory, or by a delivery under way.
    Killed,
    /// The process ended by a fault of its own: a panic, or an abort.
    Faulted,
}

/// Counts of the notifications that were under way when their last owner ended, by their fate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Recovery {
    /// Notifications that are due again.
    pub returned: u64,
    /// Notifications among them that were in flight in several crashes, and are tried apart from each other.
    pub suspected: u64,
    /// At-most-once notifications that had begun: their outcome is unknown.
    pub in_doubt: u64,
    /// Notifications that end the process whenever they are sent: they are dead.
    pub quarantined: u64,
    /// Broadcasts that were never sealed and are gone.
    pub abandoned_broadcasts: u64,
}

//! Recovery: the work of a process that ended without handing it back.

/// How a process ended that held claims, as far as can be told. Decision 0018 says what follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Ending {
    /// By itself and in order, with its machine, or not at all: it was only declared dead. No delivery is the cause.
    #[default]
    Left,
    /// It cannot be told: killed by an operator, by the system for its memory, or by what it was sending.
    Killed,
    /// By a fault of its own: a panic that ended it, or an abort.
    Faulted,
}

/// How the work went on that was under way when its last owner ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Recovery {
    /// Notifications that are due again.
    pub returned: u64,
    /// Those of them that were in flight in several crashes, and are tried apart from each other.
    pub suspected: u64,
    /// At-most-once notifications that had begun: their outcome is not known.
    pub in_doubt: u64,
    /// Notifications that end the process whenever they are sent, and are dead.
    pub quarantined: u64,
    /// Broadcasts that were never sealed and are gone.
    pub abandoned_broadcasts: u64,
}

//! The account as `belfry` reads and prints it, the same in `audit` and `status`.

use std::fmt::Write as _;

use notification::Account;
use serde::{Deserialize, Serialize};

/// An [`Account`] in the words of JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AccountLines {
    accepted: u64,
    delivered: u64,
    refused: u64,
    expired: u64,
    cancelled: u64,
    suppressed: u64,
    in_doubt: u64,
    dead: u64,
    pending: u64,
}

// === impl AccountLines ===

impl AccountLines {
    /// Appends a line for each count.
    pub(crate) fn push_text(&self, text: &mut String) -> std::fmt::Result {
        for (name, count) in [
            ("accepted", self.accepted),
            ("delivered", self.delivered),
            ("refused", self.refused),
            ("expired", self.expired),
            ("cancelled", self.cancelled),
            ("suppressed", self.suppressed),
            ("in doubt", self.in_doubt),
            ("dead", self.dead),
            ("pending", self.pending),
        ] {
            writeln!(text, "{name:<10} {count:>12}")?;
        }
        Ok(())
    }
}

impl From<Account> for AccountLines {
    fn from(account: Account) -> Self {
        let Account { accepted, delivered, refused, expired, .. } = account;
        let Account { cancelled, suppressed, in_doubt, dead, pending, .. } = account;
        Self {
            accepted,
            delivered,
            refused,
            expired,
            cancelled,
            suppressed,
            in_doubt,
            dead,
            pending,
        }
    }
}

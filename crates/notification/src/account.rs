//! The account that always balances.

use serde::{Deserialize, Serialize};

use crate::lifecycle::State;

/// How many notifications stand where. `pending` counts every state that is not terminal. Its JSON is a part of the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Account {
    /// Ever accepted.
    pub accepted: u64,
    /// The provider accepted them.
    pub delivered: u64,
    /// The provider will never accept them.
    pub refused: u64,
    /// Their time passed.
    pub expired: u64,
    /// Withdrawn by the caller.
    pub cancelled: u64,
    /// Their recipient must not be tried.
    pub suppressed: u64,
    /// At most once, begun, and without an outcome: not known.
    pub in_doubt: u64,
    /// Given up.
    pub dead: u64,
    /// Still to be ended.
    pub pending: u64,
}

// === impl Account ===

impl Account {
    /// Adds `count` notifications that stand in `state`; `accepted` is counted apart.
    pub fn add(&mut self, state: State, count: u64) {
        *self.slot(state) += count;
    }

    /// Takes back `count` notifications that were added in `state`.
    pub fn remove(&mut self, state: State, count: u64) {
        let slot = self.slot(state);
        *slot = slot.saturating_sub(count);
    }

    /// Adds everything that `other` counts, `accepted` included.
    pub fn add_all(&mut self, other: &Self) {
        self.accepted += other.accepted;
        self.delivered += other.delivered;
        self.refused += other.refused;
        self.expired += other.expired;
        self.cancelled += other.cancelled;
        self.suppressed += other.suppressed;
        self.in_doubt += other.in_doubt;
        self.dead += other.dead;
        self.pending += other.pending;
    }

    /// Where the accepted ones stand: names and numbers, in order.
    pub const fn standing(&self) -> [(&'static str, u64); 8] {
        [
            ("delivered", self.delivered),
            ("refused", self.refused),
            ("expired", self.expired),
            ("cancelled", self.cancelled),
            ("suppressed", self.suppressed),
            ("in_doubt", self.in_doubt),
            ("dead", self.dead),
            ("pending", self.pending),
        ]
    }

    /// The sum of everything but `accepted`.
    pub fn accounted_for(&self) -> u64 {
        self.standing().iter().map(|(_, count)| count).sum()
    }

    /// True if every accepted notification stands somewhere, once.
    pub fn is_balanced(&self) -> bool {
        self.accepted == self.accounted_for()
    }

    fn slot(&mut self, state: State) -> &mut u64 {
        match state {
            State::Pending | State::Claimed | State::Begun => &mut self.pending,
            State::Delivered => &mut self.delivered,
            State::Refused => &mut self.refused,
            State::Expired => &mut self.expired,
            State::Cancelled => &mut self.cancelled,
            State::Suppressed => &mut self.suppressed,
            State::InDoubt => &mut self.in_doubt,
            State::Dead => &mut self.dead,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_notification_in_every_state_balances_and_one_missing_does_not() {
        let mut account = Account { accepted: State::ALL.len() as u64, ..Account::default() };
        for &state in State::ALL {
            assert!(!account.is_balanced());
            account.add(state, 1);
        }
        assert!(account.is_balanced());
        assert_eq!(account.pending, 3, "pending, claimed and begun are all pending to the caller");
        let mut twice = account;
        twice.add_all(&account);
        assert_eq!(
            (twice.accepted, twice.accounted_for()),
            (2 * account.accepted, 2 * account.accepted)
        );
        for &state in State::ALL {
            twice.remove(state, 1);
        }
        assert_eq!(twice, Account { accepted: twice.accepted, ..account });
    }
}

//! Changes of the running totals in memory, and when a writer folds their rows.

use std::collections::BTreeMap;

use notification::{Name, State};

/// Changes of the totals in a transaction.
#[derive(Debug, Default)]
pub(super) struct TotalsChanges(BTreeMap<(Name, u8), i64>);

/// Changes by column.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ChangeColumns<'a> {
    pub(super) tenants: Vec<&'a str>,
    pub(super) states: Vec<i16>,
    pub(super) changes: Vec<i64>,
}

/// The rows of a writer since it last folded.
#[derive(Debug)]
pub(super) struct FoldPace {
    /// Transactions between two foldings, at least.
    every: u32,
    transactions: u32,
    rows: u64,
    /// Rows that its last folding has left.
    left: u64,
}

/// Transactions of a writer between two foldings of its own, at least.
pub(super) const FOLD_EVERY: u32 = 256;

// === impl TotalsChanges ===

impl TotalsChanges {
    pub(super) fn add(&mut self, tenant: &Name, state: State, change: i64) {
        *self.0.entry((tenant.clone(), state.code())).or_default() += change;
    }

    /// The changes that are to be written. What one request ends another may requeue, and a change of nothing would only be a row to
    /// fold.
    pub(super) fn columns(&self) -> ChangeColumns<'_> {
        ChangeColumns::of(self.0.iter().filter(|(_, change)| **change != 0))
    }
}

// === impl ChangeColumns ===

impl<'a> ChangeColumns<'a> {
    /// Changes by tenant and code of a state.
    pub(super) fn of(changes: impl Iterator<Item = (&'a (Name, u8), &'a i64)>) -> Self {
        let mut columns = Self::default();
        for ((tenant, state), change) in changes {
            columns.tenants.push(tenant.as_str());
            columns.states.push(i16::from(*state));
            columns.changes.push(*change);
        }
        columns
    }
}

// === impl FoldPace ===

impl FoldPace {
    pub(super) fn new(every: u32) -> Self {
        Self { every, transactions: 0, rows: 0, left: 0 }
    }

    /// Notes a transaction that has added `rows`; says whether to fold. A folding rewrites all rows, so it comes after as many new
    /// ones as the last one has left: each new row costs the rewriting of two, however many tenants there are.
    pub(super) fn note(&mut self, rows: u64) -> bool {
        self.transactions = self.transactions.saturating_add(1);
        self.rows = self.rows.saturating_add(rows);
        self.transactions >= self.every && self.rows >= self.left
    }

    /// Begins anew after a folding that has left so many rows.
    pub(super) fn folded(&mut self, left: u64) {
        *self = Self { left, ..Self::new(self.every) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Transactions that add `rows` each, until one folds.
    fn until_folding(pace: &mut FoldPace, rows: u64) -> u32 {
        (1..100_000).find(|_| pace.note(rows)).unwrap()
    }

    #[test]
    fn few_rows_are_folded_with_every_256th_transaction() {
        let mut pace = FoldPace::new(FOLD_EVERY);
        for left in [0, 8, 512] {
            assert_eq!(until_folding(&mut pace, 2), FOLD_EVERY);
            pace.folded(left);
        }
    }

    #[test]
    fn many_rows_are_folded_when_as_many_have_come_in() {
        let mut pace = FoldPace::new(FOLD_EVERY);
        pace.folded(80_000);
        assert_eq!(until_folding(&mut pace, 2), 40_000);
        pace.folded(80_000);
        assert_eq!(until_folding(&mut pace, 20_000), FOLD_EVERY);
    }

    #[test]
    fn what_comes_to_nothing_is_not_written() {
        let tenant = |text| crate::conformance::name(text);
        let mut changes = TotalsChanges::default();
        changes.add(&tenant("a"), State::Pending, 2);
        changes.add(&tenant("b"), State::Pending, 1);
        changes.add(&tenant("a"), State::Pending, -2);
        changes.add(&tenant("a"), State::Delivered, 2);
        let written = ChangeColumns {
            tenants: vec!["a", "b"],
            states: vec![State::Delivered.code().into(), State::Pending.code().into()],
            changes: vec![2, 1],
        };
        assert_eq!(changes.columns(), written);
    }
}

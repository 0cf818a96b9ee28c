//! The running totals of tenants, and how what was counted without a tenant is given to its tenant (decision 0077).

use std::collections::BTreeMap;

use notification::{Account, Name, State};

use crate::assignment::{StateCounts, TotalsAssignment};
use crate::{Audit, Operations, ReadStore, StoreError};

/// The running totals of one instant, as they are stored.
#[derive(Debug, Default)]
pub(crate) struct RecordedTotals {
    /// Number of assignments that were applied.
    generation: i64,
    tenants: BTreeMap<Name, StateCounts>,
    /// The counts without a tenant; `None` if no row is without one.
    unassigned: Option<StateCounts>,
}

// === impl RecordedTotals ===

impl RecordedTotals {
    /// No rows yet, after so many assignments.
    pub(crate) fn new(generation: i64) -> Self {
        Self { generation, ..Self::default() }
    }

    /// Adds a row: a count of a tenant, or of none.
    pub(crate) fn add(&mut self, tenant: Option<Name>, state: u8, count: i64) {
        let counts = match tenant {
            Some(tenant) => self.tenants.entry(tenant).or_default(),
            None => self.unassigned.get_or_insert_default(),
        };
        *counts.entry(state).or_default() += count;
    }

    /// Compares what `audit` has counted with what is recorded. Where all has its tenant, each tenant must have what was counted
    /// for it; else only the sums can be compared, and the audit gets the assignment.
    pub(crate) fn compare(&self, audit: &mut Audit) {
        if self.unassigned.is_some() {
            let all = self.tenants.values().chain(&self.unassigned);
            let (counted, recorded) = (counts_of(&audit.account), sum_of(all));
            if let Some(difference) = difference(&counted, &recorded) {
                audit.report(difference);
            }
            audit.unassigned = Some(self.assignment(&audit.tenants));
            return;
        }
        for tenant in self.names(&audit.tenants) {
            let counted = audit.tenants.get(&tenant).map(counts_of).unwrap_or_default();
            let recorded = sum_of(self.tenants.get(&tenant).into_iter());
            if let Some(difference) = difference(&counted, &recorded) {
                audit.report(format!("tenant {tenant}: {difference}"));
            }
        }
    }

    fn assignment(&self, counted: &BTreeMap<Name, Account>) -> TotalsAssignment {
        let mut changes = BTreeMap::new();
        for tenant in self.names(counted) {
            let mut change = counted.get(&tenant).map(counts_of).unwrap_or_default();
            for (&state, &count) in self.tenants.get(&tenant).into_iter().flatten() {
                *change.entry(state).or_default() -= count;
            }
            change.retain(|_, change| *change != 0);
            changes.extend(change.into_iter().map(|(state, it)| ((tenant.clone(), state), it)));
        }
        TotalsAssignment { generation: self.generation, changes }
    }

    /// The tenants that have something recorded or counted.
    fn names(&self, counted: &BTreeMap<Name, Account>) -> Vec<Name> {
        let mut names: Vec<Name> = self.tenants.keys().chain(counted.keys()).cloned().collect();
        names.sort();
        names.dedup();
        names
    }
}

/// Gives what an older version counted without its tenant to the tenants; true when nothing is left to be given. Costs an audit
/// where there is something, and else next to nothing. Writers go on meanwhile. To be called again, after a pause, while it
/// returns false: processes of an older version may count more, and another call may have been first.
///
/// `any` is a tenant, whichever it is: none has an account as long as something is to be given.
pub async fn assign_totals(
    reader: &dyn ReadStore,
    operations: &dyn Operations,
    any: &Name,
) -> Result<bool, StoreError> {
    if reader.tenant_totals(any.clone()).await?.is_some() {
        return Ok(true);
    }
    let audit = reader.audit().await?;
    for problem in &audit.problems {
        tracing::warn!(problem, "found while notifications were counted for the totals of tenants");
    }
    if let Some(assignment) = audit.unassigned {
        operations.assign_totals(assignment).await?;
    }
    Ok(reader.tenant_totals(any.clone()).await?.is_some())
}

/// The counts of an account, of which none is zero.
fn counts_of(account: &Account) -> StateCounts {
    let counts = [
        (State::Pending, account.pending),
        (State::Delivered, account.delivered),
        (State::Refused, account.refused),
        (State::Expired, account.expired),
        (State::Cancelled, account.cancelled),
        (State::Suppressed, account.suppressed),
        (State::InDoubt, account.in_doubt),
        (State::Dead, account.dead),
    ];
    let counts = counts.into_iter().filter(|(_, count)| *count != 0);
    counts.map(|(state, count)| (state.code(), count.cast_signed())).collect()
}

/// The sums of counts, of which none is zero.
fn sum_of<'a>(counts: impl Iterator<Item = &'a StateCounts>) -> StateCounts {
    let mut sums = StateCounts::new();
    for (state, count) in counts.flatten() {
        *sums.entry(*state).or_default() += count;
    }
    sums.retain(|_, sum| *sum != 0);
    sums
}

/// The difference of two counts in words; `None` if there is none.
fn difference(counted: &StateCounts, recorded: &StateCounts) -> Option<String> {
    let words = |counts: &StateCounts| {
        let word = |(&code, count): (&u8, &i64)| {
            let state = State::from_code(code);
            let state = state.map_or_else(|| format!("state {code}"), |it| it.to_string());
            format!("{state} {count}")
        };
        counts.iter().map(word).collect::<Vec<_>>().join(", ")
    };
    let is_other = counted != recorded;
    is_other.then(|| format!("counted {}; the totals say {}", words(counted), words(recorded)))
}

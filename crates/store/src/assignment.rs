//! The change of running totals that an audit makes, to give what was counted without a tenant to its tenant (decision 0077).

use std::collections::BTreeMap;

use notification::Name;

/// Changes of the running totals that give each tenant what was counted for it without its name. An audit makes it, and
/// [`Operations::assign_totals`](crate::Operations::assign_totals) applies it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TotalsAssignment {
    /// Number of assignments that were applied before the instant of the audit: one that is applied later makes this one void.
    pub(crate) generation: i64,
    /// Numbers that are added to the counts, by tenant and code of the state, and taken from the counts without a tenant. Negative
    /// where more was counted for the tenant than it has; never zero.
    pub(crate) changes: BTreeMap<(Name, u8), i64>,
}

/// Counts by the code of a state. One of a tenant may be negative while some of it is counted without a tenant.
pub(crate) type StateCounts = BTreeMap<u8, i64>;

// === impl TotalsAssignment ===

impl TotalsAssignment {
    /// The sums of the changes by the code of a state, which are taken from what has no tenant; none of them is zero.
    pub(crate) fn sums(&self) -> StateCounts {
        let mut sums = StateCounts::new();
        for ((_, state), change) in &self.changes {
            *sums.entry(*state).or_default() += change;
        }
        sums.retain(|_, sum| *sum != 0);
        sums
    }
}

//! The accounts of tenants.

use std::collections::BTreeMap;

use notification::{Account, Name};

use super::Memory;
use super::books::Books;
use crate::{TenantPage, TotalsAssignment};

impl Memory {
    /// Has what is counted so far be without a tenant until it is assigned, as after an upgrade from a version that did not count by
    /// tenant.
    pub fn unassign_totals(&self) {
        self.change(|books| books.is_unassigned = true);
    }
}

impl Books {
    pub(super) fn account(&self) -> Account {
        let mut account = Account::default();
        self.accounts().values().for_each(|of_tenant| account.add_all(of_tenant));
        account
    }

    /// The account of each tenant that has any.
    pub(super) fn accounts(&self) -> BTreeMap<Name, Account> {
        let mut accounts = BTreeMap::<Name, Account>::new();
        for (tenant, ended) in &self.tombstones {
            let account = accounts.entry(tenant.clone()).or_default();
            for (&state, &count) in ended {
                account.add(state, count);
                account.accepted += count;
            }
        }
        for batch in self.batches.values().filter(|batch| self.is_accepted(batch)) {
            let account = accounts.entry(batch.envelope.lane.tenant.clone()).or_default();
            account.accepted += batch.entries.len() as u64;
            for entry in &batch.entries {
                account.add(entry.state, 1);
            }
        }
        accounts
    }

    pub(super) fn tenant_totals(&self, tenant: &Name) -> Option<Account> {
        let account = self.accounts().remove(tenant).unwrap_or_default();
        (!self.is_unassigned).then_some(account)
    }

    pub(super) fn tenants(&self, after: Option<&Name>, items_max: usize) -> Option<TenantPage> {
        let all = self.accounts().into_iter();
        let behind = all.filter(|(tenant, _)| after.is_none_or(|after| tenant > after));
        let mut items: Vec<_> = behind.collect();
        let is_end = items.len() <= items_max;
        items.truncate(items_max);
        let last = items.last().map(|(tenant, _)| tenant.clone());
        let next = last.filter(|_| !is_end);
        (!self.is_unassigned).then_some(TenantPage { items, next })
    }

    /// The accounts are counted anew whenever they are asked for, so there is nothing to change by it.
    pub(super) fn unassigned(&self) -> Option<TotalsAssignment> {
        let generation = self.assignments;
        self.is_unassigned.then(|| TotalsAssignment { generation, changes: BTreeMap::new() })
    }

    pub(super) fn assign_totals(&mut self, assignment: &TotalsAssignment) -> bool {
        let is_next = assignment.generation == self.assignments;
        if is_next {
            self.assignments += 1;
            self.is_unassigned = false;
        }
        is_next
    }
}

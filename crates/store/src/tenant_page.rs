//! A page of the list of tenants, and how it is filled from the running totals.

use notification::{Account, Name, State};

/// Some of the tenants by name, and where the list goes on.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TenantPage {
    /// Tenants with their accounts, none of which is empty.
    pub items: Vec<(Name, Account)>,
    /// Pass this to go on; `None` at the end.
    pub next: Option<Name>,
}

/// A page of tenants that is filled from counts in order of tenant.
#[derive(Debug)]
pub(crate) struct TenantPageFiller {
    items_max: usize,
    page: TenantPage,
}

// === impl TenantPageFiller ===

impl TenantPageFiller {
    /// Of a page with at most so many tenants.
    pub(crate) fn new(items_max: usize) -> Self {
        Self { items_max, page: TenantPage::default() }
    }

    /// Adds a count of `tenant`, which comes behind all counts of the tenants before it. False once the page is full, and a tenant
    /// follows.
    pub(crate) fn add(&mut self, tenant: Name, state: State, count: u64) -> bool {
        let TenantPage { items, next } = &mut self.page;
        let is_full = items.len() >= self.items_max;
        let last = items.last_mut().filter(|(last, _)| *last == tenant);
        let mut first = Account::default();
        let account = match last {
            Some((_, account)) => account,
            None if is_full => {
                *next = items.last().map(|(last, _)| last.clone());
                return false;
            }
            None => &mut first,
        };
        account.add(state, count);
        // Each notification stands in one state, so together they are all that were accepted.
        account.accepted += count;
        if first.accepted > 0 {
            items.push((tenant, first));
        }
        true
    }

    /// The page as far as it is filled.
    pub(crate) fn page(self) -> TenantPage {
        self.page
    }
}

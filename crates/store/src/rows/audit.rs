//! The audit's arithmetic: every member of every batch is pending once or ended once.

use notification::{Account, Name, State};

use super::codec::decode_log;
use super::members::Members;
use super::requeue::EndCounts;
use crate::{Audit, StoreError};

/// The members of one batch, while they are accounted for.
#[derive(Debug)]
pub(crate) struct BatchAudit<'a> {
    batch: i64,
    count: usize,
    missing: Members,
    /// State of those members that neither a chunk nor the log accounts for, if the batch waits for its chunk.
    waiting: Option<State>,
    ends: EndCounts,
    account: Account,
    audit: &'a mut Audit,
}

/// The members of one batch, accounted for.
#[derive(Debug)]
pub(crate) struct BatchCount {
    /// Where they stand.
    pub(crate) account: Account,
    /// Number of those that wait for their chunk, or to be written off.
    pub(crate) waiting: u64,
}

/// Problems told in words.
const PROBLEMS: usize = 100;

// === impl Audit ===

impl Audit {
    pub(crate) fn report(&mut self, problem: String) {
        self.problem_count += 1;
        // A damaged store may have a problem for each batch, and all of them are held until the end.
        if self.problems.len() < PROBLEMS {
            self.problems.push(problem);
        }
    }

    /// Adds what was counted for a tenant.
    pub(crate) fn add(&mut self, tenant: &Name, account: &Account) {
        // One that has an open broadcast alone has nothing.
        if *account == Account::default() {
            return;
        }
        self.account.add_all(account);
        match self.tenants.get_mut(tenant) {
            Some(of_tenant) => of_tenant.add_all(account),
            None => {
                self.tenants.insert(tenant.clone(), *account);
            }
        }
    }
}

// === impl BatchAudit ===

impl<'a> BatchAudit<'a> {
    /// Starts with all `count` members of `batch`; none, if nothing of it is accepted. Problems go to `audit`.
    pub(crate) fn new(
        batch: i64,
        count: usize,
        waiting: Option<State>,
        audit: &'a mut Audit,
    ) -> Self {
        let (missing, ends) = (Members::all(count), EndCounts::default());
        Self { batch, count, missing, waiting, ends, account: Account::default(), audit }
    }

    /// Without its lane the batch is neither delivered nor found.
    pub(crate) fn check_lane(&mut self, is_there: bool) {
        if !is_there {
            self.audit.report(format!("batch {}: its lane is missing", self.batch));
        }
    }

    /// Accounts for the members of a chunk.
    pub(crate) fn add_chunk(&mut self, members: Option<&[u8]>, count: usize) {
        let members = members.map_or_else(|| Members::all(count), Members::from_blob);
        if self.waiting.is_some() {
            let batch = self.batch;
            self.audit.report(format!("batch {batch}: it has a chunk, and waits for one"));
        }
        if members.len() != count {
            let (batch, found) = (self.batch, members.len());
            self.audit.report(format!("batch {batch}: a chunk of {count} has {found} members"));
        }
        for index in members.iter() {
            // Claimed and begun deliveries count as pending in the totals, too.
            self.account(index, State::Pending);
        }
    }

    /// Accounts for the ends in a row of the log.
    pub(crate) fn add_log(&mut self, entries: &[u8]) -> Result<(), StoreError> {
        for group in decode_log(entries)? {
            // A requeue or a resolution may take an end back, in this row or another one: `finish` accounts for those that stay.
            self.ends.add(&group);
            let state = group.attempted.state;
            if state.is_terminal() && !state.may_be_requeued() {
                for index in group.indexes {
                    self.account(index, state);
                }
            }
        }
        Ok(())
    }

    /// Reports the members that nothing accounted for; the count, which the caller adds to the audit.
    pub(crate) fn finish(mut self) -> BatchCount {
        for (state, index, ends) in std::mem::take(&mut self.ends).iter() {
            if ends < 0 {
                let batch = self.batch;
                self.audit.report(format!(
                    "batch {batch}: member {index} was requeued or resolved and not {state}"
                ));
            }
            // Two of them of which none was taken back are two ends: the second one is reported.
            for _ in 0..ends {
                self.account(index, state);
            }
        }
        self.account.accepted += self.count as u64;
        if let Some(state) = self.waiting {
            let waiting = std::mem::take(&mut self.missing).len() as u64;
            self.account.add(state, waiting);
            return BatchCount { account: self.account, waiting };
        }
        if let Some(first) = self.missing.iter().next() {
            let (batch, count) = (self.batch, self.missing.len());
            self.audit
                .report(format!("batch {batch}: {count} members are lost, the first is {first}"));
        }
        BatchCount { account: self.account, waiting: 0 }
    }

    fn account(&mut self, index: u16, state: State) {
        if self.missing.remove(index) {
            self.account.add(state, 1);
        } else {
            let batch = self.batch;
            self.audit.report(format!(
                "batch {batch}: member {index} is {state}, and something else too"
            ));
        }
    }
}

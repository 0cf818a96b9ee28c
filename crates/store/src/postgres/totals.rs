//! The running totals: how many notifications of each tenant stand in which state.
//!
//! They are the sums of the rows of `totals_delta`. A transaction adds rows and changes none, so that two never wait for each other
//! there; now and then its writer *folds* the rows into one for each tenant and state. Rows without a tenant are of processes of an
//! earlier version, whose folding takes the tenants' names from rows of this one as well. As long as there are some, what a tenant
//! has is not known; an assignment ([`AssignTotals`]) gives their sums to the tenants (decision 0077).

use async_trait::async_trait;
use notification::{Name, State};
use tokio_postgres::Error;

use super::columns::signed;
use super::request::WriterRequest;
use super::totals_changes::ChangeColumns;
use super::transaction::{RunError, Transaction};
use crate::TotalsAssignment;

/// Gives what has no tenant to the tenants. True if that was done; false if another assignment came first.
#[derive(Debug)]
pub(super) struct AssignTotals(pub(super) TotalsAssignment);

const INSERT_CHANGES: &str = "INSERT INTO totals_delta (tenant, state, change) \
     SELECT * FROM unnest($1::text[], $2::int2[], $3::int8[])";
/// By place in the table: it has no index, and a writer's session reads no table in sequence. Rows that another process folds are
/// passed over.
const FOLD: &str = "WITH gone AS (DELETE FROM totals_delta WHERE ctid = ANY(ARRAY( \
     SELECT ctid FROM totals_delta WHERE ctid >= '(0,0)' AND tenant IS NOT NULL FOR UPDATE SKIP LOCKED)) \
       RETURNING tenant, state, change) \
     INSERT INTO totals_delta (tenant, state, change) SELECT tenant, state, sum(change) FROM gone \
     GROUP BY tenant, state HAVING sum(change) <> 0";
/// One that another process is about to raise is not waited for, and counts as raised.
const RAISE_ASSIGNED: &str = "UPDATE meta SET value = value + 1 WHERE key = ANY(ARRAY( \
     SELECT key FROM meta WHERE key = 'totals_assigned' AND value = $1 FOR UPDATE SKIP LOCKED))";
/// Takes from the rows without a tenant what it gives to the tenants, however much those have by now. Rows that an earlier version folds
/// at the moment are passed over: then a row without a tenant is left that is negative by as much, and the next assignment clears both.
const ASSIGN: &str = "WITH gone AS (DELETE FROM totals_delta WHERE ctid = ANY(ARRAY( \
     SELECT ctid FROM totals_delta WHERE ctid >= '(0,0)' AND tenant IS NULL FOR UPDATE SKIP LOCKED)) RETURNING state, change), \
     given AS (SELECT * FROM unnest($1::text[], $2::int2[], $3::int8[]) AS given (tenant, state, change)) \
     INSERT INTO totals_delta (tenant, state, change) SELECT tenant, state, change FROM given \
     UNION ALL SELECT NULL, state, sum(change)::int8 FROM ( \
       SELECT state, change FROM gone UNION ALL SELECT state, -change FROM given) AS rest \
     GROUP BY state HAVING sum(change) <> 0";

#[async_trait]
impl WriterRequest for AssignTotals {
    type Answer = bool;

    async fn run(&self, transaction: &mut Transaction<'_>) -> Result<bool, RunError> {
        let TotalsAssignment { generation, changes } = &self.0;
        if transaction.execute(RAISE_ASSIGNED, &[generation]).await? == 0 {
            return Ok(false);
        }
        let ChangeColumns { tenants, states, changes } = ChangeColumns::of(changes.iter());
        transaction.execute(ASSIGN, &[&tenants, &states, &changes]).await?;
        Ok(true)
    }
}

// === impl Transaction ===

impl Transaction<'_> {
    /// Counts `items` of `tenant` that were accepted.
    pub(super) fn count_accepted(&mut self, tenant: &Name, items: usize) {
        self.totals.add(tenant, State::Pending, signed(items));
    }

    /// Counts `items` of `tenant` that were pending and ended.
    pub(super) fn count_ended(&mut self, tenant: &Name, state: State, items: usize) {
        self.totals.add(tenant, State::Pending, -signed(items));
        self.totals.add(tenant, state, signed(items));
    }

    /// Counts `items` of `tenant` that had ended in `state`, which is taken back: they are pending again.
    pub(super) fn count_taken_back(&mut self, tenant: &Name, state: State, items: usize) {
        self.totals.add(tenant, state, -signed(items));
        self.totals.add(tenant, State::Pending, signed(items));
    }

    /// Writes the changes of this transaction, as its last rows but those of its commit.
    pub(super) async fn write_totals(&mut self) -> Result<(), Error> {
        let totals = std::mem::take(&mut self.totals);
        let ChangeColumns { tenants, states, changes } = totals.columns();
        if tenants.is_empty() {
            return Ok(());
        }
        let rows = self.execute(INSERT_CHANGES, &[&tenants, &states, &changes]).await?;
        if self.state.fold_pace.note(rows) {
            let left = self.execute(FOLD, &[]).await?;
            self.state.fold_pace.folded(left);
        }
        Ok(())
    }
}

//! Assignments of totals: audits, whose results are applied while others write, and processes of an earlier version fold.

use super::super::totals::AssignTotals;
use super::book::Book;
use super::calls::{Call, Caller, Heard};
use super::cluster::WRITERS;
use super::schedule::Schedule;
use crate::conformance::{Shape, name};
use crate::{Audit, ReadStore as _};

/// Number of assignments, and true if a row has no tenant.
const ASSIGNED: &str = "SELECT value, EXISTS (SELECT FROM totals_delta WHERE tenant IS NULL) \
     FROM meta WHERE key = 'totals_assigned'";
/// Assignments that are made one after the other, of which one at least must find nothing left to be assigned.
const ROUNDS: usize = 3;

// === impl Caller ===

impl Caller<'_> {
    /// Some of another tenant. Only calls that name no tenant are made about them.
    pub(super) fn ingest_other(&mut self, engine: usize) -> Call {
        let shape = Shape { tenant: "other", due_at: self.book.now, ..Shape::default() };
        self.ingest_like(engine, &shape)
    }

    /// Audits at once, and gives what has no tenant to the tenants by that, with the writer's next transaction.
    pub(super) fn assign(&self, engine: usize) -> Call {
        let engine_of = &self.engines[engine];
        let (reader, work) = (engine_of.reader.clone(), engine_of.work.clone());
        let answer = Box::pin(async move {
            let Audit { unassigned, problems, .. } = reader.audit().await.unwrap();
            let generation = unassigned.as_ref().map(|assignment| assignment.generation);
            let assigned = match unassigned {
                Some(assignment) => work.run(AssignTotals(assignment)).await,
                None => Ok(false),
            };
            let hear = move |book: &mut Book| {
                book.findings.extend(problems.iter().map(|problem| format!("audit: {problem}")));
                if book.answer(assigned) == Some(true)
                    && !generation.is_some_and(|generation| book.assigned.insert(generation))
                {
                    book.find("two assignments of the same totals were applied".to_owned());
                }
            };
            Box::new(hear) as Heard
        });
        Call { actor: engine * WRITERS + 1, words: "assign the totals".to_owned(), answer }
    }
}

// === impl Schedule ===

impl Schedule<'_> {
    /// Gives everything that has no tenant to the tenants, and compares the number of assignments with the answers.
    pub(super) async fn assign_all(&mut self) {
        for _ in 0..ROUNDS {
            let call = self.caller().assign(0);
            self.call(call);
            self.finish_calls().await;
        }
        let row = self.cluster.ask(ASSIGNED).await;
        let (assigned, is_left): (i64, bool) = (row.get(0), row.get(1));
        let said = i64::try_from(self.book.assigned.len()).unwrap();
        if assigned != said {
            self.book.find(format!("{assigned} assignments were applied, not {said}"));
        }
        let totals = self.cluster.reader.tenant_totals(name("tenant")).await.unwrap();
        if is_left || totals.is_none() {
            self.book.find("what has no tenant is not assigned".to_owned());
        }
    }
}

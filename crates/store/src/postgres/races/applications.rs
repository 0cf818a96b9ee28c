//! Applications that write to the outbox within transactions of their own, and end these in the middle of other calls.

use std::collections::BTreeMap;
use std::sync::Arc;

use notification::Idempotency;

use super::super::connection::PostgresSession;
use crate::conformance::Shape;
use crate::{DrainedRows, OutboxRow, Validator};

/// An application, with a connection as any of a server's.
pub(super) struct Application {
    pub(super) session: PostgresSession,
    /// Rows of the transaction that it has open, by recipient.
    open: Option<Vec<String>>,
}

/// The rows, as their applications know them, and the answers of drains.
#[derive(Debug, Default)]
pub(super) struct Rows {
    written: u64,
    /// End of each row, by recipient: whether the transaction was committed, and whether the row has a key.
    pub(super) ended: BTreeMap<String, (bool, bool)>,
    /// The rows that drains said to have accepted and put aside.
    pub(super) said: DrainedRows,
}

/// The next step of an application.
#[derive(Debug, Clone, Copy)]
pub(super) enum Step {
    Write { has_key: bool },
    Commit,
    RollBack,
}

/// Prefix of the recipients of rows, and of those that are refused.
pub(super) const TAKEN: &str = "app-";
pub(super) const REFUSED: &str = "nobody-";
const INSERT: &str = "INSERT INTO outbox (channel, recipient, content, idempotency_key) VALUES ('channel', $1, '1', $2)";

// === impl Application ===

impl Application {
    /// An application, which is no part of Belfry: it may leave a transaction open for any time.
    pub(super) async fn new(session: PostgresSession) -> Self {
        let patience = "SET idle_in_transaction_session_timeout = 0";
        session.client.batch_execute(patience).await.unwrap();
        Self { session, open: None }
    }

    /// Begins anew; an open transaction is undone.
    pub(super) async fn reset(&mut self) {
        if self.open.take().is_some() {
            self.session.client.batch_execute("ROLLBACK").await.unwrap();
        }
    }

    /// Never waits: the rows that it writes to are never locked.
    pub(super) async fn go(&mut self, step: Step, rows: &mut Rows) {
        let client = &self.session.client;
        let is_committed = match step {
            Step::Write { has_key } => {
                if self.open.is_none() {
                    client.batch_execute("BEGIN").await.unwrap();
                }
                let recipient = rows.next();
                let insert = self.session.prepared(INSERT).await.unwrap();
                client.execute(&insert, &[&recipient, &has_key.then_some("k")]).await.unwrap();
                rows.ended.insert(recipient.clone(), (false, has_key));
                self.open.get_or_insert_default().push(recipient);
                return;
            }
            Step::Commit => true,
            Step::RollBack => false,
        };
        let Some(written) = self.open.take() else { return };
        client.batch_execute(if is_committed { "COMMIT" } else { "ROLLBACK" }).await.unwrap();
        for recipient in written {
            rows.ended.entry(recipient).or_default().0 = is_committed;
        }
    }
}

// === impl Rows ===

impl Rows {
    /// The recipient of the next row; some rows are refused when they are validated.
    fn next(&mut self) -> String {
        self.written += 1;
        let prefix = if self.written.is_multiple_of(4) { REFUSED } else { TAKEN };
        format!("{prefix}{}", self.written)
    }

    /// Counts the answer of a drain.
    pub(super) fn drained(&mut self, drained: DrainedRows) {
        self.said.accepted += drained.accepted;
        self.said.rejected += drained.rejected;
    }

    /// Findings on rows: each one that was committed must be there once, no other one, and as many as the drains reported.
    /// `count` is the number of notifications of a recipient, and `put_aside` that of rejected rows.
    pub(super) fn compare(&self, count: impl Fn(&str) -> usize, put_aside: i64) -> Vec<String> {
        let mut findings = Vec::new();
        let mut all = 0;
        for (recipient, &(is_committed, has_key)) in &self.ended {
            let taken = count(recipient);
            all += taken as u64;
            let wanted = usize::from(is_committed && recipient.starts_with(TAKEN));
            // A row with a key may have been accepted before, or its key used for other content.
            if taken > wanted || taken < wanted && !has_key {
                findings.push(format!("{recipient} is there {taken} times, not {wanted}"));
            }
        }
        let DrainedRows { accepted, rejected, .. } = self.said;
        if accepted != all || rejected.cast_signed() != put_aside {
            let said = format!("drains said {accepted} and {rejected}");
            findings.push(format!("{said}, and there are {all} and {put_aside}"));
        }
        findings
    }
}

/// Accepts all rows but those whose recipients begin with [`REFUSED`].
pub(super) fn validator() -> Arc<Validator> {
    Arc::new(|row: OutboxRow, _now| {
        if row.recipient.starts_with(REFUSED) {
            return Err("recipient: is nobody".to_owned());
        }
        let mut draft = Shape::default().draft(&row.recipient);
        let key = |key: String| Idempotency { key: key.into(), fingerprint: [1; 32], passed: None };
        draft.idempotency = row.idempotency_key.map(key);
        Ok(draft)
    })
}

//! The outbox: what applications wrote into the store, within their own transactions, becomes notifications here.

use std::sync::Arc;
use std::time::Duration;

use notification::{ByteString, Bytes, Draft, Name, Timestamp};
use store::{ErrorKind, Outbox, OutboxRow, Screen, StoreError};
use tokio::sync::watch;

use super::{Fault, Intake, Terms};

/// Takes in what is in the outbox, row by row with the checks of every other way in.
#[derive(Debug)]
pub struct Drain {
    /// Where applications write.
    pub outbox: Arc<dyn Outbox>,
    /// What checks.
    pub intake: Arc<Intake>,
}

/// Between two looks without a word from the store, which may have lost the connection that brings it.
const LOOK_AT_LEAST_EVERY: Duration = Duration::from_secs(1);

// === impl Drain ===

impl Drain {
    /// Runs until `stopping` turns true.
    ///
    /// # Errors
    /// When the store failed. What was not taken in stays in the outbox.
    pub async fn run(self, mut stopping: watch::Receiver<bool>) -> Result<(), StoreError> {
        let mut changes = self.outbox.outbox_changes();
        let intake = Arc::clone(&self.intake);
        let screen: Arc<Screen> = Arc::new(move |row, now| screen(&intake, row, now));
        while !*stopping.borrow() {
            // What changes from here on wakes the wait below, also if it changes during the drain.
            changes.mark_unchanged();
            if self.drain(&screen).await? {
                continue;
            }
            tokio::select! {
                store_is_gone = changes.changed() => if store_is_gone.is_err() { return Ok(()) },
                () = tokio::time::sleep(LOOK_AT_LEAST_EVERY) => {}
                _ = stopping.wait_for(|stopping| *stopping) => {}
            }
        }
        Ok(())
    }

    /// Takes in some of what is there, and says whether there may be more.
    async fn drain(&self, screen: &Arc<Screen>) -> Result<bool, StoreError> {
        match self.outbox.drain(Arc::clone(screen), self.intake.now()).await {
            Ok(drained) => {
                if drained.rejected > 0 {
                    let rejected = drained.rejected;
                    tracing::warn!(
                        rejected,
                        "outbox rows put aside: belfry.outbox_rejected has the reasons"
                    );
                }
                Ok(drained.more)
            }
            // The store says itself that it is away.
            Err(error) if error.kind() == ErrorKind::Unavailable => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// Checks a row as the API checks a request, so that the same key and words through both ways are one notification.
fn screen(intake: &Intake, row: OutboxRow, now: Timestamp) -> Result<Draft, String> {
    let tenant: Name = row.tenant.parse().map_err(|error| format!("tenant: {error}"))?;
    if row.content.trim_ascii() == b"null" {
        return Err("content: is missing".to_owned());
    }
    let options = match row.options.trim_ascii() {
        b"" | b"null" => Bytes::new(),
        object if object.starts_with(b"{") => row.options,
        _ => return Err("options: must be a JSON object".to_owned()),
    };
    // A row may have waited, and what was in time when it was written is not too late to be asked for: it is judged as of
    // the last instant at which it could have been.
    let last = [row.send_at, row.expires_at.map(|end| end.minus(Duration::from_millis(1)))];
    let asked_at = last.into_iter().flatten().fold(now, Timestamp::min);
    let terms = Terms {
        channel: row.channel.into(),
        content: row.content,
        options,
        template: None,
        variables: None,
        fallback: Vec::new(),
        guarantee: Some(row.guarantee.into()),
        priority: Some(row.priority.into()),
        send_at: row.send_at.map(|instant| instant.to_string().into()),
        expires_at: row.expires_at.map(|instant| instant.to_string().into()),
        late: None,
        idempotency_key: row.idempotency_key.map(ByteString::from),
    };
    intake
        .check(&tenant, &terms, row.recipient.into(), asked_at)
        .map_err(|fault| in_its_columns(&fault))
}

/// The fault in the words of the table.
fn in_its_columns(fault: &Fault) -> String {
    match fault.pointer.strip_prefix("/to") {
        Some(part) => format!("recipient{part}: {}", fault.message),
        None => fault.to_string(),
    }
}

#[cfg(test)]
#[path = "outbox_tests.rs"]
mod tests;

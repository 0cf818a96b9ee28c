//! The outbox: rows that applications wrote into the store, within their own transactions, become notifications here.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use notification::{ByteString, Bytes, Draft, Name, Timestamp};
use store::{ErrorKind, Outbox, OutboxRow, StoreError, Validator};
use tokio::sync::watch;

use super::parse::{self, RecipientField};
use super::{Intake, InvalidField, Submission};

/// Submits the rows of the outbox, one by one and with the checks of a request: the relay of the outbox pattern.
#[derive(Debug)]
pub struct OutboxRelay {
    /// Outbox into which applications write.
    pub outbox: Arc<dyn Outbox>,
    /// Checks and accepts the rows.
    pub intake: Arc<Intake>,
}

/// Between two looks without a word from the store, which may have lost the connection that brings it.
const LOOK_AT_LEAST_EVERY: Duration = Duration::from_secs(1);

// === impl OutboxRelay ===

impl OutboxRelay {
    /// Runs until `stopping` turns true.
    ///
    /// # Errors
    /// When the store failed. Rows that were not submitted stay in the outbox.
    pub async fn run(self, mut stopping: watch::Receiver<bool>) -> Result<(), StoreError> {
        let mut changes = self.outbox.outbox_changes();
        let intake = Arc::clone(&self.intake);
        let screen: Arc<Validator> = Arc::new(move |row, now| screen(&intake, &row, now));
        while !*stopping.borrow() {
            // A change from here on wakes the wait below, also if it happens during the drain.
            changes.mark_unchanged();
            // More may be there than one drain takes: no wait between them.
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

    /// Submits some of the rows; true if there may be more.
    async fn drain(&self, screen: &Arc<Validator>) -> Result<bool, StoreError> {
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
            Err(error) if error.kind() == ErrorKind::Fatal => Err(error),
            // Anything else may pass: the rows stay where they are until the next look.
            Err(error) => {
                // The store says itself that it is away.
                if error.kind() != ErrorKind::Unavailable {
                    tracing::error!(%error, "the outbox waits");
                }
                Ok(false)
            }
        }
    }
}

/// Checks a row as the API checks a request, so that the same key and words through both ways are one notification.
fn screen(intake: &Intake, row: &OutboxRow, now: Timestamp) -> Result<Draft, String> {
    let tenant: Name = row.tenant.parse().map_err(|error| format!("tenant: {error}"))?;
    let recipient = ByteString::from(row.recipient.as_str());
    let checked = submission(row, now).and_then(|(submission, asked_at)| {
        let json = json_text(&row.fallback);
        let fallback = match &*json {
            "" => Vec::new(),
            array => parse::fallback(array, &json, RecipientField::Here)?,
        };
        intake.check(&tenant, &Submission { fallback, ..submission }, recipient, asked_at)
    });
    checked.map_err(|invalid| in_its_columns(&invalid))
}

/// A row's notification, and the instant from which its times count.
fn submission(
    row: &OutboxRow,
    now: Timestamp,
) -> Result<(Submission<'_>, Timestamp), InvalidField> {
    let content = match (trimmed(&row.content), &row.template) {
        (content, None) if content.is_empty() => {
            return Err(InvalidField::new("/content", "is missing: give `content` or `template`"));
        }
        (_, None) => row.content.clone(),
        (content, Some(_)) if content.is_empty() => content,
        (_, Some(_)) => {
            let message = "is a content already: give `content` or `template`";
            return Err(InvalidField::new("/template", message));
        }
    };
    let object = |pointer, json: &Bytes| match trimmed(json) {
        object if object.is_empty() || object.starts_with(b"{") => Ok(object),
        _ => Err(InvalidField::new(pointer, "must be a JSON object")),
    };
    let (options, variables) =
        (object("/options", &row.options)?, object("/variables", &row.variables)?);
    let tags = match json_text(&row.tags) {
        none if none.is_empty() => Vec::new(),
        json => parse::tags(&json, &json)?,
    };
    // A row may have waited, and times that were valid when it was written must not be too late now: it is judged as of the last
    // instant at which they were valid.
    let last = [row.send_at, row.expires_at.map(|end| end.minus(Duration::from_millis(1)))];
    let asked_at = last.into_iter().flatten().fold(now, Timestamp::min);
    let submission = Submission {
        channel: row.channel.as_str().into(),
        content,
        options,
        template: row.template.as_deref().map(Cow::Borrowed),
        variables: (!variables.is_empty()).then_some(variables),
        fallback: Vec::new(),
        guarantee: Some(row.guarantee.as_str().into()),
        priority: Some(row.priority.as_str().into()),
        send_at: row.send_at.map(|instant| instant.to_string().into()),
        expires_at: row.expires_at.map(|instant| instant.to_string().into()),
        late: None,
        idempotency_key: row.idempotency_key.as_deref().map(ByteString::from),
        message_key: None,
        external_id: row.external_id.as_deref().map(ByteString::from),
        tags,
        metadata: object("/metadata", &row.metadata)?,
        senders: None,
        trace: None,
    };
    Ok((submission, asked_at))
}

/// The text of [`trimmed`].
fn json_text(json: &Bytes) -> ByteString {
    // The database hands its JSON over in UTF-8.
    ByteString::try_from(trimmed(json)).unwrap_or_default()
}

/// A JSON text without the white space around it; empty for `null` or nothing: an application may write the JSON `null` where it
/// has none, and the API takes that for absent, too.
fn trimmed(json: &Bytes) -> Bytes {
    match json.trim_ascii() {
        b"null" => Bytes::new(),
        trimmed => json.slice_ref(trimmed),
    }
}

/// The fault in the words of the table.
fn in_its_columns(invalid: &InvalidField) -> String {
    match invalid.pointer.strip_prefix("/to") {
        Some(part) => format!("recipient{part}: {}", invalid.message),
        None => invalid.to_string(),
    }
}

#[cfg(test)]
#[path = "outbox_tests.rs"]
mod tests;

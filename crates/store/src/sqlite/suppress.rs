//! The suppression list.

use notification::{ByteString, Delivery, Name, Timestamp};
use rusqlite::{Connection, params};

use super::round::Round;
use crate::StoreError;
use crate::rows::filter::RecipientFilter;
use crate::rows::members::Members;

impl Round<'_> {
    /// Adds one recipient; one that is there already keeps its reason.
    pub(super) fn suppress(
        &mut self,
        channel: &Name,
        recipient: &str,
        reason: &str,
        since: Timestamp,
    ) -> Result<(), StoreError> {
        self.sql(
            "INSERT INTO suppression (channel, recipient, reason, since) VALUES (?1, ?2, ?3, ?4) \
             ON CONFLICT DO NOTHING",
        )?
        .execute(params![channel.as_str(), recipient, reason, since.millis()])?;
        self.desk.suppressed.insert(channel.as_str(), recipient);
        Ok(())
    }

    pub(super) fn unsuppress(
        &mut self,
        channel: &Name,
        recipients: &[ByteString],
    ) -> Result<Vec<bool>, StoreError> {
        let mut delete =
            self.sql("DELETE FROM suppression WHERE channel = ?1 AND recipient = ?2")?;
        let mut removed = Vec::with_capacity(recipients.len());
        for recipient in recipients {
            removed.push(delete.execute([channel.as_str(), recipient])? > 0);
        }
        Ok(removed)
    }

    /// Which of `deliveries` must not be sent.
    pub(super) fn suppressed_of(
        &self,
        channel: &Name,
        deliveries: &[Delivery],
    ) -> Result<Members, StoreError> {
        let mut suppressed = Members::default();
        if self.desk.suppressed.is_empty() {
            return Ok(suppressed);
        }
        let mut select =
            self.sql("SELECT 1 FROM suppression WHERE channel = ?1 AND recipient = ?2")?;
        for delivery in deliveries {
            let recipient: &str = &delivery.recipient;
            if self.desk.suppressed.may_contain(channel.as_str(), recipient)
                && select.exists([channel.as_str(), recipient])?
            {
                suppressed.insert(delivery.index);
            }
        }
        Ok(suppressed)
    }
}

/// A filter of everybody on the list.
pub(super) fn load_filter(connection: &Connection) -> Result<RecipientFilter, StoreError> {
    let mut filter = RecipientFilter::new();
    let mut select = connection.prepare("SELECT channel, recipient FROM suppression")?;
    let mut rows = select.query([])?;
    while let Some(row) = rows.next()? {
        filter.insert(row.get_ref(0)?.as_str()?, row.get_ref(1)?.as_str()?);
    }
    Ok(filter)
}

//! Delivery events, read from the log.

use notification::{BatchId, BroadcastId, Bytes};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::columns::{labels_at, signed};
use super::read::{Snapshot, instant, unsigned};
use crate::rows::codes;
use crate::rows::events::{EventPager, Logged, LoggedRow, first_row};
use crate::{DeliveryFilter, DeliveryPage, EVENT_ROWS, EventPosition, StoreError};

/// Rows of the log fetched at once, each with up to a megabyte of recipients.
const FETCHED: i32 = 32;

// === impl Snapshot ===

impl Snapshot<'_> {
    /// Events of transactions that were complete when the snapshot was taken, and before which none can follow; and whether it
    /// is sure that no more of them are.
    pub(super) async fn delivery_events(
        &self,
        filter: &DeliveryFilter,
        position: EventPosition,
        events: usize,
    ) -> Result<(DeliveryPage, bool), StoreError> {
        let (horizon, is_sure) = self.horizon().await?;
        // Rows of other tenants give a number alone: neither their entries nor their batches are read.
        let select = "SELECT txid, log.id, batch.id, accepted_at, broadcast, \
             (SELECT channel FROM tenant_lane WHERE tenant_lane.id = batch.lane), \
             CASE WHEN batch.id IS NOT NULL THEN entries END, items, labels FROM log \
             LEFT JOIN LATERAL (SELECT id, accepted_at, broadcast, lane, items, labels FROM batch \
               WHERE batch.id = log.batch AND tenant = $4 AND of_feed IS NULL OFFSET 0) AS batch ON true \
             WHERE (txid, log.id) >= ($1, $2) AND txid < $3 ORDER BY txid, log.id LIMIT $5";
        let parameters: [&(dyn ToSql + Sync); 5] = [
            &position.transaction.cast_signed(),
            &first_row(position).cast_signed(),
            &horizon,
            &filter.tenant.as_str(),
            &signed(EVENT_ROWS),
        ];
        let portal = self.transaction.bind(select, &parameters).await?;
        let mut pager = EventPager::new(filter, self.store_id, position, events);
        loop {
            let rows = self.transaction.query_portal(&portal, FETCHED).await?;
            for row in &rows {
                if !pager.add(row_at(row)?)? {
                    return Ok((pager.into_page(), is_sure));
                }
            }
            if rows.is_empty() {
                return Ok((pager.into_page(), is_sure));
            }
        }
    }

    /// The position before the first transaction that may still write.
    pub(super) async fn events_end(&self) -> Result<EventPosition, StoreError> {
        let (horizon, _) = self.horizon().await?;
        Ok(EventPosition { transaction: horizon.cast_unsigned(), event: 0 })
    }
}

fn row_at(row: &Row) -> Result<LoggedRow, StoreError> {
    let (transaction, number) = (unsigned(row, 0)?, unsigned(row, 1)?);
    let batch: Option<i64> = row.try_get(2)?;
    let logged = batch.map(|batch| {
        let broadcast: Option<i64> = row.try_get(4)?;
        Ok::<_, StoreError>(Logged {
            batch: BatchId(batch.cast_unsigned()),
            accepted_at: instant(row, 3)?,
            broadcast: broadcast.map(|id| BroadcastId(id.cast_unsigned())),
            channel: codes::name(row.try_get(5)?)?,
            entries: row.try_get(6)?,
            items: row.try_get::<_, Option<Vec<u8>>>(7)?.map(Bytes::from),
            labels: labels_at(row, 8)?,
        })
    });
    Ok(LoggedRow { transaction, row: number, logged: logged.transpose()? })
}

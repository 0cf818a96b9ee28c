//! The list of a tenant's broadcasts: a walk over the index of those that are sealed.

use notification::{BroadcastId, Timestamp};
use tokio_postgres::Row;

use super::columns::{labels_at, signed};
use super::read::{Parameters, Snapshot, instant, unsigned};
use crate::rows::codes;
use crate::rows::labels::BatchLabels;
use crate::{BroadcastFilter, BroadcastPage, ListOrder, ListedBroadcast, StoreError};

// === impl Snapshot ===

impl Snapshot<'_> {
    pub(super) async fn broadcasts(
        &self,
        filter: &BroadcastFilter,
        after: Option<BroadcastId>,
        items: usize,
    ) -> Result<BroadcastPage, StoreError> {
        // By both columns, so that no plan but one by the index has the order: the primary key passes the broadcasts of others.
        let select = match filter.order {
            ListOrder::OldestFirst => {
                "SELECT id, channel, priority, guarantee, sealed_at, due_at, expires_at, recipients, labels FROM broadcast \
                 WHERE sealed_at IS NOT NULL AND (tenant, id) > ($1, $2) AND (tenant, id) < ($1, $3) ORDER BY tenant, id LIMIT $4"
            }
            ListOrder::NewestFirst => {
                "SELECT id, channel, priority, guarantee, sealed_at, due_at, expires_at, recipients, labels FROM broadcast \
                 WHERE sealed_at IS NOT NULL AND (tenant, id) > ($1, $2) AND (tenant, id) < ($1, $3) \
                 ORDER BY tenant DESC, id DESC LIMIT $4"
            }
        };
        let (before, end) = filter.numbers_behind(after);
        let rows_max = signed(filter.rows_max(items));
        let parameters: Parameters<'_> = &[&filter.tenant.as_str(), &before, &end, &rows_max];
        let rows = self.rows(select, parameters).await?;
        BroadcastPage::of(filter, items, rows.iter().map(listed_at))
    }
}

fn listed_at(row: &Row) -> Result<ListedBroadcast, StoreError> {
    let small = |column: usize| -> Result<u8, StoreError> {
        Ok(u8::try_from(row.try_get::<_, i16>(column)?).unwrap_or(u8::MAX))
    };
    Ok(ListedBroadcast {
        id: BroadcastId(unsigned(row, 0)?),
        channel: codes::name(row.try_get(1)?)?,
        priority: codes::priority(small(2)?)?,
        guarantee: codes::guarantee(small(3)?)?,
        accepted_at: instant(row, 4)?,
        due_at: instant(row, 5)?,
        expires_at: row.try_get::<_, Option<i64>>(6)?.map(Timestamp::from_millis),
        accepted: unsigned(row, 7)?,
        labels: BatchLabels::decode(labels_at(row, 8)?, 1)?.of(0),
    })
}

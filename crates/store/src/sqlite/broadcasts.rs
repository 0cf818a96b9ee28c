//! The list of a tenant's broadcasts: a walk over the index of those that are sealed.

use notification::{BroadcastId, Timestamp};
use rusqlite::{Row, params};

use super::read::Snapshot;
use super::rows::{labels_at, signed};
use crate::rows::codes;
use crate::rows::labels::BatchLabels;
use crate::{BroadcastFilter, BroadcastPage, ListOrder, ListedBroadcast, StoreError};

// === impl Snapshot ===

impl Snapshot {
    pub(super) fn broadcasts(
        &self,
        filter: &BroadcastFilter,
        after: Option<BroadcastId>,
        items: usize,
    ) -> Result<BroadcastPage, StoreError> {
        let sql = match filter.order {
            ListOrder::OldestFirst => {
                "SELECT id, channel, priority, guarantee, sealed_at, due_at, expires_at, iif(?5, labels, NULL) FROM broadcast \
                 WHERE tenant = ?1 AND sealed_at IS NOT NULL AND id > ?2 AND id < ?3 ORDER BY id LIMIT ?4"
            }
            ListOrder::NewestFirst => {
                "SELECT id, channel, priority, guarantee, sealed_at, due_at, expires_at, iif(?5, labels, NULL) FROM broadcast \
                 WHERE tenant = ?1 AND sealed_at IS NOT NULL AND id > ?2 AND id < ?3 ORDER BY id DESC LIMIT ?4"
            }
        };
        let mut select = self.connection.prepare_cached(sql)?;
        let (before, end) = filter.numbers_behind(after);
        let rows_max = signed(filter.rows_max(items));
        let tenant = filter.tenant.as_str();
        let rows = select.query_and_then(
            params![tenant, before, end, rows_max, filter.has_labels()],
            listed_at,
        )?;
        let mut page = BroadcastPage::of(filter, items, rows)?;
        // Of those on the page alone: these columns lie behind the content in its row, which would be read with each that is passed.
        let mut select = self
            .connection
            .prepare_cached("SELECT recipients, labels FROM broadcast WHERE id = ?1")?;
        for item in &mut page.items {
            let row = |row: &Row<'_>| Ok((row.get::<_, i64>(0)?, labels_at(row, 1)?));
            let (recipients, labels) = select.query_row([item.id.0.cast_signed()], row)?;
            item.accepted = recipients.cast_unsigned();
            item.labels = BatchLabels::decode(labels, 1)?.of(0);
        }
        Ok(page)
    }
}

/// A broadcast without the number of its notifications, and without labels unless they decide.
fn listed_at(row: &Row<'_>) -> Result<ListedBroadcast, StoreError> {
    Ok(ListedBroadcast {
        id: BroadcastId(row.get::<_, i64>(0)?.cast_unsigned()),
        channel: codes::name(row.get_ref(1)?.as_str()?)?,
        priority: codes::priority(row.get(2)?)?,
        guarantee: codes::guarantee(row.get(3)?)?,
        accepted_at: Timestamp::from_millis(row.get(4)?),
        due_at: Timestamp::from_millis(row.get(5)?),
        expires_at: row.get::<_, Option<i64>>(6)?.map(Timestamp::from_millis),
        accepted: 0,
        labels: BatchLabels::decode(labels_at(row, 7)?, 1)?.of(0),
    })
}

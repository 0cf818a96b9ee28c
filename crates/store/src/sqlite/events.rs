//! Delivery events, read from the log.

use notification::{BatchId, BroadcastId, Bytes, Timestamp};
use rusqlite::{Row, params};

use super::read::Snapshot;
use super::rows::{labels_at, signed};
use crate::rows::codes;
use crate::rows::events::{EventPager, Logged, LoggedRow, behind_row, first_row};
use crate::{DeliveryFilter, DeliveryPage, EVENT_ROWS, EventPosition, StoreError};

// === impl Snapshot ===

impl Snapshot {
    pub(super) fn delivery_events(
        &self,
        filter: &DeliveryFilter,
        position: EventPosition,
        events: usize,
    ) -> Result<DeliveryPage, StoreError> {
        // Rows of other tenants give a number alone: neither their entries nor their batches are read.
        let mut select = self.connection.prepare_cached(
            "SELECT log.id, batch.id, accepted_at, broadcast, channel, iif(batch.id IS NULL, NULL, entries), items, labels FROM log \
             LEFT JOIN batch ON batch.id = log.batch AND batch.tenant = ?2 AND of_feed IS NULL \
             LEFT JOIN tenant_lane AS lane ON lane.id = batch.lane \
             WHERE log.id >= ?1 ORDER BY log.id LIMIT ?3",
        )?;
        let mut pager = EventPager::new(filter, self.store_id, position, events);
        let first = first_row(position).cast_signed();
        let mut rows = select.query(params![first, filter.tenant.as_str(), signed(EVENT_ROWS)])?;
        while let Some(row) = rows.next()?
            && pager.add(row_at(row)?)?
        {}
        Ok(pager.into_page())
    }

    pub(super) fn events_end(&self) -> Result<EventPosition, StoreError> {
        let last = "SELECT coalesce(max(id), 0) FROM log";
        let last: i64 = self.connection.prepare_cached(last)?.query_row([], |row| row.get(0))?;
        Ok(behind_row(0, last.cast_unsigned()))
    }
}

fn row_at(row: &Row<'_>) -> Result<LoggedRow, StoreError> {
    let number = row.get::<_, i64>(0)?.cast_unsigned();
    let batch: Option<i64> = row.get(1)?;
    let logged = batch.map(|batch| {
        let broadcast: Option<i64> = row.get(3)?;
        Ok::<_, StoreError>(Logged {
            batch: BatchId(batch.cast_unsigned()),
            accepted_at: Timestamp::from_millis(row.get(2)?),
            broadcast: broadcast.map(|id| BroadcastId(id.cast_unsigned())),
            channel: codes::name(row.get_ref(4)?.as_str()?)?,
            entries: row.get(5)?,
            items: row.get::<_, Option<Vec<u8>>>(6)?.map(Bytes::from),
            labels: labels_at(row, 7)?,
        })
    });
    Ok(LoggedRow { transaction: 0, row: number, logged: logged.transpose()? })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::conformance::{at, name};
    use crate::sqlite::disk::Statvfs;
    use crate::sqlite::open::{Options, open};

    /// A store with two batches of one notification each, of `busy` and of `quiet`.
    fn snapshot(directory: &std::path::Path) -> Snapshot {
        let opened = open(directory, Options::new(1), Arc::new(Statvfs), at(0)).unwrap();
        let fill = "INSERT INTO tenant_lane (id, channel, destination, priority, tenant) \
               VALUES (1, 'channel', 'here', 1, 'busy'), (2, 'channel', 'here', 1, 'quiet'); \
             INSERT INTO batch (id, lane, guarantee, accepted_at, due_at, count, tenant, items) \
               VALUES (1, 1, 0, 0, 0, 1, 'busy', x'01000161'), (2, 2, 0, 0, 0, 1, 'quiet', x'01000162')";
        opened.connection.execute_batch(fill).unwrap();
        Snapshot { connection: opened.connection, store_id: 1 }
    }

    /// Adds `rows` rows to the log, each with the end of the one notification of `batch`.
    fn log(snapshot: &Snapshot, batch: i64, rows: usize) {
        let mut row = crate::rows::codec::LogRow::new();
        let line = crate::rows::codec::LogLine::unattempted(at(7), notification::State::Expired);
        row.push(&line, std::iter::once(0));
        let insert = "INSERT INTO log (batch, entries) WITH RECURSIVE numbers (n) AS \
             (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < ?3) SELECT ?1, ?2 FROM numbers";
        let parameters = params![batch, row.as_bytes(), signed(rows)];
        snapshot.connection.execute(insert, parameters).unwrap();
    }

    #[test]
    fn a_page_passes_a_bounded_number_of_rows_and_the_next_goes_on_behind_them() {
        let directory = tempfile::tempdir().unwrap();
        let snapshot = snapshot(directory.path());
        // A hundred pages of another tenant's rows.
        log(&snapshot, 1, 100 * EVENT_ROWS);
        log(&snapshot, 2, 1);
        let filter = DeliveryFilter::ends_of(name("quiet"));
        let (mut position, mut pages) = (EventPosition::default(), 0);
        loop {
            let page = snapshot.delivery_events(&filter, position, 10).unwrap();
            assert!(page.rows <= EVENT_ROWS);
            position = page.next;
            if let Some(event) = page.events.first() {
                assert_eq!(event.recipient.as_deref(), Some("b"));
                break;
            }
            pages += 1;
        }
        assert_eq!(pages, 100);
        let busy = DeliveryFilter::ends_of(name("busy"));
        let page = snapshot.delivery_events(&busy, EventPosition::default(), 10).unwrap();
        assert_eq!(page.events.len(), 10, "a page ends with the events that were asked for");
    }

    #[test]
    fn what_is_kept_no_longer_is_passed_over_or_has_no_recipient() {
        let directory = tempfile::tempdir().unwrap();
        let snapshot = snapshot(directory.path());
        for batch in [1, 2, 99] {
            log(&snapshot, batch, 1);
        }
        snapshot.connection.execute("DELETE FROM batch WHERE id = 1", []).unwrap();
        let filter = DeliveryFilter::ends_of(name("busy"));
        let page = snapshot.delivery_events(&filter, EventPosition::default(), 10).unwrap();
        assert_eq!((page.events.len(), page.rows), (0, 3), "its batch is gone");
        // A position before the oldest row goes on there.
        snapshot.connection.execute("DELETE FROM log WHERE id = 1", []).unwrap();
        let filter = DeliveryFilter::ends_of(name("quiet"));
        let page = snapshot.delivery_events(&filter, EventPosition::default(), 10).unwrap();
        assert_eq!(page.events.len(), 1);
    }

    #[test]
    #[ignore = "a measurement: cargo test --release -p store --lib -- --ignored --nocapture rows_a_second"]
    fn rows_a_second() {
        let directory = tempfile::tempdir().unwrap();
        let snapshot = snapshot(directory.path());
        log(&snapshot, 1, 1_000_000);
        for tenant in ["quiet", "busy"] {
            let filter = DeliveryFilter::ends_of(name(tenant));
            let clock = flow::Clock::system();
            let (began, mut position, mut events) =
                (clock.monotonic(), EventPosition::default(), 0);
            loop {
                let page = snapshot.delivery_events(&filter, position, 1_000).unwrap();
                if page.next == position {
                    break;
                }
                events += page.events.len();
                position = page.next;
            }
            println!("{tenant}: {events} events, 1000000 rows in {:?}", clock.monotonic() - began);
        }
    }
}

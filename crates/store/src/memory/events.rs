//! Delivery events, read from the log.

use super::books::Books;
use crate::rows::events::{behind_row, first_row};
use crate::{DeliveryEvent, DeliveryFilter, DeliveryPage, EVENT_ROWS, EventPosition};

impl Books {
    /// A row of other stores is a transaction here.
    pub(super) fn delivery_events(
        &self,
        filter: &DeliveryFilter,
        from: EventPosition,
        events_max: usize,
    ) -> DeliveryPage {
        let mut page = DeliveryPage { events: Vec::new(), next: from, rows: 0 };
        // Rows are numbered from one.
        let passed = usize::try_from(first_row(from).saturating_sub(1)).unwrap_or(usize::MAX);
        for (row, entries) in self.log.iter().enumerate().skip(passed).take(EVENT_ROWS) {
            let end = behind_row(0, row as u64 + 1);
            for (number, entry) in entries.iter().enumerate() {
                // Positions end with the entries that are passed: those of the row before end with as many as there can be.
                let event = behind_row(0, row as u64).event + 2 + number as u64;
                let position = EventPosition { transaction: 0, event };
                let batch = self.batch(entry.id.batch());
                let lane = &batch.envelope.lane;
                let entry_labels =
                    self.find(entry.id).map(|history| history.labels).unwrap_or_default();
                let matches = filter.tenant == lane.tenant
                    && filter.has_channel(&lane.channel)
                    && filter.has_state(entry.attempted.state)
                    && filter.has_tags(&entry_labels)
                    && !batch.is_of_feed;
                if position <= from || !matches {
                    continue;
                }
                if page.events.len() >= events_max {
                    return page;
                }
                page.next = position;
                page.events.push(DeliveryEvent {
                    position,
                    id: entry.id,
                    channel: lane.channel.clone(),
                    recipient: Some(self.recipient(entry.id.batch(), entry.id.index()))
                        .filter(|recipient| batch.removed < 2 && !recipient.is_empty())
                        .cloned(),
                    attempted: entry.attempted.clone(),
                    broadcast: batch.envelope.broadcast,
                    labels: entry_labels,
                });
            }
            page.next = end;
            page.rows += 1;
        }
        page
    }

    pub(super) fn events_end(&self) -> EventPosition {
        behind_row(0, self.log.len() as u64)
    }
}

//! Delivery events of rows of the log, for both databases.
//!
//! A row of the log has up to a thousand entries, so a position is one within a row: `event` is the number of the row and, in its
//! lower 16 bits, how many entries of the row are passed. Entries are numbered as they stand in the row, whether they match a
//! filter or not, so a position means the same to every reader; and it lies in columns that are copied with the database.

use notification::{BatchId, BroadcastId, ByteString, Bytes, Name, NotificationId, Timestamp};

use super::codec::{Items, LogGroup, decode_log};
use super::labels::BatchLabels;
use crate::{DeliveryEvent, DeliveryFilter, DeliveryPage, EventPosition, StoreError};

/// Reads the rows of one page of events.
#[derive(Debug)]
pub(crate) struct EventPager<'a> {
    filter: &'a DeliveryFilter,
    store_id: u16,
    events_max: usize,
    from: EventPosition,
    page: DeliveryPage,
}

/// A row of the log.
#[derive(Debug)]
pub(crate) struct LoggedRow {
    /// The number of its transaction; 0 where transactions follow each other.
    pub(crate) transaction: u64,
    /// The number of the row.
    pub(crate) row: u64,
    /// Its batch and entries, if they are of the tenant, and not a feed's.
    pub(crate) logged: Option<Logged>,
}

/// The batch and the entries of a row of the log.
#[derive(Debug)]
pub(crate) struct Logged {
    pub(crate) batch: BatchId,
    pub(crate) accepted_at: Timestamp,
    pub(crate) broadcast: Option<BroadcastId>,
    pub(crate) channel: Name,
    pub(crate) entries: Vec<u8>,
    /// Items of the batch; `None` when they are kept no longer.
    pub(crate) items: Option<Bytes>,
    /// Its column of labels.
    pub(crate) labels: Option<Bytes>,
}

/// Bits of a position that count the entries of its row.
const ENTRY_BITS: u32 = 16;
/// All entries of a row.
const ALL_ENTRIES: u64 = (1 << ENTRY_BITS) - 1;

// === impl EventPager ===

impl<'a> EventPager<'a> {
    /// A page of up to `events_max` events from `from` on.
    pub(crate) fn new(
        filter: &'a DeliveryFilter,
        store_id: u16,
        from: EventPosition,
        events_max: usize,
    ) -> Self {
        let page = DeliveryPage { events: Vec::new(), next: from, rows: 0 };
        Self { filter, store_id, events_max, from, page }
    }

    /// Adds what matches in the next row; false once the page is full.
    pub(crate) fn add(&mut self, row: LoggedRow) -> Result<bool, StoreError> {
        let LoggedRow { transaction, row, logged } = row;
        let is_full = match logged.filter(|logged| self.filter.has_channel(&logged.channel)) {
            None => false,
            Some(logged) => self.add_entries(transaction, row, &logged)?,
        };
        if !is_full {
            self.page.next = behind_row(transaction, row);
            self.page.rows += 1;
        }
        Ok(!is_full && self.page.events.len() < self.events_max)
    }

    /// The events that were added.
    pub(crate) fn into_page(self) -> DeliveryPage {
        self.page
    }

    /// Adds the entries behind where the page begins; true if it is full before the last one that matches.
    fn add_entries(
        &mut self,
        transaction: u64,
        row: u64,
        logged: &Logged,
    ) -> Result<bool, StoreError> {
        let groups = decode_log(&logged.entries)?;
        let matching = |group: &&LogGroup| self.filter.has_state(group.attempted.state);
        if !groups.iter().any(|group| matching(&group)) {
            return Ok(false);
        }
        let last = groups.iter().filter(matching).filter_map(|group| group.indexes.last()).max();
        let recipients = match (&logged.items, last) {
            (Some(items), Some(&last)) => recipients(items.clone(), last)?,
            (Some(_) | None, _) => Vec::new(),
        };
        let count = last.map_or(0, |last| usize::from(*last) + 1);
        let labels = BatchLabels::decode(logged.labels.clone(), count)?;
        let mut entry = 0_u64;
        for group in &groups {
            if !matching(&group) {
                entry += group.indexes.len() as u64;
                continue;
            }
            for &index in &group.indexes {
                entry += 1;
                let event = row << ENTRY_BITS | entry.min(ALL_ENTRIES - 1);
                let position = EventPosition { transaction, event };
                let labels = labels.of(index);
                if position <= self.from || !self.filter.has_tags(&labels) {
                    continue;
                }
                if self.page.events.len() >= self.events_max {
                    return Ok(true);
                }
                // Empty once it was removed.
                let recipient = recipients.get(usize::from(index)).filter(|it| !it.is_empty());
                self.page.next = position;
                self.page.events.push(DeliveryEvent {
                    position,
                    id: NotificationId::new(logged.accepted_at, self.store_id, logged.batch, index),
                    channel: logged.channel.clone(),
                    // A copy, so that an event does not keep all of its batch in memory.
                    recipient: recipient.map(|recipient| ByteString::from(&**recipient)),
                    attempted: group.attempted.clone(),
                    broadcast: logged.broadcast,
                    labels,
                });
            }
        }
        Ok(false)
    }
}

/// The first row of the log that may have events behind `position`.
pub(crate) fn first_row(position: EventPosition) -> u64 {
    let row = position.event >> ENTRY_BITS;
    if position.event & ALL_ENTRIES == ALL_ENTRIES { row + 1 } else { row }
}

/// The position behind all entries of the row numbered `row`.
pub(crate) fn behind_row(transaction: u64, row: u64) -> EventPosition {
    EventPosition { transaction, event: row << ENTRY_BITS | ALL_ENTRIES }
}

/// Recipients of a batch up to the one at index `last`, sharing the bytes of `items`.
fn recipients(items: Bytes, last: u16) -> Result<Vec<ByteString>, StoreError> {
    let mut items = Items::new(items)?;
    (0..=last).map(|_| items.read_recipient()).collect()
}

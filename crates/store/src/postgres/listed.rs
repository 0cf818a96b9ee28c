//! Recipients on the suppression list, as a writer knows them: those that are certainly not on it are not looked up.
//!
//! Other processes add to the list as well. Each claim therefore reads what was added since the one before it, in its own transaction,
//! and no earlier than it would look recipients up. Transactions end in another order than that of their numbers: what is read is
//! all that those added which had not ended when it was read last. What others added is read once, however long one of them runs: a
//! server counts transactions of all its databases.

use tokio_postgres::{Error, Row};

use crate::rows::recipient_filter::RecipientFilter;

/// Recipients on the list, as one writer knows them.
#[derive(Debug, Default)]
pub(super) struct ListedRecipients {
    filter: RecipientFilter,
    /// All that other transactions added is in the filter, or in the part of the list that is not read yet; `None` before the list is
    /// read at all.
    pub(super) unseen: Option<Unseen>,
    /// Channel and recipient behind which the list is not read yet; `None` if all of it is.
    pub(super) unread_behind: Option<(String, String)>,
}

/// Transactions of which nothing was seen, by their numbers.
#[derive(Debug, Clone)]
pub(super) struct Unseen {
    /// The first one that had not begun.
    pub(super) from: i64,
    /// Lower ones that had not ended, the reader's own among them.
    pub(super) running: Vec<i64>,
}

/// How much of the list a claim reads.
#[derive(Debug, Clone, Copy)]
pub(super) struct ListReading {
    /// Entries of the whole list at a time.
    pub(super) page: usize,
    /// Entries that were added. If there are more, the whole list is read again.
    pub(super) added: usize,
}

// === impl ListReading ===

impl ListReading {
    pub(super) const DEFAULT: Self = Self { page: 4_096, added: 16_384 };
}

// === impl ListedRecipients ===

impl ListedRecipients {
    /// True if the recipient may be on the list, as far as the list was read.
    pub(super) fn may_contain(&self, channel: &str, recipient: &str) -> bool {
        self.unseen.is_none()
            || self.unread_behind.is_some()
            || self.filter.may_contain(channel, recipient)
    }

    /// True if all of the list was read.
    #[cfg(test)]
    pub(super) fn is_complete(&self) -> bool {
        self.unseen.is_some() && self.unread_behind.is_none()
    }

    /// Takes in all that was `added` since it was told so last, or has the list read anew if that is nothing or too much to read at
    /// once. Of those that are `unseen` now it is told the next time.
    pub(super) fn add(
        &mut self,
        added: &[Row],
        unseen: Unseen,
        reading: ListReading,
    ) -> Result<(), Error> {
        if self.unseen.is_none() || added.len() > reading.added {
            let beginning = Some((String::new(), String::new()));
            *self = Self { unread_behind: beginning, ..Self::default() };
        } else {
            self.insert(added, 2)?;
        }
        self.unseen = Some(unseen);
        Ok(())
    }

    /// Takes in a page of the list, from where it is not read yet.
    pub(super) fn read(&mut self, page: &[Row], reading: ListReading) -> Result<(), Error> {
        let last = self.insert(page, 0)?;
        self.unread_behind = last.filter(|_| page.len() == reading.page);
        Ok(())
    }

    /// Takes entries in, with channel and recipient from `column` on; returns the last one.
    fn insert(&mut self, rows: &[Row], column: usize) -> Result<Option<(String, String)>, Error> {
        let mut last = None;
        for row in rows {
            let entry: (&str, &str) = (row.try_get(column)?, row.try_get(column + 1)?);
            self.filter.insert(entry.0, entry.1);
            last = Some(entry);
        }
        Ok(last.map(|(channel, recipient)| (channel.to_owned(), recipient.to_owned())))
    }
}

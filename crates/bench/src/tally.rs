//! The provider's journal against the workload: what arrived, how often, and how late.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read as _;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use provider_sim::journal::{JournalStatus, Reader};

use crate::workload::{Workload, number_of};

/// The provider's books about a workload.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Tally {
    /// Recipients that the provider accepted at least once.
    pub accepted: u64,
    /// Recipients that the provider refused and never accepted.
    pub refused: u64,
    /// Acceptances beyond the first, over all recipients.
    pub duplicates: u64,
    /// Most times that one recipient's request was processed, answered or not.
    pub processed_max: u32,
    /// Recipients that never appear as accepted or refused.
    pub missing: u64,
    /// When each recipient was first accepted, ascending, microseconds since the Unix epoch.
    pub accepted_at_us: Vec<u64>,
}

/// A journal, sorted by recipient.
#[derive(Debug)]
pub struct JournalBooks {
    tokens: Vec<RecipientTally>,
    endpoints: HashMap<String, RecipientTally>,
}

/// Counts the lines of a journal while it grows.
#[derive(Debug)]
pub struct JournalTail {
    file: File,
    buffer: Vec<u8>,
    lines: u64,
}

/// The fate of one recipient.
#[derive(Debug, Clone, Copy, Default)]
struct RecipientTally {
    accepted: u32,
    processed: u32,
    refused: bool,
    first_accepted_us: u64,
}

/// Between two looks at a journal.
const LOOK_EVERY: Duration = Duration::from_millis(100);

// === impl JournalBooks ===

impl JournalBooks {
    /// Reads the journal at `path`.
    ///
    /// # Errors
    /// When it cannot be read, or names a recipient that the workload does not have.
    pub fn read(path: &Path, workload: &Workload) -> Result<Self> {
        let mut books = Self {
            tokens: vec![RecipientTally::default(); usize::try_from(workload.tokens)?],
            endpoints: workload
                .webhooks
                .iter()
                .map(|hook| (hook.path.clone(), RecipientTally::default()))
                .collect(),
        };
        let mut journal = Reader::open(path)?;
        while let Some(record) = journal.next_record()? {
            let Some(seen) = books.seen(record.recipient) else {
                bail!("the provider was sent to a stranger: {}", record.recipient)
            };
            seen.note(record.status, record.received_us);
        }
        Ok(books)
    }

    /// Reads the journal at `path` once nothing more is being written into it.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn read_settled(path: &Path, workload: &Workload) -> Result<Self> {
        let mut journal = JournalTail::open(path)?;
        let mut lines = journal.lines()?;
        loop {
            std::thread::sleep(LOOK_EVERY);
            let later = journal.lines()?;
            if later == lines {
                return Self::read(path, workload);
            }
            lines = later;
        }
    }

    /// Reads the journal at `path`, whose recipients are numbered from 0 to below `count`; `number` reads the number of one.
    ///
    /// # Errors
    /// When it cannot be read, or names a recipient without such a number.
    pub fn read_numbered(
        path: &Path,
        count: u64,
        number: impl Fn(&str) -> Option<u64>,
    ) -> Result<Self> {
        let tokens = vec![RecipientTally::default(); usize::try_from(count)?];
        let mut books = Self { tokens, endpoints: HashMap::new() };
        let mut journal = Reader::open(path)?;
        while let Some(record) = journal.next_record()? {
            // A request for an access token has no recipient.
            if record.recipient == "-" {
                continue;
            }
            let place = number(record.recipient).and_then(|number| usize::try_from(number).ok());
            let Some(seen) = place.and_then(|place| books.tokens.get_mut(place)) else {
                bail!("the provider was sent to a stranger: {}", record.recipient)
            };
            seen.note(record.status, record.received_us);
        }
        Ok(books)
    }

    /// Counts all recipients.
    pub fn tally(&self) -> Tally {
        Tally::of(self.tokens.iter().chain(self.endpoints.values()))
    }

    /// Counts the device tokens of `numbers`.
    pub fn tally_of(&self, numbers: Range<u64>) -> Tally {
        let place = |number| usize::try_from(number).unwrap_or(usize::MAX);
        let range = place(numbers.start)..place(numbers.end);
        Tally::of(self.tokens.get(range).unwrap_or_default().iter())
    }

    fn seen(&mut self, recipient: &str) -> Option<&mut RecipientTally> {
        match self.endpoints.get_mut(recipient) {
            Some(seen) => Some(seen),
            None => self.tokens.get_mut(usize::try_from(number_of(recipient)?).ok()?),
        }
    }
}

// === impl Tally ===

impl Tally {
    fn of<'a>(everybody: impl Iterator<Item = &'a RecipientTally>) -> Self {
        let mut tally = Self::default();
        for seen in everybody {
            tally.add(*seen);
        }
        tally.accepted_at_us.sort_unstable();
        tally
    }

    /// The time by which `share` (0 to 1) of the accepted recipients were accepted, in microseconds since
    /// the Unix epoch.
    pub fn accepted_by_us(&self, share: f64) -> Option<u64> {
        let last = self.accepted_at_us.len().checked_sub(1)?;
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a rank of millions needs no more precision than a double has"
        )]
        let rank = (last as f64 * share.clamp(0.0, 1.0)).round() as usize;
        self.accepted_at_us.get(rank).copied()
    }

    fn add(&mut self, seen: RecipientTally) {
        self.processed_max = self.processed_max.max(seen.processed);
        self.duplicates += u64::from(seen.accepted.saturating_sub(1));
        if seen.accepted > 0 {
            self.accepted += 1;
            self.accepted_at_us.push(seen.first_accepted_us);
        } else if seen.refused {
            self.refused += 1;
        } else {
            self.missing += 1;
        }
    }
}

// === impl RecipientTally ===

impl RecipientTally {
    fn note(&mut self, status: JournalStatus, received_us: u64) {
        if status.is_accepted() {
            self.accepted += 1;
            if self.accepted == 1 {
                self.first_accepted_us = received_us;
            }
        }
        self.processed += u32::from(status.has_arrived());
        // These say no for good; after any other answer the recipient may still be reached.
        self.refused |= matches!(status, JournalStatus::Answered(400 | 404 | 410 | 413));
    }
}

// === impl JournalTail ===

impl JournalTail {
    /// Starts at the beginning of the journal at `path`.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn open(path: &Path) -> Result<Self> {
        let file = File::open(path).with_context(|| path.display().to_string())?;
        Ok(Self { file, buffer: vec![0; 1 << 20], lines: 0 })
    }

    /// Lines in the journal by now.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn lines(&mut self) -> Result<u64> {
        loop {
            let read = self.file.read(&mut self.buffer)?;
            if read == 0 {
                return Ok(self.lines);
            }
            let fresh = self.buffer.get(..read).unwrap_or_default();
            self.lines += (fresh.split(|byte| *byte == b'\n').count() - 1) as u64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{WebhookPayload, token};
    use std::io::Write as _;

    #[test]
    fn every_recipient_is_counted_once_and_every_repetition_apart() {
        let mut journal = tempfile::NamedTempFile::new().unwrap();
        let lines = [
            (10, "apns", "200", token(0)),
            (11, "apns", "503", token(1)),
            (12, "apns", "200", token(1)),
            (13, "apns", "drop", token(1)),
            (14, "apns", "200", token(1)),
            (15, "apns", "410", token(2)),
            (16, "webhook", "200", "/a".to_owned()),
        ];
        for (at, channel, status, recipient) in lines {
            writeln!(journal, "{at}\t{channel}\t{status}\tid\t{recipient}").unwrap();
        }
        let webhooks = vec![WebhookPayload { path: "/a".into(), payload: "{}".into() }];
        let books = JournalBooks::read(journal.path(), &Workload { tokens: 4, webhooks }).unwrap();
        let tally = books.tally();
        let counted = (tally.accepted, tally.refused, tally.duplicates, tally.missing);
        assert_eq!(counted, (3, 1, 1, 1));
        assert_eq!(tally.processed_max, 3, "an unanswered request was processed, too");
        assert_eq!(books.tally_of(2..4).accepted, 0);
        assert_eq!(tally.accepted_by_us(0.0), Some(10));
        assert_eq!(tally.accepted_by_us(1.0), Some(16));
        let stranger = Workload { tokens: 1, webhooks: Vec::new() };
        assert!(JournalBooks::read(journal.path(), &stranger).is_err());
    }
}

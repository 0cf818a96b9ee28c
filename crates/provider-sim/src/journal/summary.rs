//! The sums of a journal.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::BufRead;

use super::{JournalChannel, JournalRecord, JournalStatus, Reader};
use crate::Error;

/// The totals of a journal. Five million records take about 200 MiB while they are added up.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Summary {
    /// All records.
    pub records: u64,
    /// Records per status.
    pub by_status: BTreeMap<JournalStatus, u64>,
    /// Ids that reached their recipient, and how often.
    pub ids: Repeats,
    /// Recipients that were reached, and how often.
    pub recipients: Repeats,
    /// `received_us` of the earliest record; `None` when there is none.
    pub first_us: Option<u64>,
    /// `received_us` of the latest record.
    pub last_us: Option<u64>,
}

/// How often the same name occurs among the records that count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Repeats {
    /// Different names answered with success at least once.
    pub accepted: u64,
    /// Names answered with success more than once.
    pub accepted_twice: u64,
    /// Different names that arrived at least once: answered with success, or dropped unanswered.
    pub arrived: u64,
    /// Names that arrived more than once: the recipient saw a duplicate.
    pub arrived_twice: u64,
}

/// 127 bits of hash, and in the lowest bit whether it was answered with success.
#[derive(Default)]
struct Names(Vec<u128>);

impl Summary {
    /// Adds up everything `reader` still holds.
    ///
    /// # Errors
    /// Those of [`Reader::next_record`].
    pub fn read(reader: &mut Reader<impl BufRead>) -> Result<Self, Error> {
        let mut summary = Self::default();
        let (mut ids, mut recipients) = (Names::default(), Names::default());
        while let Some(record) = reader.next_record()? {
            summary.count(&record);
            if record.status.has_arrived() {
                ids.add(record.channel, record.id, record.status);
                recipients.add(record.channel, record.recipient, record.status);
            }
        }
        summary.ids = ids.repeats();
        summary.recipients = recipients.repeats();
        Ok(summary)
    }

    /// Records answered with success.
    pub fn accepted(&self) -> u64 {
        self.by_status
            .iter()
            .filter(|(status, _)| status.is_accepted())
            .map(|(_, count)| count)
            .sum()
    }

    fn count(&mut self, record: &JournalRecord<'_>) {
        let received_us = Some(record.received_us);
        self.records += 1;
        *self.by_status.entry(record.status).or_default() += 1;
        // `min` would take `None` for the least.
        self.first_us =
            if self.first_us.is_none() { received_us } else { self.first_us.min(received_us) };
        self.last_us = self.last_us.max(received_us);
    }
}

impl Names {
    fn add(&mut self, channel: JournalChannel, name: &str, status: JournalStatus) {
        // The hasher of the standard library gives 64 bits.
        let half = |salt: u8| {
            let mut hasher = DefaultHasher::new();
            (salt, channel, name).hash(&mut hasher);
            u128::from(hasher.finish())
        };
        let hash = half(0) << 64 | half(1);
        self.0.push(hash & !1 | u128::from(status.is_accepted()));
    }

    fn repeats(mut self) -> Repeats {
        self.0.sort_unstable();
        let mut repeats = Repeats::default();
        for group in self.0.chunk_by(|left, right| left >> 1 == right >> 1) {
            let accepted = group.iter().filter(|name| **name & 1 == 1).count();
            repeats.arrived += 1;
            repeats.arrived_twice += u64::from(group.len() > 1);
            repeats.accepted += u64::from(accepted > 0);
            repeats.accepted_twice += u64::from(accepted > 1);
        }
        repeats
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duplicates_are_counted_by_what_the_recipient_saw() {
        let journal = "\
            20\tapns\t200\ta\tt1\n\
            10\tapns\t200\tb\tt2\n\
            30\tapns\t200\ta\tt1\n\
            40\tapns\tdrop\tc\tt3\n\
            50\tapns\t200\tc\tt3\n\
            60\tapns\trefuse\td\tt4\n\
            70\tapns\t200\td\tt4\n\
            80\tapns\t410\te\tt5\n\
            90\twebhook\t200\ta\tt1\n\
            95\tapns\tdrop\tf\tt1\n";
        let summary = Summary::read(&mut Reader::new(journal.as_bytes())).unwrap();
        assert_eq!(summary.records, 10);
        assert_eq!(summary.accepted(), 6);
        assert_eq!((summary.first_us, summary.last_us), (Some(10), Some(95)));
        assert_eq!(summary.by_status.get(&JournalStatus::Drop), Some(&2));
        let expect = Repeats { accepted: 5, accepted_twice: 1, arrived: 6, arrived_twice: 2 };
        assert_eq!(summary.ids, expect);
        let expect = Repeats { accepted: 5, accepted_twice: 1, arrived: 5, arrived_twice: 2 };
        assert_eq!(summary.recipients, expect);
    }

    #[test]
    fn an_empty_journal_adds_up_to_nothing() {
        let summary = Summary::read(&mut Reader::new(&b""[..])).unwrap();
        assert_eq!(summary, Summary::default());
    }
}

//! Reads a journal in constant memory, also while it is being written.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use super::{JournalChannel, JournalRecord, JournalStatus};
use crate::Error;

const BUFFER_BYTES: usize = 1 << 18;

/// A reader over the records of a journal.
///
/// A last line without its end was torn by a crash, or is being written: it is not a record.
#[derive(Debug)]
pub struct Reader<R = BufReader<File>> {
    source: R,
    line: Vec<u8>,
    lines_read: u64,
}

impl Reader {
    /// Opens the journal at `path`.
    ///
    /// # Errors
    /// When the file cannot be opened.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        let file = File::open(path).map_err(Error::JournalRead)?;
        Ok(Self::new(BufReader::with_capacity(BUFFER_BYTES, file)))
    }
}

impl<R: BufRead> Reader<R> {
    /// Reads records from `source`.
    pub const fn new(source: R) -> Self {
        Self { source, line: Vec::new(), lines_read: 0 }
    }

    /// The next record, `None` at the end. The record lives until the next call.
    ///
    /// # Errors
    /// When the source cannot be read, or a whole line is not a record.
    pub fn next_record(&mut self) -> Result<Option<JournalRecord<'_>>, Error> {
        self.line.clear();
        self.source.read_until(b'\n', &mut self.line).map_err(Error::JournalRead)?;
        let Some((b'\n', line)) = self.line.split_last() else {
            return Ok(None);
        };
        self.lines_read += 1;
        match parse(line) {
            Some(record) => Ok(Some(record)),
            None => Err(Error::JournalLine { line: self.lines_read }),
        }
    }
}

fn parse(line: &[u8]) -> Option<JournalRecord<'_>> {
    let mut fields = str::from_utf8(line).ok()?.split('\t');
    let record = JournalRecord {
        received_us: fields.next()?.parse().ok()?,
        channel: match fields.next()? {
            "apns" => JournalChannel::Apns,
            "webhook" => JournalChannel::Webhook,
            "webpush" => JournalChannel::WebPush,
            "fcm" => JournalChannel::Fcm,
            "smtp" => JournalChannel::Smtp,
            _ => return None,
        },
        status: match fields.next()? {
            "drop" => JournalStatus::Drop,
            "refuse" => JournalStatus::Refuse,
            code => JournalStatus::Answered(code.parse().ok()?),
        },
        id: fields.next()?,
        recipient: fields.next()?,
    };
    fields.next().is_none().then_some(record)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "17\tapns\t200\tid-1\ttoken\n18\twebhook\tdrop\tid-2\t/hook\n";

    #[test]
    fn records_come_back_as_written() {
        let mut reader = Reader::new(GOOD.as_bytes());
        let first = reader.next_record().unwrap().unwrap();
        assert_eq!((first.received_us, first.channel), (17, JournalChannel::Apns));
        assert_eq!(first.status, JournalStatus::Answered(200));
        let second = reader.next_record().unwrap().unwrap();
        assert_eq!((second.id, second.recipient), ("id-2", "/hook"));
        assert_eq!(second.status, JournalStatus::Drop);
        assert!(reader.next_record().unwrap().is_none());
    }

    #[test]
    fn a_torn_last_line_is_the_end() {
        for cut in 1..22 {
            let torn = GOOD.get(..GOOD.len() - cut).unwrap();
            let mut reader = Reader::new(torn.as_bytes());
            assert!(reader.next_record().unwrap().is_some());
            assert!(reader.next_record().unwrap().is_none(), "{torn:?}");
        }
    }

    #[test]
    fn a_damaged_line_is_named() {
        let check = |line: &str| {
            let text = format!("{GOOD}{line}\n{GOOD}");
            let mut reader = Reader::new(text.as_bytes());
            let mut next = || reader.next_record().map(|record| record.is_some());
            assert!(next().unwrap() && next().unwrap());
            assert!(matches!(next(), Err(Error::JournalLine { line: 3 })), "{line:?}");
        };
        check("");
        check("19\tapns\t200\tid");
        check("19\tapns\t200\tid\ttoken\textra");
        check("19\tpigeon\t200\tid\ttoken");
        check("19\tapns\tmaybe\tid\ttoken");
        check("soon\tapns\t200\tid\ttoken");
    }
}

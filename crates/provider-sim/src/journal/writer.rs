//! Appends records in groups: everything that arrived in one turn of the event loop is one write.
//!
//! Each serving thread has its own [`Journal`] over one shared file. A connection adds its records
//! and waits; [`Journal::keep_writing`] runs after the connections that are ready, writes what they
//! added at once, and wakes them to answer. With `fsync` the write and the flush happen on a
//! blocking thread, and what arrives meanwhile is the next group.

use std::cell::RefCell;
use std::fs::{File, OpenOptions, TryLockError};
use std::future::poll_fn;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::mem;
use std::path::Path;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use super::{FIELD_BYTES_MAX, JournalRecord};
use crate::Error;

/// Opens `path` for appending, alone, and cuts off a torn last line.
pub(crate) fn open(path: &Path) -> Result<File, Error> {
    let failed = |source| Error::Journal { path: path.to_owned(), source };
    let mut file =
        OpenOptions::new().read(true).append(true).create(true).open(path).map_err(failed)?;
    // Before anything is cut off: what looks torn may be a line that another process is writing.
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            return Err(Error::JournalInUse { path: path.to_owned() });
        }
        Err(TryLockError::Error(source)) => return Err(failed(source)),
    }
    let whole_bytes = whole_lines_bytes(&mut file).map_err(failed)?;
    file.set_len(whole_bytes).and_then(|()| file.sync_all()).map_err(failed)?;
    Ok(file)
}

/// The journal as one serving thread sees it.
#[derive(Debug)]
pub(crate) struct Journal {
    file: Arc<File>,
    fsync: bool,
    state: RefCell<JournalState>,
}

#[derive(Debug, Default)]
struct JournalState {
    lines: Vec<u8>,
    /// Records added so far, and how many of them are written.
    added: u64,
    written: u64,
    answering: Vec<Waker>,
    writing: Option<Waker>,
}

impl Journal {
    pub(crate) fn new(file: Arc<File>, fsync: bool) -> Self {
        Self { file, fsync, state: RefCell::default() }
    }

    /// Adds a record, and returns its number for [`Journal::poll_written`].
    pub(crate) fn add(&self, record: &JournalRecord<'_>) -> u64 {
        let mut state = self.state.borrow_mut();
        push_line(&mut state.lines, record);
        state.added += 1;
        // Once for a group: until that is taken, further records need no wake-up.
        if let Some(writing) = state.writing.take() {
            writing.wake();
        }
        state.added
    }

    /// Ready once record `number` is written.
    pub(crate) fn poll_written(&self, number: u64, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.state.borrow_mut();
        if number <= state.written {
            return Poll::Ready(());
        }
        let waker = context.waker();
        // Once for all records of a connection's turn: it asks for each of them.
        if !state.answering.last().is_some_and(|last| last.will_wake(waker)) {
            state.answering.push(waker.clone());
        }
        Poll::Pending
    }

    /// Writes what is added, group after group. Returns only on an error.
    pub(crate) async fn keep_writing(&self) -> io::Error {
        let mut group = Vec::new();
        loop {
            let number = self.take_group(&mut group).await;
            group = match self.write(group).await {
                Ok(written) => written,
                Err(error) => return error,
            };
            group.clear();
            let mut state = self.state.borrow_mut();
            // Before the wake-ups: those that are woken look at it.
            state.written = number;
            state.answering.drain(..).for_each(Waker::wake);
        }
    }

    /// Writes what is added right now, on this thread: for the end of the thread.
    pub(crate) fn write_rest(&self) -> io::Result<()> {
        let lines = mem::take(&mut self.state.borrow_mut().lines);
        (&*self.file).write_all(&lines)?;
        if self.fsync { self.file.sync_data() } else { Ok(()) }
    }

    /// Waits until there are lines, moves them to `group`, and returns the number of the last one.
    async fn take_group(&self, group: &mut Vec<u8>) -> u64 {
        poll_fn(|context| {
            let mut state = self.state.borrow_mut();
            if state.lines.is_empty() {
                state.writing = Some(context.waker().clone());
                return Poll::Pending;
            }
            mem::swap(&mut state.lines, group);
            Poll::Ready(state.added)
        })
        .await
    }

    async fn write(&self, group: Vec<u8>) -> io::Result<Vec<u8>> {
        // Into the page cache, which waits for no disk: this thread can do it.
        if !self.fsync {
            (&*self.file).write_all(&group)?;
            return Ok(group);
        }
        let file = Arc::clone(&self.file);
        let write = move || {
            (&*file).write_all(&group)?;
            file.sync_data()?;
            Ok(group)
        };
        tokio::task::spawn_blocking(write).await?
    }
}

fn push_line(lines: &mut Vec<u8>, record: &JournalRecord<'_>) {
    let JournalRecord { received_us, channel, status, id, recipient } = record;
    // Writing to a vector cannot fail.
    drop(write!(lines, "{received_us}\t{channel}\t{status}\t"));
    push_field(lines, id);
    lines.push(b'\t');
    push_field(lines, recipient);
    lines.push(b'\n');
}

fn push_field(lines: &mut Vec<u8>, field: &str) {
    let bytes = field.bytes().take(FIELD_BYTES_MAX);
    lines.extend(bytes.map(|byte| if byte.is_ascii_graphic() { byte } else { b'?' }));
    if field.is_empty() {
        lines.push(b'-');
    }
}

/// The length of `file` up to its last line feed.
fn whole_lines_bytes(file: &mut File) -> io::Result<u64> {
    let mut block = [0; 4096];
    let mut end = file.seek(SeekFrom::End(0))?;
    while end > 0 {
        // From behind: a journal may have gigabytes, and a torn line is short.
        let start = end.saturating_sub(4096);
        file.seek(SeekFrom::Start(start))?;
        let wanted = usize::try_from(end - start).map_err(io::Error::other)?;
        let Some(part) = block.get_mut(..wanted) else {
            break;
        };
        file.read_exact(part)?;
        if let Some(position) = part.iter().rposition(|byte| *byte == b'\n') {
            let position = u64::try_from(position).map_err(io::Error::other)?;
            return Ok(start + position + 1);
        }
        end = start;
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use super::*;
    use crate::journal::{JournalChannel, JournalStatus, Reader};

    fn line(record: &JournalRecord<'_>) -> String {
        let mut lines = Vec::new();
        push_line(&mut lines, record);
        String::from_utf8(lines).unwrap()
    }

    #[test]
    fn a_line_survives_hostile_names() {
        let long = "x".repeat(5000);
        let check = |id, expect: &str| {
            let record = JournalRecord {
                received_us: 1,
                channel: JournalChannel::Webhook,
                status: JournalStatus::Answered(200),
                id,
                recipient: "/hook",
            };
            let line = line(&record);
            let mut reader = Reader::new(line.as_bytes());
            assert_eq!(reader.next_record().unwrap().unwrap().id, expect);
        };
        check("plain", "plain");
        check("two\tfields\nand lines", "two?fields?and?lines");
        check("ünï", "??n??");
        check("", "-");
        check(&long, &"x".repeat(FIELD_BYTES_MAX));
    }

    #[test]
    fn a_torn_last_line_is_cut_off_at_the_next_start() {
        let whole = "1\tapns\t200\tid\ttoken\n";
        let check = |torn: String| {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("journal");
            std::fs::write(&path, format!("{whole}{torn}")).unwrap();
            let mut file = open(&path).unwrap();
            file.write_all(whole.as_bytes()).unwrap();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), whole.repeat(2));
        };
        check(String::new());
        check("2\tapns\t2".to_owned());
        check("x".repeat(4096));
        check("x".repeat(10_000));
    }

    #[test]
    fn a_journal_of_one_torn_line_becomes_empty() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("journal");
        std::fs::write(&path, "1\tap").unwrap();
        open(&path).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"");
    }

    const RECORD: JournalRecord<'_> = JournalRecord {
        received_us: 1,
        channel: JournalChannel::Apns,
        status: JournalStatus::Answered(200),
        id: "id",
        recipient: "token",
    };

    #[test]
    fn a_record_counts_as_written_when_its_group_is_in_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("journal");
        let journal = Journal::new(Arc::new(open(&path).unwrap()), false);
        let mut context = Context::from_waker(Waker::noop());
        let mut writing = pin!(journal.keep_writing());
        let numbers = [journal.add(&RECORD), journal.add(&RECORD)];
        assert!(journal.poll_written(numbers[0], &mut context).is_pending());
        assert!(writing.as_mut().poll(&mut context).is_pending());
        assert!(journal.poll_written(numbers[1], &mut context).is_ready());
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text, "1\tapns\t200\tid\ttoken\n".repeat(2));
    }

    #[test]
    fn a_record_that_cannot_be_written_is_never_answered() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("journal");
        std::fs::write(&path, "").unwrap();
        let read_only = File::open(&path).unwrap();
        let journal = Journal::new(Arc::new(read_only), false);
        let mut context = Context::from_waker(Waker::noop());
        let number = journal.add(&RECORD);
        let ended = pin!(journal.keep_writing()).poll(&mut context);
        assert!(matches!(ended, Poll::Ready(_)));
        assert!(journal.poll_written(number, &mut context).is_pending());
    }

    #[test]
    fn a_second_writer_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("journal");
        let _first = open(&path).unwrap();
        assert!(matches!(open(&path), Err(Error::JournalInUse { .. })));
    }
}

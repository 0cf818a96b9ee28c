//! Reads rows on a thread of its own and hands them over in batches.

use std::io::{self, BufRead, BufReader};
use std::path::Path;

use anyhow::Context as _;
use tokio::sync::mpsc::Sender;

use crate::exit::{CliError, FailureKind};
use crate::input;

use super::args::{ImportArgs, ImportFormat, OnError};
use super::csv::Csv;
use super::name;
use super::ndjson::Ndjson;
use super::row::{BadRow, ImportRow, Rows};

/// Rows in one request, the size that a store keeps in one row.
const BATCH_ROWS: usize = notification::limits::BATCH_ITEMS;
/// Bytes in one request, well under what the engine takes.
const BATCH_BYTES: usize = notification::limits::REQUEST_BYTES / 4;

/// Rows that are sent together.
#[derive(Debug, Default)]
pub(super) struct ImportBatch {
    /// In the order of the file; never empty.
    pub(super) rows: Vec<ImportRow>,
    /// Bytes of the file up to the end of the batch.
    pub(super) end_offset: u64,
    bytes: usize,
}

/// A message of the reader.
#[derive(Debug)]
pub(super) enum Read {
    /// Rows to send.
    Batch(ImportBatch),
    /// A row that cannot be sent. Comes after all rows before it.
    Bad(BadRow),
    /// The file cannot be read on.
    Failed {
        /// From which line on.
        line: u64,
        /// The error of the operating system.
        error: io::Error,
    },
}

/// An open file.
pub(super) struct BatchReading {
    pub(super) rows: Box<dyn Rows>,
    /// The size of the file, if it is known.
    pub(super) bytes: Option<u64>,
    from_line: u64,
    key_prefix: Option<String>,
    stops: bool,
}

// === impl BatchReading ===

impl BatchReading {
    /// Opens the file, and reads its header if it has one.
    pub(super) fn open(args: &ImportArgs) -> anyhow::Result<Self> {
        let (input, bytes) = input::open(&args.file).map_err(|error| {
            let message = format!("cannot read {}: {error}", args.file.display());
            CliError::new(FailureKind::BadInput, message)
        })?;
        let mut input = BufReader::with_capacity(256 * 1024, input);
        let start =
            input.fill_buf().with_context(|| format!("cannot read {}", name(&args.file)))?;
        // The byte order mark that spreadsheets write is no part of the first row.
        if start.starts_with(b"\xef\xbb\xbf") {
            input.consume(3);
        }
        let rows: Box<dyn Rows> = match args.format.unwrap_or_else(|| format_of(&args.file)) {
            ImportFormat::Ndjson => Box::new(Ndjson::new(input)),
            ImportFormat::Csv => Box::new(Csv::new(input, &name(&args.file))?),
        };
        let stops = args.on_error == OnError::Stop;
        let key_prefix = args.idempotency_prefix.clone();
        Ok(Self { rows, bytes, from_line: args.from_line, key_prefix, stops })
    }

    /// Reads to the end, or until the receiver is gone.
    pub(super) fn run(mut self, reads: &Sender<Read>) {
        let mut batch = ImportBatch::default();
        loop {
            // Taken before the read: when that fails, it is the line to go on from.
            let line = self.rows.next_line();
            let read = match self.rows.next(self.from_line) {
                Ok(Some(Ok(row))) => {
                    batch.add(self.keyed(row), self.rows.offset());
                    if batch.is_full() && !hand_over(&mut batch, reads) {
                        return;
                    }
                    continue;
                }
                Ok(Some(Err(bad))) => Some(Read::Bad(bad)),
                Ok(None) => None,
                Err(error) => Some(Read::Failed { line, error }),
            };
            let ends = match &read {
                Some(Read::Bad(bad)) => self.stops || bad.hides_the_rest,
                _ => true,
            };
            // When rows are skipped, a bad one is no reason to send a small batch.
            if ends && !hand_over(&mut batch, reads) {
                return;
            }
            let is_taken = read.is_none_or(|read| reads.blocking_send(read).is_ok());
            if ends || !is_taken {
                return;
            }
        }
    }

    fn keyed(&self, row: ImportRow) -> ImportRow {
        match &self.key_prefix {
            Some(prefix) => {
                let key = format!("{prefix}{}", row.line);
                row.key(&key)
            }
            None => row,
        }
    }
}

// === impl ImportBatch ===

impl ImportBatch {
    fn add(&mut self, row: ImportRow, end_offset: u64) {
        self.bytes += row.json.len();
        self.end_offset = end_offset;
        self.rows.push(row);
    }

    fn is_full(&self) -> bool {
        self.rows.len() >= BATCH_ROWS || self.bytes >= BATCH_BYTES
    }
}

/// Says whether the receiver is still there.
fn hand_over(batch: &mut ImportBatch, reads: &Sender<Read>) -> bool {
    batch.rows.is_empty() || reads.blocking_send(Read::Batch(std::mem::take(batch))).is_ok()
}

fn format_of(file: &Path) -> ImportFormat {
    let is_csv = file.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("csv"));
    if is_csv { ImportFormat::Csv } else { ImportFormat::Ndjson }
}

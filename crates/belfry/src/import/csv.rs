//! CSV with a header that names fields (RFC 4180: quoted cells may hold commas, quotes and line ends).

use std::collections::BTreeMap;
use std::io::{self, BufRead};

use csv_core::{ReadRecordResult, Reader};
use notification::limits::LINE_BYTES;
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

use crate::exit::{CliError, FailureKind};

use super::row::{BadRow, ImportRow, Parsed, Rows};

/// More columns than there can be fields.
const COLUMNS: usize = 256;

/// The fields that a column may hold, as a text.
const TEXT_FIELDS: [&str; 10] = [
    "channel",
    "to",
    "template",
    "guarantee",
    "priority",
    "send_at",
    "expires_at",
    "late",
    "idempotency_key",
    "external_id",
];
const JSON_FIELDS: [&str; 6] = ["content", "options", "variables", "fallback", "tags", "metadata"];

/// Reads a file row by row. A row longer than [`LINE_BYTES`] is read to its end and not kept.
#[derive(Debug)]
pub(super) struct Csv<R> {
    records: Records<R>,
    header: Vec<u8>,
    columns: Vec<Column>,
}

/// Where a cell goes.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Column {
    /// The field, and the way within a JSON field.
    steps: Vec<String>,
    /// True if its cells hold JSON, and no text.
    is_json: bool,
}

/// The fields that the cells of a row make together.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum CsvField {
    /// The text of a cell as JSON, or the JSON of a cell as it is written.
    Leaf(Box<RawValue>),
    Object(CsvFields),
}

type CsvFields = BTreeMap<String, CsvField>;

/// Cuts a file into records, in constant memory.
#[derive(Debug)]
struct Records<R> {
    input: R,
    core: Box<Reader>,
    cells: Vec<u8>,
    ends: Vec<usize>,
    raw: Vec<u8>,
    /// Line ends read so far.
    lines: u64,
    offset: u64,
}

/// One record as it was cut. Its cells are in [`Records`].
#[derive(Debug, Default)]
struct CsvRecord {
    line: u64,
    bytes: usize,
    cells: usize,
    is_too_long: bool,
    has_line_ends: bool,
}

// === impl Csv ===

impl<R: BufRead> Csv<R> {
    /// Reads the header of `input`, called `name` in messages.
    pub(super) fn new(input: R, name: &str) -> anyhow::Result<Self> {
        let mut records = Records::new(input);
        let refuse = |message: String| {
            CliError::new(FailureKind::BadInput, format!("{name}:1: the header {message}"))
        };
        let Some(record) = records.next()? else {
            return Err(refuse("is missing: it names the fields of the columns".to_owned()).into());
        };
        let mut columns = Vec::new();
        for cell in records.cells(&record) {
            let column =
                std::str::from_utf8(cell).map_err(|_| refuse("is not UTF-8".to_owned()))?;
            columns.push(Column::parse(column).map_err(refuse)?);
        }
        if let Some(twice) = columns.iter().enumerate().find_map(|(i, column)| {
            columns.iter().take(i).any(|other| other == column).then_some(column)
        }) {
            return Err(refuse(format!("names a column twice: `{}`", twice.name())).into());
        }
        let header = without_line_end(&records.raw).to_vec();
        Ok(Self { records, header, columns })
    }

    fn row(&self, record: &CsvRecord) -> Parsed {
        if record.is_too_long {
            return Err(too_long(record));
        }
        let raw = without_line_end(&self.records.raw).to_vec();
        let refuse = |field: &str, message: String| {
            Err(BadRow::new(record.line, field, message).with(raw.clone()))
        };
        if record.cells != self.columns.len() {
            let (cells, columns) = (record.cells, self.columns.len());
            return refuse(
                "",
                format!("has {cells} cells, and the header names {columns} columns"),
            );
        }
        let mut fields = CsvFields::new();
        for (column, cell) in self.columns.iter().zip(self.records.cells(record)) {
            let Ok(cell) = std::str::from_utf8(cell) else {
                return refuse(
                    &column.name(),
                    "is not UTF-8: convert the file to UTF-8".to_owned(),
                );
            };
            if let Err(message) = column.put(cell, &mut fields) {
                return refuse(&column.name(), message);
            }
        }
        match serde_json::to_string(&fields) {
            Ok(json) => Ok(ImportRow::made(record.line, json, raw)),
            Err(error) => refuse("", format!("cannot be written as JSON: {error}")),
        }
    }
}

impl<R: BufRead + Send> Rows for Csv<R> {
    fn next(&mut self, from: u64) -> io::Result<Option<Parsed>> {
        while let Some(record) = self.records.next()? {
            if record.line >= from {
                return Ok(Some(self.row(&record)));
            }
        }
        Ok(None)
    }

    fn next_line(&self) -> u64 {
        self.records.lines + 1
    }

    fn offset(&self) -> u64 {
        self.records.offset
    }

    fn header(&self) -> Option<&[u8]> {
        Some(&self.header)
    }
}

// === impl Column ===

impl Column {
    fn parse(name: &str) -> Result<Self, String> {
        let steps: Vec<String> = name.split('.').map(str::to_owned).collect();
        let is_json = JSON_FIELDS.contains(&name);
        let is_nested = steps.first().is_some_and(|first| JSON_FIELDS.contains(&first.as_str()))
            && steps.iter().all(|step| !step.is_empty());
        if is_json || is_nested || TEXT_FIELDS.contains(&name) {
            return Ok(Self { steps, is_json });
        }
        let known = [TEXT_FIELDS.as_slice(), &JSON_FIELDS].concat().join(", ");
        Err(format!(
            "names the unknown column `{name}`; known are {known}, parts such as content.aps.alert, and variables.NAME"
        ))
    }

    fn name(&self) -> String {
        self.steps.join(".")
    }

    /// Puts `cell` where it belongs; an empty one nowhere.
    fn put(&self, cell: &str, fields: &mut CsvFields) -> Result<(), String> {
        if cell.is_empty() {
            return Ok(());
        }
        let clash = || "is given by another column, too: leave one of them empty".to_owned();
        let wrong = |error| format!("is not JSON: {error}");
        let leaf = if self.is_json {
            // A row of JSON is one line, and in JSON line ends are spaces.
            RawValue::from_string(cell.replace(['\r', '\n'], " "))
        } else {
            to_raw_value(cell)
        };
        nest(fields, &self.steps, leaf.map_err(wrong)?).ok_or_else(clash)
    }
}

/// Makes the objects on the way to the last of `steps`. `None` when something else is there already.
fn nest(fields: &mut CsvFields, steps: &[String], leaf: Box<RawValue>) -> Option<()> {
    match steps {
        [] => None,
        [last] if fields.contains_key(last) => None,
        [last] => {
            fields.insert(last.clone(), CsvField::Leaf(leaf));
            Some(())
        }
        [step, rest @ ..] => {
            let inner = fields.entry(step.clone());
            match inner.or_insert_with(|| CsvField::Object(CsvFields::new())) {
                CsvField::Object(fields) => nest(fields, rest, leaf),
                CsvField::Leaf(_) => None,
            }
        }
    }
}

// === impl Records ===

impl<R: BufRead> Records<R> {
    fn new(input: R) -> Self {
        Self {
            input,
            core: Box::new(Reader::new()),
            cells: vec![0; LINE_BYTES],
            ends: vec![0; COLUMNS],
            raw: Vec::new(),
            lines: 0,
            offset: 0,
        }
    }

    /// Cuts the next record. Line ends before it end the one before it, or are empty lines.
    fn next(&mut self) -> io::Result<Option<CsvRecord>> {
        self.raw.clear();
        let mut record = CsvRecord::default();
        let mut filled = 0;
        loop {
            let input = self.input.fill_buf()?;
            let room = self.cells.get_mut(filled..).unwrap_or_default();
            let ends = self.ends.get_mut(record.cells..).unwrap_or_default();
            let (result, read, wrote, ended) = self.core.read_record(input, room, ends);
            let mut bytes = input.get(..read).unwrap_or_default();
            if record.bytes == 0 {
                let leading = bytes.iter().take_while(|byte| is_line_end(**byte)).count();
                let (before, rest) = bytes.split_at(leading);
                self.lines += line_ends(before);
                bytes = rest;
                record.line = self.lines + 1;
            }
            self.lines += line_ends(bytes);
            self.offset += read as u64;
            record.bytes += bytes.len();
            record.cells += ended;
            filled += wrote;
            if !record.is_too_long {
                self.raw.extend(bytes);
            }
            // The line end that ends the record is none within it.
            let own = u64::from(bytes.last() == Some(&b'\n'));
            record.has_line_ends = self.lines + 1 > record.line + own;
            self.input.consume(read);
            match result {
                // At the end of the file as well: of an empty input the core makes the last record, and then the end.
                ReadRecordResult::InputEmpty => {}
                ReadRecordResult::OutputFull | ReadRecordResult::OutputEndsFull => {
                    // Read to its end over the same buffers, so that the next row is found.
                    (filled, record.cells, record.is_too_long) = (0, 0, true);
                }
                ReadRecordResult::Record => break,
                ReadRecordResult::End => return Ok(None),
            }
        }
        Ok(Some(record))
    }

    fn cells(&self, record: &CsvRecord) -> impl Iterator<Item = &[u8]> {
        let ends = self.ends.iter().take(record.cells);
        let starts = std::iter::once(&0).chain(self.ends.iter());
        starts.zip(ends).map(|(start, end)| self.cells.get(*start..*end).unwrap_or_default())
    }
}

fn too_long(record: &CsvRecord) -> BadRow {
    let size = format!("has more than {LINE_BYTES} bytes or {COLUMNS} columns");
    if !record.has_line_ends {
        return BadRow::new(record.line, "", size);
    }
    // A quote that is never closed takes everything behind it for one cell: nothing of that may be skipped.
    let message = format!("{size} on several lines: is a quote left open?");
    BadRow { hides_the_rest: true, ..BadRow::new(record.line, "", message) }
}

fn without_line_end(raw: &[u8]) -> &[u8] {
    let end = raw.iter().rposition(|byte| !is_line_end(*byte)).map_or(0, |last| last + 1);
    raw.get(..end).unwrap_or_default()
}

fn is_line_end(byte: u8) -> bool {
    matches!(byte, b'\n' | b'\r')
}

fn line_ends(bytes: &[u8]) -> u64 {
    bytes.split(|byte| *byte == b'\n').skip(1).count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(file: &[u8]) -> anyhow::Result<Csv<io::BufReader<&[u8]>>> {
        Csv::new(io::BufReader::with_capacity(5, file), "f.csv")
    }

    fn rows(file: &[u8]) -> Vec<Parsed> {
        let mut csv = open(file).unwrap();
        std::iter::from_fn(|| csv.next(1).unwrap()).collect()
    }

    #[test]
    fn cells_become_fields_and_empty_ones_are_left_out() {
        let file = b"channel,to,content,late\r\nios,a,\"{\"\"aps\"\":1}\",\r\nios,b,[],skip";
        let json: Vec<String> = rows(file).into_iter().map(|row| row.unwrap().json).collect();
        assert_eq!(
            json,
            [
                r#"{"channel":"ios","content":{"aps":1},"to":"a"}"#,
                r#"{"channel":"ios","content":[],"late":"skip","to":"b"}"#
            ]
        );
    }

    #[test]
    fn json_in_a_cell_stays_as_it_is_written_but_for_its_line_ends() {
        let rows =
            rows(b"to,content\na,\"{\"\"b\"\": 1.10,\r\n\"\"a\"\":12345678901234567890123}\"\n");
        assert_eq!(
            rows[0].as_ref().unwrap().json,
            r#"{"content":{"b": 1.10,  "a":12345678901234567890123},"to":"a"}"#
        );
    }

    #[test]
    fn dotted_columns_are_put_together() {
        let rows = rows(b"to,content.aps.alert.title,content.aps.alert.body\na,T,B\n");
        assert_eq!(
            rows[0].as_ref().unwrap().json,
            r#"{"content":{"aps":{"alert":{"body":"B","title":"T"}}},"to":"a"}"#
        );
    }

    #[test]
    fn a_column_is_a_variable_when_it_is_named_as_one() {
        let rows = rows(b"channel,to,template,variables.name,variables.n\nios,a,welcome,Ann,\n");
        assert_eq!(
            rows[0].as_ref().unwrap().json,
            r#"{"channel":"ios","template":"welcome","to":"a","variables":{"name":"Ann"}}"#
        );
    }

    #[test]
    fn lines_are_counted_through_quoted_line_ends_and_empty_lines() {
        let rows = rows(b"to,content.a\nx,\"1\n2\r\n3\"\n\n\r\ny,z\nbad\n");
        let lines: Vec<u64> = rows
            .iter()
            .map(|row| row.as_ref().map_or_else(|bad| bad.line, |row| row.line))
            .collect();
        assert_eq!(lines, [2, 7, 8]);
        let bad = rows[2].as_ref().unwrap_err();
        assert_eq!(bad.message, "has 1 cells, and the header names 2 columns");
        assert_eq!(bad.raw.as_deref(), Some(b"bad".as_slice()));
    }

    #[test]
    fn a_bad_cell_is_named_by_its_column() {
        let check = |row: &[u8], expect: &str| {
            let file = [b"to,content,content.a\n", row].concat();
            assert_eq!(rows(&file)[0].as_ref().unwrap_err().to_string(), expect);
        };
        check(b"a\xff,,", "field `to`: is not UTF-8: convert the file to UTF-8");
        check(
            b"a,1,x",
            "field `content.a`: is given by another column, too: leave one of them empty",
        );
        check(
            b"a,{,",
            "field `content`: is not JSON: EOF while parsing an object at line 1 column 1",
        );
    }

    #[test]
    fn a_header_that_names_no_field_is_refused() {
        let check = |header: &[u8], expect: &str| {
            let error = open(header).unwrap_err().to_string();
            assert!(error.starts_with(expect), "{error}");
        };
        check(b"to,subject\n", "f.csv:1: the header names the unknown column `subject`");
        check(b"to,to\n", "f.csv:1: the header names a column twice: `to`");
        check(b"content.\n", "f.csv:1: the header names the unknown column `content.`");
        check(b"", "f.csv:1: the header is missing");
    }

    #[test]
    fn a_row_that_is_too_long_is_passed_over_unless_a_quote_may_be_open() {
        let long = vec![b'x'; LINE_BYTES * 2];
        let after_one = rows(&[b"to\n", long.as_slice(), b"\nb\n"].concat());
        assert!(!after_one[0].as_ref().unwrap_err().hides_the_rest);
        assert_eq!(after_one[1].as_ref().unwrap().line, 3);
        let open = rows(&[b"to\n\"\n", long.as_slice(), b"\nb\n"].concat());
        assert!(open[0].as_ref().unwrap_err().hides_the_rest);
        assert_eq!(open.len(), 1);
    }
}

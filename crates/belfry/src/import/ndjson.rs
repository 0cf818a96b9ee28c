//! NDJSON: one JSON object per line.

use std::io::{self, BufRead};

use notification::limits::LINE_BYTES;

use super::row::{BadRow, ImportRow, Parsed, Rows};

/// Reads a file line by line. A line longer than [`LINE_BYTES`] is read to its end and not kept.
#[derive(Debug)]
pub(super) struct Ndjson<R> {
    input: R,
    /// Lines read so far.
    line: u64,
    offset: u64,
}

// === impl Ndjson ===

impl<R: BufRead> Ndjson<R> {
    /// Reads from `input`.
    pub(super) fn new(input: R) -> Self {
        Self { input, line: 0, offset: 0 }
    }

    /// Reads a line, keeps one byte more of it than is allowed, and gives its length.
    fn read_line(&mut self, raw: &mut Vec<u8>) -> io::Result<u64> {
        let mut bytes = 0;
        loop {
            let available = self.input.fill_buf()?;
            let end = available.iter().position(|byte| *byte == b'\n');
            let length = end.map_or(available.len(), |end| end + 1);
            let room = (LINE_BYTES + 1).saturating_sub(raw.len()).min(length);
            raw.extend(available.iter().take(room));
            self.input.consume(length);
            bytes += length as u64;
            if end.is_some() || length == 0 {
                return Ok(bytes);
            }
        }
    }
}

impl<R: BufRead + Send> Rows for Ndjson<R> {
    fn next_line(&self) -> u64 {
        self.line + 1
    }

    fn offset(&self) -> u64 {
        self.offset
    }

    fn next(&mut self, from: u64) -> io::Result<Option<Parsed>> {
        loop {
            let mut raw = Vec::new();
            let bytes = self.read_line(&mut raw)?;
            if bytes == 0 {
                return Ok(None);
            }
            self.line += 1;
            self.offset += bytes;
            // Of a line that is too long only the start is here: blank so far, it may still hold something.
            if self.line < from
                || (raw.iter().all(u8::is_ascii_whitespace) && raw.len() <= LINE_BYTES)
            {
                continue;
            }
            if raw.len() > LINE_BYTES {
                let message = format!("has {bytes} bytes, at most {LINE_BYTES} are allowed");
                return Ok(Some(Err(BadRow::new(self.line, "", message))));
            }
            raw.truncate(raw.trim_ascii_end().len());
            return Ok(Some(ImportRow::from_json(self.line, raw)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(file: &[u8], from: u64) -> Vec<Parsed> {
        let mut ndjson = Ndjson::new(io::BufReader::with_capacity(7, file));
        std::iter::from_fn(|| ndjson.next(from).unwrap()).collect()
    }

    #[test]
    fn a_bad_line_is_named_and_the_next_one_is_read() {
        let file = b"{\"to\":\"a\"}\n\n{\"to\":\xff}\n[1]\n{\"to\":}\n{\"to\":\"b\"}";
        let rows = rows(file, 1);
        assert_eq!(rows[0].as_ref().unwrap().json, r#"{"to":"a"}"#);
        let told =
            |i: usize| rows[i].as_ref().map_err(|bad| format!("{}: {bad}", bad.line)).unwrap_err();
        assert_eq!(
            told(1),
            "3: the row is not UTF-8 at byte 7 of the row: convert the file to UTF-8"
        );
        assert!(told(2).starts_with("4: the row must be a JSON object"));
        assert!(told(3).starts_with("5: the row is not JSON: expected value"));
        let last = rows[4].as_ref().unwrap();
        assert_eq!((last.line, last.json.as_str()), (6, r#"{"to":"b"}"#));
        assert_eq!(rows.len(), 5);
    }

    #[test]
    fn a_line_that_is_too_long_is_named_and_not_kept() {
        let mut file = vec![b'x'; LINE_BYTES * 3];
        file.extend(b"\n{}\n");
        let rows = rows(&file, 1);
        let bad = rows[0].as_ref().unwrap_err();
        assert_eq!((bad.line, &bad.raw), (1, &None));
        assert!(bad.message.starts_with("has 835585 bytes, at most 278528"), "{}", bad.message);
        assert_eq!(rows[1].as_ref().unwrap().line, 2);
    }

    #[test]
    fn lines_that_were_imported_earlier_are_passed_over() {
        let rows = rows(b"nonsense\n{}\n{\"to\":\"c\"}\n", 3);
        assert_eq!(rows.len(), 1);
        assert_eq!(rows[0].as_ref().unwrap().line, 3);
    }
}

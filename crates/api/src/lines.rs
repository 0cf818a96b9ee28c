//! Cuts a stream of bytes into lines, in constant memory.

use bytes::{Buf, Bytes, BytesMut};
use notification::limits::LINE_BYTES;

/// Takes pieces as they come, gives lines as they are complete. A line within a piece is not copied.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    piece: Bytes,
    /// The beginning of a line whose end is not here yet.
    begun: BytesMut,
    /// True while the rest of the present line is thrown away.
    is_skipping: bool,
    number: u64,
}

/// One line that is not blank.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct BodyLine {
    /// From 1; blank lines count.
    pub(crate) number: u64,
    /// Without its end; `None` when it has more than [`LINE_BYTES`] bytes.
    pub(crate) text: Option<Bytes>,
}

// === impl Lines ===

impl Lines {
    /// Takes the next piece. The last one must be used up: [`Lines::next`] has said `None`.
    pub(crate) fn push(&mut self, piece: Bytes) {
        debug_assert!(self.piece.is_empty(), "pieces are used up in turn");
        self.piece = piece;
    }

    /// The next line that is complete, or known to be too long.
    pub(crate) fn next(&mut self) -> Option<BodyLine> {
        while let Some(end) = self.piece.iter().position(|byte| *byte == b'\n') {
            let head = self.piece.split_to(end);
            self.piece.advance(1);
            if let Some(line) = self.complete(head) {
                return Some(line);
            }
        }
        let rest = std::mem::take(&mut self.piece);
        if self.is_skipping {
            return None;
        }
        if self.begun.len() + rest.len() > LINE_BYTES {
            // Told now and not at the end of the line, which may never come.
            self.begun.clear();
            self.is_skipping = true;
            // Its end, which counts it, is still to come.
            return Some(BodyLine { number: self.number + 1, text: None });
        }
        self.begun.extend_from_slice(&rest);
        None
    }

    /// The number of the line of which a part is kept.
    pub(crate) fn begun(&self) -> Option<u64> {
        (!self.begun.is_empty()).then_some(self.number + 1)
    }

    /// The last line, if its end is missing. Call it at the end of the stream.
    pub(crate) fn finish(&mut self) -> Option<BodyLine> {
        self.complete(Bytes::new())
    }

    /// Ends the present line with `tail`; `None` when it is blank, or was given out as too long.
    fn complete(&mut self, tail: Bytes) -> Option<BodyLine> {
        self.number += 1;
        if std::mem::take(&mut self.is_skipping) {
            return None;
        }
        let text = if self.begun.is_empty() {
            tail
        } else {
            self.begun.extend_from_slice(&tail);
            self.begun.split().freeze()
        };
        // A line that came in one piece was not measured before.
        if text.len() > LINE_BYTES {
            return Some(BodyLine { number: self.number, text: None });
        }
        let is_blank = text.iter().all(u8::is_ascii_whitespace);
        (!is_blank).then_some(BodyLine { number: self.number, text: Some(text) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds `pieces` and writes each line as `number:text`.
    fn check(pieces: &[&str], expect: &[&str]) {
        let mut lines = Lines::default();
        let mut found = Vec::new();
        for piece in pieces {
            lines.push(Bytes::copy_from_slice(piece.as_bytes()));
            while let Some(line) = lines.next() {
                found.push(line);
            }
        }
        found.extend(lines.finish());
        let show = |line: &BodyLine| match &line.text {
            Some(text) => format!("{}:{}", line.number, String::from_utf8_lossy(text)),
            None => format!("{}!", line.number),
        };
        assert_eq!(found.iter().map(show).collect::<Vec<_>>(), expect);
    }

    #[test]
    fn lines_are_the_same_however_the_stream_is_cut() {
        check(&["a\nb\n"], &["1:a", "2:b"]);
        check(&["a", "\n", "b"], &["1:a", "2:b"]);
        check(&["a\nb", "c\n\n  \n", "d"], &["1:a", "2:bc", "5:d"]);
        check(&["", "\n\n"], &[]);
        check(&[], &[]);
    }

    #[test]
    fn a_line_that_is_too_long_is_told_once_and_the_next_one_is_read() {
        let long = "x".repeat(LINE_BYTES + 1);
        check(&[&format!("a\n{long}\nb\n")], &["1:a", "2!", "3:b"]);
        check(&["a\n", &long, &long, "x\nb"], &["1:a", "2!", "3:b"]);
        check(&[&long], &["1!"]);
        let (half, fits) = ("x".repeat(LINE_BYTES / 2 + 1), "x".repeat(LINE_BYTES));
        check(&[&half, &format!("{half}\nb")], &["1!", "2:b"]);
        check(&[&fits], &[&format!("1:{fits}")]);
    }

    #[test]
    fn what_is_kept_of_a_line_that_is_too_long_is_bounded() {
        let mut lines = Lines::default();
        for _ in 0..1_000 {
            lines.push(Bytes::from(vec![b'x'; 64 * 1024]));
            while lines.next().is_some() {}
            assert!(lines.begun.capacity() <= 2 * LINE_BYTES);
        }
    }
}

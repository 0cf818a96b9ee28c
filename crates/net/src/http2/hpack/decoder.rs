//! Header blocks to fields.

use std::collections::VecDeque;

use super::static_table::{DYNAMIC_INDEX, STATIC_TABLE};
use super::{FIELD_BYTES, TABLE_BYTES, huffman};

/// Reads the header blocks of one direction of a connection, each of them, in their order: they share a table.
#[derive(Debug)]
pub(in crate::http2) struct HpackDecoder {
    /// The newest first, as they are counted.
    table: VecDeque<DecoderEntry>,
    /// Size of all entries (RFC 7541, section 4.1), bytes.
    bytes: usize,
    /// Bound of that size, as the peer chose; at most [`TABLE_BYTES`].
    bytes_max: usize,
    /// The literal that is read, where it is Huffman-coded, kept for its memory.
    name: Vec<u8>,
    value: Vec<u8>,
}

/// A block cannot be read, and so none behind it: in words that name the fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::http2) struct Undecodable(pub(in crate::http2) &'static str);

#[derive(Debug)]
struct DecoderEntry {
    /// The name, and the value behind it.
    text: Box<[u8]>,
    name_bytes: usize,
    /// True if it was found to be of no interest.
    is_passed_over: bool,
}

/// The longest continuation of an integer, bits. Nothing here has 16 MiB.
const INTEGER_BITS_MAX: u32 = 24;

// === impl HpackDecoder ===

impl HpackDecoder {
    pub(in crate::http2) fn new() -> Self {
        let (name, value) = (Vec::new(), Vec::new());
        Self { table: VecDeque::new(), bytes: 0, bytes_max: TABLE_BYTES, name, value }
    }

    /// Reads a whole block, and hands each field's name and value to `take`, which says whether the field is of no interest: it is
    /// told so when the field comes again out of the table. Allocates for what it puts into the table, and else at most the
    /// longest literal.
    pub(in crate::http2) fn decode(
        &mut self,
        mut block: &[u8],
        mut take: impl FnMut(&[u8], &[u8], bool) -> bool,
    ) -> Result<(), Undecodable> {
        let mut is_first = true;
        while let Some(first) = block.first().copied() {
            if first & 0x80 != 0 {
                let index = integer(&mut block, 7)?;
                let (name, value) = field(&self.table, index)?;
                let entry = index.checked_sub(DYNAMIC_INDEX).and_then(|at| self.table.get(at));
                take(name, value, entry.is_some_and(|entry| entry.is_passed_over));
            } else if first & 0x40 != 0 {
                let (name, value) = self.literal(&mut block, 6)?;
                let is_passed_over = take(name, value, false);
                let text = [name, value].concat().into_boxed_slice();
                let name_bytes = name.len();
                self.insert(DecoderEntry { text, name_bytes, is_passed_over });
            } else if first & 0x20 != 0 {
                // RFC 7541, section 4.2, has changes of the size at the beginning of a block only.
                if !is_first {
                    return Err(Undecodable("the table changes its size behind a field"));
                }
                self.resize(integer(&mut block, 5)?)?;
                continue;
            } else {
                let (name, value) = self.literal(&mut block, 4)?;
                take(name, value, false);
            }
            is_first = false;
        }
        Ok(())
    }

    /// Checks that the table has what it says it has, and no more than it may.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(in crate::http2) fn check(&self) {
        let cost = |entry: &DecoderEntry| entry.text.len() + FIELD_BYTES;
        assert_eq!(self.bytes, self.table.iter().map(cost).sum::<usize>());
        assert!(self.bytes <= self.bytes_max && self.bytes_max <= TABLE_BYTES);
    }

    /// Reads a field whose name may be in the table, and whose value is not.
    fn literal<'block: 'text, 'text>(
        &'text mut self,
        block: &mut &'block [u8],
        prefix_bits: u32,
    ) -> Result<(&'text [u8], &'text [u8]), Undecodable> {
        let name = match integer(block, prefix_bits)? {
            0 => string(block, &mut self.name)?,
            index => field(&self.table, index)?.0,
        };
        Ok((name, string(block, &mut self.value)?))
    }

    fn insert(&mut self, entry: DecoderEntry) {
        let cost = entry.text.len() + FIELD_BYTES;
        // One that is larger than the table empties it, and is no error (RFC 7541, section 4.4).
        self.make_room(cost);
        if cost <= self.bytes_max {
            self.table.push_front(entry);
            self.bytes += cost;
        }
    }

    fn resize(&mut self, bytes_max: usize) -> Result<(), Undecodable> {
        if bytes_max > TABLE_BYTES {
            return Err(Undecodable("the table grows beyond what was granted"));
        }
        self.bytes_max = bytes_max;
        self.make_room(0);
        Ok(())
    }

    fn make_room(&mut self, cost: usize) {
        while self.bytes + cost > self.bytes_max {
            let Some(oldest) = self.table.pop_back() else { return };
            self.bytes -= oldest.text.len() + FIELD_BYTES;
        }
    }
}

/// The field with this index, name and value: of the static table or of the connection's.
fn field(table: &VecDeque<DecoderEntry>, index: usize) -> Result<(&[u8], &[u8]), Undecodable> {
    if let Some(place) = index.checked_sub(DYNAMIC_INDEX) {
        let entry = table.get(place);
        let field = entry.and_then(|entry| entry.text.split_at_checked(entry.name_bytes));
        return field.ok_or(Undecodable("an index is behind the table"));
    }
    let field = index.checked_sub(1).and_then(|place| STATIC_TABLE.get(place));
    let (name, value) = field.ok_or(Undecodable("an index is 0"))?;
    Ok((name.as_bytes(), value.as_bytes()))
}

/// Reads an integer whose first byte has `prefix_bits` bits of it (RFC 7541, section 5.1).
fn integer(block: &mut &[u8], prefix_bits: u32) -> Result<usize, Undecodable> {
    const BROKEN_OFF: Undecodable = Undecodable("a block breaks off");
    let mask = 0xff_u8 >> (8 - prefix_bits);
    let (first, mut rest) = block.split_first().ok_or(BROKEN_OFF)?;
    let mut value = usize::from(first & mask);
    if value == usize::from(mask) {
        let mut shift = 0;
        loop {
            let (byte, behind) = rest.split_first().ok_or(BROKEN_OFF)?;
            rest = behind;
            // Checked before the shift, which zeros without end would carry beyond the number's bits.
            if shift > INTEGER_BITS_MAX - 7 {
                return Err(Undecodable("an integer is too large"));
            }
            value += usize::from(byte & 0x7f) << shift;
            shift += 7;
            if byte & 0x80 == 0 {
                break;
            }
        }
    }
    *block = rest;
    Ok(value)
}

/// Reads a string (RFC 7541, section 5.2), into `decoded` if it is Huffman-coded. One that is longer than what is there is not begun.
fn string<'block: 'text, 'text>(
    block: &mut &'block [u8],
    decoded: &'text mut Vec<u8>,
) -> Result<&'text [u8], Undecodable> {
    let is_coded = block.first().is_some_and(|first| first & 0x80 != 0);
    let length = integer(block, 7)?;
    let split = block.split_at_checked(length);
    let (string, rest) = split.ok_or(Undecodable("a string is longer than its block"))?;
    *block = rest;
    if !is_coded {
        return Ok(string);
    }
    decoded.clear();
    huffman::decode(string, decoded).ok_or(Undecodable("a string's Huffman code is wrong"))?;
    Ok(decoded)
}

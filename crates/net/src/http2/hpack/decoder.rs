//! Header blocks to fields.

use super::table::{HpackTable, TableField};
use super::{TABLE_BYTES, huffman};

/// Reads the header blocks of one direction of a connection, each of them, in their order: they share a table.
#[derive(Debug, Default)]
pub(in crate::http2) struct HpackDecoder {
    /// Its bound is the peer's choice, at most [`TABLE_BYTES`].
    table: HpackTable,
    /// The literal that is read, where it is Huffman-coded, kept for its memory.
    name: Vec<u8>,
    value: Vec<u8>,
}

/// A result of reading a block. After a fault, which the words name, none behind it can be read.
type Decoded<T = ()> = Result<T, &'static str>;

/// The longest continuation of an integer, bits. Nothing here has 16 MiB.
const INTEGER_BITS_MAX: u32 = 24;

// === impl HpackDecoder ===

impl HpackDecoder {
    /// Reads a whole block, and hands each field's name and value to `take`, which says whether the field is of no interest: it is
    /// told so when the field comes again out of the table. Allocates for what it puts into the table, and else at most the
    /// longest literal.
    pub(in crate::http2) fn decode(
        &mut self,
        mut block: &[u8],
        mut take: impl FnMut(&[u8], &[u8], bool) -> bool,
    ) -> Decoded {
        let mut is_first = true;
        while let Some(first) = block.first().copied() {
            if first & 0x80 != 0 {
                let (name, value, is_passed_over) = field(&self.table, integer(&mut block, 7)?)?;
                take(name, value, is_passed_over);
            } else if first & 0x40 != 0 {
                let (name, value) = self.literal(&mut block, 6)?;
                let is_passed_over = take(name, value, false);
                let field = TableField::new(name, value, is_passed_over);
                self.table.insert(field);
            } else if first & 0x20 != 0 {
                // RFC 7541, section 4.2, has changes of the size at the beginning of a block only.
                if !is_first {
                    return Err("the table changes its size behind a field");
                }
                let bytes_max = integer(&mut block, 5)?;
                if bytes_max > TABLE_BYTES {
                    return Err("the table grows beyond what was granted");
                }
                self.table.resize(bytes_max);
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
        self.table.check();
    }

    /// Reads a field whose name may be in the table, and whose value is not.
    fn literal<'block: 'text, 'text>(
        &'text mut self,
        block: &mut &'block [u8],
        prefix_bits: u32,
    ) -> Decoded<(&'text [u8], &'text [u8])> {
        let name = match integer(block, prefix_bits)? {
            0 => string(block, &mut self.name)?,
            index => field(&self.table, index)?.0,
        };
        Ok((name, string(block, &mut self.value)?))
    }
}

fn field(table: &HpackTable, index: usize) -> Decoded<(&[u8], &[u8], bool)> {
    let fault = if index == 0 { "an index is 0" } else { "an index is behind the table" };
    table.get(index).ok_or(fault)
}

/// Reads an integer whose first byte has `prefix_bits` bits of it (RFC 7541, section 5.1).
fn integer(block: &mut &[u8], prefix_bits: u32) -> Decoded<usize> {
    const BROKEN_OFF: &str = "a block breaks off";
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
                return Err("an integer is too large");
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
) -> Decoded<&'text [u8]> {
    let is_coded = block.first().is_some_and(|first| first & 0x80 != 0);
    let length = integer(block, 7)?;
    let split = block.split_at_checked(length);
    let (string, rest) = split.ok_or("a string is longer than its block")?;
    *block = rest;
    if !is_coded {
        return Ok(string);
    }
    decoded.clear();
    huffman::decode(string, decoded).ok_or("a string's Huffman code is wrong")?;
    Ok(decoded)
}

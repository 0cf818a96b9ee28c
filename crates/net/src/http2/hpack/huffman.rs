//! The Huffman code of header fields (RFC 7541, section 5.2 and appendix B), from code to text. What this client sends is not coded:
//! that would cost more time than its bytes save.
//!
//! The code is canonical: codes of one length follow each other in the order of their symbols, behind all that are shorter. So
//! each length, with its symbols in order, is the whole table: a line of `huffman_codes.txt`.

use std::sync::LazyLock;

/// The length of the code that ends a string.
const END_BITS: u32 = 30;
/// Each length of codes, bits, with the bytes whose codes have it. No byte has the last code of all, which ends a string.
static CODES: LazyLock<Vec<(u32, Vec<u8>)>> = LazyLock::new(|| {
    let lines = include_str!("huffman_codes.txt").lines().filter_map(|line| line.split_once(' '));
    let numbers = |text: &str| text.split(' ').filter_map(|number| number.parse().ok()).collect();
    lines.filter_map(|(bits, symbols)| Some((bits.parse().ok()?, numbers(symbols)))).collect()
});

/// Appends the text of `coded` to `text`; `None` when it is no code of one.
pub(super) fn decode(coded: &[u8], text: &mut Vec<u8>) -> Option<()> {
    let mut coded = coded.iter();
    // The next bits of the code, from the highest on, and how many there are.
    let (mut bits, mut count) = (0_u64, 0_u32);
    loop {
        // Filled up to 57 bits at least, so the longest code, of 30, is whole if it is there at all.
        while count <= 56 {
            let Some(byte) = coded.next() else { break };
            bits |= u64::from(*byte) << (56 - count);
            count += 8;
        }
        let (length, symbol) = first_code(u32::try_from(bits >> 32).ok()?);
        if length > count {
            // The rest of the last byte: the beginning of the code that ends a string, all ones.
            return (count < 8 && bits == !(u64::MAX >> count)).then_some(());
        }
        // The code that ends a string has no symbol: one that is written is an error (RFC 7541, section 5.2).
        text.push(symbol?);
        bits <<= length;
        count -= length;
    }
}

/// The length of the code at the beginning of `bits`, and its symbol; none for the longest of all, which ends a string.
fn first_code(mut bits: u32) -> (u32, Option<u8>) {
    let code = CODES.iter().find_map(|(length, symbols)| {
        let place = usize::try_from(bits >> (32 - length)).ok()?;
        if let Some(symbol) = symbols.get(place) {
            return Some((*length, Some(*symbol)));
        }
        bits -= u32::try_from(symbols.len()).ok()? << (32 - length);
        None
    });
    code.unwrap_or((END_BITS, None))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// The code of `text`, by the same table.
    pub(in crate::http2) fn encode(text: &[u8]) -> Vec<u8> {
        let (mut coded, mut bits, mut count) = (Vec::new(), 0_u64, 0);
        for byte in text {
            let (mut start, mut code, mut length) = (0_u64, 0, 0);
            for (bits, symbols) in &*CODES {
                if let Some(place) = symbols.iter().position(|symbol| symbol == byte) {
                    (code, length) = ((start >> (32 - bits)) + place as u64, *bits);
                    break;
                }
                start += (symbols.len() as u64) << (32 - bits);
            }
            (bits, count) = ((bits << length) | code, count + length);
            while count >= 8 {
                count -= 8;
                coded.push((bits >> count).to_le_bytes()[0]);
            }
        }
        if count > 0 {
            coded.push(((bits << (8 - count)) | (0xff >> count)).to_le_bytes()[0]);
        }
        coded
    }

    #[test]
    fn the_table_is_complete_and_in_order() {
        let mut seen = CODES.iter().flat_map(|(_, symbols)| symbols.clone()).collect::<Vec<_>>();
        seen.sort_unstable();
        assert_eq!(seen, (0..=255).collect::<Vec<_>>());
        assert!(CODES.is_sorted_by(|(one, _), (other, _)| one < other));
        assert!(CODES.iter().all(|(_, symbols)| symbols.is_sorted_by(|one, other| one < other)));
        // Each code has a share of all bits that may come, and nothing is left but the one that ends a string.
        let share = |(length, symbols): &(u32, Vec<u8>)| (symbols.len() as u64) << (32 - length);
        let shares: u64 = CODES.iter().map(share).sum();
        assert_eq!(shares, (1 << 32) - (1 << (32 - END_BITS)));
    }

    #[test]
    fn every_text_comes_back() {
        for first in 0..=255_u8 {
            for length in 0..20 {
                let text: Vec<u8> =
                    (0..length).map(|place: u8| first.wrapping_add(place * 7)).collect();
                let mut back = Vec::new();
                assert_eq!(decode(&encode(&text), &mut back), Some(()));
                assert_eq!(back, text);
            }
        }
    }

    #[test]
    fn what_is_no_code_is_refused() {
        let refused = |coded: &[u8]| assert_eq!(decode(coded, &mut Vec::new()), None, "{coded:x?}");
        refused(&[0xff]);
        refused(&[0xff; 4]);
        // `a` is 00011: padded with a zero, and with a whole byte of ones.
        refused(&[0b0001_1110]);
        refused(&[0b0001_1111, 0xff]);
        let mut text = Vec::new();
        assert_eq!(decode(&[0b0001_1111], &mut text), Some(()));
        assert_eq!(text, b"a");
    }
}

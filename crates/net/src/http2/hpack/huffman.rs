//! The Huffman code of header fields (RFC 7541, section 5.2 and appendix B), from code to text. What this client sends is not coded:
//! that would cost more time than its bytes save.
//!
//! The code is canonical: codes of one length follow each other in the order of their symbols, behind all that are shorter. So
//! the lengths, and the symbols in the order of their codes, are the whole table.

/// The lengths of codes in bits, and how many there are of each. The end of a string, which no string contains, is the last one.
#[rustfmt::skip]
const LENGTHS: [(u32, u32); 21] = [
    (5, 10), (6, 26), (7, 32), (8, 6), (10, 5), (11, 3), (12, 2), (13, 6), (14, 2), (15, 3), (19, 3),
    (20, 8), (21, 13), (22, 26), (23, 29), (24, 12), (25, 4), (26, 15), (27, 19), (28, 29), (30, 4),
];

/// Every byte, in the order of the codes.
#[rustfmt::skip]
const SYMBOLS: [u8; 256] = [
    48, 49, 50, 97, 99, 101, 105, 111, 115, 116, 32, 37, 45, 46, 47, 51, 52, 53, 54, 55, 56, 57, 61,
    65, 95, 98, 100, 102, 103, 104, 108, 109, 110, 112, 114, 117, 58, 66, 67, 68, 69, 70, 71, 72,
    73, 74, 75, 76, 77, 78, 79, 80, 81, 82, 83, 84, 85, 86, 87, 89, 106, 107, 113, 118, 119, 120,
    121, 122, 38, 42, 44, 59, 88, 90, 33, 34, 40, 41, 63, 39, 43, 124, 35, 62, 0, 36, 64, 91, 93,
    126, 94, 125, 60, 96, 123, 92, 195, 208, 128, 130, 131, 162, 184, 194, 224, 226, 153, 161, 167,
    172, 176, 177, 179, 209, 216, 217, 227, 229, 230, 129, 132, 133, 134, 136, 146, 154, 156, 160,
    163, 164, 169, 170, 173, 178, 181, 185, 186, 187, 189, 190, 196, 198, 228, 232, 233, 1, 135,
    137, 138, 139, 140, 141, 143, 147, 149, 150, 151, 152, 155, 157, 158, 165, 166, 168, 174, 175,
    180, 182, 183, 188, 191, 197, 231, 239, 9, 142, 144, 145, 148, 159, 171, 206, 215, 225, 236,
    237, 199, 207, 234, 235, 192, 193, 200, 201, 202, 205, 210, 213, 218, 219, 238, 240, 242, 243,
    255, 203, 204, 211, 212, 214, 221, 222, 223, 241, 244, 245, 246, 247, 248, 250, 251, 252, 253,
    254, 2, 3, 4, 5, 6, 7, 8, 11, 12, 14, 15, 16, 17, 18, 19, 20, 21, 23, 24, 25, 26, 27, 28, 29,
    30, 31, 127, 220, 249, 10, 13, 22,
];

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
        let (length, place) = first_code(u32::try_from(bits >> 32).ok()?)?;
        if length > count {
            // The rest of the last byte: the beginning of the code that ends a string, all ones.
            return (count < 8 && bits == !(u64::MAX >> count)).then_some(());
        }
        // The code that ends a string has no symbol: one that is written is an error (RFC 7541, section 5.2).
        text.push(*SYMBOLS.get(usize::try_from(place).ok()?)?);
        bits <<= length;
        count -= length;
    }
}

/// The length of the code at the beginning of `bits`, and its place among all codes.
fn first_code(mut bits: u32) -> Option<(u32, u32)> {
    let mut shorter = 0;
    LENGTHS.iter().find_map(|(length, codes)| {
        let place = bits >> (32 - length);
        if place < *codes {
            return Some((*length, shorter + place));
        }
        bits -= codes << (32 - length);
        shorter += codes;
        None
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// The code of `text`, by the same table.
    pub(in crate::http2) fn encode(text: &[u8]) -> Vec<u8> {
        let (mut coded, mut bits, mut count) = (Vec::new(), 0_u64, 0);
        for byte in text {
            let mut place = (0..).zip(SYMBOLS).find(|(_, symbol)| symbol == byte).unwrap().0;
            let (mut start, mut length) = (0, 0);
            for (bits, codes) in LENGTHS {
                length = bits;
                if place < codes {
                    break;
                }
                place -= codes;
                start += codes << (32 - bits);
            }
            let code = (start >> (32 - length)) + place;
            (bits, count) = ((bits << length) | u64::from(code), count + length);
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
        let mut seen = SYMBOLS.to_vec();
        seen.sort_unstable();
        assert_eq!(seen, (0..=255).collect::<Vec<_>>());
        // Each code has a share of all bits that may come, and nothing is left.
        let (mut first, mut share) = (0, 0);
        for (length, codes) in LENGTHS {
            let end = first + codes as usize;
            let symbols = SYMBOLS.get(first..end.min(256)).unwrap();
            assert!(symbols.is_sorted_by(|one, other| one < other), "{length} bits");
            first = end;
            share += u64::from(codes) << (32 - length);
        }
        assert_eq!((first, share), (257, 1 << 32));
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

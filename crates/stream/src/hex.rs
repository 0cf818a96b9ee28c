//! Bytes as hexadecimal digits.

use std::fmt::Write as _;

/// The digits of `bytes`, in lower case.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        // A text takes everything.
        let _written = write!(text, "{byte:02x}");
        text
    })
}

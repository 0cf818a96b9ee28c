//! Keys as services take them: printable text of bounded length.

use crate::hex::hex;

/// `key` as text: itself if it is printable ASCII without a space and not longer than `bytes`, and hexadecimal otherwise; `None` if
/// that is too long. Two keys that look the same share an order and lose nothing.
pub fn plain_key(key: &[u8], bytes: usize) -> Option<String> {
    if is_plain_key(key, bytes) {
        return Some(String::from_utf8_lossy(key).into_owned());
    }
    (2 * key.len() <= bytes && !key.is_empty()).then(|| hex(key))
}

/// True if `key` can stand as it is: 1 to `bytes` letters, digits and marks of ASCII.
pub fn is_plain_key(key: &[u8], bytes: usize) -> bool {
    (1..=bytes).contains(&key.len()) && key.iter().all(u8::is_ascii_graphic)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_text_or_hexadecimal() {
        assert_eq!(plain_key(b"user-7", 8).as_deref(), Some("user-7"));
        assert_eq!(plain_key(&[0, 255], 8).as_deref(), Some("00ff"));
        assert_eq!(plain_key("ü".as_bytes(), 8).as_deref(), Some("c3bc"));
        assert_eq!(plain_key(b"", 8), None);
        assert_eq!(plain_key(b"123456789", 8), None);
        assert_eq!(plain_key(&[0; 5], 8), None);
    }
}

//! Errors as the log of an attempt keeps them.

use notification::limits;

/// The beginning of `text`, at most [`limits::DETAIL_BYTES`].
pub fn short(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(limits::DETAIL_BYTES));
    text
}

/// The beginning of `text` without control characters, at most [`limits::DETAIL_BYTES`].
pub fn plain(text: &str) -> String {
    let plain = |character: &char| !character.is_control();
    short(text.chars().filter(plain).take(limits::DETAIL_BYTES).collect())
}

//! What the answers of all providers have in common: words.

use notification::limits;

/// What fits the log of an attempt, without what could upset a terminal.
pub(crate) fn plain_words(text: &str) -> String {
    let plain = |character: &char| !character.is_control();
    let mut words: String = text.chars().filter(plain).take(limits::DETAIL_BYTES).collect();
    words.truncate(words.floor_char_boundary(limits::DETAIL_BYTES));
    words
}

//! What the answers of all providers have in common: how long they ask to wait, and words.

use std::time::Duration;

use http::HeaderMap;
use http::header::RETRY_AFTER;
use notification::{Timestamp, limits};

/// How long `headers`, that came at `now`, ask to wait: seconds, or until an instant, which may have passed (RFC 9110,
/// section 10.2.3). The caller bounds it.
pub(crate) fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let digits_only = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if digits_only {
        // More digits than fit are still a long time.
        return Some(Duration::from_secs(text.parse().unwrap_or(u64::MAX)));
    }
    let parser = jiff::fmt::rfc2822::DateTimeParser::new();
    let instant = parser.parse_timestamp(text).ok()?;
    Some(Timestamp::from_millis(instant.as_millisecond()).since(now))
}

/// What fits the log of an attempt, without what could upset a terminal.
pub(crate) fn plain_words(text: &str) -> String {
    let plain = |character: &char| !character.is_control();
    let mut words: String = text.chars().filter(plain).take(limits::DETAIL_BYTES).collect();
    words.truncate(words.floor_char_boundary(limits::DETAIL_BYTES));
    words
}

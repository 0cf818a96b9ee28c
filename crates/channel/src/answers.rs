//! Parts that the answers of all providers have: how long they ask to wait, and words.

use std::fmt::Write as _;
use std::time::Duration;

use http::header::RETRY_AFTER;
use http::{HeaderMap, StatusCode};
use notification::{Timestamp, limits};

/// The longest wait that a server can ask for; a longer one is shortened to this.
pub(crate) const RETRY_AFTER_MAX: Duration = Duration::from_hours(1);

/// How long notifications wait for a credential or another setting that a provider refuses. It fails every notification of a campaign
/// alike. To refuse them would burn the campaign for a mistake in the configuration, so they wait long enough for an operator to read the
/// log and correct it.
pub(crate) const SETTINGS_DELAY: Duration = Duration::from_mins(15);

/// How long `headers`, that came at `now`, ask to wait: seconds, or until an instant, which may have passed (RFC 9110,
/// section 10.2.3). The caller bounds it.
pub(crate) fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    // Not `parse` alone: it takes a sign as well, which a number of seconds never has (RFC 9110, section 10.2.3).
    let digits_only = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if digits_only {
        // More digits than fit are still a long time.
        return Some(Duration::from_secs(text.parse().unwrap_or(u64::MAX)));
    }
    // The preferred form of an HTTP date is a date of mail, too (RFC 9110, section 5.6.7). The
    // two obsolete forms are not read.
    let parser = jiff::fmt::rfc2822::DateTimeParser::new();
    let instant = parser.parse_timestamp(text).ok()?;
    Some(Timestamp::from_millis(instant.as_millisecond()).since(now))
}

/// The part of an answer that the log keeps: its status in words, and the beginning of its body, on one line. Characters that
/// could upset a terminal or a reader of lines are escaped; bytes that are not UTF-8 show as such.
pub(crate) fn words(status: u16, body: &[u8]) -> String {
    let known = StatusCode::from_u16(status).ok();
    let reason = known.and_then(|status| status.canonical_reason()).unwrap_or("");
    let mut words = String::from(reason);
    // No more than can be kept: no character gets shorter by being escaped.
    let read = body.get(..limits::DETAIL_BYTES).unwrap_or(body);
    let text = String::from_utf8_lossy(read);
    let text = text.trim();
    if !text.is_empty() && !words.is_empty() {
        words.push_str(": ");
    }
    for character in text.chars() {
        let bytes = words.len();
        let written = if is_plain(character) {
            words.write_char(character)
        } else {
            write!(words, "{}", character.escape_default())
        };
        // The last character must not be half an escape.
        if written.is_err() || words.len() > limits::DETAIL_BYTES {
            words.truncate(bytes);
            break;
        }
    }
    words
}

/// Neither a control character nor one that turns the direction of a line or hides in it.
fn is_plain(character: char) -> bool {
    !(character.is_control()
        || matches!(character, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}'))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sun, 06 Nov 1994 08:49:37 GMT
    const NOW: Timestamp = Timestamp::from_millis(784_111_777_000);

    #[test]
    fn a_wait_is_asked_for_in_seconds_or_until_an_instant() {
        let check = |text: &str, seconds: Option<u64>| {
            let mut headers = HeaderMap::new();
            headers.insert(RETRY_AFTER, text.parse().unwrap());
            assert_eq!(retry_after(&headers, NOW), seconds.map(Duration::from_secs), "{text:?}");
        };
        check("120", Some(120));
        check("0", Some(0));
        check(" 7 ", Some(7));
        check("3601", Some(3601));
        check("99999999999999999999999999", Some(u64::MAX));
        check("Sun, 06 Nov 1994 08:51:37 GMT", Some(120));
        check("Sun, 06 Nov 1994 08:00:00 GMT", Some(0));
        check("Mon, 07 Nov 1994 08:49:37 GMT", Some(86_400));
        check("-5", None);
        check("1.5", None);
        check("soon", None);
        check("", None);
        assert_eq!(retry_after(&HeaderMap::new(), NOW), None);
    }

    #[test]
    fn words_are_short_plain_and_on_one_line() {
        let check = |status: u16, body: &[u8], expect: &str| {
            assert_eq!(words(status, body), expect);
        };
        check(404, b"", "Not Found");
        check(404, b"  \n ", "Not Found");
        check(404, b"no such hook\r\nsorry", r"Not Found: no such hook\r\nsorry");
        check(599, b"own words", "own words");
        check(599, b"", "");
        check(400, b"\x1b[31mred\0", r"Bad Request: \u{1b}[31mred\u{0}");
        check(400, b"\xff\xfe", "Bad Request: \u{fffd}\u{fffd}");
        check(400, "\u{202e}evil".as_bytes(), r"Bad Request: \u{202e}evil");
        check(400, "Grüße".as_bytes(), "Bad Request: Grüße");
    }

    #[test]
    fn words_are_cut_between_characters_and_never_within_an_escape() {
        for body in
            ["x".repeat(10_000), "\u{fc}".repeat(10_000), "\0".repeat(10_000), "a\0".repeat(9_000)]
        {
            let words = words(400, body.as_bytes());
            assert!((190..=limits::DETAIL_BYTES).contains(&words.len()), "{words}");
            let end = words.chars().next_back().unwrap();
            assert!(matches!(end, 'x' | '\u{fc}' | '}' | 'a' | '\u{fffd}'), "{words}");
        }
    }
}

//! How values are written: addresses, names and spans of time as people write them.

use std::fmt::Display;
use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, de};

/// Reads a span such as `250ms`, `30s`, `15m` or `1h 30m`.
pub(super) fn duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(deserializer)?;
    let span = text.parse::<jiff::SignedDuration>().ok();
    span.and_then(|span| Duration::try_from(span).ok()).ok_or_else(|| {
        de::Error::custom(format!(
            "{text:?} is not a span of time such as 250ms, 30s, 15m or 1h 30m"
        ))
    })
}

/// Reads an address with its port.
pub(super) fn address<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SocketAddr, D::Error> {
    let text = String::deserialize(deserializer)?;
    text.parse().map_err(|_| {
        de::Error::custom(format!(
            "{text:?} is not an IP address with a port, such as 127.0.0.1:8473"
        ))
    })
}

/// Reads whatever can be parsed from a text.
pub(super) fn parsed<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr,
    T::Err: Display,
{
    String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
}

/// The same of a value that may be left out.
pub(super) fn some_parsed<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr,
    T::Err: Display,
{
    parsed(deserializer).map(Some)
}

/// Reads 32 bytes written as 64 hexadecimal digits.
pub(super) fn sha256<'de, D: Deserializer<'de>>(deserializer: D) -> Result<[u8; 32], D::Error> {
    let text = String::deserialize(deserializer)?;
    from_hex(&text).ok_or_else(|| {
        de::Error::custom("must be the 64 hexadecimal digits that `belfry api-key` prints")
    })
}

fn from_hex(text: &str) -> Option<[u8; 32]> {
    let digits =
        text.chars().map(|digit| digit.to_digit(16).and_then(|value| value.try_into().ok()));
    let digits: Vec<u8> = digits.collect::<Option<_>>()?;
    let (pairs, []) = digits.as_chunks::<2>() else { return None };
    let bytes: Vec<u8> = pairs.iter().map(|[high, low]| high << 4 | low).collect();
    bytes.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_64_hexadecimal_digits() {
        let mut expect = [0; 32];
        expect[31] = 0xaf;
        assert_eq!(from_hex(&format!("{}aF", "0".repeat(62))), Some(expect));
        for bad in ["", "0", &"0".repeat(63), &"0".repeat(66), &"g".repeat(64)] {
            assert_eq!(from_hex(bad), None, "{bad:?}");
        }
    }
}

//! How values are written: addresses, digests and spans of time as people write them.

use std::net::SocketAddr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, de};

/// Reads a span such as `250ms`, `30s`, `15m` or `1h 30m`.
pub(super) fn duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    span(&String::deserialize(deserializer)?).map_err(de::Error::custom)
}

/// [`duration`] of `text`.
pub(crate) fn span(text: &str) -> Result<Duration, String> {
    // The parser takes negative spans as well, which no setting means.
    let span = text.parse::<jiff::SignedDuration>().ok();
    span.and_then(|span| Duration::try_from(span).ok())
        .ok_or_else(|| format!("{text:?} is not a span of time such as 250ms, 30s, 15m or 1h 30m"))
}

/// Reads an address with its port.
pub(super) fn parse_address(text: &str) -> Result<SocketAddr, String> {
    text.parse()
        .map_err(|_| format!("{text:?} is not an IP address with a port, such as 127.0.0.1:8473"))
}

/// Reads 32 bytes written as 64 hexadecimal digits.
pub(super) fn sha256<'de, D: Deserializer<'de>>(deserializer: D) -> Result<[u8; 32], D::Error> {
    let text = String::deserialize(deserializer)?;
    let message = "must be the 64 hexadecimal digits that `belfry api-key` prints";
    api::parse_hash(&text).map_err(|_| de::Error::custom(message))
}

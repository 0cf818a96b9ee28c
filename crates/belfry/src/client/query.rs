//! Paths with a query.

use std::fmt::Write as _;

/// `path` with those of the parameters that are given.
pub(crate) fn with_query(path: &str, given: &[(&str, Option<&str>)]) -> String {
    let mut path = path.to_owned();
    let given = given.iter().filter_map(|(name, value)| Some((name, (*value)?)));
    for (mark, (name, value)) in std::iter::once('?').chain(std::iter::repeat('&')).zip(given) {
        let _infallible = write!(path, "{mark}{name}={}", percent_encoded(value));
    }
    path
}

/// `value` as it may stand anywhere in a URL: its unreserved characters as they are (RFC 3986, section 2.3).
pub(crate) fn percent_encoded(value: &str) -> String {
    let mut encoded = String::with_capacity(value.len());
    for byte in value.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            let _infallible = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

//! Which header fields callers and operators may add to a request.

use http::{HeaderName, HeaderValue};

/// Names of fields that the connection, the signature and this channel set.
pub(super) const RESERVED: &[&str] = &[
    "connection",
    "content-length",
    "content-type",
    "expect",
    "host",
    "keep-alive",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "user-agent",
];
const RESERVED_PREFIX: &str = "webhook-";

/// A field that a caller or an operator chose.
///
/// # Errors
/// The mistake in it.
pub(super) fn check_header(
    name: &str,
    value: &str,
) -> Result<(HeaderName, HeaderValue), &'static str> {
    let name = name.to_ascii_lowercase();
    if RESERVED.contains(&name.as_str()) || name.starts_with(RESERVED_PREFIX) {
        return Err("is set by Belfry itself");
    }
    let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| "is not a header name")?;
    let mut value =
        HeaderValue::from_str(value).map_err(|_| "must have visible ASCII characters only")?;
    // It may hold a credential: `Debug` hides it then, and an answer that repeats it loses it.
    value.set_sensitive(true);
    Ok((name, value))
}

//! The body of a request that names another time for what waits.

use notification::Timestamp;

use super::InvalidField;
use super::check::check_ahead;
use super::json::{Object, ParseError};

/// The fields of the body.
pub const NEW_TIME: &[&str] = &["send_at"];

/// The time that `whole` names, as of `now`. It may have passed: that means at once.
///
/// # Errors
/// When it is no JSON object with a `send_at` alone, or that lies too far ahead.
pub fn new_time(whole: &str, now: Timestamp) -> Result<Timestamp, ParseError> {
    let object = Object::read(whole, NEW_TIME)?;
    let text = Object::required("send_at", object.text("send_at")?)?;
    let invalid = |message: String| InvalidField::new("/send_at", message);
    let send_at: Timestamp = text.parse().map_err(|error| invalid(format!("{error}")))?;
    check_ahead(send_at, now)?;
    Ok(send_at)
}

//! Who joins the suppression list is what the page says.

use http::HeaderMap;
use notification::Timestamp;

use super::response::interpret;
use crate::suppressing::check;

#[test]
fn the_page_says_which_answers_suppress() {
    let now = Timestamp::from_millis(0);
    let answers = (200..=999).map(|status: u16| {
        let attempt =
            interpret(http::StatusCode::from_u16(status).unwrap(), &HeaderMap::new(), b"", now);
        (status.to_string(), attempt)
    });
    check("webhook", 1, answers);
}

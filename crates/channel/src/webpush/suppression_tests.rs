//! Recipients join the suppression list for the reasons that the channel's page names, and for no other.

use http::HeaderMap;
use notification::Timestamp;

use super::response::interpret;
use crate::test_support::{check_suppressions, reply};

#[test]
fn the_page_says_which_answers_suppress() {
    let now = Timestamp::from_millis(0);
    for is_key_proven in [false, true] {
        let answers = (200..=999).map(|status: u16| {
            let (attempt, _) = interpret(&reply(status, HeaderMap::new(), ""), now, is_key_proven);
            (status.to_string(), attempt)
        });
        check_suppressions("webpush", 1, answers);
    }
}

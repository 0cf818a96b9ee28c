//! Recipients join the suppression list for the reasons that the channel's page names, and for no other.

use std::time::Duration;

use http::HeaderMap;

use super::response::{ApnsDelays, Confirmed, REASONS, interpret};
use crate::Attempt;
use crate::test_support::{check_suppressions, reply};

/// Every status alone, and every reason with its own.
fn answers(confirmed: Confirmed) -> impl Iterator<Item = (String, Attempt)> {
    let delays = ApnsDelays { server_error: Duration::ZERO, throttle: Duration::ZERO };
    let alone = (100..=599).map(|status| (status, ""));
    let reasons = REASONS.iter().map(|(status, reason, _)| (*status, *reason));
    alone.chain(reasons).map(move |(status, reason)| {
        let body = format!(r#"{{"reason":"{reason}"}}"#);
        let reply = reply(status, HeaderMap::new(), body);
        let name = format!("{status} {reason}").trim_end().to_owned();
        (name, interpret(&reply, delays, confirmed).0)
    })
}

#[test]
fn the_page_says_which_answers_suppress() {
    check_suppressions("apns", 1, answers(Confirmed { environment: false, topic: false }));
    let certain = answers(Confirmed { environment: false, topic: false });
    let certain: Vec<String> = certain
        .filter(|(_, attempt)| crate::test_support::is_unregistered(attempt))
        .map(|(name, _)| name)
        .collect();
    let confirmed = answers(Confirmed { environment: true, topic: true });
    check_suppressions("apns", 2, confirmed.filter(|(name, _)| !certain.contains(name)));
}

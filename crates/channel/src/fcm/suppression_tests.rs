//! Recipients join the suppression list for the reasons that the channel's page names, and for no other.

use http::HeaderMap;
use notification::Timestamp;

use super::response::interpret;
use crate::Attempt;
use crate::test_support::{check_suppressions, reply};

const CODES: &[&str] = &[
    "",
    "INTERNAL",
    "INVALID_ARGUMENT",
    "NOT_FOUND",
    "PERMISSION_DENIED",
    "QUOTA_EXCEEDED",
    "SENDER_ID_MISMATCH",
    "THIRD_PARTY_AUTH_ERROR",
    "UNAUTHENTICATED",
    "UNAVAILABLE",
    "UNREGISTERED",
    "UNSPECIFIED_ERROR",
];

/// Every status with every code, about `field`.
fn answers(field: &str) -> impl Iterator<Item = (String, Attempt)> {
    let codes = move |status: u16| CODES.iter().map(move |code| (status, *code));
    (100..=599).flat_map(codes).map(move |(status, code)| {
        let violation = format!(
            r#"{{"@type":"type.googleapis.com/google.rpc.BadRequest","fieldViolations":[{{"field":"{field}"}}]}}"#
        );
        let body = format!(
            r#"{{"error":{{"status":"{code}","message":"no","details":[{violation}]}}}}"#
        );
        let reply = reply(status, HeaderMap::new(), body);
        let name = format!("{status} {code}").trim_end().to_owned();
        (name, interpret(&reply, 1, Timestamp::from_millis(0)).0)
    })
}

#[test]
fn the_page_says_which_answers_suppress() {
    check_suppressions("fcm", 1, answers("message.data"));
    check_suppressions(
        "fcm",
        2,
        answers("message.token").filter(|(name, _)| name != "404 UNREGISTERED"),
    );
}

//! Every documented answer, and some that are not.

use super::*;
use crate::test_support::reply;
use flow::Signal;
use http::HeaderMap;
use notification::{Report, Verdict, limits};

const DELAYS: ApnsDelays =
    ApnsDelays { server_error: Duration::from_mins(15), throttle: Duration::from_mins(1) };

const REFUSED: Verdict = Verdict::Refused { gone: false };
const GONE: Verdict = Verdict::Refused { gone: true };
const AGAIN: Verdict = Verdict::Deferred { after: None };
const LATER: Verdict = Verdict::Deferred { after: Some(Duration::from_mins(15)) };
const THROTTLED: Verdict = Verdict::Deferred { after: Some(Duration::from_mins(1)) };

fn read(status: u16, body: &str) -> (Answer, Signal, Advice) {
    read_reply(&reply(status, HeaderMap::new(), body))
}

fn read_reply(reply: &Reply) -> (Answer, Signal, Advice) {
    read_knowing(reply, Confirmed { environment: true, topic: true })
}

fn read_knowing(reply: &Reply, confirmed: Confirmed) -> (Answer, Signal, Advice) {
    let (attempt, advice) = interpret(reply, DELAYS, confirmed);
    let Report::Attempted(answer) = attempt.report else { panic!("an answer is an attempt") };
    (answer, attempt.signal, advice)
}

#[test]
fn every_documented_reason_has_its_verdict() {
    let table = [
        (400, "BadCollapseId", REFUSED),
        (400, "BadDeviceToken", GONE),
        (400, "BadExpirationDate", REFUSED),
        (400, "BadMessageId", REFUSED),
        (400, "BadPriority", REFUSED),
        (400, "BadTopic", REFUSED),
        (400, "DeviceTokenNotForTopic", GONE),
        (400, "DuplicateHeaders", REFUSED),
        (400, "IdleTimeout", AGAIN),
        (400, "InvalidPushType", REFUSED),
        (400, "MissingDeviceToken", REFUSED),
        (400, "MissingTopic", REFUSED),
        (400, "PayloadEmpty", REFUSED),
        (400, "TopicDisallowed", REFUSED),
        (403, "BadCertificate", LATER),
        (403, "BadCertificateEnvironment", LATER),
        (403, "ExpiredProviderToken", AGAIN),
        (403, "Forbidden", REFUSED),
        (403, "InvalidProviderToken", LATER),
        (403, "MissingProviderToken", LATER),
        (404, "BadPath", REFUSED),
        (405, "MethodNotAllowed", REFUSED),
        (410, "ExpiredToken", GONE),
        (410, "Unregistered", GONE),
        (413, "PayloadTooLarge", REFUSED),
        (429, "TooManyProviderTokenUpdates", AGAIN),
        (429, "TooManyRequests", THROTTLED),
        (500, "InternalServerError", LATER),
        (503, "ServiceUnavailable", LATER),
        (503, "Shutdown", LATER),
    ];
    for (status, reason, verdict) in table {
        let (answer, _, _) = read(status, &format!(r#"{{"reason":"{reason}","timestamp":17}}"#));
        let gone_since = (status == 410).then(|| Timestamp::from_millis(17));
        let found = (answer.verdict, answer.status, &*answer.detail, answer.gone_since);
        assert_eq!(found, (verdict, status, reason, gone_since));
    }
    assert_eq!(table.len(), REASONS.len(), "a row is not in this test");
}

#[test]
fn a_status_speaks_for_itself_when_its_reason_does_not() {
    let check = |status: u16, body: &str, verdict: Verdict, detail: &str| {
        let (answer, _, _) = read(status, body);
        let found = (answer.verdict, answer.status, &*answer.detail, answer.gone_since);
        assert_eq!(found, (verdict, status, detail, None), "{body:?}");
    };
    check(200, "", Verdict::Accepted, "");
    check(200, r#"{"reason":"BadDeviceToken"}"#, Verdict::Accepted, "");
    check(400, r#"{"reason":"NewReason"}"#, REFUSED, "NewReason");
    check(400, r#"{"reason":"Unregistered"}"#, REFUSED, "Unregistered");
    check(410, "", GONE, "");
    check(410, "<html>gone</html>", GONE, "");
    check(403, r#"{"reason":"NewReason"}"#, LATER, "NewReason");
    check(401, "{}", LATER, "");
    check(429, r#"{"reason":7}"#, THROTTLED, "");
    check(418, "[]", REFUSED, "");
    check(301, "", LATER, "");
    check(502, "\u{0}", LATER, "");
    check(599, "{", LATER, "");
}

#[test]
fn push_back_is_told_from_an_ordinary_answer() {
    for (status, signal) in [
        (200, Signal::Answered),
        (400, Signal::Answered),
        (403, Signal::Answered),
        (429, Signal::PushedBack),
        (500, Signal::PushedBack),
        (503, Signal::PushedBack),
    ] {
        assert_eq!(read(status, "").1, signal, "{status}");
    }
    let of_one_device = read(429, r#"{"reason":"TooManyRequests"}"#);
    assert_eq!(of_one_device.1, Signal::Answered);
}

#[test]
fn some_answers_ask_for_more_than_a_verdict() {
    let advice = |status, reason: &str| read(status, &format!(r#"{{"reason":"{reason}"}}"#)).2;
    assert_eq!(advice(403, "ExpiredProviderToken"), Advice::RenewToken);
    assert_eq!(advice(429, "TooManyProviderTokenUpdates"), Advice::LeaveConnection);
    assert_eq!(advice(403, "InvalidProviderToken"), Advice::Alert);
    assert_eq!(advice(410, "Unregistered"), Advice::CarryOn);
}

#[test]
fn a_device_token_retires_only_when_environment_and_topic_are_known_to_be_right() {
    let check = |reason: &str, environment: bool, topic: bool, verdict: Verdict, advice: Advice| {
        let body = format!(r#"{{"reason":"{reason}"}}"#);
        let reply = reply(400, HeaderMap::new(), body);
        let (answer, _, found) = read_knowing(&reply, Confirmed { environment, topic });
        assert_eq!((answer.verdict, found), (verdict, advice), "{reason} {environment} {topic}");
    };
    check("BadDeviceToken", false, false, REFUSED, Advice::Doubt);
    check("BadDeviceToken", true, false, GONE, Advice::CarryOn);
    check("DeviceTokenNotForTopic", false, false, REFUSED, Advice::Doubt);
    check("DeviceTokenNotForTopic", true, false, REFUSED, Advice::Doubt);
    check("DeviceTokenNotForTopic", true, true, GONE, Advice::CarryOn);
}

#[test]
fn the_time_since_when_a_device_is_gone_is_read_with_suspicion() {
    let check = |timestamp: &str, expect: Option<i64>| {
        let (answer, _, _) =
            read(410, &format!(r#"{{"reason":"Unregistered","timestamp":{timestamp}}}"#));
        assert_eq!(answer.verdict, GONE);
        assert_eq!(
            (&*answer.detail, answer.gone_since),
            ("Unregistered", expect.map(Timestamp::from_millis))
        );
    };
    check("1700000000123", Some(1_700_000_000_123));
    check("0", None);
    check("-5", None);
    check("1e3", None);
    check("null", None);
    check("\"1700000000123\"", None);
    check("{}", None);
}

#[test]
fn what_the_sandbox_calls_an_accepted_one_is_kept() {
    let headers = HeaderMap::from_iter([(READ_FIELDS[0].clone(), "0a1b".parse().unwrap())]);
    let (answer, _, _) = read_reply(&reply(200, headers, ""));
    assert_eq!((answer.verdict, &*answer.detail), (Verdict::Accepted, "apns-unique-id 0a1b"));
}

#[test]
fn what_is_kept_of_a_reason_is_short_and_plain() {
    let long = "\u{fc}".repeat(10_000);
    let (answer, _, _) = read(400, &format!(r#"{{"reason":"{long}"}}"#));
    assert_eq!(answer.detail.len(), limits::DETAIL_BYTES);
    let (answer, _, _) = read(400, r#"{"reason":"a\u001b[31mb\nc"}"#);
    assert_eq!(answer.detail, "a[31mbc");
}

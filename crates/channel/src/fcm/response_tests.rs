//! Every documented answer, undocumented ones from public reports, and invented ones.

use super::*;
use crate::test_support::reply;
use flow::Signal;
use http::header::RETRY_AFTER;
use http::{HeaderMap, HeaderValue};
use notification::{Report, Verdict, limits};

/// Sun, 06 Nov 1994 08:49:37 GMT
const NOW: Timestamp = Timestamp::from_millis(784_111_777_000);
const REFUSED: Verdict = Verdict::Refused { gone: false };
const GONE: Verdict = Verdict::Refused { gone: true };
const MINUTE: Duration = Duration::from_mins(1);

const fn after(seconds: u64) -> Verdict {
    Verdict::Deferred { after: Some(Duration::from_secs(seconds)) }
}

fn read_reply(reply: &Reply, attempt: u16) -> (Answer, Signal, Advice) {
    let (attempt, advice) = interpret(reply, attempt, NOW);
    let Report::Attempted(answer) = attempt.report else { panic!("an answer is an attempt") };
    (answer, attempt.signal, advice)
}

fn read(status: u16, body: &str) -> (Answer, Signal, Advice) {
    read_reply(&reply(status, HeaderMap::new(), body), 1)
}

fn fcm_error(code: &str) -> String {
    format!(
        r#"{{"@type":"type.googleapis.com/google.firebase.fcm.v1.FcmError","errorCode":"{code}"}}"#
    )
}

fn bad_request(field: &str) -> String {
    format!(
        r#"{{"@type":"type.googleapis.com/google.rpc.BadRequest","fieldViolations":[{{"field":"{field}","description":"x"}}]}}"#
    )
}

fn quota_failure(subject: &str, description: &str) -> String {
    format!(
        r#"{{"@type":"type.googleapis.com/google.rpc.QuotaFailure","violations":[{{"subject":"{subject}","description":"{description}"}}]}}"#
    )
}

fn apns_error(status: u16) -> String {
    format!(
        r#"{{"@type":"type.googleapis.com/google.firebase.fcm.v1.ApnsError","statusCode":{status},"reason":"x"}}"#
    )
}

fn error(status: &str, message: &str, details: &[String]) -> String {
    let details = details.join(",");
    format!(
        r#"{{"error":{{"code":1,"status":"{status}","message":"{message}","details":[{details}]}}}}"#
    )
}

#[test]
fn every_documented_error_code_has_its_verdict() {
    let check = |status: u16, code: &str, verdict: Verdict, signal: Signal, advice: Advice| {
        let (answer, found_signal, found_advice) =
            read(status, &error("X", "", &[fcm_error(code)]));
        assert_eq!((answer.verdict, answer.status, &*answer.detail), (verdict, status, code));
        assert_eq!((found_signal, found_advice), (signal, advice));
    };
    let (answered, pushed_back) = (Signal::Answered, Signal::PushedBack);
    check(400, "INVALID_ARGUMENT", REFUSED, answered, Advice::CarryOn);
    check(404, "UNREGISTERED", GONE, answered, Advice::CarryOn);
    check(403, "SENDER_ID_MISMATCH", REFUSED, answered, Advice::CarryOn);
    check(429, "QUOTA_EXCEEDED", after(60), pushed_back, Advice::Pause(MINUTE));
    check(503, "UNAVAILABLE", after(10), pushed_back, Advice::CarryOn);
    check(500, "INTERNAL", after(10), pushed_back, Advice::CarryOn);
    check(401, "THIRD_PARTY_AUTH_ERROR", after(900), answered, Advice::Alert);
    check(500, "UNSPECIFIED_ERROR", after(10), pushed_back, Advice::CarryOn);
}

#[test]
fn a_400_means_two_things() {
    let check = |message: &str, details: &[String], verdict: Verdict, detail: &str| {
        let (answer, _, advice) = read(400, &error("INVALID_ARGUMENT", message, details));
        assert_eq!((answer.verdict, &*answer.detail), (verdict, detail), "{details:?}");
        assert_eq!(advice, Advice::CarryOn);
    };
    let invalid = || fcm_error("INVALID_ARGUMENT");
    // The documentation's own two examples.
    let token = "The registration token is not a valid FCM registration token";
    check(token, &[invalid()], GONE, &format!("INVALID_ARGUMENT: {token}"));
    let field = "message.data[0].value";
    check(
        "Invalid value",
        &[bad_request(field)],
        REFUSED,
        &format!("INVALID_ARGUMENT: {field}: Invalid value"),
    );
    // As a mistake in `data` is reported: it says nothing of the recipient.
    for fields in
        [["message.token", "message.data[0].value"], ["message.data[0].value", "message.token"]]
    {
        let details = [invalid(), bad_request(fields[0]), bad_request(fields[1])];
        check(
            "x",
            &details,
            REFUSED,
            &format!("INVALID_ARGUMENT: {}, {}: x", fields[0], fields[1]),
        );
    }
    // From public reports.
    let details = [invalid(), bad_request("message.token")];
    check("x", &details, GONE, "INVALID_ARGUMENT: message.token: x");
    check(
        "Recipient of the message is not set.",
        &[bad_request("message"), invalid()],
        REFUSED,
        "INVALID_ARGUMENT: message: Recipient of the message is not set.",
    );
    check(
        "Android message is too big",
        &[invalid()],
        REFUSED,
        "INVALID_ARGUMENT: Android message is too big",
    );
    check(
        "Request contains an invalid argument.",
        &[],
        REFUSED,
        "INVALID_ARGUMENT: Request contains an invalid argument.",
    );
    let disabled = "APNs device token is disabled.";
    check(disabled, &[invalid(), apns_error(410)], GONE, &format!("INVALID_ARGUMENT: {disabled}"));
    check(token, &[invalid(), apns_error(400)], REFUSED, &format!("INVALID_ARGUMENT: {token}"));
    // A field that is wrong is wrong, whatever the words are about.
    check(
        token,
        &[invalid(), bad_request("message.data")],
        REFUSED,
        &format!("INVALID_ARGUMENT: message.data: {token}"),
    );
}

#[test]
fn the_three_causes_of_an_exceeded_quota_are_told_apart() {
    let check =
        |details: &[String], attempt: u16, verdict: Verdict, signal: Signal, advice: Advice| {
            let body = error("RESOURCE_EXHAUSTED", "", details);
            let reply = reply(429, HeaderMap::new(), body);
            let (answer, found_signal, found_advice) = read_reply(&reply, attempt);
            assert_eq!(
                (answer.verdict, found_signal, found_advice),
                (verdict, signal, advice),
                "{details:?}"
            );
        };
    let exceeded = || fcm_error("QUOTA_EXCEEDED");
    let project = quota_failure("project:shop", "Message rate exceeded");
    let topic = quota_failure("topic:news", "Topic message rate exceeded");
    let device = quota_failure("device", "Device message rate exceeded");
    let pause = Advice::Pause(MINUTE);
    check(&[exceeded(), project.clone()], 1, after(60), Signal::PushedBack, pause);
    check(&[exceeded(), project], 5, after(60), Signal::PushedBack, pause);
    check(&[exceeded(), topic.clone()], 1, after(60), Signal::Answered, Advice::CarryOn);
    check(&[exceeded(), topic], 3, after(240), Signal::Answered, Advice::CarryOn);
    check(&[device.clone(), exceeded()], 1, after(10), Signal::Answered, Advice::CarryOn);
    check(&[device, exceeded()], 4, after(80), Signal::Answered, Advice::CarryOn);
    // What the front end says of a project's quota has no code of FCM's.
    let info =
        r#"{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"RATE_LIMIT_EXCEEDED"}"#;
    check(&[info.to_owned()], 1, after(60), Signal::PushedBack, pause);
    check(&[], 1, after(60), Signal::PushedBack, pause);
}

#[test]
fn a_wait_that_fcm_asks_for_is_kept_within_bounds() {
    let check = |status: u16, details: &[String], asked: &str, attempt: u16, seconds: u64| {
        let headers = HeaderMap::from_iter([(RETRY_AFTER, HeaderValue::from_str(asked).unwrap())]);
        let reply = reply(status, headers, error("X", "", details));
        assert_eq!(read_reply(&reply, attempt).0.verdict, after(seconds), "{status} {asked:?}");
    };
    check(503, &[], "30", 1, 30);
    check(503, &[], "0", 1, 10);
    check(503, &[], "-5", 1, 10);
    check(503, &[], "99999999999999999999999", 1, 3600);
    check(503, &[], "Sun, 06 Nov 1994 08:51:37 GMT", 1, 120);
    check(503, &[], "Sun, 06 Nov 1994 08:00:00 GMT", 1, 10);
    check(503, &[], "soon", 4, 80);
    check(500, &[], "", u16::MAX, 2560);
    check(429, &[], "5", 1, 60);
    check(429, &[], "120", 1, 120);
    let device = quota_failure("device:x", "");
    check(429, &[device], "45", 7, 45);
}

#[test]
fn a_status_speaks_for_itself_when_its_body_does_not() {
    let check = |status: u16, body: &str, verdict: Verdict, advice: Advice| {
        let (answer, _, found) = read(status, body);
        assert_eq!((answer.verdict, found), (verdict, advice), "{status} {body:?}");
        assert_eq!(answer.status, status);
    };
    let html = "<!DOCTYPE html><title>Error 502 (Server Error)!!1</title>";
    check(200, "", Verdict::Accepted, Advice::CarryOn);
    check(200, html, Verdict::Accepted, Advice::CarryOn);
    check(400, html, REFUSED, Advice::CarryOn);
    check(400, r#"{"error":"registration token"}"#, REFUSED, Advice::CarryOn);
    check(401, "", after(900), Advice::RenewToken);
    check(401, &error("UNAUTHENTICATED", "", &[]), after(900), Advice::RenewToken);
    check(403, &error("PERMISSION_DENIED", "", &[]), after(900), Advice::Alert);
    check(404, html, after(900), Advice::Alert);
    check(404, &error("NOT_FOUND", "", &[]), after(900), Advice::Alert);
    check(405, "", REFUSED, Advice::CarryOn);
    check(408, "", after(10), Advice::CarryOn);
    check(409, "", after(10), Advice::CarryOn);
    check(413, "", REFUSED, Advice::CarryOn);
    check(429, "\u{0}", after(60), Advice::Pause(MINUTE));
    check(502, html, after(10), Advice::CarryOn);
    check(504, "{", after(10), Advice::CarryOn);
    check(301, "", after(10), Advice::CarryOn);
    check(599, "[]", after(10), Advice::CarryOn);
    check(
        503,
        r#"{"error":{"details":[7,{"@type":[]},{"@type":"x"}]}}"#,
        after(10),
        Advice::CarryOn,
    );
}

#[test]
fn what_is_kept_of_the_words_is_short_and_plain() {
    let long = "\u{fc}".repeat(10_000);
    let (answer, _, _) = read(400, &error("X", &long, &[]));
    assert!(limits::DETAIL_BYTES - answer.detail.len() < '\u{fc}'.len_utf8(), "{}", answer.detail);
    let (answer, _, _) = read(400, &error("X", "a\\u001b[31mb\\nc", &[]));
    assert_eq!(answer.detail, "X: a[31mbc");
}

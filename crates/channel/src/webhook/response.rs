//! What an endpoint's answers mean. Only the status and `retry-after` are looked at: what a stranger's
//! server says must not end up before somebody else's eyes.

use std::time::Duration;

use http::header::RETRY_AFTER;
use http::{HeaderMap, StatusCode};
use notification::{Answer, Timestamp};

use crate::Attempt;

/// The longest wait that an endpoint can ask for; a longer one is shortened to this.
const RETRY_AFTER_MAX: Duration = Duration::from_hours(1);

/// What an answer means that came at `now`.
pub(super) fn interpret(status: StatusCode, headers: &HeaderMap, now: Timestamp) -> Attempt {
    let code = status.as_u16();
    let reason = status.canonical_reason().unwrap_or("");
    let deferred = || Answer::deferred(code, retry_after(headers, now), reason);
    match code {
        200..=299 => Attempt::answered(Answer::accepted(code)),
        300..=399 => {
            Attempt::answered(Answer::refused(code, false, "a redirect, which is never followed"))
        }
        410 => Attempt::answered(Answer::refused(code, true, reason)),
        408 | 425 => Attempt::answered(deferred()),
        429 | 502 | 503 | 504 => Attempt::pushed_back(deferred()),
        400..=499 => Attempt::answered(Answer::refused(code, false, reason)),
        _ => Attempt::answered(deferred()),
    }
}

/// How long the endpoint asks to wait: seconds, or an instant, which may have passed.
fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let digits_only = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let wait = if digits_only {
        // More digits than fit are still a long time.
        Duration::from_secs(text.parse().unwrap_or(u64::MAX))
    } else {
        let parser = jiff::fmt::rfc2822::DateTimeParser::new();
        let instant = parser.parse_timestamp(text).ok()?;
        Timestamp::from_millis(instant.as_millisecond()).since(now)
    };
    Some(wait.min(RETRY_AFTER_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use flow::Signal;
    use notification::{Report, Verdict};

    /// Sun, 06 Nov 1994 08:49:37 GMT
    const NOW: Timestamp = Timestamp::from_millis(784_111_777_000);

    fn read(status: u16, retry_after: &str) -> (Verdict, Signal) {
        let mut headers = HeaderMap::new();
        headers.insert(RETRY_AFTER, retry_after.parse().unwrap());
        let attempt = interpret(StatusCode::from_u16(status).unwrap(), &headers, NOW);
        let Report::Attempted(answer) = attempt.report else { panic!("an answer is an attempt") };
        assert_eq!(answer.status, status);
        (answer.verdict, attempt.signal)
    }

    #[test]
    fn every_status_has_its_verdict() {
        let again = Verdict::Deferred { after: None };
        let refused = Verdict::Refused { gone: false };
        let check = |statuses: &[u16], verdict: Verdict, signal: Signal| {
            for &status in statuses {
                assert_eq!(read(status, ""), (verdict, signal), "{status}");
            }
        };
        check(&[200, 201, 202, 204, 299], Verdict::Accepted, Signal::Answered);
        check(&[300, 301, 302, 303, 304, 307, 308, 399], refused, Signal::Answered);
        check(&[410], Verdict::Refused { gone: true }, Signal::Answered);
        check(&[400, 401, 403, 404, 405, 413, 422, 499], refused, Signal::Answered);
        check(&[408, 425], again, Signal::Answered);
        check(&[429, 502, 503, 504], again, Signal::PushedBack);
        check(&[500, 501, 505, 599, 600, 999], again, Signal::Answered);
    }

    #[test]
    fn a_wait_that_is_asked_for_is_read_and_bounded() {
        let check = |text: &str, seconds: Option<u64>| {
            let after = seconds.map(Duration::from_secs);
            assert_eq!(read(503, text).0, Verdict::Deferred { after }, "{text:?}");
        };
        check("120", Some(120));
        check("0", Some(0));
        check(" 7 ", Some(7));
        check("3601", Some(3600));
        check("99999999999999999999999999", Some(3600));
        check("Sun, 06 Nov 1994 08:51:37 GMT", Some(120));
        check("Sun, 06 Nov 1994 08:00:00 GMT", Some(0));
        check("Fri, 01 Jan 2100 00:00:00 GMT", Some(3600));
        check("-5", None);
        check("1.5", None);
        check("soon", None);
        check("", None);
        assert_eq!(read(500, "9").0, Verdict::Deferred { after: Some(Duration::from_secs(9)) });
    }
}

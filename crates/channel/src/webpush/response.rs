//! What a push service's answers mean (RFC 8030, and what services say beyond it).

use http::HeaderMap;
use notification::{Answer, Timestamp};

use crate::Attempt;
use crate::answers::{RETRY_AFTER_MAX, retry_after, words};

/// What an answer asks for beside its verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Advice {
    /// Nothing.
    CarryOn,
    /// Our key, our subject or our clock is wrong, or the page subscribed with another key: somebody has to look.
    Complain,
}

/// What an answer means that came at `now`. Of its body, which may be cut short or anything at all, some words are kept.
pub(super) fn interpret(
    status: u16,
    headers: &HeaderMap,
    body: &[u8],
    now: Timestamp,
) -> (Attempt, Advice) {
    let refused = |gone| Attempt::answered(Answer::refused(status, gone, words(status, body)));
    let wait = || retry_after(headers, now).map(|wait| wait.min(RETRY_AFTER_MAX));
    let deferred = || Answer::deferred(status, wait(), words(status, body));
    let attempt = match status {
        200..=299 => Attempt::answered(Answer::accepted(status)),
        300..=399 => {
            let detail = "a redirect, which is never followed";
            Attempt::answered(Answer::refused(status, false, detail))
        }
        404 | 410 => refused(true),
        408 | 425 => Attempt::answered(deferred()),
        // 406 is how Windows' service says it: RFC 8030 has 429 for it.
        406 | 429 | 502 | 503 | 504 => Attempt::pushed_back(deferred()),
        400..=499 => refused(false),
        _ => Attempt::answered(deferred()),
    };
    let advice = if matches!(status, 400 | 401 | 403) { Advice::Complain } else { Advice::CarryOn };
    (attempt, advice)
}

#[cfg(test)]
mod tests {
    use super::*;
    use flow::Signal;
    use http::header::RETRY_AFTER;
    use notification::{Report, Verdict};
    use std::time::Duration;

    const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);
    const REFUSED: Verdict = Verdict::Refused { gone: false };
    const GONE: Verdict = Verdict::Refused { gone: true };
    const AGAIN: Verdict = Verdict::Deferred { after: None };

    fn read(status: u16, retry_after: Option<&str>, body: &str) -> (Answer, Signal, Advice) {
        let mut headers = HeaderMap::new();
        headers.extend(retry_after.map(|text| (RETRY_AFTER, text.parse().unwrap())));
        let (attempt, advice) = interpret(status, &headers, body.as_bytes(), NOW);
        let Report::Attempted(answer) = attempt.report else { panic!("an answer is an attempt") };
        assert_eq!(answer.status, status);
        (answer, attempt.signal, advice)
    }

    #[test]
    fn every_status_has_its_verdict() {
        use Advice::{CarryOn, Complain};
        use Signal::{Answered, PushedBack};
        let check = |statuses: &[u16], verdict: Verdict, signal: Signal, advice: Advice| {
            for &status in statuses {
                let (answer, found, said) = read(status, None, "");
                assert_eq!((answer.verdict, found, said), (verdict, signal, advice), "{status}");
            }
        };
        check(&[200, 201, 202, 204, 299], Verdict::Accepted, Answered, CarryOn);
        check(&[300, 301, 302, 303, 304, 307, 308, 399], REFUSED, Answered, CarryOn);
        check(&[404, 410], GONE, Answered, CarryOn);
        check(&[400, 401, 403], REFUSED, Answered, Complain);
        check(&[402, 405, 411, 413, 415, 422, 451, 499], REFUSED, Answered, CarryOn);
        check(&[408, 425], AGAIN, Answered, CarryOn);
        check(&[406, 429, 502, 503, 504], AGAIN, PushedBack, CarryOn);
        check(&[500, 501, 505, 507, 599, 600, 999], AGAIN, Answered, CarryOn);
    }

    #[test]
    fn a_wait_is_asked_for_by_whoever_defers() {
        for status in [406, 408, 429, 500, 503] {
            let after = Some(Duration::from_secs(30));
            assert_eq!(read(status, Some("30"), "").0.verdict, Verdict::Deferred { after });
        }
        assert_eq!(
            read(429, Some("999999"), "").0.verdict,
            Verdict::Deferred { after: Some(Duration::from_hours(1)) }
        );
        assert_eq!(read(410, Some("30"), "").0.verdict, GONE);
    }

    #[test]
    fn the_words_of_a_refusal_are_kept_and_those_of_an_acceptance_are_not() {
        let body = r#"{"code":410,"errno":103,"error":"Gone","message":"expired"}"#;
        assert_eq!(read(410, None, body).0.detail, format!("Gone: {body}"));
        assert_eq!(read(403, None, "key mismatch").0.detail, "Forbidden: key mismatch");
        assert_eq!(read(201, None, "<html>").0.detail, "");
        assert_eq!(read(301, None, "<html>").0.detail, "a redirect, which is never followed");
    }
}

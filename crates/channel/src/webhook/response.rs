//! The meaning of an endpoint's answers. An endpoint is its owner's code: what a deploy can cause for a while is tried
//! again, what judges the request itself is final. Between us and it stand proxies of third parties: only what says that it was
//! declined is known not to have been acted on.

use net::exchange::Reply;
use notification::{Answer, Timestamp};

use crate::Attempt;
use crate::answers::{RETRY_AFTER_MAX, retry_after, words};

/// The meaning of an answer that came at `now`. Some words of the body are kept unless it is an acceptance.
pub(super) fn interpret(reply: &Reply, now: Timestamp) -> Attempt {
    let Reply { status, headers, body, .. } = reply;
    let code = *status;
    let refused = |is_unregistered| {
        Attempt::answered(Answer::refused(code, is_unregistered, words(code, body)))
    };
    let wait = || retry_after(headers, now).map(|wait| wait.min(RETRY_AFTER_MAX));
    let deferred = || {
        // A proxy may say 503 of an endpoint that stopped answering over the request; a server that declines says for how long.
        let declined = matches!(code, 400..=407 | 409..=499) || (code == 503 && wait().is_some());
        Answer::deferred(code, wait(), words(code, body)).acted(!declined)
    };
    match code {
        200..=299 => Attempt::answered(Answer::accepted(code)),
        // Following it could lead anywhere, and with our signature; its body is for clients that follow.
        300..=399 => {
            Attempt::answered(Answer::refused(code, false, "a redirect, which is never followed"))
        }
        410 => refused(true),
        // A route that is not there yet, a gateway that does not know its keys, a resource that is locked: a deploy
        // can cause them, and another ends them.
        401 | 403 | 404 | 407..=409 | 421 | 423..=425 => Attempt::answered(deferred()),
        429 => Attempt::over_rate(deferred()),
        // Standard Webhooks reads 502 and 504 as too much load, and 503 says so itself. Its `Retry-After` is of an outage, not of a rate.
        502..=504 => Attempt::pushed_back(deferred()),
        400..=499 => refused(false),
        _ => Attempt::answered(deferred()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::reply;
    use flow::Signal;
    use http::HeaderMap;
    use http::header::RETRY_AFTER;
    use notification::{Report, Verdict};
    use std::time::Duration;

    const NOW: Timestamp = Timestamp::from_millis(784_111_777_000);

    fn read(status: u16, retry_after: &str, body: &str) -> (Answer, Signal) {
        let mut headers = HeaderMap::new();
        headers.insert(RETRY_AFTER, retry_after.parse().unwrap());
        let attempt = interpret(&reply(status, headers, body), NOW);
        let Report::Attempted(answer) = attempt.report else { panic!("an answer is an attempt") };
        assert_eq!(answer.status, status);
        (answer, attempt.signal)
    }

    #[test]
    fn every_status_has_its_verdict() {
        let again = Verdict::Deferred { after: None };
        let refused = Verdict::Refused { gone: false };
        let mut seen = 0;
        let mut check = |statuses: &[u16], verdict: Verdict, signal: Signal| {
            for &status in statuses {
                let (answer, found) = read(status, "", "");
                assert_eq!((answer.verdict, found), (verdict, signal), "{status}");
                seen += 1;
            }
        };
        check(&[200, 201, 202, 204, 299], Verdict::Accepted, Signal::Answered);
        check(&[300, 301, 302, 303, 304, 307, 308, 399], refused, Signal::Answered);
        check(&[410], Verdict::Refused { gone: true }, Signal::Answered);
        check(&[400, 402, 405, 406, 411, 412, 413], refused, Signal::Answered);
        check(&[414, 415, 417, 418, 422, 426, 428, 431, 451, 499], refused, Signal::Answered);
        check(&[401, 403, 404, 407, 408, 409, 421, 423, 424, 425], again, Signal::Answered);
        check(&[429], again, Signal::OverRate);
        check(&[502, 503, 504], again, Signal::PushedBack);
        check(&[500, 501, 505, 599, 600, 999], again, Signal::Answered);
        assert_eq!(seen, 51);
    }

    #[test]
    fn who_defers_may_say_for_how_long() {
        for status in [404, 429, 500, 503] {
            let after = Some(Duration::from_secs(9));
            assert_eq!(read(status, "9", "").0.verdict, Verdict::Deferred { after });
        }
        let after = Some(Duration::from_hours(1));
        assert_eq!(read(503, "999999", "").0.verdict, Verdict::Deferred { after });
    }

    #[test]
    fn only_what_is_known_to_be_declined_was_not_acted_on() {
        let check = |statuses: &[u16], retry_after: &str, expect: bool| {
            for &status in statuses {
                assert_eq!(read(status, retry_after, "").0.may_have_acted, expect, "{status}");
            }
        };
        check(&[401, 403, 404, 407, 409, 421, 423, 424, 425, 429], "", false);
        check(&[503], "9", false);
        check(&[408, 500, 501, 502, 503, 504, 505, 599, 600, 999], "", true);
        check(&[200, 302, 400, 410, 422], "", false);
    }

    #[test]
    fn the_words_of_what_is_not_accepted_are_kept_but_for_a_redirect() {
        assert_eq!(
            read(422, "", "no such tenant").0.detail,
            "Unprocessable Entity: no such tenant"
        );
        assert_eq!(read(500, "", "panic").0.detail, "Internal Server Error: panic");
        assert_eq!(read(200, "", "thanks").0.detail, "");
        assert_eq!(read(302, "", "<a>").0.detail, "a redirect, which is never followed");
    }
}

//! The meaning of a push service's answers (RFC 8030, and what services say beyond it).
//!
//! Whom an answer blames for a proof that does not hold (RFC 8292, section 4.2) is for its words to tell: the standard has
//! one status for a token that is wrong, which is our mistake, and for a subscription that was made with another key, and
//! services use three. Words are those of Mozilla's autopush (`errno` 109), of FCM, and Apple's `reason`; Windows' service
//! has a status for each and no words.

use http::header::RETRY_AFTER;
use http::{HeaderMap, HeaderName};
use net::exchange::Reply;
use notification::{Answer, Timestamp};

use crate::Attempt;
use crate::answers::{RETRY_AFTER_MAX, SETTINGS_DELAY, retry_after, words};

/// The header fields of answers that are read.
pub(super) static READ_FIELDS: [HeaderName; 2] = [RETRY_AFTER, HeaderName::from_static(WNS_MSG_ID)];
const WNS_MSG_ID: &str = "x-wns-msg-id";

/// The action that an answer asks for beside its verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Advice {
    /// Nothing.
    CarryOn,
    /// Our key, our subject or our clock is wrong: an operator must check them.
    Alert,
}

/// The cause of a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Blame {
    /// The request.
    Request,
    /// Our key, our subject or our clock.
    Ours,
    /// The key of the subscription, which is not ours.
    OtherKey,
}

/// How services say that a subscription was made with another key: FCM, as it was and as it is, autopush, Apple. In lower case.
const OTHER_KEY: &[&str] = &[
    "does not correspond to the sender id",
    "mismatchsenderid",
    "do not correspond to the credentials used to create the subscription",
    "vapid public key mismatch",
    "vapidpkhashmismatch",
];
/// Words of a 400 that is about the proof, such as FCM's `UnauthorizedRegistration`. In lower case.
const OUR_PROOF: &[&str] = &["authoriz", "jwt", "vapid"];

/// The meaning of an answer that came at `now`. Of its body, which may be cut short or anything at all, some words are kept.
///
/// Another key than ours may be a mistake in this channel's settings, which would refuse every subscription there is: so
/// it is final only where `is_key_proven`, which says that the service has accepted our key since the start.
pub(super) fn interpret(reply: &Reply, now: Timestamp, is_key_proven: bool) -> (Attempt, Advice) {
    let Reply { status, headers, body, .. } = reply;
    let status = *status;
    let refused = |is_unregistered| {
        Attempt::answered(Answer::refused(status, is_unregistered, words(status, body)))
    };
    let wait = || retry_after(headers, now).map(|wait| wait.min(RETRY_AFTER_MAX));
    let deferred = |after| Answer::deferred(status, after, words(status, body));
    let attempt = match status {
        200..=299 => Attempt::answered(Answer::accepted(status)),
        // As for webhooks: it could lead anywhere, and with our proof.
        300..=399 => {
            let detail = "a redirect, which is never followed";
            Attempt::answered(Answer::refused(status, false, detail))
        }
        400 | 401 | 403 => match blame(status, headers, body) {
            Blame::Request => refused(false),
            Blame::OtherKey if is_key_proven => refused(false),
            Blame::OtherKey | Blame::Ours => {
                let waiting = Attempt::answered(deferred(Some(SETTINGS_DELAY)));
                return (waiting, Advice::Alert);
            }
        },
        404 | 410 => refused(true),
        408 | 425 => Attempt::answered(deferred(wait())),
        // 406 is how Windows' service says it: RFC 8030 has 429 for it.
        406 | 429 => Attempt::over_rate(deferred(wait())),
        502..=504 => Attempt::pushed_back(deferred(wait())),
        400..=499 => refused(false),
        _ => Attempt::answered(deferred(wait())),
    };
    (attempt, Advice::CarryOn)
}

/// The cause of a 400, 401 or 403. Where it cannot be told it is ours, which loses nothing.
fn blame(status: u16, headers: &HeaderMap, body: &[u8]) -> Blame {
    let text = String::from_utf8_lossy(body).to_ascii_lowercase();
    let says = |words: &[&str]| words.iter().any(|word| text.contains(word));
    match status {
        _ if says(OTHER_KEY) => Blame::OtherKey,
        // "Not authorized to send to this channel, although authenticated."
        403 if headers.contains_key(WNS_MSG_ID) => Blame::OtherKey,
        400 if !says(OUR_PROOF) => Blame::Request,
        _ => Blame::Ours,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::reply;
    use flow::Signal;
    use notification::{Report, Verdict};
    use std::time::Duration;

    const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);
    const REFUSED: Verdict = Verdict::Refused { gone: false };
    const GONE: Verdict = Verdict::Refused { gone: true };
    const AGAIN: Verdict = Verdict::Deferred { after: None };
    const MENDED_FIRST: Verdict = Verdict::Deferred { after: Some(SETTINGS_DELAY) };

    fn read(status: u16, retry_after: Option<&str>, body: &str) -> (Answer, Signal, Advice) {
        let mut headers = HeaderMap::new();
        headers.extend(retry_after.map(|text| (RETRY_AFTER, text.parse().unwrap())));
        read_with(status, &headers, body, false)
    }

    fn read_with(
        status: u16,
        headers: &HeaderMap,
        body: &str,
        is_key_proven: bool,
    ) -> (Answer, Signal, Advice) {
        let (attempt, advice) =
            interpret(&reply(status, headers.clone(), body), NOW, is_key_proven);
        let Report::Attempted(answer) = attempt.report else { panic!("an answer is an attempt") };
        assert_eq!(answer.status, status);
        (answer, attempt.signal, advice)
    }

    #[test]
    fn every_status_has_its_verdict() {
        use Advice::{Alert, CarryOn};
        use Signal::{Answered, OverRate, PushedBack};
        let check = |statuses: &[u16], verdict: Verdict, signal: Signal, advice: Advice| {
            for &status in statuses {
                let (answer, found, said) = read(status, None, "");
                assert_eq!((answer.verdict, found, said), (verdict, signal, advice), "{status}");
            }
        };
        check(&[200, 201, 202, 204, 299], Verdict::Accepted, Answered, CarryOn);
        check(&[300, 301, 302, 303, 304, 307, 308, 399], REFUSED, Answered, CarryOn);
        check(&[404, 410], GONE, Answered, CarryOn);
        check(&[401, 403], MENDED_FIRST, Answered, Alert);
        check(&[400, 402, 405, 411, 413, 415, 422, 451, 499], REFUSED, Answered, CarryOn);
        check(&[408, 425], AGAIN, Answered, CarryOn);
        check(&[406, 429], AGAIN, OverRate, CarryOn);
        check(&[502, 503, 504], AGAIN, PushedBack, CarryOn);
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

    /// Answers of services to a proof that does not hold.
    #[test]
    fn a_mistake_of_ours_waits_for_us_and_the_key_of_a_subscription_is_its_own_matter() {
        let fcm = "the VAPID credentials in the authorization header do not correspond to the credentials used to \
                   create the subscriptions.";
        let fcm_once = "the key in the authorization header does not correspond to the sender ID used to subscribe \
                        this user.";
        let fcm_400 = "<HTML><TITLE>UnauthorizedRegistration</TITLE><H2>Error 400</H2></HTML>";
        let autopush = |message: &str| {
            format!(r#"{{"code":401,"errno":109,"error":"Unauthorized","message":"{message}"}}"#)
        };
        let apple = |reason: &str| format!(r#"{{"reason":"{reason}"}}"#);
        let check = |status: u16, body: &str, unproven: Verdict, proven: Verdict| {
            for (is_key_proven, verdict) in [(false, unproven), (true, proven)] {
                let (answer, signal, advice) =
                    read_with(status, &HeaderMap::new(), body, is_key_proven);
                assert_eq!((answer.verdict, signal), (verdict, Signal::Answered), "{body}");
                assert_eq!(advice == Advice::Alert, verdict == MENDED_FIRST, "{body}");
            }
        };
        check(403, fcm, MENDED_FIRST, REFUSED);
        check(403, fcm_once, MENDED_FIRST, REFUSED);
        check(401, &autopush("VAPID public key mismatch"), MENDED_FIRST, REFUSED);
        check(400, &apple("VapidPkHashMismatch"), MENDED_FIRST, REFUSED);
        check(403, &apple("VapidPkHashMismatch"), MENDED_FIRST, REFUSED);
        check(403, "invalid JWT provided", MENDED_FIRST, MENDED_FIRST);
        check(401, "authorization header must be specified", MENDED_FIRST, MENDED_FIRST);
        check(400, fcm_400, MENDED_FIRST, MENDED_FIRST);
        check(401, &autopush("Invalid VAPID audience"), MENDED_FIRST, MENDED_FIRST);
        check(403, &apple("BadJwtToken"), MENDED_FIRST, MENDED_FIRST);
        check(400, &apple("BadAuthorizationHeader"), MENDED_FIRST, MENDED_FIRST);
        check(400, &apple("BadWebPushTopic"), REFUSED, REFUSED);
        check(400, "\u{fffd}\0", REFUSED, REFUSED);
        let mut of_windows = HeaderMap::new();
        of_windows.insert(WNS_MSG_ID, "2D3CCACF3E2F45C0".parse().unwrap());
        assert_eq!(read_with(403, &of_windows, "", true).0.verdict, REFUSED);
        assert_eq!(read_with(403, &of_windows, "", false).0.verdict, MENDED_FIRST);
        assert_eq!(read_with(401, &of_windows, "", true).0.verdict, MENDED_FIRST);
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

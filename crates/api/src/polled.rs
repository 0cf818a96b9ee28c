//! Answers that clients poll: with an entity tag, and without a body where the client has this one (RFC 9110, sections 8.8.3 and 13.1.2).

use aws_lc_rs::digest;
use axum::http::header::{CONTENT_TYPE, ETAG, HeaderValue, IF_NONE_MATCH};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use serde::Serialize;

use crate::problem::Problem;
use crate::problem_code::ProblemCode;

/// Bytes of the hash of a body that are its tag.
const TAG_BYTES: usize = 12;

/// The answer with the JSON of `answer` to a request with `headers`.
pub(crate) fn polled(headers: &HeaderMap, answer: &impl Serialize) -> Result<Response, Problem> {
    let failed =
        |error: serde_json::Error| Problem::new(ProblemCode::InternalError, error.to_string());
    Ok(polled_json(headers, serde_json::to_vec(answer).map_err(failed)?.into()))
}

/// [`polled`], of JSON that is there.
pub(crate) fn polled_json(headers: &HeaderMap, body: Bytes) -> Response {
    let hash = digest::digest(&digest::SHA256, &body);
    let hash = hash.as_ref().get(..TAG_BYTES).unwrap_or_default();
    let tag = format!("\"{}\"", URL_SAFE_NO_PAD.encode(hash));
    let tagged = [(ETAG, tag.clone())];
    if is_known(headers, &tag) {
        return (StatusCode::NOT_MODIFIED, tagged).into_response();
    }
    (tagged, [(CONTENT_TYPE, "application/json")], body).into_response()
}

/// True if a request with `headers` comes from a client that has the answer with this strong tag.
pub(crate) fn is_known(headers: &HeaderMap, tag: &str) -> bool {
    headers.get_all(IF_NONE_MATCH).iter().any(|known| names(known, tag))
}

/// True if `known`, a list of tags or `*`, has `tag`. Compared weakly, as the header asks for: a proxy may have made it a weak one.
fn names(known: &HeaderValue, tag: &str) -> bool {
    // The tags are of letters, digits, - and _: a comma parts them.
    let mut known = known.to_str().unwrap_or_default().split(',').map(str::trim);
    known.any(|known| known == "*" || known.strip_prefix("W/").unwrap_or(known) == tag)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_that_the_client_has_is_not_sent_again() {
        let answer = |known: Option<&str>, body: &'static str| {
            let mut headers = HeaderMap::new();
            if let Some(known) = known {
                headers.insert(IF_NONE_MATCH, known.parse().unwrap());
            }
            let response = polled_json(&headers, Bytes::from_static(body.as_bytes()));
            (response.status().as_u16(), response.headers()[ETAG].to_str().unwrap().to_owned())
        };
        let (status, tag) = answer(None, "{}");
        assert_eq!((status, tag.len()), (200, 18));
        let several = format!("\"other\", W/{tag}");
        for known in [&*tag, "*", &*several] {
            assert_eq!(answer(Some(known), "{}"), (304, tag.clone()), "{known}");
        }
        assert_eq!(answer(Some("\"other\""), "{}").0, 200);
        let (status, other) = answer(Some(&tag), "[]");
        assert!(status == 200 && other != tag);
    }
}

//! One exchange with a token endpoint: HTTP/1.1 over a connection of its own, once in most of an hour.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST};
use http::{HeaderValue, Request};
use http_body_util::Full;
use net::exchange::Reply;
use net::tcp::Anywhere;
use net::{http1, redact, words};
use serde::Deserialize;

use super::config::TokenUri;

/// An access token.
#[derive(Debug)]
pub(super) struct AccessToken {
    /// The `authorization` header.
    pub(super) authorization: HeaderValue,
    pub(super) lifetime: Duration,
}

/// Why there is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TokenError {
    /// The endpoint does not accept the account: an operator must check it.
    Account(String),
    /// It may do so later.
    ForNow(String),
}

/// How long it may take.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The longest and the shortest lifetime of a token that is believed.
const LIFETIME_MAX: Duration = Duration::from_hours(24);
const LIFETIME_MIN: Duration = Duration::from_secs(1);
/// That of a token whose endpoint does not say (RFC 6749, section 5.1), Google's own. One that ends before is renewed when FCM
/// refuses it.
const LIFETIME_DEFAULT: Duration = Duration::from_hours(1);

#[derive(Deserialize)]
struct TokenBody {
    access_token: String,
    /// Seconds: a number, whole or not, or one as text, which some servers write.
    expires_in: Option<serde_json::Value>,
}

#[derive(Debug, Deserialize)]
struct TokenErrorBody {
    error: String,
    #[serde(default)]
    error_description: String,
}

/// Exchanges `assertion` for an access token (RFC 7523, section 2.1).
pub(super) async fn exchange(
    uri: &TokenUri,
    tls: &Arc<rustls::ClientConfig>,
    assertion: &str,
) -> Result<AccessToken, TokenError> {
    // The assertion is base64url and dots, which a form leaves as it is.
    let form = format!(
        "grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Ajwt-bearer&assertion={assertion}"
    );
    let described = |message: String| {
        words::plain(&format!("no access token from {}: {message}", uri.endpoint.origin))
    };
    let refuse = |message: String| TokenError::ForNow(described(message));
    let asking = tokio::time::timeout(TIMEOUT, post(uri, tls, form));
    let Reply { status, mut body, .. } = match asking.await {
        Ok(answer) => answer.map_err(refuse)?,
        Err(_) => return Err(refuse("no answer within 10 s".to_owned())),
    };
    // An assertion is good for an hour, and some endpoints repeat what they refuse.
    if !is_success(status)
        && let Some(shown) = redact::without(&body, &[assertion])
    {
        body = shown;
    }
    read(status, &body).map_err(|message| match status {
        // The endpoint has judged the account, and not failed (RFC 6749, section 5.2).
        400 | 401 | 403 => TokenError::Account(described(message)),
        _ => refuse(message),
    })
}

const fn is_success(status: u16) -> bool {
    matches!(status, 200..=299)
}

/// The meaning of an answer. Its body may be anything at all.
fn read(status: u16, body: &[u8]) -> Result<AccessToken, String> {
    if !is_success(status) {
        let said = serde_json::from_slice(body).map_or_else(
            |_| String::new(),
            |said: TokenErrorBody| format!(": {} {}", said.error, said.error_description),
        );
        return Err(words::plain(&format!("status {status}{said}")));
    }
    let token: TokenBody = serde_json::from_slice(body)
        // The message of the parser could show a piece of the token.
        .map_err(|_| "the answer is not JSON with access_token".to_owned())?;
    let mut authorization = HeaderValue::from_str(&format!("Bearer {}", token.access_token))
        .map_err(|_| "the access token cannot be sent as a header".to_owned())?;
    // No log shows it.
    authorization.set_sensitive(true);
    let lifetime = token.expires_in.as_ref().map_or(Some(LIFETIME_DEFAULT), seconds);
    let lifetime = lifetime.ok_or_else(|| "expires_in is not a number of seconds".to_owned())?;
    let lifetime = lifetime.clamp(LIFETIME_MIN, LIFETIME_MAX);
    Ok(AccessToken { authorization, lifetime })
}

fn seconds(value: &serde_json::Value) -> Option<Duration> {
    let number = value.as_f64().or_else(|| value.as_str()?.trim().parse().ok())?;
    Duration::try_from_secs_f64(number).ok()
}

async fn post(
    uri: &TokenUri,
    config: &Arc<rustls::ClientConfig>,
    form: String,
) -> Result<Reply, String> {
    let origin = &uri.endpoint.origin;
    // `host` is written here, since hyper's connections add none and HTTP/1.1 demands it (RFC 9112, section 3.2).
    let request = Request::post(uri.endpoint.path.as_str())
        .header(HOST, origin.authority())
        .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
        .body(Full::new(Bytes::from(form)))
        .map_err(|error| error.to_string())?;
    http1::exchange_once(origin, Some(config), &Anywhere, request).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_token_endpoint_says_is_read_with_suspicion() {
        let check = |status: u16, body: &str, expect: Result<(&str, u64), &str>| {
            let read = read(status, body.as_bytes());
            let read = read.map(|granted| {
                (granted.authorization.to_str().unwrap().to_owned(), granted.lifetime.as_secs())
            });
            let expect = expect.map(|(header, seconds)| (header.to_owned(), seconds));
            assert_eq!(read, expect.map_err(str::to_owned), "{status} {body}");
        };
        let good = r#"{"access_token":"ya29.x","expires_in":3599,"token_type":"Bearer"}"#;
        check(200, good, Ok(("Bearer ya29.x", 3599)));
        check(200, r#"{"access_token":"x","expires_in":0}"#, Ok(("Bearer x", 1)));
        check(200, r#"{"access_token":"x","expires_in":999999999}"#, Ok(("Bearer x", 86_400)));
        check(200, r#"{"access_token":"x","expires_in":"3599"}"#, Ok(("Bearer x", 3599)));
        check(200, r#"{"access_token":"x","expires_in":3599.9}"#, Ok(("Bearer x", 3599)));
        check(200, r#"{"access_token":"x"}"#, Ok(("Bearer x", 3600)));
        check(200, r#"{"access_token":"x","expires_in":null}"#, Ok(("Bearer x", 3600)));
        for odd in ["-1", "\"soon\"", "[]", "1e300", "true"] {
            let body = format!(r#"{{"access_token":"x","expires_in":{odd}}}"#);
            check(200, &body, Err("expires_in is not a number of seconds"));
        }
        let shape = "the answer is not JSON with access_token";
        check(200, "", Err(shape));
        check(200, "<html>", Err(shape));
        check(200, r#"{"id_token":"x"}"#, Err(shape));
        let injected = r#"{"access_token":"x\r\na: b","expires_in":1}"#;
        check(200, injected, Err("the access token cannot be sent as a header"));
        let said = r#"{"error":"invalid_grant","error_description":"Invalid JWT Signature."}"#;
        check(400, said, Err("status 400: invalid_grant Invalid JWT Signature."));
        check(503, "<html>", Err("status 503"));
        check(302, "", Err("status 302"));
    }
}

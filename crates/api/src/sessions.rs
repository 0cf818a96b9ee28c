//! Sessions of the dashboard: a browser gives an operator's key once, and goes by a cookie afterwards.
//!
//! A session is good for what its key is good for as a request comes, and for the streams that began by it: it ends with the key. The
//! cookie is a random text that scripts cannot read (`HttpOnly`), and that no page of another site is sent with (`SameSite=Strict`,
//! RFC 6265bis). Requests that change something need the session's CSRF token in a header, which no form and no page of another origin can
//! send, and a request that the browser says is of another origin is refused. Cookies know no ports: the name has the port, so that engines
//! on one host do not overwrite each other's, and a server at another port of the same host is sent the cookie all the same. So operators
//! have a host name of their own (docs/dashboard.md).

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use aws_lc_rs::{constant_time, digest, rand};
use axum::http::header::{COOKIE, HOST, ORIGIN};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, Request};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use store::KeyHash;

use crate::keys::{KeyError, sha256};
use crate::limits::{KEY_SESSIONS, SESSION_LASTS, SESSIONS};
use crate::problem::Problem;
use crate::problem_code::ProblemCode;

/// The header with the CSRF token of the session.
pub(crate) const CSRF_HEADER: &str = "x-belfry-csrf";
const RANDOM_BYTES: usize = 32;
/// Cookies of a request that are looked at.
const TOKENS: usize = 8;
/// Browsers take a cookie with this prefix over TLS alone, and from the host itself alone (RFC 6265bis, section 4.1.3.2).
const HOST_PREFIX: &str = "__Host-";

/// The sessions of one process.
#[derive(Debug, Default)]
pub(crate) struct Sessions(Mutex<HashMap<TokenHash, Session>>);

/// SHA-256 of the text in a cookie: the text itself is not kept.
type TokenHash = [u8; 32];

/// One session.
#[derive(Debug, Clone, Copy)]
struct Session {
    key: KeyHash,
    /// On the clock that suspended time counts on: a machine that sleeps makes no session longer.
    ends_at: Duration,
}

/// The text in a session's cookie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SessionToken(String);

/// A session that a request came by.
#[derive(Debug, Clone)]
pub(crate) struct OpenSession {
    pub(crate) token: SessionToken,
    pub(crate) key: KeyHash,
    /// The time that is left of it.
    pub(crate) left: Duration,
}

// === impl Sessions ===

impl Sessions {
    /// A new session of the key with this hash, which ends after [`SESSION_LASTS`]. Where there are as many as there may be, the oldest one
    /// ends: of the key's own, or else of all.
    ///
    /// # Errors
    /// [`KeyError::Random`] when the system has no random numbers.
    pub(crate) fn begin(&self, key: KeyHash, now: Duration) -> Result<SessionToken, KeyError> {
        let mut random = [0; RANDOM_BYTES];
        rand::fill(&mut random).map_err(|_| KeyError::Random)?;
        let token = SessionToken(URL_SAFE_NO_PAD.encode(random));
        let mut sessions = self.lock();
        sessions.retain(|_, session| session.ends_at > now);
        if sessions.values().filter(|session| session.key == key).count() >= KEY_SESSIONS {
            remove_oldest(&mut sessions, |session| session.key == key);
        }
        if sessions.len() >= SESSIONS {
            remove_oldest(&mut sessions, |_| true);
        }
        sessions.insert(token.hash(), Session { key, ends_at: now + SESSION_LASTS });
        Ok(token)
    }

    /// The session that `request` came by, if it has the cookie of one that has not ended.
    ///
    /// # Errors
    /// When the request may be one that a page of another origin made.
    pub(crate) fn find<B>(
        &self,
        request: &Request<B>,
        now: Duration,
    ) -> Result<Option<OpenSession>, Problem> {
        let tokens = SessionToken::all_of(request);
        let found = tokens.into_iter().find_map(|token| {
            let session = self.lock().get(&token.hash()).copied();
            session.filter(|session| session.ends_at > now).map(|session| (token, session))
        });
        let Some((token, session)) = found else { return Ok(None) };
        if !is_of_own_origin(request.headers()) {
            let detail =
                "the session of the dashboard is good for its own pages alone: send an API key";
            return Err(Problem::new(ProblemCode::Csrf, detail));
        }
        if !request.method().is_safe() {
            token.check_csrf(request.headers())?;
        }
        let left = session.ends_at.saturating_sub(now);
        Ok(Some(OpenSession { token, key: session.key, left }))
    }

    /// True while the session of `token` has not ended.
    pub(crate) fn has(&self, token: &SessionToken, now: Duration) -> bool {
        self.lock().get(&token.hash()).is_some_and(|session| session.ends_at > now)
    }

    /// Ends the session of `token`.
    pub(crate) fn end(&self, token: &SessionToken) {
        self.lock().remove(&token.hash());
    }

    /// Ends the sessions whose cookies `request` has.
    pub(crate) fn end_those_of<B>(&self, request: &Request<B>) {
        for token in SessionToken::all_of(request) {
            self.end(&token);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<TokenHash, Session>> {
        // Every critical section leaves the sessions whole, even if it panicked.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn remove_oldest(sessions: &mut HashMap<TokenHash, Session>, of: impl Fn(&Session) -> bool) {
    let those = sessions.iter().filter(|(_, session)| of(session));
    let oldest = those.min_by_key(|(_, session)| session.ends_at).map(|(token, _)| *token);
    if let Some(oldest) = oldest {
        sessions.remove(&oldest);
    }
}

/// True unless the browser that sent `headers` says that they are of a page of another origin (`Sec-Fetch-Site`, Fetch Metadata). Browsers say
/// so to engines that they reach over TLS or on this machine.
pub(crate) fn is_of_own_origin(headers: &HeaderMap) -> bool {
    let site = headers.get("sec-fetch-site").and_then(|value| value.to_str().ok());
    site.is_none_or(|site| ["same-origin", "none"].contains(&site))
}

// === impl SessionToken ===

impl SessionToken {
    /// The tokens in cookies of the name that `request` has: a page of a sibling of the host may have set another one.
    fn all_of<B>(request: &Request<B>) -> Vec<Self> {
        let cookies = request.headers().get_all(COOKIE);
        // Most requests have none, and no name is made for these.
        let mut texts = cookies.iter().filter_map(|value| value.to_str().ok()).peekable();
        if texts.peek().is_none() {
            return Vec::new();
        }
        let names = [false, true].map(|is_secure| cookie_name(request, is_secure));
        let pairs = texts.flat_map(|text| text.split(';')).filter_map(|it| it.split_once('='));
        let of_ours = pairs.filter(|(name, _)| names.iter().any(|ours| ours == name.trim()));
        of_ours.map(|(_, token)| Self(token.trim().to_owned())).take(TOKENS).collect()
    }

    fn hash(&self) -> TokenHash {
        sha256(&self.0)
    }

    /// The token that requests of the session send in [`CSRF_HEADER`]. It follows from the one in the cookie, and tells nothing of it.
    pub(crate) fn csrf(&self) -> String {
        let mut context = digest::Context::new(&digest::SHA256);
        context.update(b"belfry csrf ");
        context.update(self.0.as_bytes());
        URL_SAFE_NO_PAD.encode(context.finish())
    }

    fn check_csrf(&self, headers: &HeaderMap) -> Result<(), Problem> {
        let given = headers.get(CSRF_HEADER).map_or(&b""[..], |value| value.as_bytes());
        constant_time::verify_slices_are_equal(given, self.csrf().as_bytes()).map_err(|_| {
            let detail = format!("a request of a session needs the header {CSRF_HEADER} with the `csrf` of GET /v1/session");
            Problem::new(ProblemCode::Csrf, detail)
        })
    }

    /// The `Set-Cookie` by which the browser that sent `request` keeps it.
    pub(crate) fn cookie<B>(&self, request: &Request<B>) -> String {
        set_cookie(request, &self.0, SESSION_LASTS)
    }
}

/// The `Set-Cookie` by which the browser that sent `request` forgets its session.
pub(crate) fn no_cookie<B>(request: &Request<B>) -> String {
    set_cookie(request, "", Duration::ZERO)
}

/// A browser names the origin of a page that asks for a change: by it the cookie of a page that came over TLS, from the engine or from a
/// proxy before it, goes over TLS alone.
fn set_cookie<B>(request: &Request<B>, value: &str, lasts: Duration) -> String {
    let origin = request.headers().get(ORIGIN).map_or(&b""[..], |origin| origin.as_bytes());
    let is_secure = origin.starts_with(b"https:");
    let (name, seconds) = (cookie_name(request, is_secure), lasts.as_secs());
    let secure = if is_secure { "; Secure" } else { "" };
    format!("{name}={value}; Path=/; HttpOnly; SameSite=Strict; Max-Age={seconds}{secure}")
}

/// The name of the cookie, with the port by which the browser came: engines on several ports of a host do not overwrite each other's.
fn cookie_name<B>(request: &Request<B>, is_secure: bool) -> String {
    let host = request.headers().get(HOST).and_then(|value| value.to_str().ok());
    let named = host.and_then(|host| host.parse::<Authority>().ok());
    // HTTP/2 has it in place of the header.
    let port = request.uri().authority().or(named.as_ref()).and_then(Authority::port_u16);
    let prefix = if is_secure { HOST_PREFIX } else { "" };
    port.map_or_else(|| format!("{prefix}belfry"), |port| format!("{prefix}belfry_{port}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_hours(1);

    fn request(method: &str, uri: &str, headers: &[(&str, &str)]) -> Request<()> {
        let request = Request::builder().method(method).uri(uri);
        headers.iter().fold(request, |it, (name, value)| it.header(*name, *value)).body(()).unwrap()
    }

    /// The key of the session that a GET with the cookie of `token` comes by.
    fn key_of(sessions: &Sessions, token: &SessionToken, now: Duration) -> Option<KeyHash> {
        let cookie = format!("other=1; belfry={}", token.0);
        let found = sessions.find(&request("GET", "/", &[("cookie", &cookie)]), now);
        found.ok().flatten().map(|session| session.key)
    }

    #[test]
    fn a_session_ends_when_its_time_is_over_or_it_is_ended() {
        let (sessions, start) = (Sessions::default(), HOUR);
        let (one, other) = ([1; 32], [2; 32]);
        let first = sessions.begin(one, start).unwrap();
        let second = sessions.begin(other, start + HOUR).unwrap();
        let last = start + HOUR * 11;
        assert_eq!(key_of(&sessions, &first, last), Some(one));
        assert_eq!(key_of(&sessions, &first, start + SESSION_LASTS), None);
        assert_eq!(key_of(&sessions, &second, start + SESSION_LASTS), Some(other));
        sessions.end(&second);
        assert_eq!(key_of(&sessions, &second, start + HOUR), None);
        assert_eq!(key_of(&sessions, &SessionToken("none".to_owned()), start), None);
    }

    #[test]
    fn a_key_that_begins_sessions_without_end_takes_none_from_others() {
        let (sessions, start) = (Sessions::default(), HOUR);
        let quiet = sessions.begin([1; 32], start).unwrap();
        let begun = || sessions.begin([2; 32], start + HOUR).unwrap();
        for _ in 0..100 * KEY_SESSIONS {
            begun();
        }
        let last = begun();
        assert_eq!(sessions.lock().len(), 1 + KEY_SESSIONS);
        assert!(key_of(&sessions, &quiet, start + HOUR).is_some());
        assert!(key_of(&sessions, &last, start + HOUR).is_some());
        for number in 0..=u8::MAX {
            for _ in 0..KEY_SESSIONS {
                sessions.begin([number; 32], start + HOUR * 2).unwrap();
            }
        }
        assert_eq!(sessions.lock().len(), SESSIONS);
    }

    #[test]
    fn a_page_of_another_origin_cannot_use_it() {
        let (sessions, start) = (Sessions::default(), HOUR);
        let token = sessions.begin([1; 32], start).unwrap();
        let (cookie, csrf) = (format!("belfry_8473={}", token.0), token.csrf());
        let asked = |method: &str, more: &[(&str, &str)]| {
            let mut headers = vec![("cookie", &*cookie), ("host", "localhost:8473")];
            headers.extend_from_slice(more);
            sessions.find(&request(method, "/", &headers), start).map(|found| found.is_some())
        };
        assert_eq!(asked("GET", &[]).ok(), Some(true));
        assert_eq!(asked("POST", &[(CSRF_HEADER, &csrf)]).ok(), Some(true));
        assert_eq!(asked("GET", &[("sec-fetch-site", "same-origin")]).ok(), Some(true));
        let other = SessionToken("other".to_owned()).csrf();
        for (method, more) in [
            ("POST", vec![]),
            ("DELETE", vec![(CSRF_HEADER, &*other)]),
            ("POST", vec![(CSRF_HEADER, &*csrf), ("sec-fetch-site", "same-site")]),
            ("GET", vec![("sec-fetch-site", "cross-site")]),
        ] {
            let problem = asked(method, &more).unwrap_err();
            assert_eq!(problem.code, ProblemCode::Csrf, "{more:?}");
        }
    }

    #[test]
    fn a_cookie_is_that_of_one_port_by_both_versions_of_http() {
        let (sessions, start) = (Sessions::default(), HOUR);
        let token = sessions.begin([1; 32], start).unwrap();
        let cookie = format!("belfry_8473={}", token.0);
        for (uri, host, is_found) in [
            ("/", "[::1]:8473", true),
            ("/", "localhost:8474", false),
            ("https://belfry.example:8473/", "", true),
            ("https://belfry.example/", "", false),
        ] {
            let asked = request("GET", uri, &[("cookie", &cookie), ("host", host)]);
            assert_eq!(sessions.find(&asked, start).unwrap().is_some(), is_found, "{uri} {host}");
        }
    }

    #[test]
    fn a_cookie_that_a_sibling_of_the_host_has_set_hides_none() {
        let sessions = Sessions::default();
        let token = sessions.begin([1; 32], HOUR).unwrap();
        let cookie = format!("belfry_8473=planted; __Host-belfry_8473={}", token.0);
        let asked = request("GET", "/", &[("cookie", &cookie), ("host", "localhost:8473")]);
        assert!(sessions.find(&asked, HOUR).unwrap().is_some());
        sessions.end_those_of(&asked);
        assert!(sessions.find(&asked, HOUR).unwrap().is_none());
    }

    #[test]
    fn a_cookie_is_out_of_reach_of_scripts_and_of_other_sites() {
        let token = SessionToken("abc".to_owned());
        let secure = [("host", "localhost:8473"), ("origin", "https://localhost:8473")];
        assert_eq!(
            token.cookie(&request("POST", "/", &secure)),
            "__Host-belfry_8473=abc; Path=/; HttpOnly; SameSite=Strict; Max-Age=43200; Secure"
        );
        let plain = [("host", "belfry.example"), ("origin", "http://belfry.example")];
        assert_eq!(
            no_cookie(&request("DELETE", "/", &plain)),
            "belfry=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0"
        );
    }
}

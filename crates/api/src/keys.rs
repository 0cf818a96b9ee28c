//! API keys of callers, kept as hashes only, and the callers that they make of requests.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use aws_lc_rs::{constant_time, digest, rand};
use axum::Json;
use axum::extract::{Extension, Request, State};
use axum::http::header::{AUTHORIZATION, HOST, ORIGIN};
use axum::http::{HeaderMap, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use notification::{Name, Priority, Timestamp};
use pipeline::ingest::{InvalidField, Submission};
use serde::Serialize;

use crate::ApiState;
use crate::grants::{Grants, KeyScope};
use crate::problem::Problem;
use crate::request_mark::{CallerNames, RequestMark};
use crate::unauthenticated::ConnectionNote;
use crate::view::show;

/// The prefix of every key, so that scanners of leaked secrets recognize it.
const PREFIX: &str = "belfry_";
const RANDOM_BYTES: usize = 32;

/// One key of the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiKey {
    /// Its name, for operators.
    pub name: Name,
    /// Whose notifications it creates and sees.
    pub tenant: Name,
    /// SHA-256 of the key's text.
    pub sha256: [u8; 32],
    /// The calls that it is good for.
    pub grants: Grants,
}

/// Every key of the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Keys(Vec<Arc<ApiKey>>);

/// Why a key or an address cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// A hash is not one.
    #[error("{0:?} is not the SHA-256 of a key in 64 hexadecimal digits")]
    Hash(String),
    /// Without a key, any machine could call.
    #[error(
        "refusing to listen on {0} without an API key: listen on 127.0.0.1, or add a key with `belfry api-key`"
    )]
    Open(SocketAddr),
    /// The system has no random numbers.
    #[error("the system gave no random numbers")]
    Random,
}

/// Caller of a request, as its key says.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    pub(crate) tenant: Name,
    /// True if it may name other tenants, and ask for what concerns all.
    pub(crate) is_operator: bool,
    /// `None` where no keys are configured: then every caller may do everything.
    key: Option<Arc<ApiKey>>,
}

/// The rule that a route has for its requests.
#[derive(Debug, Clone, Copy)]
pub struct RouteRule {
    /// The scopes that a key needs, all of them. None is needed where a key asks about itself.
    pub needs: &'static [KeyScope],
    /// True if its requests change what was handed in before, or how it is sent.
    pub is_act: bool,
}

/// A key, as its holder may know it.
#[derive(Serialize)]
struct KeyAnswer {
    /// Null where no keys are configured.
    name: Option<String>,
    tenant: String,
    scopes: Vec<KeyScope>,
    /// Null for all.
    channels: Option<Vec<String>>,
    /// Null for all.
    priorities: Option<Vec<Priority>>,
    not_after: Option<Timestamp>,
}

/// A new key, to be shown once.
pub fn generate() -> Result<String, KeyError> {
    let mut random = [0; RANDOM_BYTES];
    rand::fill(&mut random).map_err(|_| KeyError::Random)?;
    Ok(format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(random)))
}

/// SHA-256 of `key` in hexadecimal digits, as the configuration keeps it.
pub fn hash(key: &str) -> String {
    sha256(key).iter().fold(String::new(), |digits, byte| format!("{digits}{byte:02x}"))
}

/// The inverse of how [`hash`] writes: 64 hexadecimal digits.
pub fn parse_hash(text: &str) -> Result<[u8; 32], KeyError> {
    let refuse = || KeyError::Hash(text.chars().take(80).collect());
    // Checked digit by digit: `from_str_radix` would take a sign, too.
    if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(refuse());
    }
    let mut hash = [0; 32];
    for (byte, digits) in hash.iter_mut().zip(text.as_bytes().chunks(2)) {
        let digits = std::str::from_utf8(digits).map_err(|_| refuse())?;
        *byte = u8::from_str_radix(digits, 16).map_err(|_| refuse())?;
    }
    Ok(hash)
}

/// Checks that a server may listen on `address`: beyond loopback only with keys.
pub fn check_listen(address: SocketAddr, keys: &Keys) -> Result<(), KeyError> {
    // An IPv4 address may be written as IPv6: `::ffff:127.0.0.1` is loopback.
    if keys.is_empty() && !address.ip().to_canonical().is_loopback() {
        return Err(KeyError::Open(address));
    }
    Ok(())
}

/// Lets a request pass whose key is known and has every scope that the route asks for, and says whose it is.
pub(crate) async fn authorize(
    State((shared, rule)): State<(Arc<ApiState>, RouteRule)>,
    Extension(mark): Extension<RequestMark>,
    mut request: Request,
    next: Next,
) -> Result<Response, Problem> {
    // Borrowed for this statement alone: a borrow that lasted as long as the request would hold up a reload.
    let caller = shared.keys.borrow().caller(request.headers(), &shared.default_tenant)?;
    mark.set_caller(caller.names());
    // Not before: requests without a known key have no line in the log.
    if rule.is_act {
        mark.set_act();
    }
    caller.check_time(shared.intake.now()).map_err(|late| Problem::unauthorized(&late))?;
    // There is none where no socket is.
    if let Some(note) = request.extensions().get::<ConnectionNote>() {
        note.note_key();
    }
    rule.needs.iter().try_for_each(|scope| caller.check_scope(*scope))?;
    request.extensions_mut().insert(caller);
    Ok(next.run(request).await)
}

/// `GET /v1/keys/self`: the key that the caller has.
pub(crate) async fn own(Extension(caller): Extension<Caller>) -> Response {
    Json(KeyAnswer::of(&caller)).into_response()
}

fn sha256(key: &str) -> [u8; 32] {
    // It has as many bytes: there is no other case.
    digest::digest(&digest::SHA256, key.as_bytes()).as_ref().try_into().unwrap_or_default()
}

// === impl RouteRule ===

impl RouteRule {
    /// True if only operators and their tools ask for the route. An address that operators have for themselves is then the only one where
    /// it is answered.
    pub fn is_for_operators(&self) -> bool {
        self.needs.iter().any(|scope| matches!(scope, KeyScope::Operate | KeyScope::Metrics))
    }
}

// === impl Keys ===

impl Keys {
    /// All of `keys`; without any, every caller that reaches the server may do everything.
    pub fn new(keys: Vec<ApiKey>) -> Self {
        Self(keys.into_iter().map(Arc::new).collect())
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn caller(&self, headers: &HeaderMap, default_tenant: &Name) -> Result<Caller, Problem> {
        if self.is_empty() {
            check_local(headers)?;
            return Ok(Caller { tenant: default_tenant.clone(), is_operator: true, key: None });
        }
        let given = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let parts = given.and_then(|text| text.split_once(' '));
        let Some((_, key)) = parts.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
        else {
            return Err(Problem::unauthorized("give an API key: Authorization: Bearer belfry_..."));
        };
        // A generated key has 256 random bits: a fast hash without a salt is enough, and a slow one would cost every request.
        let hash = sha256(key.trim());
        let mut known = self.0.iter().filter(|known| is_same(&known.sha256, &hash));
        let found =
            known.next().ok_or_else(|| Problem::unauthorized("the API key is not known"))?;
        let is_operator = found.grants.scopes.contains(&KeyScope::Operate);
        Ok(Caller { tenant: found.tenant.clone(), is_operator, key: Some(Arc::clone(found)) })
    }
}

// === impl Caller ===

impl Caller {
    fn names(&self) -> CallerNames {
        let key = self.key.as_ref().map(|key| key.name.clone());
        CallerNames { key, tenant: self.tenant.clone() }
    }

    fn check_scope(&self, scope: KeyScope) -> Result<(), Problem> {
        match &self.key {
            Some(key) if !key.grants.scopes.contains(&scope) => Err(Problem::forbidden(format!(
                "this needs the scope `{scope}`, which the API key {:?} does not have",
                key.name
            ))),
            _ => Ok(()),
        }
    }

    /// Checks that its key is still good at `now`; says that it is not.
    fn check_time(&self, now: Timestamp) -> Result<(), String> {
        let Some(key) = &self.key else { return Ok(()) };
        match key.grants.not_after {
            Some(last) if now > last => {
                Err(format!("the API key {:?} was good until {last}: ask for a new one", key.name))
            }
            _ => Ok(()),
        }
    }

    /// Checks that it may send `submission` at `now`, which may be long after its request began.
    ///
    /// # Errors
    /// The first field that its key is not granted.
    pub(crate) fn check_sending(
        &self,
        submission: &Submission<'_>,
        now: Timestamp,
    ) -> Result<(), InvalidField> {
        self.check_time(now).map_err(|late| InvalidField::new("", late))?;
        self.key.as_ref().map_or(Ok(()), |key| key.grants.check_sending(submission))
    }

    /// Checks that it may send by every channel and with every priority, as what is sent again may go.
    pub(crate) fn check_sends_all(&self) -> Result<(), Problem> {
        match &self.key {
            Some(key) if !key.grants.send_all() => Err(Problem::forbidden(format!(
                "what is sent again may go by any channel: the API key {:?} may use some channels or priorities alone",
                key.name
            ))),
            _ => Ok(()),
        }
    }
}

// === impl KeyAnswer ===

impl KeyAnswer {
    fn of(Caller { tenant, key, .. }: &Caller) -> Self {
        let everything = Grants::of(KeyScope::ALL);
        let grants = key.as_ref().map_or(&everything, |key| &key.grants);
        let Grants { scopes, channels, priorities, not_after } = grants;
        Self {
            name: key.as_ref().map(|key| show(&key.name)),
            tenant: show(tenant),
            scopes: scopes.iter().copied().collect(),
            channels: channels.as_ref().map(|channels| channels.iter().map(show).collect()),
            priorities: priorities.as_ref().map(|some| some.iter().copied().collect()),
            not_after: *not_after,
        }
    }
}

/// Without a key, every program on this machine may call, but no web page in a browser on it: neither one of
/// another site, nor one whose name was made to lead here.
fn check_local(headers: &HeaderMap) -> Result<(), Problem> {
    for name in [HOST, ORIGIN] {
        // Programs may leave either out. A browser always names the host, and the origin of a page that posts.
        let Some(value) = headers.get(&name) else { continue };
        let uri = value.to_str().ok().and_then(|text| text.parse::<Uri>().ok());
        if !uri.as_ref().and_then(Uri::host).is_some_and(is_local) {
            let detail = "without an API key only callers on this machine are answered: \
                          call localhost or 127.0.0.1, or configure a key";
            return Err(Problem::forbidden(detail));
        }
    }
    Ok(())
}

fn is_local(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    match address {
        Ok(address) => address.to_canonical().is_loopback(),
        Err(_) => host.eq_ignore_ascii_case("localhost"),
    }
}

fn is_same(known: &[u8; 32], given: &[u8; 32]) -> bool {
    // The time of a comparison that ends at the first difference would tell how much of a hash is right.
    constant_time::verify_slices_are_equal(known, given).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_key_is_known_by_its_hash_only() {
        let (key, other) = (generate().unwrap(), generate().unwrap());
        assert!(key.starts_with("belfry_") && key.len() == 7 + 43 && key != other);
        assert_eq!(parse_hash(&hash(&key)), Ok(sha256(&key)));
        assert!(parse_hash("abc").is_err() && parse_hash(&"é".repeat(32)).is_err());
    }

    #[test]
    fn a_digest_is_64_hexadecimal_digits() {
        let mut expect = [0; 32];
        expect[31] = 0xaf;
        assert_eq!(parse_hash(&format!("{}aF", "0".repeat(62))), Ok(expect));
        for bad in ["", "0", &"0".repeat(63), &"0".repeat(66), &"g".repeat(64)] {
            assert!(parse_hash(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn beyond_loopback_a_key_is_needed() {
        let check = |address: &str, keys: &Keys| check_listen(address.parse().unwrap(), keys);
        let name = |text: &str| text.parse().unwrap();
        let grants = Grants::default();
        let key = ApiKey { name: name("ci"), tenant: name("acme"), sha256: [0; 32], grants };
        for loopback in ["127.0.0.1:80", "127.8.8.8:80", "[::1]:80", "[::ffff:127.0.0.1]:80"] {
            assert_eq!(check(loopback, &Keys::default()), Ok(()));
        }
        for open in ["0.0.0.0:80", "[::]:80", "192.168.1.1:80"] {
            let refused = check(open, &Keys::default()).unwrap_err();
            assert!(refused.to_string().contains("belfry api-key"), "{refused}");
            assert_eq!(check(open, &Keys::new(vec![key.clone()])), Ok(()));
        }
    }
}

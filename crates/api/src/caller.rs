//! Callers of requests, as their keys say.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Extension, Request, State};
use axum::http::header::{AUTHORIZATION, CONNECTION, HOST, HeaderValue, ORIGIN};
use axum::http::{HeaderMap, Uri, Version};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use notification::limits::OVERLOAD_RETRY_AFTER;
use notification::{Name, Timestamp};
use pipeline::ingest::{InvalidField, Submission};

use crate::ApiState;
use crate::act_trail;
use crate::grants::{Grants, KeyScope};
use crate::key_rates::{RateExceeded, RateLeft};
use crate::key_ring::{KeyRing, KeysUnknown};
use crate::keys::{ApiKey, sha256};
use crate::problem::Problem;
use crate::problem_code::ProblemCode;
use crate::request_mark::{CallerNames, RequestMark};
use crate::tenant_connections::TenantStream;
use crate::unauthenticated::ConnectionNote;

/// Caller of a request, as its key says.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    pub(crate) tenant: Name,
    /// True if it may name other tenants, and ask for what concerns all.
    pub(crate) is_operator: bool,
    /// `None` where no keys are configured: then every caller may do everything.
    key: Option<Arc<ApiKey>>,
    /// The keys that are good as time goes by.
    ring: Arc<KeyRing>,
}

/// The rule that a route has for its requests.
#[derive(Debug, Clone, Copy)]
pub struct RouteRule {
    /// The scopes that a key needs, all of them. None is needed where a key asks about itself.
    pub needs: &'static [KeyScope],
    /// True if its requests change what was handed in before, or how it is sent.
    pub is_act: bool,
    /// True if it tells how the engine does: operators are answered however much tenants ask.
    pub watches: bool,
}

/// Lets a request pass whose key is known and has every scope that the route asks for, and says whose it is.
pub(crate) async fn authorize(
    State((shared, rule)): State<(Arc<ApiState>, RouteRule)>,
    Extension(mark): Extension<RequestMark>,
    request: Request,
    next: Next,
) -> Result<Response, Problem> {
    let caller = Caller::of(request.headers(), &shared.keys, &shared.default_tenant)?;
    mark.set_caller(caller.names());
    // Not before: requests without a known key have no line in the log.
    if rule.is_act {
        mark.set_act();
    }
    if let Some(key) = caller.key() {
        let ended = |late| Problem::new(ProblemCode::ExpiredKey, late);
        check_time(key, shared.intake.now()).map_err(ended)?;
    }
    let stream = match count_request(&caller, &request) {
        Ok(stream) => stream,
        Err(problem) => return Ok(beyond_share(problem, request.version())),
    };
    let left = match caller.take_of_rate(&shared) {
        Ok(left) => left,
        Err(exceeded) => return Ok(beyond_rate(exceeded)),
    };
    let mut response =
        within_rate(&shared, rule, caller, (mark, request, next)).await.into_response();
    if let Some(left) = left {
        left.write(response.headers_mut());
    }
    if let Some(stream) = stream {
        response.extensions_mut().insert(stream);
    }
    Ok(response)
}

/// Counts the connection of `request` for its tenant, and over HTTP/2 the request, which is counted until what is given is dropped.
fn count_request(caller: &Caller, request: &Request) -> Result<Option<TenantStream>, Problem> {
    // There is none where no socket is.
    let Some(note) = request.extensions().get::<ConnectionNote>() else { return Ok(None) };
    let tenant = caller.sharing();
    note.note_key(tenant)?;
    match tenant {
        Some(tenant) if request.version() == Version::HTTP_2 => note.begin_stream(tenant).map(Some),
        _ => Ok(None),
    }
}

/// The answer to a request beyond a share of its tenant's connections. Over HTTP/2 its connection is told by a frame of its own.
fn beyond_share(problem: Problem, version: Version) -> Response {
    let closes = problem.code == ProblemCode::TenantConnections && version < Version::HTTP_2;
    let mut response = problem.into_response();
    if closes {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// Lets a request pass whose key has every scope that the route asks for.
async fn within_rate(
    shared: &Arc<ApiState>,
    rule: RouteRule,
    caller: Caller,
    (mark, mut request, next): (RequestMark, Request, Next),
) -> Result<Response, Problem> {
    rule.needs.iter().try_for_each(|scope| caller.check_scope(*scope))?;
    let is_operator = caller.is_operator;
    let watching = caller.sharing().filter(|_| !caller.is_operator);
    let _turn = if rule.watches { Some(shared.shares.watch(watching).await?) } else { None };
    request.extensions_mut().insert(caller);
    if rule.is_act {
        return act_trail::recorded(shared, (&mark, is_operator), request, next).await;
    }
    Ok(next.run(request).await)
}

// === impl RouteRule ===

impl RouteRule {
    /// True if only operators ask for the route. An address that they have for themselves is then the only one where it is answered.
    pub fn is_for_operators(&self) -> bool {
        self.needs.contains(&KeyScope::Operate)
    }
}

// === impl Caller ===

impl Caller {
    /// The caller with the key that `headers` have.
    fn of(
        headers: &HeaderMap,
        keys: &Arc<KeyRing>,
        default_tenant: &Name,
    ) -> Result<Self, Problem> {
        let ring = Arc::clone(keys);
        if keys.is_open() {
            check_local(headers)?;
            return Ok(Self { tenant: default_tenant.clone(), is_operator: true, key: None, ring });
        }
        let given = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let parts = given.and_then(|text| text.split_once(' '));
        let Some((_, key)) = parts.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
        else {
            let detail = "give an API key: Authorization: Bearer belfry_...";
            return Err(Problem::new(ProblemCode::MissingKey, detail));
        };
        let unknown = || Problem::new(ProblemCode::UnknownKey, "the API key is not known");
        let cut_off = |KeysUnknown| {
            let detail = "the database is away, and the API key may have been revoked there";
            Problem::new(ProblemCode::StoreUnavailable, detail).retry_after(OVERLOAD_RETRY_AFTER)
        };
        let key = keys.find(&sha256(key.trim())).map_err(cut_off)?.ok_or_else(unknown)?;
        let is_operator = key.grants.scopes.contains(&KeyScope::Operate);
        Ok(Self { tenant: key.tenant.clone(), is_operator, key: Some(key), ring })
    }

    /// Its key; `None` where no keys are configured.
    pub(crate) fn key(&self) -> Option<&ApiKey> {
        self.key.as_deref()
    }

    /// The tenant whose shares it takes from; `None` where no keys are configured, so that there are no tenants that could share.
    pub(crate) fn sharing(&self) -> Option<&Name> {
        self.key.as_ref().map(|_| &self.tenant)
    }

    /// The calls that it may make.
    pub(crate) fn grants(&self) -> Grants {
        let everything = || Grants::of(KeyScope::ALL);
        self.key.as_ref().map_or_else(everything, |key| key.grants.clone())
    }

    fn names(&self) -> CallerNames {
        let key = self.key.as_ref().map(|key| key.name.clone());
        CallerNames { key, tenant: self.tenant.clone() }
    }

    fn check_scope(&self, scope: KeyScope) -> Result<(), Problem> {
        match &self.key {
            Some(key) if !key.grants.scopes.contains(&scope) => {
                Err(Problem::missing_scope(format!(
                    "this needs the scope `{scope}`, which the API key {:?} does not have",
                    key.name
                )))
            }
            _ => Ok(()),
        }
    }

    /// Takes this request out of the rate of its key, if it has one.
    fn take_of_rate(&self, shared: &ApiState) -> Result<Option<RateLeft>, RateExceeded> {
        let Some(key) = &self.key else { return Ok(None) };
        let Some(per_minute) = key.grants.requests_per_minute else { return Ok(None) };
        let now = shared.intake.clock().monotonic();
        shared.keys.rates().take(&key.name, per_minute, now).map(Some)
    }

    /// Its key as it is now, which may be long after its request began; `None` where no keys are configured.
    ///
    /// # Errors
    /// Says that it is not good any more.
    pub(crate) fn still_good(&self, now: Timestamp) -> Result<Option<Arc<ApiKey>>, String> {
        let Some(key) = &self.key else { return Ok(None) };
        let found = self.ring.find(&key.sha256).map_err(|KeysUnknown| {
            format!(
                "the database is away, and the API key {:?} may have been revoked there",
                key.name
            )
        })?;
        let key = found.ok_or_else(|| format!("the API key {:?} was taken away", key.name))?;
        check_time(&key, now)?;
        Ok(Some(key))
    }

    /// Checks that it may send `submission` at `now`, which may be long after its request began; the intake checks its senders.
    ///
    /// # Errors
    /// The first field that its key is not granted.
    pub(crate) fn check_sending(
        &self,
        submission: &mut Submission<'_>,
        now: Timestamp,
    ) -> Result<(), InvalidField> {
        let whole =
            |ended: String| InvalidField { is_not_granted: true, ..InvalidField::new("", ended) };
        let Some(key) = self.still_good(now).map_err(whole)? else { return Ok(()) };
        if !key.grants.scopes.contains(&KeyScope::Send) {
            return Err(whole(format!("the API key {:?} may send no more", key.name)));
        }
        key.grants.check_sending(submission)
    }

    /// Checks that it may send at `now` all that it might as its request began.
    pub(crate) fn check_still_sends(&self, now: Timestamp) -> Result<(), Problem> {
        let ended = |ended: String| Problem::new(ProblemCode::ExpiredKey, ended);
        let Some(key) = self.still_good(now).map_err(ended)? else { return Ok(()) };
        match &self.key {
            Some(before) if !key.grants.send_all_of(&before.grants) => Err(Problem::new(
                ProblemCode::NotGranted,
                format!(
                    "the API key {:?} was narrowed while the recipients came: hand the broadcast in again",
                    key.name
                ),
            )),
            _ => Ok(()),
        }
    }

    /// Checks that it may send by every channel and with every priority, as what is sent again may go.
    pub(crate) fn check_sends_all(&self) -> Result<(), Problem> {
        match &self.key {
            Some(key) if !key.grants.send_all() => Err(Problem::new(
                ProblemCode::NotGranted,
                format!(
                    "what is sent again may go by any channel: the API key {:?} may use some channels, priorities or senders alone",
                    key.name
                ),
            )),
            _ => Ok(()),
        }
    }
}

/// Checks that `key` is good at `now`; says that it is not.
fn check_time(key: &ApiKey, now: Timestamp) -> Result<(), String> {
    match key.grants.not_after {
        Some(last) if now > last => {
            Err(format!("the API key {:?} was good until {last}: ask for a new one", key.name))
        }
        _ => Ok(()),
    }
}

fn beyond_rate(RateExceeded { left, retry_after }: RateExceeded) -> Response {
    let detail = "the API key has made as many requests as it may: wait, send many notifications in one request, or ask for a higher rate";
    let problem = Problem::new(ProblemCode::RateExceeded, detail);
    // Whole seconds: a part of one is a whole one.
    let whole =
        Duration::from_secs(retry_after.as_secs() + u64::from(retry_after.subsec_nanos() > 0));
    let mut response = problem.retry_after(whole).into_response();
    left.write(response.headers_mut());
    response
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
            return Err(Problem::new(ProblemCode::NotLocal, detail));
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

//! Callers of requests, as their keys say.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::http::header::{AUTHORIZATION, HOST, ORIGIN};
use axum::http::{Request, Uri};
use axum::response::Response;
use notification::limits::OVERLOAD_RETRY_AFTER;
use notification::{Name, Timestamp, TraceContext};
use pipeline::ingest::{InvalidField, Submission};

use crate::ApiState;
use crate::grants::{Grants, KeyScope};
use crate::key_rates::{RateExceeded, RateLeft};
use crate::key_ring::{KeyRing, KeysUnknown};
use crate::keys::{ApiKey, sha256};
use crate::problem::Problem;
use crate::problem_code::ProblemCode;
use crate::request_mark::CallerNames;
use crate::sessions::{OpenSession, is_of_own_origin};

/// Caller of a request, as its key says.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    pub(crate) tenant: Name,
    /// True if it may name other tenants, and ask for what concerns all.
    pub(crate) is_operator: bool,
    /// `None` where no keys are configured: then every caller may do everything.
    key: Option<Arc<ApiKey>>,
    /// The session of its browser, where that stands for the key.
    session: Option<Arc<OpenSession>>,
    /// The keys that are good as time goes by.
    ring: Arc<KeyRing>,
    /// The trace that what its request causes is part of.
    trace: Option<TraceContext>,
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
    /// The answer to a caller that has neither a key nor a session, in place of a refusal.
    pub without_key: Option<fn() -> Response>,
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
    /// The caller of `request`: by the key that it has, or, where sessions are taken, by the one that its browser has as of
    /// `sessions_at` on the clock that suspended time counts on.
    pub(crate) fn of<B>(
        request: &Request<B>,
        keys: &Arc<KeyRing>,
        default_tenant: &Name,
        sessions_at: Option<Duration>,
    ) -> Result<Self, Problem> {
        let (headers, ring) = (request.headers(), Arc::clone(keys));
        if keys.is_open() {
            check_local(request)?;
            let tenant = default_tenant.clone();
            return Ok(Self {
                tenant,
                is_operator: true,
                key: None,
                session: None,
                ring,
                trace: None,
            });
        }
        let given = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let parts = given.and_then(|text| text.split_once(' '));
        let key = parts.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
        let session = match (key, sessions_at) {
            (None, Some(now)) => keys.sessions().find(request, now)?.map(Arc::new),
            (Some(_), _) | (None, None) => None,
        };
        let hash = match (&session, key) {
            (Some(session), _) => session.key,
            (None, Some((_, key))) => sha256(key.trim()),
            (None, None) => {
                let detail = "give an API key: Authorization: Bearer belfry_...";
                return Err(Problem::new(ProblemCode::MissingKey, detail));
            }
        };
        let unknown = || Problem::new(ProblemCode::UnknownKey, "the API key is not known");
        let cut_off = |KeysUnknown| {
            let detail = "the database is away, and the API key may have been revoked there";
            Problem::new(ProblemCode::StoreUnavailable, detail).retry_after(OVERLOAD_RETRY_AFTER)
        };
        let key = keys.find(&hash).map_err(cut_off)?.ok_or_else(|| {
            // A key of these that comes back does not bring its sessions back.
            if let Some(session) = &session {
                keys.sessions().end(&session.token);
            }
            unknown()
        })?;
        let is_operator = key.grants.scopes.contains(&KeyScope::Operate);
        let tenant = key.tenant.clone();
        Ok(Self { tenant, is_operator, key: Some(key), session, ring, trace: None })
    }

    /// This caller, of whose request what it causes is part of `trace`.
    pub(crate) fn traced(self, trace: Option<TraceContext>) -> Self {
        Self { trace, ..self }
    }

    /// The session by which it came, if it did.
    pub(crate) fn session(&self) -> Option<&OpenSession> {
        self.session.as_deref()
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

    pub(crate) fn names(&self) -> CallerNames {
        let key = self.key.as_ref().map(|key| key.name.clone());
        CallerNames { key, tenant: self.tenant.clone() }
    }

    pub(crate) fn check_scope(&self, scope: KeyScope) -> Result<(), Problem> {
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
    pub(crate) fn take_of_rate(&self, shared: &ApiState) -> Result<Option<RateLeft>, RateExceeded> {
        let Some(key) = &self.key else { return Ok(None) };
        let Some(per_minute) = key.grants.requests_per_minute else { return Ok(None) };
        let now = shared.intake.clock().monotonic();
        shared.keys.rates().take(&key.name, per_minute, now).map(Some)
    }

    /// Its key as it is now, which may be long after its request began; `None` where no keys are configured.
    ///
    /// # Errors
    /// Says that it is not good any more, or its session.
    pub(crate) fn still_good(&self, now: Timestamp) -> Result<Option<Arc<ApiKey>>, String> {
        let Some(key) = &self.key else {
            let configured = "API keys are configured since: give one";
            return if self.ring.is_open() { Ok(None) } else { Err(configured.to_owned()) };
        };
        if self.session.as_ref().is_some_and(|session| !self.ring.has_session(&session.token)) {
            return Err("the session has ended".to_owned());
        }
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

    /// True if its key is good at `now`, which may be long after its request began, and has all of `scopes`.
    pub(crate) fn still_has(&self, scopes: &[KeyScope], now: Timestamp) -> bool {
        let has = |key: &ApiKey| scopes.iter().all(|scope| key.grants.scopes.contains(scope));
        self.still_good(now).is_ok_and(|key| key.is_none_or(|key| has(&key)))
    }

    /// Checks that it may send `submission` at `now`, which may be long after its request began; the intake checks its senders. Gives it
    /// the trace of the request.
    ///
    /// # Errors
    /// The first field that its key is not granted.
    pub(crate) fn check_sending(
        &self,
        submission: &mut Submission<'_>,
        now: Timestamp,
    ) -> Result<(), InvalidField> {
        submission.trace = self.trace;
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
pub(crate) fn check_time(key: &ApiKey, now: Timestamp) -> Result<(), String> {
    match key.grants.not_after {
        Some(last) if now > last => {
            Err(format!("the API key {:?} was good until {last}: ask for a new one", key.name))
        }
        _ => Ok(()),
    }
}

/// Without a key, every program on this machine may call, but no web page in a browser on it: neither one of another site or port, nor
/// one whose name was made to lead here.
fn check_local<B>(request: &Request<B>) -> Result<(), Problem> {
    let refused = |detail| Err(Problem::new(ProblemCode::NotLocal, detail));
    // Programs may leave any of these out. A browser always names the host, in HTTP/2 as the authority, and the origin of a page that
    // posts.
    let named = [HOST, ORIGIN].map(|name| {
        let value = request.headers().get(name)?;
        Some(value.to_str().ok().and_then(|text| text.parse::<Uri>().ok()).unwrap_or_default())
    });
    let authority = request.uri().authority().map(|_| request.uri().clone());
    let mut named = named.into_iter().chain([authority]).flatten();
    if !named.all(|uri| uri.host().is_some_and(is_local)) {
        return refused(
            "without an API key only callers on this machine are answered: \
             call localhost or 127.0.0.1, or configure a key",
        );
    }
    if !is_of_own_origin(request.headers()) {
        return refused(
            "without an API key no page of another address is answered: configure a key",
        );
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

//! `/v1/session`: an operator's key becomes a session of a browser, for the dashboard.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Extension, Request, State};
use axum::http::StatusCode;
use axum::http::header::{CACHE_CONTROL, SET_COOKIE};
use axum::response::{IntoResponse, Response};
use notification::Name;
use schemars::JsonSchema;
use serde::Serialize;

use crate::ApiState;
use crate::caller::Caller;
use crate::grants::Grants;
use crate::grants_json::GrantsAnswer;
use crate::limits::SESSION_LASTS;
use crate::problem::Problem;
use crate::problem_code::ProblemCode;
use crate::sessions::no_cookie;
use crate::view::show;

/// A session, as its browser may know it.
#[derive(JsonSchema, Serialize)]
pub(crate) struct SessionAnswer {
    /// True where no keys are configured: then the browser needs no session.
    open: bool,
    /// The token that requests of the session other than GET have in the header `x-belfry-csrf`; null where there is none, because the
    /// caller has sent a key, or needs none.
    csrf: Option<String>,
    /// When the session ends.
    #[schemars(with = "Option<notification::Timestamp>")]
    expires_at: Option<String>,
    /// The name of its key; null where no keys are configured, or there is no session.
    name: Option<Name>,
    /// The tenant of its key; null where there is no session.
    tenant: Option<Name>,
    #[serde(flatten)]
    grants: GrantsAnswer,
}

/// `GET /v1/session`: the session that the caller came by.
pub(crate) async fn read(
    State(shared): State<Arc<ApiState>>,
    Extension(caller): Extension<Caller>,
) -> Response {
    let session = caller.session();
    let ends_at = session.map(|session| shared.intake.now().plus(session.left));
    let csrf = session.map(|session| session.token.csrf());
    let answer = SessionAnswer::new(&caller, csrf, ends_at.map(show));
    ([(CACHE_CONTROL, "no-store")], Json(answer)).into_response()
}

/// `GET /v1/session` of a caller that has neither a key nor a session. It is no refusal: pages ask whether there is a session, and browsers
/// write refusals to their consoles.
pub(crate) fn none() -> Response {
    let answer = SessionAnswer {
        open: false,
        csrf: None,
        expires_at: None,
        name: None,
        tenant: None,
        grants: GrantsAnswer::of(&Grants::of([])),
    };
    ([(CACHE_CONTROL, "no-store")], Json(answer)).into_response()
}

/// `POST /v1/session`: a session of the key that the request has, whose token is set as a cookie. None where no keys are configured.
pub(crate) async fn begin(
    State(shared): State<Arc<ApiState>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, Problem> {
    let Some(key) = caller.key() else { return Ok(read(State(shared), Extension(caller)).await) };
    if caller.session().is_some() {
        // Else a cookie that was stolen once would be good for ever.
        let detail = "a session begins with a key: Authorization: Bearer belfry_...";
        return Err(Problem::new(ProblemCode::MissingKey, detail));
    }
    // Who logs in anew does not leave one behind.
    shared.keys.sessions().end_those_of(&request);
    let begun = shared.keys.sessions().begin(key.sha256, shared.intake.clock().boot());
    let token =
        begun.map_err(|error| Problem::new(ProblemCode::InternalError, error.to_string()))?;
    tracing::info!(key = %key.name, tenant = %key.tenant, "a session of the dashboard began");
    let ends_at = shared.intake.now().plus(SESSION_LASTS);
    let answer = SessionAnswer::new(&caller, Some(token.csrf()), Some(show(ends_at)));
    let headers = [(SET_COOKIE, token.cookie(&request)), (CACHE_CONTROL, "no-store".to_owned())];
    Ok((headers, Json(answer)).into_response())
}

/// `DELETE /v1/session`: the end of the session that the caller came by.
pub(crate) async fn end(State(shared): State<Arc<ApiState>>, request: Request) -> Response {
    shared.keys.sessions().end_those_of(&request);
    (StatusCode::NO_CONTENT, [(SET_COOKIE, no_cookie(&request))]).into_response()
}

// === impl SessionAnswer ===

impl SessionAnswer {
    fn new(caller: &Caller, csrf: Option<String>, expires_at: Option<String>) -> Self {
        Self {
            open: caller.key().is_none(),
            csrf,
            expires_at,
            name: caller.key().map(|key| key.name.clone()),
            tenant: Some(caller.tenant.clone()),
            grants: GrantsAnswer::of(&caller.grants()),
        }
    }
}

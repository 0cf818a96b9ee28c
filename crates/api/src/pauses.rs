//! `/v1/pause`, `/v1/resume` and `/v1/pauses`: what of a tenant's is not sent for now.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Extension, State};
use axum::http::Uri;
use axum::response::{IntoResponse, Response};
use notification::{Pause, Pauses, limits};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use store::Paused;

use crate::ApiState;
use crate::access::WithOperations;
use crate::act_trail::acted;
use crate::caller::Caller;
use crate::problem::Problem;
use crate::problem_code::ProblemCode;
use crate::query::Query;
use crate::scope::{NAMES, NamedScope, TENANT, tenant_of};
use crate::view::show;

/// A pause, and the answer to one.
#[derive(Debug, JsonSchema, Serialize, Deserialize)]
pub struct PauseAnswer {
    /// Whose notifications wait.
    #[schemars(with = "notification::Name")]
    pub tenant: String,
    /// Which of them: `broadcast/bc_7`, `tenant`, `channel/ios`, `lane/ios/bulk/api.push.apple.com`.
    pub scope: String,
    /// Since when.
    #[schemars(with = "notification::Timestamp")]
    pub since: String,
    /// In the answer to a pause: true if every process is known to go by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub everywhere: Option<bool>,
}

/// The answer to a resume.
#[derive(Debug, JsonSchema, Serialize, Deserialize)]
pub struct ResumeAnswer {
    /// True if it was paused.
    pub resumed: bool,
}

/// Pauses, by tenant and scope.
#[derive(JsonSchema, Serialize)]
pub(crate) struct PauseList {
    items: Vec<PauseAnswer>,
}

/// `POST /v1/pause`
pub(crate) async fn pause(
    State(shared): State<Arc<ApiState>>,
    State(WithOperations(operations)): State<WithOperations>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
) -> Result<Response, Problem> {
    let NamedScope { tenant, scope } = NamedScope::read(&mut Query::read(&uri, &NAMES)?, &caller)?;
    let pause = Pause { tenant, scope, since: shared.intake.now() };
    match operations.pause(pause.clone()).await? {
        Paused::InForce { since, is_everywhere } => {
            let answer = PauseAnswer::from(Pause { since, ..pause });
            Ok(acted(PauseAnswer { everywhere: Some(is_everywhere), ..answer }))
        }
        Paused::Unknown => Err(Problem::not_found(format!("there is no {}", pause.scope))),
        Paused::TooMany => {
            let detail = format!("there are {} pauses already: end some", limits::PAUSES);
            Err(Problem::new(ProblemCode::TooManyPauses, detail))
        }
    }
}

/// `POST /v1/resume`
pub(crate) async fn resume(
    State(WithOperations(operations)): State<WithOperations>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
) -> Result<Response, Problem> {
    let NamedScope { tenant, scope } = NamedScope::read(&mut Query::read(&uri, &NAMES)?, &caller)?;
    let resumed = operations.resume(tenant, scope).await?;
    Ok(acted(ResumeAnswer { resumed }))
}

/// `GET /v1/pauses`: the caller's; an operator's are all, or those of the tenant that is named.
pub(crate) async fn list(
    State(shared): State<Arc<ApiState>>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
) -> Result<Response, Problem> {
    let mut query = Query::read(&uri, &TENANT)?;
    let is_of_all = caller.is_operator && !query.has("tenant");
    let tenant = tenant_of(&mut query, &caller)?;
    let mut items = in_order(&shared.reads_of(&caller).pauses().await?);
    items.retain(|pause| is_of_all || pause.tenant == tenant.as_str());
    Ok(Json(PauseList { items }).into_response())
}

/// All pauses, by tenant and scope.
pub(crate) fn in_order(pauses: &Pauses) -> Vec<PauseAnswer> {
    let mut pauses: Vec<Pause> = pauses.iter().collect();
    // The set has no order of its own, and a list that did not change should read the same again.
    pauses.sort_unstable_by(|one, other| {
        (&one.tenant, &one.scope).cmp(&(&other.tenant, &other.scope))
    });
    pauses.into_iter().map(PauseAnswer::from).collect()
}

// === impl PauseAnswer ===

impl From<Pause> for PauseAnswer {
    fn from(Pause { tenant, scope, since }: Pause) -> Self {
        let (tenant, scope, since) = (show(tenant), show(scope), show(since));
        Self { tenant, scope, since, everywhere: None }
    }
}

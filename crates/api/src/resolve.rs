//! Notifications that are in doubt end by an operator's word: one, or those that a filter matches. Nothing is sent.

use std::sync::Arc;

use axum::extract::{Extension, Path, State};
use axum::http::Uri;
use axum::response::Response;
use notification::State as Stand;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use store::{Resolution, Resolved};

use crate::ApiState;
use crate::access::WithOperations;
use crate::act_trail::acted;
use crate::caller::Caller;
use crate::matching::{self, Matching};
use crate::notifications::unknown;
use crate::problem::Problem;
use crate::problem_code::ProblemCode;
use crate::query::{Query, parse_id};
use crate::scope::tenant_of;
use crate::view::show;

/// The answer to resolving one notification, or those that a filter matches.
#[derive(Debug, Default, JsonSchema, Serialize, Deserialize)]
pub struct ResolveAnswer {
    /// Those in doubt that were meant.
    pub matched: u64,
    /// Those of them that have ended now; with `dry_run`, that would have.
    pub resolved: u64,
    /// Where the next request goes on (`after`); `None` at the end.
    pub next: Option<String>,
}

/// The parameters of both requests.
pub(crate) const NAMES: [&str; 2] = ["as", "note"];
/// All parameters of the request for one.
pub(crate) const NAMES_OF_ONE: [&str; 3] = ["as", "note", "tenant"];

/// `POST /v1/notifications/{id}/resolve`
pub(crate) async fn one(
    State(shared): State<Arc<ApiState>>,
    State(WithOperations(operations)): State<WithOperations>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    uri: Uri,
) -> Result<Response, Problem> {
    let id = parse_id(&id)?;
    let mut query = Query::read(&uri, &NAMES_OF_ONE)?;
    let tenant = tenant_of(&mut query, &caller)?;
    let resolution = read(&mut query)?;
    let now = shared.intake.now();
    let answers = operations.resolve(vec![id], resolution, tenant, now).await?;
    match answers.first() {
        Some(Resolved::Resolved) => {
            Ok(acted(ResolveAnswer { matched: 1, resolved: 1, next: None }))
        }
        Some(Resolved::OtherState) => {
            let detail = "it is not in doubt: there is nothing to resolve";
            Err(Problem::new(ProblemCode::WrongState, detail))
        }
        Some(Resolved::Unknown) | None => Err(unknown(id)),
    }
}

/// `POST /v1/resolve`
pub(crate) async fn many(
    State(shared): State<Arc<ApiState>>,
    State(WithOperations(operations)): State<WithOperations>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
) -> Result<Response, Problem> {
    let mut query = Query::read(&uri, &[&matching::NAMES[..], &NAMES].concat())?;
    let resolution = read(&mut query)?;
    let mut matching = Matching::read(&mut query, &caller)?;
    if !matching.is_bounded() {
        let detail = "name a broadcast, or since when they are in doubt (since=): else all would be resolved that ever were in \
                      doubt, for whatever reason";
        return Err(Problem::missing_parameter(detail));
    }
    let ids = matching.collect((&shared, &caller), [Stand::InDoubt].into(), |_| true).await?;
    let matched = ids.len() as u64;
    let resolved = if matching.is_dry {
        matched
    } else {
        // Another caller may have been faster.
        let now = shared.intake.now();
        let answers = operations.resolve(ids, resolution, matching.tenant, now).await?;
        answers.iter().filter(|answer| **answer == Resolved::Resolved).count() as u64
    };
    let next = matching.next.map(show);
    Ok(acted(ResolveAnswer { matched, resolved, next }))
}

/// The resolution that a request asks for.
fn read(query: &mut Query) -> Result<Resolution, Problem> {
    let state: Stand = query.required("as")?;
    let note: String = query.parse("note")?.unwrap_or_default();
    Resolution::new(state, &note).map_err(|error| Problem::parameter(error.to_string()))
}

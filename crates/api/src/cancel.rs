//! `/v1/cancel`: what waits of a broadcast, a lane, a channel or a tenant is cancelled, or of what a search finds.

use std::sync::Arc;

use axum::extract::{Extension, State};
use axum::http::Uri;
use axum::response::Response;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use store::CancelScope;

use crate::ApiState;
use crate::access::WithOperations;
use crate::act_trail::acted;
use crate::caller::Caller;
use crate::cancel_found::{FoundCounts, FoundToCancel, SEARCHES};
use crate::problem::Problem;
use crate::query::Query;
use crate::scope::{NAMES, NamedScope};
use crate::view::show;

/// The answer to a call.
#[derive(Debug, Default, JsonSchema, Serialize, Deserialize)]
pub struct CancelAllAnswer {
    /// Whose notifications were meant.
    #[schemars(with = "notification::Name")]
    pub tenant: String,
    /// Which of them, as a pause says it; `None` of a search.
    pub scope: Option<String>,
    /// When the call began: what it has cancelled is requeued with `since` of the first call.
    #[schemars(with = "notification::Timestamp")]
    pub at: String,
    /// Those that are cancelled now; with `dry_run`, that would be.
    pub cancelled: u64,
    /// Those that were claimed, and perhaps on the wire.
    pub under_way: u64,
    /// Where the next call goes on (`after`); `None` at the end.
    pub next: Option<String>,
}

/// Transactions of the store in one call: a second or two, however much there is.
const CALL_SLICES: usize = 16;

/// Parameters of a call.
pub(crate) fn parameters() -> Vec<&'static str> {
    [&NAMES[..], &SEARCHES, &["after", "dry_run"]].concat()
}

/// `POST /v1/cancel`
pub(crate) async fn cancel(
    State(shared): State<Arc<ApiState>>,
    State(WithOperations(operations)): State<WithOperations>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
) -> Result<Response, Problem> {
    let mut query = Query::read(&uri, &parameters())?;
    if let Some(found) = FoundToCancel::read(&mut query, &caller)? {
        let now = shared.intake.now();
        let FoundCounts { cancelled, under_way, next } =
            found.cancel((&shared, &caller), &*operations, now).await?;
        let (tenant, at, next) = (show(found.tenant), show(now), next.map(show));
        let answer = CancelAllAnswer { tenant, scope: None, at, cancelled, under_way, next };
        return Ok(acted(answer));
    }
    let NamedScope { tenant, scope } = NamedScope::read(&mut query, &caller)?;
    let from = query.parse("after")?;
    let is_dry = query.parse("dry_run")?.unwrap_or(false);
    let now = shared.intake.now();
    let mut answer = CancelAllAnswer {
        tenant: show(&tenant),
        scope: Some(show(&scope)),
        at: show(now),
        ..CancelAllAnswer::default()
    };
    let mut request = CancelScope { tenant, scope, from, is_dry, now };
    for _ in 0..CALL_SLICES {
        let page = operations.cancel_scope(request.clone()).await?;
        let unknown = || Problem::not_found(format!("there is no {}", request.scope));
        let page = page.ok_or_else(unknown)?;
        answer.cancelled += page.cancelled;
        answer.under_way += page.under_way;
        request.from = page.next;
        if request.from.is_none() {
            break;
        }
    }
    answer.next = request.from.map(show);
    Ok(acted(answer))
}

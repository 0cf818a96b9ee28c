//! The operators' requests: log, audit and health.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Extension, State};
use axum::http::Uri;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use notification::{Account, limits};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;
use store::LogPosition;

use crate::ApiState;
use crate::account::TenantAccount;
use crate::caller::Caller;
use crate::limits::LOG_ENTRIES;
use crate::problem::Problem;
use crate::problem_code::ProblemCode;
use crate::query::Query;
use crate::readiness;

/// The account, counted from the ground up.
#[derive(JsonSchema, Serialize)]
pub(crate) struct AuditAnswer {
    #[serde(flatten)]
    totals: Account,
    balanced: bool,
    problem_count: u64,
    problems: Vec<String>,
    /// The account of each tenant that has any, by name.
    tenants: Vec<TenantAccount>,
}

/// Parameters of a request for the log.
pub(crate) const LOG_PARAMETERS: [&str; 2] = ["position", "limit"];

pub(crate) async fn health() -> &'static str {
    "ok\n"
}

pub(crate) async fn ready(State(shared): State<Arc<ApiState>>) -> Result<&'static str, Problem> {
    readiness::answer(&shared.readiness)
}

pub(crate) async fn audit(
    State(shared): State<Arc<ApiState>>,
    Extension(caller): Extension<Caller>,
) -> Result<Response, Problem> {
    let audit = shared.reads_of(&caller).audit().await?;
    Ok(Json(AuditAnswer {
        balanced: audit.account.is_balanced() && audit.problem_count == 0,
        totals: audit.account,
        problem_count: audit.problem_count,
        problems: audit.problems,
        tenants: TenantAccount::of_all(&audit.tenants),
    })
    .into_response())
}

pub(crate) async fn log(
    State(shared): State<Arc<ApiState>>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
) -> Result<Response, Problem> {
    let mut query = Query::read(&uri, &LOG_PARAMETERS)?;
    let position = LogPosition(query.parse("position")?.unwrap_or(0));
    let entries = query.limit(limits::LIST_ITEMS, LOG_ENTRIES)?;
    let page = shared.reads_of(&caller).log(position, entries).await?;
    let mut lines = Vec::new();
    for entry in page.entries {
        append_line(&mut lines, &entry)?;
    }
    append_line(&mut lines, &json!({ "next": page.next.0 }))?;
    Ok(([(CONTENT_TYPE, "application/x-ndjson")], lines).into_response())
}

// === helpers ===

pub(crate) fn append_line(lines: &mut Vec<u8>, line: &impl Serialize) -> Result<(), Problem> {
    serde_json::to_writer(&mut *lines, line).map_err(|_| internal("a line cannot be written"))?;
    lines.push(b'\n');
    Ok(())
}

fn internal(detail: &str) -> Problem {
    Problem::new(ProblemCode::InternalError, detail)
}

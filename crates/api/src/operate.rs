//! What operators ask: log, audit, suppressions and health.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use notification::{ByteString, Name, limits};
use pipeline::ingest::Fault;
use serde::Serialize;
use store::{LogPosition, Suppression};

use crate::Shared;
use crate::body::{Format, format, with_body};
use crate::create::too_many;
use crate::object::{Object, list, share, text, utf8};
use crate::problem::Problem;
use crate::query::Query;
use crate::readiness;
use crate::view::{LogLine, Suppressed, Totals, show};

const SUPPRESSIONS: &[&str] = &["channel", "to", "reason"];

#[derive(Serialize)]
struct AuditAnswer {
    #[serde(flatten)]
    totals: Totals,
    balanced: bool,
    problem_count: u64,
    problems: Vec<String>,
}

#[derive(Serialize)]
struct LogEnd {
    next: u64,
}

#[derive(Serialize)]
struct SuppressionList {
    items: Vec<Suppressed>,
    next: Option<String>,
}

#[derive(Serialize)]
struct SuppressAnswer {
    suppressed: usize,
}

pub(crate) async fn health() -> &'static str {
    "ok\n"
}

pub(crate) async fn ready(State(shared): State<Arc<Shared>>) -> Result<&'static str, Problem> {
    readiness::answer(&shared.readiness)
}

pub(crate) async fn audit(State(shared): State<Arc<Shared>>) -> Result<Response, Problem> {
    let audit = shared.ledger.audit().await?;
    Ok(Json(AuditAnswer {
        balanced: audit.account.is_balanced() && audit.problem_count == 0,
        totals: audit.account.into(),
        problem_count: audit.problem_count,
        problems: audit.problems,
    })
    .into_response())
}

pub(crate) async fn log(State(shared): State<Arc<Shared>>, uri: Uri) -> Result<Response, Problem> {
    let mut query = Query::read(&uri, &["position", "limit"])?;
    let position = LogPosition(query.parse("position")?.unwrap_or(0));
    let entries = query.limit(limits::LIST_ITEMS, limits::LOG_ENTRIES)?;
    let page = shared.ledger.log(position, entries).await?;
    let mut lines = Vec::new();
    for entry in page.entries {
        append_line(&mut lines, &LogLine::from(entry))?;
    }
    append_line(&mut lines, &LogEnd { next: page.next.0 })?;
    Ok(([(CONTENT_TYPE, "application/x-ndjson")], lines).into_response())
}

pub(crate) async fn suppressions(
    State(shared): State<Arc<Shared>>,
    uri: Uri,
) -> Result<Response, Problem> {
    let mut query = Query::read(&uri, &["channel", "after", "limit"])?;
    let channel: Name = query.required("channel")?;
    let after: Option<String> = query.parse("after")?;
    let items_max = query.limit(limits::LIST_SLICE, limits::LIST_ITEMS)?;
    let found = shared.ledger.suppressions(channel, after.map(Into::into), items_max).await?;
    let last = found.last().filter(|_| found.len() >= items_max);
    let next = last.map(|suppression| show(&suppression.recipient));
    let items = found.into_iter().map(Suppressed::from).collect();
    Ok(Json(SuppressionList { items, next }).into_response())
}

pub(crate) async fn suppress(
    State(shared): State<Arc<Shared>>,
    request: Request,
) -> Result<Response, Problem> {
    with_body(request, async |parts, incoming| {
        format(&parts.headers, &[Format::Json])?;
        let (bytes, _reservation) = incoming.whole(&parts.headers, &shared.intake).await?;
        let whole = utf8(bytes)?;
        let object = Object::read(&whole, SUPPRESSIONS)?;
        let channel = Object::required("channel", object.text("channel")?)?;
        let reason = object.text("reason")?.unwrap_or("by an operator".into());
        let reason: String = reason.chars().take(limits::DETAIL_BYTES).collect();
        let to = Object::required("to", object.raw("to"))?;
        let must_be = || Fault::new("/to", "must be a string, or an array of strings");
        let (recipients, count) = if to.get().starts_with('[') {
            list(to.get(), limits::REQUEST_ITEMS)?
        } else {
            (vec![to], 1)
        };
        if count > limits::REQUEST_ITEMS {
            return Err(too_many("/to", count).into());
        }
        let since = shared.intake.now();
        let mut suppressions = Vec::with_capacity(recipients.len());
        for recipient in recipients {
            let recipient = text(recipient).map_err(|_| must_be())?;
            let recipient = share(&whole, recipient);
            let (channel, recipient) = shared.intake.check_recipient(&channel, recipient)?;
            suppressions.push(Suppression { channel, recipient, reason: reason.clone(), since });
        }
        let suppressed = suppressions.len();
        shared.ledger.suppress(suppressions).await?;
        Ok(Json(SuppressAnswer { suppressed }).into_response())
    })
    .await
}

pub(crate) async fn unsuppress(
    State(shared): State<Arc<Shared>>,
    uri: Uri,
) -> Result<StatusCode, Problem> {
    let mut query = Query::read(&uri, &["channel", "to"])?;
    let (channel, to): (Name, String) = (query.required("channel")?, query.required("to")?);
    let to = ByteString::from(to);
    // What is listed may belong to a channel that is no longer configured.
    let checked = shared.intake.check_recipient(channel.as_str(), to.clone());
    let to = checked.map_or(to, |(_, canonical)| canonical);
    let removed = shared.ledger.unsuppress(channel, vec![to]).await?;
    if removed.contains(&true) {
        return Ok(StatusCode::NO_CONTENT);
    }
    Err(Problem::not_found("this recipient is not on the suppression list of this channel"))
}

// === helpers ===

fn append_line(lines: &mut Vec<u8>, line: &impl Serialize) -> Result<(), Problem> {
    serde_json::to_writer(&mut *lines, line).map_err(|_| internal("a line cannot be written"))?;
    lines.push(b'\n');
    Ok(())
}

fn internal(detail: &str) -> Problem {
    Problem::new(StatusCode::INTERNAL_SERVER_ERROR, detail)
}

//! `/v1/notifications`: what became of them, and second thoughts.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Extension, Path, State};
use axum::http::{HeaderMap, Uri};
use axum::response::{IntoResponse, Response};
use notification::{ByteString, NotificationId, limits};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use store::{CancelTarget, Cancelled, Filter, History, KeyUse, ReadStore, StoreError};

use crate::ApiState;
use crate::access::WithOperations;
use crate::act_trail::acted;
use crate::answer_time::AnswerTime;
use crate::caller::Caller;
use crate::limits::LIST_SLICE;
use crate::polled::polled;
use crate::problem::Problem;
use crate::problem_code::ProblemCode;
use crate::query::{Query, parse_id};
use crate::scope::{tenant_alone, tenant_of};
use crate::view::{ListAnswer, Notification, show};

/// Parameters of a list.
pub(crate) const LISTED_BY: [&str; 14] = [
    "channel",
    "state",
    "broadcast",
    "since",
    "until",
    "to",
    "external_id",
    "tag",
    "key",
    "reason",
    "order",
    "tenant",
    "after",
    "limit",
];

/// Items of the first slice of a list. Each may be of a batch of its own, and that on a slow disk; each slice is twice as long as the
/// one before, while there is time.
const FIRST_SLICE: usize = 8;

/// The answer to cancelling a notification, or a broadcast.
#[derive(Debug, JsonSchema, Serialize, Deserialize)]
pub struct CancelAnswer {
    /// Those that are cancelled now.
    pub cancelled: u64,
    /// Those that were claimed, and perhaps on the wire.
    pub under_way: u64,
    /// Those that had ended.
    pub ended: u64,
}

pub(crate) async fn read(
    State(shared): State<Arc<ApiState>>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let id = parse_id(&id)?;
    let tenant = tenant_alone(&uri, &caller)?;
    let found = shared.reads_of(&caller).find(id).await?;
    // One of another tenant is unknown to this caller: a 403 would tell that the identifier exists.
    let history = found.filter(|history| history.envelope.lane.tenant == tenant);
    let history = history.ok_or_else(|| unknown(id))?;
    polled(&headers, &Notification::full(history))
}

/// Asks the store for a slice at a time: contents are in memory only that long.
pub(crate) async fn list(
    State(shared): State<Arc<ApiState>>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
) -> Result<Response, Problem> {
    let mut query = Query::read(&uri, &LISTED_BY)?;
    let state: Option<notification::State> = query.parse("state")?;
    let filter = Filter {
        tenant: Some(tenant_of(&mut query, &caller)?),
        channel: query.parse("channel")?,
        states: state.into_iter().collect(),
        broadcast: query.parse("broadcast")?,
        since: query.parse("since")?,
        until: query.parse("until")?,
        recipient: query.parse::<String>("to")?.map(ByteString::from),
        or_fallback: false,
        external_id: query.parse::<String>("external_id")?.map(ByteString::from),
        tag: query.parse::<String>("tag")?.map(ByteString::from),
        reason: query.parse("reason")?,
        order: query.parse("order")?.unwrap_or_default(),
    };
    let mut next: Option<NotificationId> = query.parse("after")?;
    let items_max = query.limit(LIST_SLICE, limits::LIST_ITEMS)?;
    let reads = shared.reads_of(&caller);
    if let Some(key) = query.parse::<String>("key")? {
        let found = notification_with_key(&*reads, &filter, key.into()).await?;
        let items: Vec<_> = found.into_iter().map(Notification::brief).collect();
        return Ok(Json(ListAnswer { items, next: None }).into_response());
    }
    let mut items = Vec::new();
    let (mut time, mut slice_max) = (AnswerTime::of_list(&shared), FIRST_SLICE);
    loop {
        let slice = slice_max.min(items_max - items.len());
        let page = reads.list(filter.clone(), next, slice).await?;
        items.extend(page.items.into_iter().map(Notification::brief));
        next = page.next;
        // A filter may match hardly anything, and the disk may be slow: the caller goes on with `next`.
        if next.is_none() || items.len() >= items_max || time.is_over() {
            break;
        }
        slice_max = LIST_SLICE.min(slice_max * 2);
    }
    Ok(Json(ListAnswer { items, next: next.map(show) }).into_response())
}

/// The notification for which the tenant of `filter` used an idempotency key, if it matches.
///
/// # Errors
/// Those of the store.
pub async fn notification_with_key(
    reads: &dyn ReadStore,
    filter: &Filter,
    key: ByteString,
) -> Result<Option<History>, StoreError> {
    let Some(tenant) = filter.tenant.clone() else { return Ok(None) };
    let Some(KeyUse::Notification(id)) = reads.key_use(tenant, key).await? else {
        return Ok(None);
    };
    let found = reads.find(id).await?;
    Ok(found.filter(|history| filter.matches(history)))
}

pub(crate) async fn cancel(
    State(shared): State<Arc<ApiState>>,
    State(WithOperations(operations)): State<WithOperations>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    uri: Uri,
) -> Result<Response, Problem> {
    let id = parse_id(&id)?;
    let tenant = tenant_alone(&uri, &caller)?;
    let target = CancelTarget::Notification(id);
    let reads = shared.patient_reads_of(&caller);
    let counts = operations.cancel(target, tenant, shared.intake.now()).await?;
    let counts = counts.ok_or_else(|| unknown(id))?;
    let found = if counts.cancelled == 0 { reads.find(id).await? } else { None };
    let is_cancelled = found.is_some_and(|found| found.state == notification::State::Cancelled);
    cancel_answer(counts, u64::from(is_cancelled))
}

/// The counts behind a cancellation of what has `in_all` cancelled notifications since then, by this call or by others: a caller that
/// got no answer and asks again gets the same. A conflict when none is cancelled.
pub(crate) fn cancel_answer(counts: Cancelled, in_all: u64) -> Result<Response, Problem> {
    let Cancelled { cancelled: now, under_way, ended } = counts;
    let cancelled = in_all.max(now);
    if cancelled == 0 {
        let detail = format!("too late: {under_way} under way, {ended} ended");
        return Err(Problem::new(ProblemCode::TooLate, detail));
    }
    let ended = (now + ended).saturating_sub(cancelled);
    Ok(acted(CancelAnswer { cancelled, under_way, ended }))
}

pub(crate) fn unknown(id: NotificationId) -> Problem {
    Problem::not_found(format!("there is no notification {id}"))
}

//! `GET /v1/broadcasts`: the broadcasts of a tenant, without where their notifications stand.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Extension, State};
use axum::http::Uri;
use axum::response::{IntoResponse, Response};
use notification::{BroadcastId, ByteString, Labels, Name, Pauses, Scope, limits};
use schemars::JsonSchema;
use serde::Serialize;
use store::{
    BroadcastFilter, BroadcastPage, KeyUse, ListOrder, ListedBroadcast, ReadStore, StoreError,
    write_labels,
};

use crate::ApiState;
use crate::caller::Caller;
use crate::limits::LIST_SLICE;
use crate::problem::Problem;
use crate::query::Query;
use crate::scope::tenant_of;
use crate::view::{ListAnswer, show};

/// A broadcast in a list.
#[derive(Debug, JsonSchema, Serialize)]
pub struct BroadcastItem {
    /// Its identifier.
    #[schemars(with = "notification::BroadcastId")]
    pub id: String,
    /// The channel.
    #[schemars(with = "notification::Name")]
    pub channel: String,
    /// `urgent`, `normal` or `bulk`.
    #[schemars(with = "notification::Priority")]
    pub priority: &'static str,
    /// `at_least_once` or `at_most_once`.
    #[schemars(with = "notification::Guarantee")]
    pub guarantee: &'static str,
    /// When it was accepted.
    #[schemars(with = "notification::Timestamp")]
    pub accepted_at: String,
    /// When it is due, or was.
    #[schemars(with = "notification::Timestamp")]
    pub due_at: String,
    /// When what is left of it expires.
    #[schemars(with = "Option<notification::Timestamp>")]
    pub expires_at: Option<String>,
    /// Its notifications.
    pub accepted: u64,
    /// Since when it is paused by itself.
    #[schemars(with = "Option<notification::Timestamp>")]
    pub paused_since: Option<String>,
    /// Its labels.
    #[serde(flatten, serialize_with = "write_labels")]
    pub labels: Labels,
}

/// Parameters of the list.
pub(crate) const PARAMETERS: [&str; 10] =
    ["channel", "external_id", "tag", "key", "since", "until", "order", "tenant", "after", "limit"];

pub(crate) async fn list(
    State(shared): State<Arc<ApiState>>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
) -> Result<Response, Problem> {
    let mut query = Query::read(&uri, &PARAMETERS)?;
    let tenant = tenant_of(&mut query, &caller)?;
    let filter = BroadcastFilter {
        tenant: tenant.clone(),
        channel: query.parse("channel")?,
        since: query.parse("since")?,
        until: query.parse("until")?,
        external_id: query.parse::<String>("external_id")?.map(ByteString::from),
        tag: query.parse::<String>("tag")?.map(ByteString::from),
        order: query.parse("order")?.unwrap_or_default(),
    };
    let after = query.parse("after")?;
    let items_max = query.limit(LIST_SLICE, limits::LIST_ITEMS)?;
    let reads = shared.reads_of(&caller);
    let page = match query.parse::<String>("key")? {
        Some(key) => broadcast_with_key(&*reads, filter, key.into()).await?,
        None => reads.broadcasts(filter, after, items_max).await?,
    };
    let pauses = reads.pauses().await?;
    let item = |listed| BroadcastItem::new(listed, &tenant, &pauses);
    let items = page.items.into_iter().map(item).collect();
    Ok(Json(ListAnswer { items, next: page.next.map(show) }).into_response())
}

/// The broadcast for which an idempotency key was used, if it matches `filter`, as a page of its own.
///
/// # Errors
/// Those of the store.
pub async fn broadcast_with_key(
    reads: &dyn ReadStore,
    filter: BroadcastFilter,
    key: ByteString,
) -> Result<BroadcastPage, StoreError> {
    let Some(KeyUse::Broadcast(id)) = reads.key_use(filter.tenant.clone(), key).await? else {
        return Ok(BroadcastPage::default());
    };
    // The first one behind the number before it is this one.
    let before = BroadcastId(id.0.saturating_sub(1));
    let filter = BroadcastFilter { order: ListOrder::OldestFirst, ..filter };
    let mut page = reads.broadcasts(filter, Some(before), 1).await?;
    page.items.retain(|item| item.id == id);
    Ok(BroadcastPage { next: None, ..page })
}

// === impl BroadcastItem ===

impl BroadcastItem {
    /// A broadcast of `tenant`, with its pause among `pauses`.
    pub fn new(listed: ListedBroadcast, tenant: &Name, pauses: &Pauses) -> Self {
        Self {
            id: show(listed.id),
            channel: show(listed.channel),
            priority: listed.priority.as_str(),
            guarantee: listed.guarantee.as_str(),
            accepted_at: show(listed.accepted_at),
            due_at: show(listed.due_at),
            expires_at: listed.expires_at.map(show),
            accepted: listed.accepted,
            paused_since: pauses.since(tenant, &Scope::Broadcast(listed.id)).map(show),
            labels: listed.labels,
        }
    }
}

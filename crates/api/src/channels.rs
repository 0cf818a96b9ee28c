//! `GET /v1/channels`: the channels that a caller may name.

use std::num::NonZeroU32;
use std::sync::Arc;

use axum::extract::{Extension, State};
use axum::http::{HeaderMap, Uri};
use axum::response::Response;
use schemars::JsonSchema;
use serde::Serialize;

use crate::ApiState;
use crate::caller::Caller;
use crate::polled::polled;
use crate::problem::Problem;
use crate::scope::tenant_alone;
use crate::view::show;

/// A channel of the configuration, as far as callers are told of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfiguredChannel {
    /// Its protocol, as the setting `kind` has it.
    pub kind: &'static str,
    /// Bound on the attempts that are made in any minute for each of its quotas.
    pub messages_per_minute: Option<NonZeroU32>,
}

/// The channels that are configured, in order of name.
#[derive(JsonSchema, Serialize)]
pub(crate) struct ChannelList {
    items: Vec<ChannelItem>,
}

/// A channel.
#[derive(JsonSchema, Serialize)]
struct ChannelItem {
    name: String,
    kind: &'static str,
    messages_per_minute: Option<NonZeroU32>,
    /// Since when all that the tenant has of it is paused.
    #[schemars(with = "Option<notification::Timestamp>")]
    paused_since: Option<String>,
}

pub(crate) async fn list(
    State(shared): State<Arc<ApiState>>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let tenant = tenant_alone(&uri, &caller)?;
    let pauses = shared.reads_of(&caller).pauses().await?;
    let channels = shared.channels.borrow().clone();
    let item = |(name, channel)| {
        let ConfiguredChannel { kind, messages_per_minute } = channel;
        let paused_since = pauses.since_of_all(&tenant, &name, None).map(show);
        ChannelItem { name: show(name), kind, messages_per_minute, paused_since }
    };
    polled(&headers, &ChannelList { items: channels.into_iter().map(item).collect() })
}

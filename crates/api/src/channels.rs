//! `GET /v1/channels`: the channels that a caller may name.

use std::num::NonZeroU32;
use std::sync::Arc;

use axum::extract::{Extension, State};
use axum::http::{HeaderMap, Uri};
use axum::response::Response;
use notification::Timestamp;
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
    /// Its credentials that an operator replaces, and whose end is known without asking their providers.
    pub credentials: Vec<ChannelCredential>,
}

/// A credential of a channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChannelCredential {
    /// The credential, for people: `client certificate`; of several the one that ends first.
    pub what: &'static str,
    /// Until when it is good.
    pub expires_at: Timestamp,
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
    /// To operators: its credentials that have to be replaced, as far as their end is known without asking their providers; absent where
    /// there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    credentials: Vec<CredentialItem>,
}

/// A credential, and its end.
#[derive(JsonSchema, Serialize)]
struct CredentialItem {
    /// For people: `client certificate`; of several the one that ends first.
    what: &'static str,
    /// Until when it is good.
    #[schemars(with = "notification::Timestamp")]
    expires_at: String,
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
        let ConfiguredChannel { kind, messages_per_minute, mut credentials } = channel;
        // They are the operator's to replace.
        credentials.retain(|_| caller.is_operator);
        let credentials = credentials.into_iter().map(CredentialItem::from).collect();
        let paused_since = pauses.since_of_all(&tenant, &name, None).map(show);
        ChannelItem { name: show(name), kind, messages_per_minute, paused_since, credentials }
    };
    polled(&headers, &ChannelList { items: channels.into_iter().map(item).collect() })
}

// === impl CredentialItem ===

impl From<ChannelCredential> for CredentialItem {
    fn from(ChannelCredential { what, expires_at }: ChannelCredential) -> Self {
        Self { what, expires_at: show(expires_at) }
    }
}

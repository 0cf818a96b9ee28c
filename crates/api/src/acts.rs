//! `/v1/acts`: who has changed what, and what came of it.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Extension, State};
use axum::http::Uri;
use axum::response::{IntoResponse, Response};
use notification::limits;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use store::{Act, ActFilter};

use crate::ApiState;
use crate::answer_time::AnswerTime;
use crate::caller::Caller;
use crate::limits::LIST_SLICE;
use crate::problem::Problem;
use crate::query::Query;
use crate::scope::tenant_of;
use crate::view::{raw, show};

/// An act.
#[derive(Debug, JsonSchema, Serialize, Deserialize)]
pub struct ActItem {
    /// Its number.
    pub id: u64,
    /// When it began.
    pub at: String,
    /// The identifier of its request.
    pub request: String,
    /// The name of the caller's key; null where no keys are configured.
    pub key: Option<String>,
    /// The caller's tenant.
    pub caller: String,
    /// The tenant that it concerns.
    pub tenant: String,
    /// Its method and route.
    pub call: String,
    /// Its path and query, without what would tell of a person.
    pub asked: String,
    /// When it ended; null while it is under way, and where it is not known what came of it.
    pub ended_at: Option<String>,
    /// The status of its answer; null likewise.
    pub status: Option<u16>,
    /// Its outcome; null likewise, and where it was refused.
    #[schemars(with = "Option<serde_json::Map<String, serde_json::Value>>")]
    pub answer: Option<Box<RawValue>>,
}

/// Some acts, newest first.
#[derive(Debug, JsonSchema, Serialize, Deserialize)]
pub struct ActList {
    /// The acts.
    pub items: Vec<ActItem>,
    /// The act behind which the next call goes on; null at the end.
    pub next: Option<u64>,
}

/// The parameters of a list of acts.
pub(crate) const PARAMETERS: [&str; 6] = ["tenant", "key", "since", "until", "after", "limit"];

/// `GET /v1/acts`: those that concern the caller's tenant; an operator's are all.
pub(crate) async fn list(
    State(shared): State<Arc<ApiState>>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
) -> Result<Response, Problem> {
    let mut query = Query::read(&uri, &PARAMETERS)?;
    let items_max = query.limit(LIST_SLICE, limits::LIST_ITEMS)?;
    let names_tenant = query.has("tenant");
    let tenant = tenant_of(&mut query, &caller)?;
    let filter = ActFilter {
        tenant: Some(tenant).filter(|_| names_tenant || !caller.is_operator),
        key: query.parse("key")?,
        since: query.parse("since")?,
        until: query.parse("until")?,
    };
    let (mut next, mut items) = (query.parse("after")?, Vec::new());
    let mut time = AnswerTime::of_list(&shared);
    let reads = shared.reads_of(&caller);
    loop {
        let page = reads.acts(filter.clone(), next, items_max - items.len()).await?;
        items.extend(page.items.into_iter().map(ActItem::from));
        next = page.next;
        if next.is_none() || items.len() == items_max || time.is_over() {
            break;
        }
    }
    Ok(Json(ActList { items, next }).into_response())
}

// === impl ActItem ===

impl From<Act> for ActItem {
    fn from(Act { id, begun, ended }: Act) -> Self {
        let answer = ended.as_ref().and_then(|ended| ended.answer.as_ref());
        Self {
            id,
            at: show(begun.at),
            request: begun.request,
            key: begun.key.map(show),
            caller: show(begun.caller),
            tenant: show(begun.tenant),
            call: begun.call,
            asked: begun.asked,
            ended_at: ended.as_ref().map(|ended| show(ended.at)),
            status: ended.as_ref().map(|ended| ended.status),
            answer: answer.and_then(|answer| raw(answer.as_bytes())),
        }
    }
}

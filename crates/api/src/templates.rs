//! `GET /v1/templates`: the named templates that a caller may send.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::Json;
use axum::extract::{Extension, State};
use axum::http::Uri;
use axum::response::{IntoResponse, Response};
use notification::Name;
use pipeline::ingest::NamedTemplate;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::ApiState;
use crate::caller::Caller;
use crate::limits::LIST_SLICE;
use crate::problem::Problem;
use crate::query::Query;
use crate::view::{ListAnswer, raw, show};

/// A named template of the configuration.
#[derive(Debug, JsonSchema, Serialize)]
pub(crate) struct TemplateItem {
    /// The `template` of a request.
    #[schemars(with = "notification::Name")]
    name: String,
    /// The channel that it is meant for; `None` if for no certain one.
    #[schemars(with = "Option<notification::Name>")]
    channel: Option<String>,
    /// The content, byte for byte as it was written.
    content: Option<Box<RawValue>>,
    /// The channel's options, likewise.
    options: Option<Box<RawValue>>,
    /// The variables that it uses, also those that need not be given, as paths such as `user.name`.
    variables: BTreeSet<String>,
}

/// Parameters of the list.
pub(crate) const PARAMETERS: [&str; 2] = ["after", "limit"];
/// Templates of a page at most.
pub(crate) const ITEMS: usize = LIST_SLICE;
/// Bytes of the contents of a page, but for its first template, which may have 128 KiB: an answer is held until its caller takes it.
const PAGE_BYTES: usize = 256 * 1024;

/// By name, as the configuration of this process has them now. One that is meant for a channel that the caller's key is not granted is
/// left out.
pub(crate) async fn list(
    State(shared): State<Arc<ApiState>>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
) -> Result<Response, Problem> {
    let mut query = Query::read(&uri, &PARAMETERS)?;
    let after: Option<Name> = query.parse("after")?;
    let items_max = query.limit(ITEMS, ITEMS)?;
    let (templates, granted) = (shared.intake.templates(), caller.grants().channels);
    let is_granted = |template: &NamedTemplate| match (&template.channel, &granted) {
        (Some(channel), Some(granted)) => granted.contains(channel),
        (Some(_) | None, _) => true,
    };
    let behind = templates.iter().filter(|(name, template)| {
        after.as_ref().is_none_or(|after| *name > after) && is_granted(template)
    });
    let (mut items, mut bytes, mut is_more) = (Vec::new(), 0, false);
    for (name, template) in behind {
        bytes += template.content.payload.len() + template.content.options.len();
        is_more = !items.is_empty() && (items.len() >= items_max || bytes > PAGE_BYTES);
        if is_more {
            break;
        }
        items.push((name, template));
    }
    let next = items.last().filter(|_| is_more).map(|(name, _)| show(name));
    let items = items.into_iter().map(|(name, template)| TemplateItem::new(name, template));
    Ok(Json(ListAnswer { items: items.collect(), next }).into_response())
}

// === impl TemplateItem ===

impl TemplateItem {
    fn new(name: &Name, template: &NamedTemplate) -> Self {
        let NamedTemplate { content, channel, variables } = template;
        Self {
            name: show(name),
            channel: channel.as_ref().map(show),
            content: raw(&content.payload),
            options: raw(&content.options),
            variables: variables.clone(),
        }
    }
}

//! The suppression list: read, exported, changed, and followed.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::{Extension, Request, State};
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use notification::{ByteString, Name, Timestamp, limits};
use pipeline::ingest::InvalidField;
use pipeline::ingest::json::{Object, list, share, text};
use pipeline::ingest::parse::too_many_items;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use store::{EventPosition, Lift, ReadStore, StoreError, Suppression};

use crate::ApiState;
use crate::access::WithOperations;
use crate::act_trail::acted_on;
use crate::body::{BodyFormat, format, with_body};
use crate::caller::Caller;
use crate::follow::{FollowedChanges, wait_of};
use crate::limits::{LIST_SLICE, LOG_ENTRIES};
use crate::operate::append_line;
use crate::problem::Problem;
use crate::query::Query;
use crate::view::{ListAnswer, show};

/// Parameters of a request for a page of the list.
pub(crate) const LIST_PARAMETERS: [&str; 3] = ["channel", "after", "limit"];
/// Parameters of a request that takes one recipient off the list.
pub(crate) const LIFT_PARAMETERS: [&str; 2] = ["channel", "to"];
/// Parameters of a request for changes.
pub(crate) const EVENT_PARAMETERS: [&str; 3] = ["position", "limit", "wait"];
/// Fields of a body that suppresses.
pub(crate) const SUPPRESS: &[&str] = &["channel", "to", "reason"];
/// Fields of a body that lifts.
pub(crate) const LIFT: &[&str] = &["channel", "to", "registered_at"];
const LINES: &str = "application/x-ndjson";

/// The answer to suppressing recipients.
#[derive(Debug, Default, JsonSchema, Serialize, Deserialize)]
pub struct SuppressAnswer {
    /// Those that are on the list now.
    pub suppressed: usize,
}

/// The answer to lifting suppressions.
#[derive(Debug, Default, JsonSchema, Serialize, Deserialize)]
pub struct LiftAnswer {
    /// Those that were taken off the list.
    pub lifted: usize,
    /// Those that were not on the list, or stay on it.
    pub unchanged: usize,
}

/// The list, or that of one channel, a page at a time, in order of channel and recipient.
#[derive(Debug)]
pub struct SuppressionPages {
    /// The one that is being read.
    channel: Option<Name>,
    /// True if the list is that of all channels, not of one.
    is_whole: bool,
    after: Option<ByteString>,
}

/// Recipients as a request names them, checked.
struct NamedRecipients {
    channel: Name,
    recipients: Vec<ByteString>,
}

pub(crate) async fn read(
    State(shared): State<Arc<ApiState>>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    uri: Uri,
) -> Result<Response, Problem> {
    let accept = headers.get(ACCEPT).and_then(|value| value.to_str().ok());
    // The field is a list (RFC 9110, section 12.5.1): this type may stand beside others.
    if accept.is_some_and(|accept| accept.contains(LINES)) {
        return export((&shared, &caller), &uri).await;
    }
    let mut query = Query::read(&uri, &LIST_PARAMETERS)?;
    let channel: Name = query.required("channel")?;
    let after: Option<String> = query.parse("after")?;
    let items_max = query.limit(LIST_SLICE, limits::LIST_ITEMS)?;
    let reads = shared.reads_of(&caller);
    let found = reads.suppressions(channel, after.map(Into::into), items_max).await?;
    // A page that is not full was the last one.
    let last = found.last().filter(|_| found.len() >= items_max);
    let next = last.map(|suppression| show(&suppression.recipient));
    Ok(Json(ListAnswer { items: found, next }).into_response())
}

pub(crate) async fn suppress(
    State(shared): State<Arc<ApiState>>,
    State(WithOperations(operations)): State<WithOperations>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, Problem> {
    with_body(request, async |parts, incoming| {
        format(&parts.headers, &[BodyFormat::Json])?;
        let (whole, _reservation) =
            incoming.whole(&parts.headers, (&shared.intake, &caller.tenant)).await?;
        let object = Object::read(&whole, SUPPRESS)?;
        let mut reason = object.text("reason")?.unwrap_or("by an operator".into()).into_owned();
        // The list keeps as much of it as of a provider's words.
        reason.truncate(reason.floor_char_boundary(limits::DETAIL_BYTES));
        let NamedRecipients { channel, recipients } =
            named(&shared, &whole, &object, Strictness::Valid)?;
        let since = shared.intake.now();
        let suppression = |recipient| Suppression {
            channel: channel.clone(),
            recipient,
            reason: reason.clone(),
            status: 0,
            since,
        };
        let suppressed = recipients.len();
        let suppressions = recipients.into_iter().map(suppression).collect();
        operations.suppress(suppressions, since).await?;
        Ok(acted_on(json!({ "channel": channel }), SuppressAnswer { suppressed }))
    })
    .await
}

/// `POST /v1/suppressions/lift`
pub(crate) async fn lift(
    State(shared): State<Arc<ApiState>>,
    State(WithOperations(operations)): State<WithOperations>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, Problem> {
    with_body(request, async |parts, incoming| {
        format(&parts.headers, &[BodyFormat::Json])?;
        let (whole, _reservation) =
            incoming.whole(&parts.headers, (&shared.intake, &caller.tenant)).await?;
        let object = Object::read(&whole, LIFT)?;
        let registered_at = object.text("registered_at")?;
        let registered_at = registered_at.map(|text| text.parse::<Timestamp>()).transpose();
        let registered_at = registered_at
            .map_err(|error| InvalidField::new("/registered_at", error.to_string()))
            .and_then(|instant| check_registered_at(instant, shared.intake.now()))?;
        let NamedRecipients { channel, recipients } =
            named(&shared, &whole, &object, Strictness::Any)?;
        check_channel((&shared, &caller), &channel).await?;
        let count = recipients.len();
        let lift = |recipient| Lift { channel: channel.clone(), recipient, registered_at };
        let lifts = recipients.into_iter().map(lift).collect();
        let are_lifted = operations.lift(lifts, shared.intake.now()).await?;
        let lifted = are_lifted.into_iter().filter(|is_lifted| *is_lifted).count();
        Ok(acted_on(
            json!({ "channel": channel }),
            LiftAnswer { lifted, unchanged: count - lifted },
        ))
    })
    .await
}

/// `DELETE /v1/suppressions`
pub(crate) async fn lift_one(
    State(shared): State<Arc<ApiState>>,
    State(WithOperations(operations)): State<WithOperations>,
    uri: Uri,
) -> Result<StatusCode, Problem> {
    let mut query = Query::read(&uri, &LIFT_PARAMETERS)?;
    let (channel, to): (Name, String) = (query.required("channel")?, query.required("to")?);
    let recipient = as_listed(&shared, &channel, to.into());
    let lift = Lift { channel, recipient, registered_at: None };
    let are_lifted = operations.lift(vec![lift], shared.intake.now()).await?;
    if are_lifted.contains(&true) {
        return Ok(StatusCode::NO_CONTENT);
    }
    Err(Problem::not_found("this recipient is not on the suppression list of this channel"))
}

/// `GET /v1/suppressions/events`: what changed since a position, or as soon as something does.
pub(crate) async fn events(
    State(shared): State<Arc<ApiState>>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
) -> Result<Response, Problem> {
    let mut query = Query::read(&uri, &EVENT_PARAMETERS)?;
    let position: EventPosition = query.parse("position")?.unwrap_or_default();
    let events_max = query.limit(limits::LIST_ITEMS, LOG_ENTRIES)?;
    let wait = wait_of(&mut query)?;
    let page = shared.follow(&caller, position, wait, &FollowedChanges { events_max }).await?;
    let mut lines = Vec::new();
    for event in page.events {
        append_line(&mut lines, &event)?;
    }
    append_line(&mut lines, &json!({ "next": page.next }))?;
    Ok(([(CONTENT_TYPE, LINES)], lines).into_response())
}

/// The whole list, or that of one channel, in constant memory.
async fn export((shared, caller): (&ApiState, &Caller), uri: &Uri) -> Result<Response, Problem> {
    let mut query = Query::read(uri, &["channel"])?;
    let reads = shared.patient_reads_of(caller);
    let pages = SuppressionPages::new(&*reads, query.parse("channel")?).await?;
    let lines = stream::try_unfold((reads, pages), async |(reads, mut pages)| {
        // After an error the connection is cut: an export that ends in order is whole.
        let page = pages.next(&*reads).await?;
        let mut lines = Vec::new();
        for suppression in &page {
            append_line(&mut lines, suppression)
                .map_err(|problem| StoreError::Damaged(problem.detail))?;
        }
        Ok::<_, StoreError>((!page.is_empty()).then(|| (Bytes::from(lines), (reads, pages))))
    });
    Ok(([(CONTENT_TYPE, LINES)], Body::from_stream(lines)).into_response())
}

// === impl SuppressionPages ===

impl SuppressionPages {
    /// All that `reads` has, or those of the channel `only`.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn new(reads: &dyn ReadStore, only: Option<Name>) -> Result<Self, StoreError> {
        let is_whole = only.is_none();
        let channel = if is_whole { reads.suppressed_channel(None).await? } else { only };
        Ok(Self { channel, is_whole, after: None })
    }

    /// The next page; empty at the end.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn next(&mut self, reads: &dyn ReadStore) -> Result<Vec<Suppression>, StoreError> {
        while let Some(channel) = self.channel.take() {
            // Taken out, so that the list of the next channel is read from its start.
            let after = self.after.take();
            let found = reads.suppressions(channel.clone(), after, limits::LIST_ITEMS).await?;
            if let Some(last) = found.last() {
                (self.channel, self.after) = (Some(channel), Some(last.recipient.clone()));
                return Ok(found);
            }
            if self.is_whole {
                self.channel = reads.suppressed_channel(Some(channel)).await?;
            }
        }
        Ok(Vec::new())
    }
}

// === helpers ===

/// The rule for a recipient.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Strictness {
    /// One that its channel could have.
    Valid,
    /// Any: what is listed may belong to a channel that is no longer configured.
    Any,
}

fn named(
    shared: &ApiState,
    whole: &ByteString,
    object: &Object<'_>,
    strictness: Strictness,
) -> Result<NamedRecipients, Problem> {
    let name = Object::required("channel", object.text("channel")?)?;
    let to = Object::required("to", object.raw("to"))?;
    let is_list = to.get().starts_with('[');
    let (values, count) =
        if is_list { list(to.get(), limits::REQUEST_ITEMS)? } else { (vec![to], 1) };
    if count > limits::REQUEST_ITEMS {
        return Err(too_many_items("/to", count).into());
    }
    let mut channel: Name = name.parse().map_err(|error: <Name as std::str::FromStr>::Err| {
        InvalidField::new("/channel", error.to_string())
    })?;
    let mut recipients = Vec::with_capacity(values.len());
    for (index, value) in values.into_iter().enumerate() {
        let which = |invalid: InvalidField| match &*invalid.pointer {
            "/to" if is_list => InvalidField::new(format!("/to/{index}"), invalid.message),
            _ => invalid,
        };
        let must_be =
            |_| which(InvalidField::new("/to", "must be a string, or an array of strings"));
        let recipient = share(whole, text(value).map_err(must_be)?);
        recipients.push(match strictness {
            // No list has one, and a store may not be able to be asked for it.
            Strictness::Any if recipient.bytes().any(|byte| byte.is_ascii_control()) => {
                let message = "must not have control characters";
                return Err(which(InvalidField::new("/to", message)).into());
            }
            Strictness::Any => as_listed(shared, &channel, recipient),
            Strictness::Valid => {
                let checked = shared.intake.check_recipient(&name, recipient);
                let (known, canonical) = checked.map_err(which)?;
                channel = known;
                canonical
            }
        });
    }
    Ok(NamedRecipients { channel, recipients })
}

/// Refuses a channel that is neither configured nor on the list: it is mistyped.
async fn check_channel(
    (shared, caller): (&ApiState, &Caller),
    channel: &Name,
) -> Result<(), Problem> {
    // An empty recipient is refused in any case: what counts is whether the channel is known.
    match shared.intake.check_recipient(channel.as_str(), ByteString::default()) {
        Err(invalid) if invalid.pointer == "/channel" => {
            let reads = shared.patient_reads_of(caller);
            let listed = reads.suppressions(channel.clone(), None, 1).await?;
            if listed.is_empty() { Err(invalid.into()) } else { Ok(()) }
        }
        _ => Ok(()),
    }
}

/// The spelling under which a recipient is listed.
fn as_listed(shared: &ApiState, channel: &Name, to: ByteString) -> ByteString {
    let checked = shared.intake.check_recipient(channel.as_str(), to.clone());
    // What the channel would refuse today may be on the list as it was given.
    checked.map_or(to, |(_, canonical)| canonical)
}

fn check_registered_at(
    instant: Option<Timestamp>,
    now: Timestamp,
) -> Result<Option<Timestamp>, InvalidField> {
    match instant {
        // Else nothing that a provider says until then would be believed.
        Some(instant) if instant > now.plus(limits::CLOCK_TOLERANCE) => Err(InvalidField::new(
            "/registered_at",
            format!(
                "{instant} is ahead (it is {now}): give the time at which the recipient registered"
            ),
        )),
        instant => Ok(instant),
    }
}

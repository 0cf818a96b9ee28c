//! Delivery events: what became of the notifications of the caller's tenant, by a bounded wait or as a stream.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Extension, State};
use axum::http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE, HeaderName};
use axum::http::{HeaderMap, Uri};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use notification::{ByteString, State as Outcome, limits};
use serde_json::json;
use store::{DeliveryFilter, DeliveryPage, EventPosition, StoreError};

use crate::ApiState;
use crate::api_shares::StreamRoom;
use crate::caller::Caller;
use crate::follow::{FollowedDeliveries, wait_of};
use crate::grants::KeyScope;
use crate::limits::LOG_ENTRIES;
use crate::operate::append_line;
use crate::problem::Problem;
use crate::problem_code::ProblemCode;
use crate::query::Query;
use crate::scope::tenant_of;

const LINES: &str = "application/x-ndjson";
pub(crate) const STREAM: &str = "text/event-stream";
/// Headers of a stream. nginx holds back what it proxies unless the last one says not to.
pub(crate) const STREAM_HEADERS: [(HeaderName, &str); 3] = [
    (CONTENT_TYPE, STREAM),
    (CACHE_CONTROL, "no-store"),
    (HeaderName::from_static("x-accel-buffering"), "no"),
];
/// Tells the reader of a stream that it lives.
pub(crate) const HEARTBEAT_COMMENT: Bytes = Bytes::from_static(b":\n\n");
/// Time after which a stream without an event has a comment, so that proxies and the reader know that it lives.
pub(crate) const HEARTBEAT: Duration = Duration::from_secs(15);
/// Events that a stream writes at a time: with those that the socket has, all that it holds.
const STREAM_EVENTS: usize = 1_000;

/// A stream of events that is open.
struct EventStream {
    shared: Arc<ApiState>,
    followed: FollowedDeliveries,
    position: EventPosition,
    caller: Caller,
    /// Held as long as the stream.
    _room: StreamRoom,
}

/// Parameters of a request.
pub(crate) const PARAMETERS: [&str; 8] =
    ["position", "limit", "wait", "channel", "tag", "state", "attempts", "tenant"];

/// `GET /v1/events`
pub(crate) async fn read(
    State(shared): State<Arc<ApiState>>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    uri: Uri,
) -> Result<Response, Problem> {
    let mut query = Query::read(&uri, &PARAMETERS)?;
    let position = query.parse::<EventPosition>("position")?;
    let events_max = query.limit(limits::LIST_ITEMS, LOG_ENTRIES)?;
    let wait = wait_of(&mut query)?;
    let filter = DeliveryFilter {
        tenant: tenant_of(&mut query, &caller)?,
        channels: some_of(&mut query, "channel")?,
        tags: query.parse::<String>("tag")?.map(ByteString::from).into_iter().collect(),
        states: terminal_states(&mut query)?,
        attempts: query.parse("attempts")?.unwrap_or(false),
    };
    // Read in any case, so that a wrong one is never passed over.
    let last = last_event(&headers)?;
    if wants_stream(&headers) {
        // A browser that connects anew says where it was; that is later than what its address says.
        return stream((shared, caller), filter, last.or(position)).await;
    }
    let followed = FollowedDeliveries { filter, events_max };
    let page = shared.follow(&caller, position.unwrap_or_default(), wait, &followed).await?;
    let ended = |ended: String| Problem::new(ProblemCode::ExpiredKey, ended);
    caller.still_good(shared.intake.now()).map_err(ended)?;
    let mut lines = Vec::new();
    for event in page.events {
        append_line(&mut lines, &event)?;
    }
    append_line(&mut lines, &json!({ "next": page.next }))?;
    Ok(([(CONTENT_TYPE, LINES)], lines).into_response())
}

/// Answers with events as they come, until the caller leaves or the server stops. Without a position they begin now.
async fn stream(
    (shared, caller): (Arc<ApiState>, Caller),
    filter: DeliveryFilter,
    position: Option<EventPosition>,
) -> Result<Response, Problem> {
    let room = shared.shares.open_stream(caller.sharing())?;
    let position = match position {
        Some(position) => position,
        None => shared.reads_of(&caller).events_end().await?,
    };
    let followed = FollowedDeliveries { filter, events_max: STREAM_EVENTS };
    let open = EventStream { shared, followed, position, caller, _room: room };
    // The first bytes at once, with the place where it begins: a reader whose connection is cut before the first event has it.
    let begun = stream::once(async move {
        Ok::<_, StoreError>(Bytes::from(format!(": begins\nid: {position}\n\n")))
    });
    let pages = stream::try_unfold(open, EventStream::next);
    let body = Body::from_stream(futures_util::StreamExt::chain(begun, pages));
    Ok((STREAM_HEADERS, body).into_response())
}

// === impl EventStream ===

impl EventStream {
    /// The next bytes, and the stream behind them; none once the server stops or the caller's key is good no more. After an error the connection is cut: the reader
    /// connects anew, with its position.
    async fn next(mut self) -> Result<Option<(Bytes, Self)>, StoreError> {
        if self.shared.is_stopping() {
            return Ok(None);
        }
        let page =
            self.shared.follow(&self.caller, self.position, HEARTBEAT, &self.followed).await?;
        // After the wait: nothing is told to a caller whose key was taken away meanwhile.
        if !self.caller.still_has(&[KeyScope::Read], self.shared.intake.now()) {
            return Ok(None);
        }
        let bytes = stream_bytes(&page, self.position)
            .map_err(|error| StoreError::Damaged(error.to_string()))?;
        self.position = page.next;
        Ok(Some((bytes, self)))
    }
}

/// The events of a page as a stream has them; a comment if there are none, with the place if that has moved on.
fn stream_bytes(page: &DeliveryPage, before: EventPosition) -> serde_json::Result<Bytes> {
    let mut bytes = Vec::new();
    for event in &page.events {
        bytes.extend_from_slice(format!("id: {}\ndata: ", event.position).as_bytes());
        serde_json::to_writer(&mut bytes, event)?;
        bytes.extend_from_slice(b"\n\n");
    }
    if page.events.is_empty() && page.next == before {
        bytes.extend_from_slice(b":\n\n");
    } else if page.events.is_empty() {
        bytes.extend_from_slice(format!(": passed\nid: {}\n\n", page.next).as_bytes());
    }
    Ok(Bytes::from(bytes))
}

// === helpers ===

/// True if a request with `headers` asks for server-sent events.
pub(crate) fn wants_stream(headers: &HeaderMap) -> bool {
    let accept = headers.get(ACCEPT).and_then(|value| value.to_str().ok());
    accept.is_some_and(|accept| accept.contains(STREAM))
}

/// The position in `Last-Event-ID`; an empty one is none.
fn last_event(headers: &HeaderMap) -> Result<Option<EventPosition>, Problem> {
    let Some(value) = headers.get("last-event-id").filter(|value| !value.is_empty()) else {
        return Ok(None);
    };
    let text = String::from_utf8_lossy(value.as_bytes());
    text.parse().map(Some).map_err(|error| {
        Problem::new(ProblemCode::InvalidHeader, format!("Last-Event-ID: {error}"))
    })
}

/// The values of a parameter that names several, separated by commas; none if it is not given.
fn some_of<T: FromStr<Err: Display> + Ord>(
    query: &mut Query,
    name: &str,
) -> Result<BTreeSet<T>, Problem> {
    let given: Option<String> = query.parse(name)?;
    let refused = |error: T::Err| Problem::parameter(format!("parameter {name}: {error}"));
    given.iter().flat_map(|list| list.split(',')).map(|it| it.parse().map_err(refused)).collect()
}

/// The states that are asked for, which are ends.
fn terminal_states(query: &mut Query) -> Result<BTreeSet<Outcome>, Problem> {
    let states: BTreeSet<Outcome> = some_of(query, "state")?;
    match states.iter().find(|state| !state.is_terminal()) {
        Some(state) => Err(Problem::parameter(format!(
            "parameter state: {state} is no end; `attempts=true` asks for attempts that another one follows"
        ))),
        None => Ok(states),
    }
}

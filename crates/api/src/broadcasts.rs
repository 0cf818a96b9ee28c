//! `/v1/broadcasts`: one content for many, accepted whole or not at all.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::{Extension, Path, Request, State};
use axum::http::header::LOCATION;
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use notification::{Account, BroadcastId, ByteString, Bytes, Scope, limits};
use pipeline::ingest::json::{ParseError, utf8};
use pipeline::ingest::parse::{self, BroadcastWithRecipients};
use pipeline::ingest::{
    BroadcastOpening, BroadcastRecipient, IngestError, InvalidField, Reservation, Submission,
    Upload,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use store::{BroadcastStatus, CancelTarget};

use crate::ApiState;
use crate::access::WithOperations;
use crate::body::{BodyFormat, Incoming, format, with_body};
use crate::caller::Caller;
use crate::draft::{add_key, header_key};
use crate::estimate::EstimateAnswer;
use crate::input::Input;
use crate::limits::FAULTS;
use crate::lines::BodyLine;
use crate::notifications::cancel_answer;
use crate::polled::polled;
use crate::problem::{Located, Problem};
use crate::problem_code::ProblemCode;
use crate::query::parse_id;
use crate::scope::tenant_alone;
use crate::view::show;
use crate::yield_budget::YieldBudget;

/// The answer to creating a broadcast.
#[derive(Debug, JsonSchema, Serialize, Deserialize)]
pub struct BroadcastCreated {
    /// Its identifier.
    #[schemars(with = "notification::BroadcastId")]
    pub id: String,
    /// Its notifications.
    pub accepted: u64,
    /// True if it was created before, with the same key.
    pub replayed: bool,
}

/// A broadcast as a whole.
#[derive(Debug, JsonSchema, Serialize, Deserialize)]
pub struct BroadcastAnswer {
    /// Its identifier.
    #[schemars(with = "notification::BroadcastId")]
    pub id: String,
    /// The channel.
    #[schemars(with = "notification::Name")]
    pub channel: String,
    /// When it was accepted.
    #[schemars(with = "notification::Timestamp")]
    pub accepted_at: String,
    /// When what is left of it expires.
    #[schemars(with = "Option<notification::Timestamp>")]
    pub expires_at: Option<String>,
    /// Since when it is paused by itself.
    #[schemars(with = "Option<notification::Timestamp>")]
    pub paused_since: Option<String>,
    /// Its external id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external_id: Option<String>,
    /// Its tags.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// Its metadata.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<serde_json::Value>,
    /// Where its notifications stand.
    #[serde(flatten)]
    pub totals: Account,
    /// When it will be complete.
    pub estimate: EstimateAnswer,
}

/// A recipient as it was read, and whether it was a text and no object with `to`.
type Recipient = (BroadcastRecipient, bool);

/// Recipients that are checked together, each with its position in the body: as many as delay no other request.
struct RecipientSlice<P> {
    /// Bytes of the broadcast that each recipient has rendered.
    rendered_bytes: usize,
    budget: YieldBudget,
    read: Vec<(P, Result<Recipient, ParseError>)>,
}

pub(crate) async fn create(
    State(shared): State<Arc<ApiState>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, Problem> {
    let created = with_body(request, async |parts, incoming| {
        match format(&parts.headers, &[BodyFormat::Lines, BodyFormat::Json])? {
            BodyFormat::Json => create_whole(&shared, &caller, parts, incoming).await,
            BodyFormat::Lines => create_from_lines(&shared, &caller, parts, incoming).await,
        }
    })
    .await?;
    let location = [(LOCATION, format!("/v1/broadcasts/{}", created.id))];
    Ok((StatusCode::CREATED, location, Json(created)).into_response())
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
    let reads = shared.reads_of(&caller);
    let found = reads.broadcast(id).await?;
    // As for notifications: one of another tenant is unknown to this caller.
    let broadcast = found.filter(|broadcast| broadcast.tenant == tenant);
    let Some(broadcast) = broadcast else { return Err(unknown(id)) };
    let pauses = reads.pauses().await?;
    let paused_since = pauses.since(&tenant, &Scope::Broadcast(id)).map(show);
    let backoff = shared.backoff_of(&broadcast.channel);
    let estimate = EstimateAnswer::of(&broadcast, &pauses, &backoff, shared.intake.now());
    let BroadcastStatus { id, channel, accepted_at, expires_at, labels, account, .. } = broadcast;
    let answer = BroadcastAnswer {
        id: show(id),
        channel: show(channel),
        accepted_at: show(accepted_at),
        expires_at: expires_at.map(show),
        paused_since,
        external_id: Some(show(&labels.external_id)).filter(|id| !id.is_empty()),
        tags: labels.tags().iter().map(show).collect(),
        metadata: serde_json::from_slice(labels.metadata()).ok(),
        totals: account,
        estimate,
    };
    polled(&headers, &answer)
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
    let target = CancelTarget::Broadcast(id);
    let reads = shared.patient_reads_of(&caller);
    let counts = operations.cancel(target, tenant, shared.intake.now()).await?;
    let counts = counts.ok_or_else(|| unknown(id))?;
    let found = reads.broadcast(id).await?;
    cancel_answer(counts, found.map_or(0, |broadcast| broadcast.account.cancelled))
}

async fn create_whole(
    shared: &ApiState,
    caller: &Caller,
    parts: &Parts,
    incoming: &mut Incoming,
) -> Result<BroadcastCreated, Problem> {
    // Kept to the end, as the body is in memory until then.
    let (whole, _reservation) =
        incoming.whole(&parts.headers, (&shared.intake, &caller.tenant)).await?;
    let BroadcastWithRecipients { submission, recipients, head_bytes } =
        parse::broadcast_with_recipients(&whole)?;
    let mut upload = match open(shared, caller, parts, submission, None).await? {
        BroadcastOpening::Open(upload) => upload,
        BroadcastOpening::Replayed(id) => return replayed((shared, caller), id).await,
    };
    let filled = fill_whole(&mut upload, &whole, recipients, head_bytes).await;
    end(upload, filled).await
}

/// Adds `recipients`, parts of `whole`, to `upload`, whose head had `head_bytes`; names all that are wrong, up to [`FAULTS`].
async fn fill_whole(
    upload: &mut Upload,
    whole: &ByteString,
    recipients: Vec<&RawValue>,
    head_bytes: usize,
) -> Result<(), Problem> {
    let (mut invalid_fields, mut slice) = (Vec::new(), RecipientSlice::new(upload, head_bytes));
    let mut recipients = recipients.into_iter().enumerate().peekable();
    while let Some((index, recipient)) = recipients.next() {
        slice.push(index, recipient.get().len(), parse::recipient(whole, recipient));
        if !slice.is_full() && recipients.peek().is_some() {
            continue;
        }
        for (index, error) in slice.add_to(upload).await? {
            invalid_fields.push(in_recipients(index, error)?);
        }
        // Rendered contents may be larger than the body was.
        if upload.is_full() {
            upload.flush().await?;
        }
        if invalid_fields.len() >= FAULTS {
            // The last slice may have found more than are named.
            invalid_fields.truncate(FAULTS);
            break;
        }
    }
    if invalid_fields.is_empty() { Ok(()) } else { Err(Problem::unprocessable(invalid_fields)) }
}

async fn create_from_lines(
    shared: &ApiState,
    caller: &Caller,
    parts: &Parts,
    incoming: &mut Incoming,
) -> Result<BroadcastCreated, Problem> {
    incoming.decode(&parts.headers, (&shared.intake, &caller.tenant))?;
    let mut input = Input::new(std::mem::replace(incoming, Incoming::new(Body::empty())));
    let created = create_from_input(shared, caller, parts, &mut input).await;
    // What is left of a refused one is thrown away where every body is.
    *incoming = input.into_incoming();
    created
}

async fn create_from_input(
    shared: &ApiState,
    caller: &Caller,
    parts: &Parts,
    input: &mut Input,
) -> Result<BroadcastCreated, Problem> {
    let mut held = Reservation::default();
    let first = loop {
        if let Some(line) = input.next() {
            break Some(line);
        }
        match input.piece().await? {
            Some(piece) => {
                // From its first byte on it may hold as much as any; before that, nothing.
                if held.is_empty() {
                    shared.intake.reserve(&caller.tenant, limits::STREAM_BYTES, &mut held)?;
                }
                input.push(piece);
            }
            None => break input.finish(),
        }
    };
    let Some(first) = first else {
        let detail = "the body is empty: the first line is the broadcast";
        return Err(Problem::new(ProblemCode::InvalidJson, detail));
    };
    let number = first.number;
    let text = first.text.ok_or_else(too_long).and_then(utf8);
    let whole = text.map_err(|error| in_line(number, error))?;
    let submission = parse::broadcast(&whole).map_err(|error| in_line(number, error))?;
    let mut upload = match open(shared, caller, parts, submission, Some(number)).await? {
        BroadcastOpening::Open(upload) => upload,
        BroadcastOpening::Replayed(id) => {
            // A caller that is still writing its recipients would not see the answer otherwise.
            input.skip().await?;
            return replayed((shared, caller), id).await;
        }
    };
    let filled = fill(&mut upload, input, whole.len()).await;
    // The recipients may have taken hours to come.
    end(upload, filled.and_then(|()| caller.check_still_sends(shared.intake.now()))).await
}

/// Adds every further line to `upload`, whose first line had `head_bytes`; gives up at the first that is wrong.
async fn fill(upload: &mut Upload, input: &mut Input, head_bytes: usize) -> Result<(), Problem> {
    let mut slice = RecipientSlice::new(upload, head_bytes);
    loop {
        while let Some(line) = input.next() {
            push_line(&mut slice, line);
            if slice.is_full() {
                add_lines(upload, &mut slice).await?;
            }
        }
        match input.piece().await? {
            Some(piece) => input.push(piece),
            None => break,
        }
    }
    if let Some(line) = input.finish() {
        push_line(&mut slice, line);
    }
    add_lines(upload, &mut slice).await
}

fn push_line(slice: &mut RecipientSlice<u64>, line: BodyLine) {
    let bytes = line.text.as_ref().map_or(0, Bytes::len);
    let text = line.text.ok_or_else(too_long).and_then(utf8);
    let read = text.and_then(|text| parse::recipient(&text, serde_json::from_str(&text)?));
    slice.push(line.number, bytes, read);
}

async fn add_lines(upload: &mut Upload, slice: &mut RecipientSlice<u64>) -> Result<(), Problem> {
    if let Some((line, error)) = slice.add_to(upload).await?.into_iter().next() {
        return Err(in_line(line, error));
    }
    if upload.is_full() {
        upload.flush().await?;
    }
    Ok(())
}

/// Opens the broadcast that stands in `line`, if the body has lines.
async fn open(
    shared: &ApiState,
    caller: &Caller,
    parts: &Parts,
    mut submission: Submission<'_>,
    line: Option<u64>,
) -> Result<BroadcastOpening, Problem> {
    add_key(&mut submission, header_key(&parts.headers)?)?;
    let granted = caller.check_sending(&mut submission, shared.intake.now());
    let opened = match granted {
        Ok(()) => shared.intake.open_broadcast(&caller.tenant, submission).await,
        Err(invalid) => Err(invalid.into()),
    };
    opened.map_err(|error| match (error, line) {
        (IngestError::Invalid(invalid), Some(line)) => in_line(line, invalid.into()),
        (error, _) => error.into(),
    })
}

/// Seals `upload` if it is `filled`, and abandons it otherwise.
async fn end(upload: Upload, filled: Result<(), Problem>) -> Result<BroadcastCreated, Problem> {
    if let Err(problem) = filled {
        // Before the answer: an upload that is only dropped stays in the store until its connection ends.
        upload.abandon().await;
        return Err(problem);
    }
    let id = show(upload.id());
    let accepted = upload.seal().await?;
    Ok(BroadcastCreated { id, accepted, replayed: false })
}

async fn replayed(
    (shared, caller): (&ApiState, &Caller),
    id: BroadcastId,
) -> Result<BroadcastCreated, Problem> {
    let found = shared.patient_reads_of(caller).broadcast(id).await?;
    let accepted = found.map_or(0, |broadcast| broadcast.account.accepted);
    Ok(BroadcastCreated { id: show(id), accepted, replayed: true })
}

// === impl RecipientSlice ===

impl<P: Copy> RecipientSlice<P> {
    /// A slice for `upload`, whose first line had `head_bytes`.
    fn new(upload: &Upload, head_bytes: usize) -> Self {
        // Every recipient's content is rendered from all of the head, so its bytes count for each.
        let (rendered_bytes, budget) = if upload.renders() {
            (head_bytes, YieldBudget::default())
        } else {
            (0, YieldBudget::of_plain_items())
        };
        Self { rendered_bytes, budget, read: Vec::new() }
    }

    /// Adds what was read at `place` from so many bytes.
    fn push(&mut self, place: P, bytes: usize, read: Result<Recipient, ParseError>) {
        self.budget.spend(self.rendered_bytes + bytes);
        self.read.push((place, read));
    }

    fn is_full(&self) -> bool {
        self.budget.is_spent()
    }

    /// Adds what it has to `upload`, and says where something was wrong, in order.
    async fn add_to(&mut self, upload: &mut Upload) -> Result<Vec<(P, ParseError)>, Problem> {
        self.budget.yield_if_spent().await;
        let (mut invalid_fields, mut places, mut good) = (Vec::new(), Vec::new(), Vec::new());
        for (order, (place, read)) in std::mem::take(&mut self.read).into_iter().enumerate() {
            match read {
                Ok((recipient, is_text)) => {
                    places.push((order, place, is_text));
                    good.push(recipient);
                }
                Err(error) => invalid_fields.push((order, place, error)),
            }
        }
        for ((order, place, is_text), added) in places.into_iter().zip(upload.add(good).await?) {
            let Err(invalid) = added else { continue };
            // What is wrong with a recipient that is a text is wrong with the line.
            let invalid = match &*invalid.pointer {
                "/to" if is_text => invalid.at(""),
                _ => invalid,
            };
            invalid_fields.push((order, place, invalid.into()));
        }
        // What cannot be read was found before what is refused: callers are told in the order of their recipients.
        invalid_fields.sort_by_key(|(order, ..)| *order);
        Ok(invalid_fields.into_iter().map(|(_, place, error)| (place, error)).collect())
    }
}

// === helpers ===

pub(crate) fn unknown(id: BroadcastId) -> Problem {
    Problem::not_found(format!("there is no broadcast {id}"))
}

fn too_long() -> ParseError {
    InvalidField::new("", format!("has more than {} bytes", limits::LINE_BYTES)).into()
}

fn in_line(line: u64, error: ParseError) -> Problem {
    match error {
        ParseError::Syntax(detail) => {
            Problem::new(ProblemCode::InvalidJson, format!("line {line}: {detail}"))
        }
        ParseError::Invalid(invalid) if invalid.is_not_granted => {
            Problem::not_granted(Located::in_line(line, invalid))
        }
        ParseError::Invalid(invalid) => {
            Problem::unprocessable(vec![Located::in_line(line, invalid)])
        }
    }
}

fn in_recipients(index: usize, error: ParseError) -> Result<Located, Problem> {
    match error {
        ParseError::Syntax(detail) => Err(Problem::new(ProblemCode::InvalidJson, detail)),
        ParseError::Invalid(invalid) => {
            let pointer = format!("/recipients/{index}{}", invalid.pointer);
            if invalid.is_not_granted {
                return Err(Problem::not_granted(invalid.at(pointer).into()));
            }
            Ok(invalid.at(pointer).into())
        }
    }
}

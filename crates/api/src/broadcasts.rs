//! `/v1/broadcasts`: one content for many, accepted whole or not at all.

use std::borrow::Cow;
use std::sync::Arc;

use axum::Json;
use axum::extract::{Extension, Path, Request, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use notification::{BroadcastId, ByteString, Bytes, limits};
use pipeline::ingest::{Addressee, Fault, IngestError, Opening, Terms, Upload};
use serde::Serialize;
use serde_json::value::RawValue;
use store::{BroadcastStatus, CancelTarget};

use crate::Shared;
use crate::body::{Format, Incoming, format, with_body};
use crate::create::{add_key, header_key, too_many};
use crate::keys::Caller;
use crate::lines::{Line, Lines};
use crate::notifications::cancel_answer;
use crate::object::{
    Address, BROADCAST, BROADCAST_WHOLE, Object, RECIPIENT, ReadError, list, share, terms, text,
    utf8,
};
use crate::problem::{Located, Problem};
use crate::turn::Turn;
use crate::view::{Totals, show};

#[derive(Serialize)]
struct Created {
    id: String,
    accepted: u64,
    replayed: bool,
}

#[derive(Serialize)]
struct Broadcast {
    id: String,
    channel: String,
    accepted_at: String,
    #[serde(flatten)]
    totals: Totals,
}

pub(crate) async fn create(
    State(shared): State<Arc<Shared>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, Problem> {
    let created = with_body(request, async |parts, incoming| {
        match format(&parts.headers, &[Format::Lines, Format::Json])? {
            Format::Json => create_whole(&shared, &caller, parts, incoming).await,
            Format::Lines => create_from_lines(&shared, &caller, parts, incoming).await,
        }
    })
    .await?;
    Ok((StatusCode::CREATED, Json(created)).into_response())
}

pub(crate) async fn read(
    State(shared): State<Arc<Shared>>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    let id = parse_id(&id)?;
    let found = shared.ledger.broadcast(id).await?;
    let broadcast = found.filter(|broadcast| broadcast.tenant == caller.tenant);
    let Some(BroadcastStatus { id, channel, accepted_at, account, .. }) = broadcast else {
        return Err(unknown(id));
    };
    let (id, channel, accepted_at) = (show(id), show(channel), show(accepted_at));
    Ok(Json(Broadcast { id, channel, accepted_at, totals: account.into() }).into_response())
}

pub(crate) async fn cancel(
    State(shared): State<Arc<Shared>>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    let id = parse_id(&id)?;
    let target = CancelTarget::Broadcast(id);
    let cancelled = shared.ledger.cancel(target, caller.tenant, shared.intake.now()).await?;
    cancel_answer(cancelled.ok_or_else(|| unknown(id))?)
}

async fn create_whole(
    shared: &Shared,
    caller: &Caller,
    parts: &Parts,
    incoming: &mut Incoming,
) -> Result<Created, Problem> {
    let (whole, _reservation) = incoming.whole(&parts.headers, &shared.intake).await?;
    let object = Object::read(&whole, BROADCAST_WHOLE)?;
    let recipients = Object::required("recipients", object.raw("recipients"))?;
    let head_bytes = whole.len() - recipients.get().len();
    let Ok((recipients, count)) = list(recipients.get(), limits::REQUEST_ITEMS) else {
        return Err(Fault::new("/recipients", "must be an array").into());
    };
    if count > limits::REQUEST_ITEMS {
        return Err(too_many("/recipients", count).into());
    }
    let mut upload =
        match open(shared, caller, parts, terms(&object, &whole, Address::WithRecipient)?, None)
            .await?
        {
            Opening::Open(upload) => upload,
            Opening::Replayed(id) => return replayed(shared, id).await,
        };
    let (mut faults, mut turn) = (Vec::new(), Turn::default());
    for (index, recipient) in recipients.into_iter().enumerate() {
        if let Err(error) = add(&mut upload, &whole, recipient) {
            faults.push(in_recipients(index, error)?);
        }
        // Rendered contents may be larger than the body was.
        if upload.is_full() {
            upload.flush().await?;
        }
        if upload.renders() {
            turn.counted(head_bytes + recipient.get().len()).await;
        }
        if faults.len() >= limits::FAULTS {
            break;
        }
    }
    if !faults.is_empty() {
        upload.abandon().await;
        return Err(Problem::unprocessable(faults));
    }
    seal(upload).await
}

async fn create_from_lines(
    shared: &Shared,
    caller: &Caller,
    parts: &Parts,
    incoming: &mut Incoming,
) -> Result<Created, Problem> {
    let _reservation = shared.intake.reserve(limits::STREAM_BYTES)?;
    let mut lines = Lines::default();
    let Some(first) = next_line(&mut lines, incoming).await? else {
        return Err(Problem::bad_request("the body is empty: the first line is the broadcast"));
    };
    let number = first.number;
    let text = first.text.ok_or_else(too_long).and_then(utf8);
    let whole = text.map_err(|error| in_line(number, error))?;
    let terms = Object::read(&whole, BROADCAST)
        .and_then(|object| Ok(terms(&object, &whole, Address::WithRecipient)?))
        .map_err(|error| in_line(number, error))?;
    let mut upload = match open(shared, caller, parts, terms, Some(number)).await? {
        Opening::Open(upload) => upload,
        Opening::Replayed(id) => {
            while incoming.piece().await?.is_some() {}
            return replayed(shared, id).await;
        }
    };
    match fill(&mut upload, &mut lines, incoming, whole.len()).await {
        Ok(()) => seal(upload).await,
        Err(problem) => {
            upload.abandon().await;
            Err(problem)
        }
    }
}

/// Adds every further line to `upload`, whose terms had `head_bytes`; gives up at the first that is wrong.
async fn fill(
    upload: &mut Upload,
    lines: &mut Lines,
    incoming: &mut Incoming,
    head_bytes: usize,
) -> Result<(), Problem> {
    let mut turn = Turn::default();
    loop {
        while let Some(line) = lines.next() {
            let bytes = head_bytes + line.text.as_ref().map_or(0, Bytes::len);
            add_line(upload, line)?;
            if upload.renders() {
                turn.counted(bytes).await;
            }
            if upload.is_full() {
                upload.flush().await?;
            }
        }
        match incoming.piece().await? {
            Some(piece) => lines.push(piece),
            None => break,
        }
    }
    lines.finish().map_or(Ok(()), |line| add_line(upload, line))
}

fn add_line(upload: &mut Upload, line: Line) -> Result<(), Problem> {
    let number = line.number;
    let text = line.text.ok_or_else(too_long).and_then(utf8);
    let added = text.and_then(|text| {
        let json: &RawValue = serde_json::from_str(&text)?;
        add(upload, &text, json)
    });
    added.map_err(|error| in_line(number, error))
}

/// Adds a recipient, a string or an object with `to`, `variables` and `fallback`; `json` is a part of `whole`.
fn add(upload: &mut Upload, whole: &ByteString, json: &RawValue) -> Result<(), ReadError> {
    if json.get().starts_with('{') {
        let object = Object::read(json.get(), RECIPIENT)?;
        let to = Object::required("to", object.text("to")?)?;
        let variables = object.object("variables", whole)?;
        let fallback = object.addresses(whole)?;
        return Ok(upload.add(Addressee { to: share(whole, to), variables, fallback })?);
    }
    let to = text(json).map_err(|_| Fault::new("", "must be a string, or an object with `to`"))?;
    let added = upload.add(Addressee { to: share(whole, to), ..Addressee::default() });
    // What is wrong with the recipient is wrong with the line.
    Ok(added.map_err(|fault| match &*fault.pointer {
        "/to" => Fault::new("", fault.message),
        _ => fault,
    })?)
}

/// Opens the broadcast whose terms stand in `line`, if the body has lines.
async fn open(
    shared: &Shared,
    caller: &Caller,
    parts: &Parts,
    mut terms: Terms<'_>,
    line: Option<u64>,
) -> Result<Opening, Problem> {
    add_key(&mut terms, header_key(&parts.headers)?)?;
    let opened = shared.intake.open_broadcast(&caller.tenant, &terms).await;
    opened.map_err(|error| match (error, line) {
        (IngestError::Invalid(fault), Some(line)) => in_line(line, fault.into()),
        (error, _) => error.into(),
    })
}

async fn seal(upload: Upload) -> Result<Created, Problem> {
    let id = show(upload.id());
    let accepted = upload.seal().await?;
    Ok(Created { id, accepted, replayed: false })
}

async fn replayed(shared: &Shared, id: BroadcastId) -> Result<Created, Problem> {
    let found = shared.ledger.broadcast(id).await?;
    let accepted = found.map_or(0, |broadcast| broadcast.account.accepted);
    Ok(Created { id: show(id), accepted, replayed: true })
}

/// The next line, read from `incoming` as needed.
async fn next_line(lines: &mut Lines, incoming: &mut Incoming) -> Result<Option<Line>, Problem> {
    loop {
        if let Some(line) = lines.next() {
            return Ok(Some(line));
        }
        match incoming.piece().await? {
            Some(piece) => lines.push(piece),
            None => return Ok(lines.finish()),
        }
    }
}

// === helpers ===

fn parse_id(text: &str) -> Result<BroadcastId, Problem> {
    text.parse().map_err(|error: notification::id::IdError| Problem::not_found(error.to_string()))
}

fn unknown(id: BroadcastId) -> Problem {
    Problem::not_found(format!("there is no broadcast {id}"))
}

fn too_long() -> ReadError {
    Fault::new("", format!("has more than {} bytes", limits::LINE_BYTES)).into()
}

fn in_line(line: u64, error: ReadError) -> Problem {
    match error {
        ReadError::Syntax(detail) => Problem::bad_request(format!("line {line}: {detail}")),
        ReadError::Fault(fault) => Problem::unprocessable(vec![Located::in_line(line, fault)]),
    }
}

fn in_recipients(index: usize, error: ReadError) -> Result<Located, Problem> {
    match error {
        ReadError::Syntax(detail) => Err(Problem::bad_request(detail)),
        ReadError::Fault(Fault { pointer, message }) => {
            let pointer = Cow::Owned(format!("/recipients/{index}{pointer}"));
            Ok(Fault { pointer, message }.into())
        }
    }
}

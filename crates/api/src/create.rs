//! `POST /v1/notifications`: one, many, or a stream.

use std::borrow::Cow;
use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::{Extension, Request, State};
use axum::http::header::{CONTENT_TYPE, LOCATION};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use notification::{ByteString, Draft, Name, Timestamp, limits};
use pipeline::Intake;
use pipeline::ingest::{Fault, IngestError, Preview, Reservation, Terms};
use serde::Serialize;
use serde_json::value::RawValue;
use store::Admission;

use crate::Shared;
use crate::body::{Format, Incoming, format, with_body};
use crate::keys::Caller;
use crate::object::{Address, NOTIFICATION, Object, ReadError, list, share, terms};
use crate::problem::{Located, Problem};
use crate::stream;
use crate::turn::Turn;
use crate::view::raw;

#[derive(Serialize)]
struct One {
    id: String,
    replayed: bool,
}

#[derive(Serialize)]
struct Many {
    accepted: usize,
    replayed: usize,
    ids: Vec<String>,
}

#[derive(Serialize)]
struct Previewed {
    content: Option<Box<RawValue>>,
    options: Option<Box<RawValue>>,
    /// Of content and options.
    bytes: usize,
    accepted: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Located>,
}

/// Reads one notification from `json`, a part of `whole`. The outer error is not of the notification: there is too much
/// under way to look at it.
pub(crate) async fn read_draft(
    intake: &Intake,
    tenant: &Name,
    (whole, json): (&ByteString, &str),
    header_key: Option<&str>,
    now: Timestamp,
) -> Result<Result<Draft, ReadError>, IngestError> {
    let read = || {
        let (mut terms, to) = read_terms(whole, json)?;
        add_key(&mut terms, header_key)?;
        Ok((terms, to))
    };
    let (terms, to) = match read() {
        Ok(read) => read,
        Err(error) => return Ok(Err(error)),
    };
    match intake.check_in_turn(tenant, terms, to, now).await {
        Ok(draft) => Ok(Ok(draft)),
        Err(IngestError::Invalid(fault)) => Ok(Err(fault.into())),
        Err(error) => Err(error),
    }
}

/// Reads what a notification says, and whom it is for, from `json`, a part of `whole`.
fn read_terms<'a>(whole: &ByteString, json: &'a str) -> Result<(Terms<'a>, ByteString), ReadError> {
    let object = Object::read(json, NOTIFICATION)?;
    let terms = terms(&object, whole, Address::Here)?;
    let to = Object::required("to", object.text("to")?)?;
    Ok((terms, share(whole, to)))
}

/// The key in the header, if there is one.
pub(crate) fn header_key(headers: &HeaderMap) -> Result<Option<&str>, Problem> {
    let Some(value) = headers.get("idempotency-key") else { return Ok(None) };
    let unreadable = |_| Problem::bad_request("Idempotency-Key must be plain ASCII");
    value.to_str().map(Some).map_err(unreadable)
}

/// Gives `terms` the key in the header, which must be the same if both are given.
pub(crate) fn add_key(terms: &mut Terms<'_>, header_key: Option<&str>) -> Result<(), ReadError> {
    match (&terms.idempotency_key, header_key) {
        (Some(own), Some(key)) if &**own != key => {
            let message = "the header Idempotency-Key and idempotency_key differ: give one of them";
            Err(ReadError::Syntax(message.to_owned()))
        }
        (None, Some(key)) => {
            terms.idempotency_key = Some(key.into());
            Ok(())
        }
        _ => Ok(()),
    }
}

pub(crate) async fn create(
    State(shared): State<Arc<Shared>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, Problem> {
    if let Ok(Format::Lines) = format(request.headers(), &[Format::Lines]) {
        return create_stream(&shared, &caller, request);
    }
    with_body(request, async |parts, incoming| {
        format(&parts.headers, &[Format::Json, Format::Lines])?;
        let key = header_key(&parts.headers)?;
        let (whole, mut reservation) =
            incoming.whole(&parts.headers, (&shared.intake, &caller.tenant)).await?;
        if whole.trim_ascii_start().starts_with('[') {
            if key.is_some() {
                let detail = "Idempotency-Key goes with a single notification: \
                              give each of several its own idempotency_key";
                return Err(Problem::bad_request(detail));
            }
            create_many(&shared.intake, &caller.tenant, &whole, &mut reservation).await
        } else {
            create_one(&shared.intake, &caller.tenant, &whole, key).await
        }
    })
    .await
}

fn create_stream(shared: &Shared, caller: &Caller, request: Request) -> Result<Response, Problem> {
    if request.headers().contains_key("idempotency-key") {
        let detail = "Idempotency-Key goes with a single notification: \
                      give each line its own idempotency_key";
        return Err(Problem::bad_request(detail));
    }
    let intake = Arc::clone(&shared.intake);
    let incoming = Incoming::new(request.into_body());
    let answers = stream::answers(intake, caller.tenant.clone(), incoming);
    Ok(([(CONTENT_TYPE, "application/x-ndjson")], Body::from_stream(answers)).into_response())
}

async fn create_one(
    intake: &Intake,
    tenant: &Name,
    whole: &ByteString,
    key: Option<&str>,
) -> Result<Response, Problem> {
    let draft = read_draft(intake, tenant, (whole, whole), key, intake.now()).await??;
    let admissions = intake.accept_all(vec![draft]).await?;
    let (id, replayed) = match admissions.first() {
        Some(Admission::Accepted(id)) => (id.to_string(), false),
        Some(Admission::Replayed(id)) => (id.to_string(), true),
        None => return Err(Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "no answer")),
    };
    let location = [(LOCATION, format!("/v1/notifications/{id}"))];
    Ok((StatusCode::CREATED, location, Json(One { id, replayed })).into_response())
}

/// `POST /v1/preview`: what a notification would send. Nothing is stored.
pub(crate) async fn preview(
    State(shared): State<Arc<Shared>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, Problem> {
    with_body(request, async |parts, incoming| {
        format(&parts.headers, &[Format::Json])?;
        let (whole, _reservation) =
            incoming.whole(&parts.headers, (&shared.intake, &caller.tenant)).await?;
        let (terms, to) = read_terms(&whole, &whole)?;
        let preview = shared.intake.preview(&caller.tenant, terms, to).await?;
        Ok(Json(Previewed::from(preview)).into_response())
    })
    .await
}

/// Reserves what rendered contents take beyond `held`, the bytes of the body that they stand for.
fn hold(
    (intake, tenant): (&Intake, &Name),
    reservation: &mut Reservation,
    held: &mut usize,
    rendered: usize,
) -> Result<(), Problem> {
    if rendered > limits::REQUEST_BYTES {
        let bytes_max = limits::REQUEST_BYTES;
        let message = format!("render to more than {bytes_max} bytes: send application/x-ndjson");
        return Err(Fault::new("", message).into());
    }
    if rendered > *held {
        intake.reserve(tenant, rendered - *held, reservation)?;
        *held = rendered;
    }
    Ok(())
}

async fn create_many(
    intake: &Intake,
    tenant: &Name,
    whole: &ByteString,
    reservation: &mut Reservation,
) -> Result<Response, Problem> {
    let (items, count) = list(whole, limits::REQUEST_ITEMS)?;
    if count > limits::REQUEST_ITEMS {
        return Err(too_many("", count).into());
    }
    let now = intake.now();
    let mut drafts = Vec::with_capacity(items.len());
    let mut faults = Vec::new();
    let (mut held, mut rendered) = (whole.len(), 0);
    let mut turn = Turn::default();
    for (index, item) in items.into_iter().enumerate() {
        match read_draft(intake, tenant, (whole, item.get()), None, now).await? {
            Ok(draft) => {
                rendered += draft.content.bytes_stored();
                hold((intake, tenant), reservation, &mut held, rendered)?;
                drafts.push(draft);
            }
            Err(ReadError::Fault(fault)) => faults.push(Located::in_item(index, fault)),
            Err(error @ ReadError::Syntax(_)) => return Err(error.into()),
        }
        if faults.len() >= limits::FAULTS {
            break;
        }
        turn.counted(item.get().len()).await;
    }
    if !faults.is_empty() {
        return Err(Problem::unprocessable(faults));
    }
    let admissions = intake.accept_all(drafts).await.map_err(|error| {
        Problem::from_store(&error, |index| Cow::Owned(format!("/{index}/idempotency_key")))
    })?;
    let mut many = Many { accepted: 0, replayed: 0, ids: Vec::with_capacity(admissions.len()) };
    for admission in admissions {
        match admission {
            Admission::Accepted(id) => {
                many.accepted += 1;
                many.ids.push(id.to_string());
            }
            Admission::Replayed(id) => {
                many.replayed += 1;
                many.ids.push(id.to_string());
            }
        }
    }
    Ok((StatusCode::CREATED, Json(many)).into_response())
}

/// More items in one atomic request than it may have.
pub(crate) fn too_many(pointer: &'static str, count: usize) -> Fault {
    let limit = limits::REQUEST_ITEMS;
    Fault::new(
        pointer,
        format!("must have at most {limit} items, has {count}: send application/x-ndjson instead"),
    )
}

impl From<Preview> for Previewed {
    fn from(Preview { content, refused }: Preview) -> Self {
        Self {
            bytes: content.bytes(),
            content: raw(&content.payload),
            options: raw(&content.options),
            accepted: refused.is_none(),
            error: refused.map(Located::from),
        }
    }
}

impl From<ReadError> for Problem {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Syntax(detail) => Self::bad_request(detail),
            ReadError::Fault(fault) => fault.into(),
        }
    }
}

//! `POST /v1/notifications`: one, many, or a stream.

use std::borrow::Cow;
use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::{Extension, Request, State};
use axum::http::StatusCode;
use axum::http::header::{CONTENT_TYPE, LOCATION};
use axum::response::{IntoResponse, Response};
use notification::{ByteString, limits};
use pipeline::Intake;
use pipeline::ingest::json::ParseError;
use pipeline::ingest::{DraftPreview, InvalidField, Reservation, parse};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use store::Admission;

use crate::ApiState;
use crate::body::{BodyFormat, Incoming, format, with_body};
use crate::caller::Caller;
use crate::draft::{DraftError, header_key, read_draft};
use crate::limits::FAULTS;
use crate::problem::{Located, Problem};
use crate::problem_code::ProblemCode;
use crate::stream;
use crate::view::raw;
use crate::yield_budget::YieldBudget;

/// The answer to creating a notification.
#[derive(Debug, JsonSchema, Serialize, Deserialize)]
pub struct NotificationCreated {
    /// Its identifier.
    #[schemars(with = "notification::NotificationId")]
    pub id: String,
    /// True if it was created before, with the same key.
    pub replayed: bool,
}

/// The answer to creating several notifications.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "NotificationsCreated")]
pub(crate) struct Many {
    /// Those that were created.
    accepted: usize,
    /// Those that were created before, with the same keys.
    replayed: usize,
    /// The identifiers, in the order of the request.
    #[schemars(with = "Vec<notification::NotificationId>")]
    ids: Vec<String>,
}

/// The content that a notification would send.
#[derive(Debug, JsonSchema, Serialize, Deserialize)]
pub struct PreviewAnswer {
    /// The content.
    pub content: Option<Box<RawValue>>,
    /// The channel's options.
    pub options: Option<Box<RawValue>>,
    /// Of content and options.
    pub bytes: usize,
    /// True if its channel takes it.
    pub accepted: bool,
    /// Why it does not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<Located>,
}

pub(crate) async fn create(
    State(shared): State<Arc<ApiState>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, Problem> {
    // The answers of a stream are read while its body is sent, so the body outlives this handler.
    if let Ok(BodyFormat::Lines) = format(request.headers(), &[BodyFormat::Lines]) {
        return create_stream(&shared, &caller, request);
    }
    with_body(request, async |parts, incoming| {
        // Lines do not come here: they are named for a caller whose type is neither.
        format(&parts.headers, &[BodyFormat::Json, BodyFormat::Lines])?;
        let key = header_key(&parts.headers)?;
        let (whole, mut reservation) =
            incoming.whole(&parts.headers, (&shared.intake, &caller.tenant)).await?;
        // The first character decides, so that a large array is not parsed twice.
        if whole.trim_ascii_start().starts_with('[') {
            if key.is_some() {
                let detail = "Idempotency-Key goes with a single notification: \
                              give each of several its own idempotency_key";
                return Err(Problem::new(ProblemCode::InvalidHeader, detail));
            }
            create_many(&shared.intake, &caller, &whole, &mut reservation).await
        } else {
            create_one(&shared.intake, &caller, &whole, key).await
        }
    })
    .await
}

fn create_stream(
    shared: &ApiState,
    caller: &Caller,
    request: Request,
) -> Result<Response, Problem> {
    if request.headers().contains_key("idempotency-key") {
        let detail = "Idempotency-Key goes with a single notification: \
                      give each line its own idempotency_key";
        return Err(Problem::new(ProblemCode::InvalidHeader, detail));
    }
    let intake = Arc::clone(&shared.intake);
    let (parts, body) = request.into_parts();
    let mut incoming = Incoming::new(body);
    incoming.decode(&parts.headers, (&intake, &caller.tenant))?;
    let answers = stream::answers(intake, caller.clone(), incoming);
    Ok(([(CONTENT_TYPE, "application/x-ndjson")], Body::from_stream(answers)).into_response())
}

async fn create_one(
    intake: &Intake,
    caller: &Caller,
    whole: &ByteString,
    key: Option<&str>,
) -> Result<Response, Problem> {
    let draft = read_draft(intake, caller, (whole, whole), key, intake.now()).await??;
    let admissions = intake.accept_all(vec![draft]).await?;
    let (id, replayed) = match admissions.first() {
        Some(Admission::Accepted(id)) => (id.to_string(), false),
        Some(Admission::Replayed(id)) => (id.to_string(), true),
        None => return Err(Problem::new(ProblemCode::InternalError, "no answer")),
    };
    let location = [(LOCATION, format!("/v1/notifications/{id}"))];
    Ok((StatusCode::CREATED, location, Json(NotificationCreated { id, replayed })).into_response())
}

/// `POST /v1/preview`: what a notification would send. Nothing is stored.
pub(crate) async fn preview(
    State(shared): State<Arc<ApiState>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, Problem> {
    with_body(request, async |parts, incoming| {
        format(&parts.headers, &[BodyFormat::Json])?;
        // Kept to the end, as the body is in memory until then.
        let (whole, _reservation) =
            incoming.whole(&parts.headers, (&shared.intake, &caller.tenant)).await?;
        let (mut submission, to) = parse::notification(&whole, &whole)?;
        caller.check_sending(&mut submission, shared.intake.now())?;
        let preview = shared.intake.preview(&caller.tenant, submission, to).await?;
        Ok(Json(PreviewAnswer::from(preview)).into_response())
    })
    .await
}

/// Reserves what rendered contents take beyond `held`, the bytes of the body that they stand for.
fn hold(
    (intake, caller): (&Intake, &Caller),
    reservation: &mut Reservation,
    held: &mut usize,
    rendered: usize,
) -> Result<(), Problem> {
    if rendered > limits::REQUEST_BYTES {
        let bytes_max = limits::REQUEST_BYTES;
        let message = format!("render to more than {bytes_max} bytes: send application/x-ndjson");
        return Err(InvalidField::new("", message).into());
    }
    if rendered > *held {
        intake.reserve(&caller.tenant, rendered - *held, reservation)?;
        *held = rendered;
    }
    Ok(())
}

async fn create_many(
    intake: &Intake,
    caller: &Caller,
    whole: &ByteString,
    reservation: &mut Reservation,
) -> Result<Response, Problem> {
    let items = parse::notifications(whole)?;
    // One time for all: those that are due now share an envelope, and with it a batch.
    let now = intake.now();
    let mut drafts = Vec::with_capacity(items.len());
    let mut invalid_fields = Vec::new();
    let (mut held, mut rendered) = (whole.len(), 0);
    let mut budget = YieldBudget::default();
    for (index, item) in items.into_iter().enumerate() {
        match read_draft(intake, caller, (whole, item.get()), None, now).await? {
            Ok(draft) => {
                rendered += draft.content.bytes_stored();
                hold((intake, caller), reservation, &mut held, rendered)?;
                drafts.push(draft.traced_as(index as u64));
            }
            Err(DraftError::Wrong(ParseError::Invalid(invalid))) if invalid.is_not_granted => {
                return Err(Problem::not_granted(Located::in_item(index, invalid)));
            }
            Err(DraftError::Wrong(ParseError::Invalid(invalid))) => {
                invalid_fields.push(Located::in_item(index, invalid));
            }
            Err(error @ (DraftError::Wrong(ParseError::Syntax(_)) | DraftError::Header(_))) => {
                return Err(error.into());
            }
        }
        if invalid_fields.len() >= FAULTS {
            break;
        }
        budget.spend_and_yield(item.get().len()).await;
    }
    if !invalid_fields.is_empty() {
        return Err(Problem::unprocessable(invalid_fields));
    }
    let admissions = intake
        .accept_all(drafts)
        .await
        .map_err(|error| Problem::from_store(&error, |index| Cow::Owned(format!("/{index}"))))?;
    let mut many = Many { accepted: 0, replayed: 0, ids: Vec::with_capacity(admissions.len()) };
    for admission in admissions {
        let (count, id) = match admission {
            Admission::Accepted(id) => (&mut many.accepted, id),
            Admission::Replayed(id) => (&mut many.replayed, id),
        };
        *count += 1;
        many.ids.push(id.to_string());
    }
    Ok((StatusCode::CREATED, Json(many)).into_response())
}

impl From<DraftPreview> for PreviewAnswer {
    fn from(DraftPreview { content, refused }: DraftPreview) -> Self {
        Self {
            bytes: content.bytes(),
            content: raw(&content.payload),
            options: raw(&content.options),
            accepted: refused.is_none(),
            error: refused.map(Located::from),
        }
    }
}

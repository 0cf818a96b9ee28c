//! Another time for a notification that waits, or for what waits of a broadcast.

use std::sync::Arc;

use axum::extract::{Extension, Path, Request, State};
use axum::response::Response;
use pipeline::ingest::{InvalidField, new_time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use store::{CancelTarget, Reschedule, RescheduleCounts, Rescheduled};

use crate::access::WithOperations;
use crate::act_trail::acted_on;
use crate::body::{BodyFormat, format, with_body};
use crate::caller::Caller;
use crate::problem::Problem;
use crate::problem_code::ProblemCode;
use crate::query::parse_id;
use crate::scope::tenant_alone;
use crate::{ApiState, broadcasts, notifications};

/// The answer to rescheduling a notification, or a broadcast.
#[derive(Debug, JsonSchema, Serialize, Deserialize)]
pub struct RescheduleAnswer {
    /// Those that wait for the new time.
    pub rescheduled: u64,
    /// Those that were claimed, and perhaps on the wire.
    pub under_way: u64,
    /// Those that had ended.
    pub ended: u64,
}

const NOT_YET: &str = "its broadcast is not released so far, and has one time for all until then: reschedule the broadcast, or ask \
                       again in some seconds, or when the broadcast is resumed";
const OVERTAKEN: &str =
    "another call has rescheduled it meanwhile: ask again if this time is the right one";

/// `POST /v1/notifications/{id}/reschedule`
pub(crate) async fn notification(
    State(shared): State<Arc<ApiState>>,
    State(operations): State<WithOperations>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    request: Request,
) -> Result<Response, Problem> {
    let id = parse_id(&id)?;
    let (target, unknown) = (CancelTarget::Notification(id), || notifications::unknown(id));
    reschedule((&shared, &operations), caller, target, request, unknown).await
}

/// `POST /v1/broadcasts/{id}/reschedule`
pub(crate) async fn broadcast(
    State(shared): State<Arc<ApiState>>,
    State(operations): State<WithOperations>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    request: Request,
) -> Result<Response, Problem> {
    let id = parse_id(&id)?;
    let (target, unknown) = (CancelTarget::Broadcast(id), || broadcasts::unknown(id));
    reschedule((&shared, &operations), caller, target, request, unknown).await
}

async fn reschedule(
    (shared, WithOperations(operations)): (&ApiState, &WithOperations),
    caller: Caller,
    target: CancelTarget,
    request: Request,
    unknown: impl Fn() -> Problem,
) -> Result<Response, Problem> {
    with_body(request, async |parts, incoming| {
        format(&parts.headers, &[BodyFormat::Json])?;
        let tenant = tenant_alone(&parts.uri, &caller)?;
        let (whole, _reservation) =
            incoming.whole(&parts.headers, (&shared.intake, &caller.tenant)).await?;
        let now = shared.intake.now();
        let send_at = new_time(&whole, now)?;
        let asked = Reschedule { target, tenant, send_at, now };
        match operations.reschedule(asked).await? {
            Rescheduled::Counted(RescheduleCounts { rescheduled: 0, under_way, ended }) => {
                let detail = format!("too late: {under_way} under way, {ended} ended");
                Err(Problem::new(ProblemCode::TooLate, detail))
            }
            Rescheduled::Counted(RescheduleCounts { rescheduled, under_way, ended }) => {
                let asked = json!({ "send_at": send_at });
                Ok(acted_on(asked, RescheduleAnswer { rescheduled, under_way, ended }))
            }
            Rescheduled::Expired { expires_at } => {
                let due_at = send_at.max(now);
                let message = format!(
                    "would have it due at {due_at}, and it expires at {expires_at}: name an earlier time, or send a new one"
                );
                Err(InvalidField::new("/send_at", message).into())
            }
            Rescheduled::NotYet => Err(Problem::new(ProblemCode::NotReleased, NOT_YET)),
            Rescheduled::Overtaken => Err(Problem::new(ProblemCode::Overtaken, OVERTAKEN)),
            Rescheduled::Unknown => Err(unknown()),
        }
    })
    .await
}

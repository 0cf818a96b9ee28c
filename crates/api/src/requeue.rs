//! Notifications that ended undelivered are sent again: one, or those that a filter matches.

use std::collections::BTreeSet;
use std::str::FromStr;
use std::sync::Arc;

use axum::extract::{Extension, Path, State};
use axum::http::Uri;
use axum::response::Response;
use notification::{State as Stand, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use store::{History, Requeued};

use crate::ApiState;
use crate::access::WithOperations;
use crate::act_trail::acted;
use crate::caller::Caller;
use crate::matching::{self, Matching};
use crate::notifications::unknown;
use crate::problem::Problem;
use crate::problem_code::ProblemCode;
use crate::query::{Query, parse_id};
use crate::scope::tenant_of;
use crate::view::show;

/// The answer to requeueing one notification.
#[derive(Debug, JsonSchema, Serialize, Deserialize)]
pub struct RequeuedOne {
    /// Always 1.
    pub requeued: u64,
}

/// The answer to requeueing those that a filter matches.
#[derive(Default, JsonSchema, Serialize)]
#[schemars(rename = "RequeueAnswer")]
pub(crate) struct ManyAnswer {
    /// Those that the filter matched.
    matched: u64,
    /// Those of them that are pending again; with `dry_run`, that would be.
    requeued: u64,
    /// Those whose time has passed.
    expired: u64,
    /// Those that were cancelled with a broadcast that is not written down yet.
    not_yet: u64,
    /// Those whose content was removed, or that were erased.
    content_removed: u64,
    /// Those in whose place a fallback was sent.
    replaced: u64,
    /// Where the next request goes on (`after`); `None` at the end.
    next: Option<String>,
}

/// The parameters of both requests.
pub(crate) const NAMES: [&str; 2] = ["state", "may_repeat"];
/// All parameters of the request for one.
pub(crate) const NAMES_OF_ONE: [&str; 3] = ["state", "may_repeat", "tenant"];

/// The states from which notifications are sent again: one of those from which they may be, or several with commas between them.
#[derive(Debug)]
struct States(BTreeSet<Stand>);

/// Words for one that cannot be sent again because nothing is left to send.
const CONTENT_REMOVED: &str =
    "its content has outlived its lifetime and was removed: send a new one";
/// Words for one in whose place another was sent.
const REPLACED: &str =
    "a fallback was sent in its place: requeue that one if it did not arrive, or send a new one";
const NOT_YET: &str = "it was cancelled while its broadcast was not released: ask again in some seconds, or when the \
                       broadcast is resumed";

/// `POST /v1/notifications/{id}/requeue`
pub(crate) async fn one(
    State(shared): State<Arc<ApiState>>,
    State(WithOperations(operations)): State<WithOperations>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    uri: Uri,
) -> Result<Response, Problem> {
    caller.check_sends_all()?;
    let id = parse_id(&id)?;
    let mut query = Query::read(&uri, &NAMES_OF_ONE)?;
    let tenant = tenant_of(&mut query, &caller)?;
    let States(states) = States::read(&mut query)?;
    let is_of_dead = states == States::default().0;
    if states.contains(&Stand::Refused)
        && let Some(history) = shared.patient_reads_of(&caller).find(id).await?
        && history.envelope.lane.tenant == tenant
        && history.fallback_id.is_some()
    {
        return Err(Problem::new(ProblemCode::Replaced, REPLACED));
    }
    let answers = operations.requeue(vec![id], states, tenant, shared.intake.now()).await?;
    match answers.first() {
        Some(Requeued::Requeued) => Ok(acted(RequeuedOne { requeued: 1 })),
        Some(Requeued::OtherState) if is_of_dead => Err(Problem::new(
            ProblemCode::WrongState,
            "it is not dead: what was given up is sent again, and with state=cancelled what was cancelled",
        )),
        Some(Requeued::OtherState) => {
            Err(Problem::new(ProblemCode::WrongState, "it is in no state that was asked for"))
        }
        Some(Requeued::NotYet) => Err(Problem::new(ProblemCode::NotReleased, NOT_YET)),
        Some(Requeued::ContentRemoved) => {
            Err(Problem::new(ProblemCode::ContentRemoved, CONTENT_REMOVED))
        }
        Some(Requeued::Expired) => {
            Err(Problem::new(ProblemCode::Expired, "its expires_at has passed: send a new one"))
        }
        Some(Requeued::Unknown) | None => Err(unknown(id)),
    }
}

/// `POST /v1/requeue`
pub(crate) async fn many(
    State(shared): State<Arc<ApiState>>,
    State(WithOperations(operations)): State<WithOperations>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
) -> Result<Response, Problem> {
    caller.check_sends_all()?;
    let mut query = Query::read(&uri, &[&matching::NAMES[..], &NAMES].concat())?;
    let States(states) = States::read(&mut query)?;
    let mut matching = Matching::read(&mut query, &caller)?;
    let is_of_dead = states == States::default().0;
    if !is_of_dead && !matching.is_bounded() {
        let detail = "name a broadcast, or since when they have stood there (since=; of a cancellation as its answer has it): else \
                      all would be sent that ever were cancelled, refused or in doubt, for whatever reason";
        return Err(Problem::missing_parameter(detail));
    }
    let now = shared.intake.now();
    let (mut answer, mut replaced) = (ManyAnswer::default(), 0);
    let takes = |history: &History| {
        if history.fallback_id.is_some() {
            replaced += 1;
            return false;
        }
        answer.add(expected(history, now));
        true
    };
    let matched = matching.collect((&shared, &caller), states.clone(), takes).await?;
    if !matching.is_dry {
        // What was counted so far is what a dry run says; the store decides, for another caller may have been faster.
        answer = ManyAnswer::default();
        for requeued in operations.requeue(matched, states, matching.tenant, now).await? {
            answer.add(requeued);
        }
    }
    answer.matched += replaced;
    answer.replaced = replaced;
    answer.next = matching.next.map(show);
    Ok(acted(answer))
}

/// The answer to be expected for one that matches.
fn expected(history: &History, now: Timestamp) -> Requeued {
    // It is not to be sent at the instant of its expiry either.
    let is_expired = history.envelope.expires_at.is_some_and(|expires_at| expires_at <= now);
    if history.content.is_none() {
        Requeued::ContentRemoved
    } else if is_expired {
        Requeued::Expired
    } else {
        Requeued::Requeued
    }
}

// === impl ManyAnswer ===

impl ManyAnswer {
    fn add(&mut self, requeued: Requeued) {
        self.matched += 1;
        match requeued {
            Requeued::Requeued => self.requeued += 1,
            Requeued::Expired => self.expired += 1,
            Requeued::NotYet => self.not_yet += 1,
            Requeued::ContentRemoved => self.content_removed += 1,
            // Another caller was faster.
            Requeued::OtherState | Requeued::Unknown => {}
        }
    }
}

// === impl States ===

impl States {
    /// The states that a request names. What is in doubt may be sent twice, which takes the caller's word.
    fn read(query: &mut Query) -> Result<Self, Problem> {
        let Self(states) = query.parse("state")?.unwrap_or_default();
        let may_repeat: bool = query.parse("may_repeat")?.unwrap_or(false);
        if states.contains(&Stand::InDoubt) && !may_repeat {
            let detail = "what is in doubt may have arrived, and would arrive twice: say may_repeat=true if that is better than \
                          not at all; the log keeps it";
            return Err(Problem::missing_parameter(detail));
        }
        Ok(Self(states))
    }
}

impl Default for States {
    fn default() -> Self {
        Self([Stand::Dead].into())
    }
}

impl FromStr for States {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let state = |word: &str| {
            let state = word.parse::<Stand>().ok().filter(|state| state.may_be_requeued());
            state.ok_or_else(|| format!("{word:?} is none of dead, cancelled, refused, in_doubt"))
        };
        text.split(',').map(state).collect::<Result<_, _>>().map(Self)
    }
}

//! `/v1/prune`: what has outlived its lifetime goes now, and not with the next look.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use store::{Prune, Removed, Retention};

use crate::ApiState;
use crate::act_trail::acted;
use crate::answer_time::AnswerTime;
use crate::problem::Problem;

/// The store's retention, as the engine is configured.
#[derive(Debug)]
pub struct Pruning {
    /// The store.
    pub store: Arc<dyn Prune>,
    /// Lifetimes.
    pub retention: Arc<Retention>,
}

/// The answer to a request to prune.
#[derive(Debug, Clone, Copy, Default, JsonSchema, Serialize, Deserialize)]
pub struct PruneAnswer {
    /// Counts of what was removed.
    #[serde(flatten)]
    pub removed: Removed,
    /// False if there is more to remove: the caller asks again.
    pub done: bool,
}

pub(crate) async fn prune(State(shared): State<Arc<ApiState>>) -> Result<Response, Problem> {
    let Pruning { store, retention } = &shared.pruning;
    let mut time = AnswerTime::of_work(&shared);
    let mut answer = PruneAnswer::default();
    while !answer.done && !time.is_over() {
        let step = store.prune(retention, shared.intake.now()).await?;
        answer.removed.add(&step.removed);
        answer.done = !step.goes_on;
    }
    Ok(acted(answer))
}

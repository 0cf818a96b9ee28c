//! `POST /v1/reload`: the process that is asked reads its configuration again, and goes by it.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use store::StoreError;
use tokio::sync::{mpsc, oneshot};

use crate::ApiState;
use crate::act_trail::acted;
use crate::problem::Problem;
use crate::problem_code::ProblemCode;

/// A caller that has asked for a reload, and waits for what came of it.
#[derive(Debug)]
pub struct ReloadCall {
    reply: oneshot::Sender<Result<Reloaded, ReloadError>>,
}

/// Why there was no reload, or not a whole one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReloadError {
    /// All that is wrong with the configuration, a line for each mistake and without a secret. Nothing has changed.
    #[error("{0}")]
    Configuration(String),
    /// The store could not be asked, or told.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The effect of a reload.
#[derive(Debug, Clone, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Reloaded {
    /// The settings that differ from before, and hold from now on.
    pub changed: Vec<String>,
    /// The settings that differ from those that the process runs with, and take a restart.
    pub needs_restart: Vec<String>,
    /// Remarks on the configuration that are no mistakes.
    pub warnings: Vec<String>,
}

/// The answer to a request to reload.
#[derive(Debug, Clone, JsonSchema, Serialize, Deserialize)]
pub struct ReloadAnswer {
    /// The effect of it.
    #[serde(flatten)]
    pub reloaded: Reloaded,
    /// The process that has reloaded, by its name among the workers of a cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
}

/// The way of callers to the loop that reloads. Calls are answered one after the other, each by the configuration as it is read then; a
/// further caller waits. A caller is told that the process stops once the receiver is gone.
pub fn reload_calls() -> (mpsc::Sender<ReloadCall>, mpsc::Receiver<ReloadCall>) {
    // One waits while one is served: others wait at the door, as many as there are connections.
    mpsc::channel(1)
}

pub(crate) async fn reload(State(shared): State<Arc<ApiState>>) -> Result<Response, Problem> {
    let Some(reloads) = &shared.reloads else {
        let detail = "this process has no configuration of its own that could be read again";
        return Err(Problem::new(ProblemCode::UnknownPath, detail));
    };
    let stops = || Problem::new(ProblemCode::NotReady, "the process is stopping: nothing changed");
    let (reply, replied) = oneshot::channel();
    reloads.send(ReloadCall { reply }).await.map_err(|_| stops())?;
    let reloaded = replied.await.map_err(|_| stops())??;
    Ok(acted(ReloadAnswer { reloaded, worker: shared.worker.clone() }))
}

// === impl ReloadCall ===

impl ReloadCall {
    /// Tells the caller what came of it.
    pub fn answer(self, outcome: Result<Reloaded, ReloadError>) {
        // A caller that has gone away needs no answer.
        let _gone = self.reply.send(outcome);
    }
}

// === impl Problem ===

impl From<ReloadError> for Problem {
    fn from(error: ReloadError) -> Self {
        match error {
            ReloadError::Configuration(wrong) => {
                Self::new(ProblemCode::ConfigurationRefused, wrong)
            }
            ReloadError::Store(error) => error.into(),
        }
    }
}

//! `GET /v1/status`: what was accepted, what came of it, and who works on it.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use notification::Timestamp;
use serde::Serialize;
use store::{ClusterStatus, LaneStatus, Ledger, StoreError, WorkerStatus};

use crate::Shared;
use crate::problem::Problem;
use crate::view::{Lane, Totals, show};

/// What `GET /v1/status` answers.
#[derive(Serialize)]
#[expect(missing_debug_implementations, reason = "it is made to be serialized")]
pub struct Status {
    version: &'static str,
    started_at: Option<String>,
    totals: Totals,
    oldest_due_at: Option<String>,
    lag_seconds: f64,
    lanes: Vec<Lane>,
    cluster: Option<Cluster>,
}

/// The processes that share a store.
#[derive(Serialize)]
struct Cluster {
    workers: Vec<Worker>,
    partitions_free: u16,
    outbox_rejected: u64,
}

/// One of them.
#[derive(Serialize)]
struct Worker {
    id: i64,
    name: String,
    role: &'static str,
    version: String,
    listen: Option<String>,
    started_at: String,
    alive_for_seconds: f64,
    standing_by: bool,
    partitions: u16,
    claimed: u64,
    settled: u64,
    settled_per_second: f64,
}

pub(crate) async fn status(State(shared): State<Arc<Shared>>) -> Result<Response, Problem> {
    let now = shared.intake.now();
    let status = Status::read(&*shared.ledger, Some(shared.started_at), now).await?;
    Ok(Json(status).into_response())
}

/// The earliest due time of what nobody has claimed; it may lie ahead.
pub(crate) fn oldest_due(lanes: &[LaneStatus]) -> Option<Timestamp> {
    lanes.iter().filter_map(|lane| lane.next_due_at).min()
}

/// For how long what is due at `oldest` has been due.
pub(crate) fn lag(oldest: Option<Timestamp>, now: Timestamp) -> Duration {
    oldest.map_or(Duration::ZERO, |due| now.since(due))
}

// === impl Status ===

impl Status {
    /// Asks `ledger` as of `now`, for a process that runs since `started_at`, or for one that only looks.
    pub async fn read(
        ledger: &dyn Ledger,
        started_at: Option<Timestamp>,
        now: Timestamp,
    ) -> Result<Self, StoreError> {
        let lanes = ledger.lanes().await?;
        let oldest = oldest_due(&lanes);
        Ok(Self {
            version: env!("CARGO_PKG_VERSION"),
            started_at: started_at.map(show),
            totals: ledger.totals().await?.into(),
            oldest_due_at: oldest.map(show),
            lag_seconds: lag(oldest, now).as_secs_f64(),
            lanes: lanes.into_iter().map(Lane::from).collect(),
            cluster: ledger.cluster().await?.map(Cluster::from),
        })
    }
}

// === impl Cluster ===

impl From<ClusterStatus> for Cluster {
    fn from(status: ClusterStatus) -> Self {
        let ClusterStatus { workers, partitions_free, outbox_rejected } = status;
        let workers = workers.into_iter().map(Worker::from).collect();
        Self { workers, partitions_free, outbox_rejected }
    }
}

// === impl Worker ===

impl From<WorkerStatus> for Worker {
    fn from(status: WorkerStatus) -> Self {
        Self {
            id: status.id,
            name: status.name,
            role: match (status.produces, status.consumes) {
                (true, true) => "serve",
                (true, false) => "produce",
                (false, _) => "consume",
            },
            version: status.version,
            listen: status.listen,
            started_at: show(status.started_at),
            alive_for_seconds: status.alive_for.as_secs_f64(),
            standing_by: status.is_standing_by,
            partitions: status.partitions,
            claimed: status.claimed,
            settled: status.settled,
            settled_per_second: status.settled_per_second,
        }
    }
}

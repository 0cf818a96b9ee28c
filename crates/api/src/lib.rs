//! The HTTP API. `docs/reference/http-api.md` says what it promises.
//!
//! Edge only: bodies go to [`pipeline::ingest::parse`], answers become JSON. What may be asked for is decided
//! by the ingest stage, the rest is read from the store ([`ReadStore`]), or changed there by a handler that asks for
//! its operations ([`Operations`](store::Operations)).

mod access;
mod access_log;
mod account;
mod act_trail;
mod acts;
mod answer_time;
mod api_shares;
mod body;
mod broadcast_list;
mod broadcasts;
mod caller;
mod cancel;
mod cancel_found;
mod channels;
mod compressed;
mod create;
mod dashboard;
mod description;
mod draft;
mod estimate;
mod events;
mod exposition;
mod follow;
mod grants;
mod grants_json;
mod inflate;
mod input;
mod key_layer;
mod key_rates;
mod key_ring;
mod key_routes;
mod keys;
mod lane_metrics;
pub mod limits;
mod lines;
mod live;
mod matching;
mod metrics;
mod notifications;
mod openapi;
mod operate;
mod pauses;
mod polled;
mod problem;
mod problem_code;
mod problem_pages;
mod prospect;
mod prune;
mod query;
mod readiness;
mod recipients;
mod reload;
mod request_mark;
mod request_times;
mod request_traces;
mod requeue;
mod reschedule;
mod resolve;
mod routes;
mod scope;
mod server;
mod session_routes;
mod sessions;
mod space;
mod status;
mod stream;
mod suppressions;
mod templates;
mod tenant_connections;
mod tenant_share;
mod tenants;
mod unauthenticated;
mod view;
mod yield_budget;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use axum::Router;
use axum::http::{Method, Uri};
use axum::routing::get;
use feed::{FeedPlan, SourceCounts};
use flow::Backoff;
use notification::{Name, Timestamp};
use pipeline::{Intake, RetryPolicy};
use prometheus_client::registry::Registry;
use store::{ActTrail, ReadStore, TenantReads};
use tokio::sync::{mpsc, watch};

pub use access::Locked;
pub use access_log::AccessLog;
pub use account::TenantAccount;
pub use acts::{ActItem, ActList};
pub use api_shares::ApiShares;
pub use broadcast_list::{BroadcastItem, broadcast_with_key};
pub use broadcasts::{BroadcastAnswer, BroadcastCreated};
pub use caller::RouteRule;
pub use cancel::CancelAllAnswer;
pub use channels::{ChannelCredential, ConfiguredChannel};
pub use create::{NotificationCreated, PreviewAnswer};
pub use estimate::EstimateAnswer;
pub use grants::{Grants, KeyScope, UnknownScope};
pub use grants_json::GrantsAnswer;
pub use key_ring::KeyRing;
pub use key_routes::{KeyItem, KeyMade, KeyRevoked};
pub use keys::{ApiKey, KeyError, Keys, check_listen, generate, hash, parse_hash};
pub use live::LiveStatus;
pub use notifications::{CancelAnswer, notification_with_key};
pub use openapi::openapi;
pub use pauses::{PauseAnswer, ResumeAnswer};
pub use problem::Located;
pub use problem_code::ProblemCode;
pub use problem_pages::problems_markdown;
pub use prospect::ProspectAnswer;
pub use prune::{PruneAnswer, Pruning};
pub use readiness::Readiness;
pub use recipients::ErasureAnswer;
pub use reload::{ReloadAnswer, ReloadCall, ReloadError, Reloaded, reload_calls};
pub use request_times::RequestTimes;
pub use request_traces::RequestTraces;
pub use requeue::RequeuedOne;
pub use reschedule::RescheduleAnswer;
pub use resolve::ResolveAnswer;
pub use routes::routes;
pub use server::{ApiListener, UnixSocket, serve};
pub use space::{SpaceAnswer, StoreGrowth};
pub use status::{
    ClusterAnswer, FeedAnswer, LaneAnswer, ParkedAnswer, SourceAnswer, StatusAnswer,
    SuppressionFeed, WorkerAnswer,
};
pub use suppressions::{LiftAnswer, SuppressAnswer, SuppressionPages};

use access_log::{LogLayer, RequestLog};
use problem::Problem;
use routes::Audience;

/// The parts of the engine that the API calls.
pub struct ApiState {
    /// Takes notifications in.
    pub intake: Arc<Intake>,
    /// Answers what operators and their tools ask, and all questions where no keys are configured.
    pub reads: Arc<dyn ReadStore>,
    /// Answers questions of tenants, each within its share.
    pub tenant_reads: Arc<dyn TenantReads>,
    /// Cancels, requeues, resolves, suppresses and lifts.
    pub operations: Locked,
    /// Removes what has outlived its lifetime.
    pub pruning: Pruning,
    /// Sizes of the store since the process began.
    pub growth: Arc<StoreGrowth>,
    /// Bumped when the store changed: a request that waits for something looks again.
    pub changes: watch::Receiver<u64>,
    /// Keys of callers, as they are when a request comes.
    pub keys: Arc<KeyRing>,
    /// The way to the loop that reads the configuration again; none where there is no configuration to read.
    pub reloads: Option<mpsc::Sender<ReloadCall>>,
    /// Keeps who has changed what.
    pub trail: Arc<dyn ActTrail>,
    /// Whose notifications those of callers without a key are: `default`.
    pub default_tenant: Name,
    /// The metrics of the stages.
    pub registry: Arc<Registry>,
    /// Times of requests.
    pub request_times: RequestTimes,
    /// Whether the process takes work.
    pub readiness: Readiness,
    /// Its name among the workers of a cluster.
    pub worker: Option<String>,
    /// How often and when each channel tries again, as it is when a request comes.
    pub policies: watch::Receiver<BTreeMap<Name, RetryPolicy>>,
    /// The channels that are configured, as they are when a request comes.
    pub channels: watch::Receiver<BTreeMap<Name, ConfiguredChannel>>,
    /// Sources that this process reads, by their names.
    pub sources: Vec<(Name, Arc<SourceCounts>)>,
    /// The feeds that this process runs.
    pub feeds: Vec<FeedPlan>,
    /// Room for streams of events, and turns of the tools that watch.
    pub shares: ApiShares,
    /// The status that those who follow it share.
    pub live: LiveStatus,
    /// The requests that have a line in the log.
    pub access_log: AccessLog,
    /// Which requests are traced; `None` if none is.
    pub traces: Option<Arc<RequestTraces>>,
    /// True if notifications are taken in here. Where they are not, there are status, metrics and health only.
    pub takes_in: bool,
    /// Since when it runs.
    pub started_at: Timestamp,
}

/// The routes and keys that a server serves. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Site {
    router: Router,
    /// Where uploads that were dropped half-way are swept from.
    intake: Option<Arc<Intake>>,
}

/// The site of a process that does not know yet whether it can work: it lives, and is not ready.
pub fn starting(readiness: Readiness) -> Site {
    let router = Router::new()
        // The probes of an orchestrator have no key.
        .route("/healthz", get(operate::health))
        .route("/readyz", get(async move || readiness::answer(&readiness)))
        .merge(keyless())
        .fallback(not_yet);
    Site { router, intake: None }
}

/// The site of a process that works, with all that it answers. For [`serve`], which sets the limits of connections; those of bodies are
/// set here.
pub fn site(shared: &Arc<ApiState>) -> Site {
    let log = Arc::new(RequestLog::of(shared));
    site_for(shared, log, Audience::All)
}

/// The sites of a process whose operators have an address of their own: the one without the routes that are for operators alone
/// ([`RouteRule::is_for_operators`]) and with the metrics of tenants, and the one with all routes and the metrics of the process.
pub fn sites(shared: &Arc<ApiState>) -> (Site, Site) {
    // One log, so that no identifier of a request is given twice.
    let log = Arc::new(RequestLog::of(shared));
    let public = site_for(shared, Arc::clone(&log), Audience::Public);
    (public, site_for(shared, log, Audience::Operators))
}

fn site_for(shared: &Arc<ApiState>, log: Arc<RequestLog>, audience: Audience) -> Site {
    let takes_in = shared.takes_in;
    let has_dashboard = takes_in && audience != Audience::Public;
    let dashboard = if has_dashboard { dashboard::router() } else { Router::new() };
    let router = Router::new()
        .route("/healthz", get(operate::health))
        .route("/readyz", get(operate::ready))
        .merge(keyless())
        .merge(dashboard)
        .merge(routes::router(shared, audience))
        .method_not_allowed_fallback(wrong_method);
    let router = if takes_in { router.fallback(unknown_path) } else { router.fallback(not_here) };
    let router = router.layer(LogLayer(log));
    let intake = takes_in.then(|| Arc::clone(&shared.intake));
    Site { router: router.with_state(Arc::clone(shared)), intake }
}

/// The routes that need no key and no store, beside those of health: every process has them, also one that starts.
fn keyless<S: Clone + Send + Sync + 'static>() -> Router<S> {
    Router::new()
        .route("/openapi.json", compressed::when_accepted(get(openapi::read)))
        .route("/problems/{code}", compressed::when_accepted(get(problem_pages::page)))
}

async fn unknown_path(uri: Uri) -> Problem {
    // A path may be of any length, and is repeated in the answer.
    let path: String = uri.path().chars().take(200).collect();
    Problem::new(ProblemCode::UnknownPath, format!("there is nothing at {path}"))
}

async fn not_here(uri: Uri) -> Problem {
    let path: String = uri.path().chars().take(200).collect();
    let detail = format!(
        "there is nothing at {path}: this process only delivers, call one that runs `belfry serve` or `belfry produce`"
    );
    Problem::new(ProblemCode::UnknownPath, detail)
}

async fn not_yet() -> Problem {
    Problem::new(ProblemCode::Starting, "starting: the store or the broker is not reached yet")
        .retry_after(notification::limits::OVERLOAD_RETRY_AFTER)
}

async fn wrong_method(method: Method) -> Problem {
    let detail = format!("{method} is not possible here: the header Allow names what is");
    Problem::new(ProblemCode::MethodNotAllowed, detail)
}

// === impl Site ===

impl Site {
    /// Its routes.
    pub fn router(&self) -> &Router {
        &self.router
    }
}

// === impl ApiState ===

impl ApiState {
    /// True if the process is on its way out, so that no request is kept waiting.
    fn is_stopping(&self) -> bool {
        // `process` is met from the end of the start to the beginning of the drain.
        self.readiness.needs().any(|(name, is_met)| name == "process" && !is_met)
    }

    /// When the channel called `channel` tries again.
    fn backoff_of(&self, channel: &Name) -> Backoff {
        // A channel that was taken out of the configuration meanwhile has the usual policy.
        self.policies.borrow().get(channel).copied().unwrap_or_default().backoff
    }
}

impl fmt::Debug for ApiState {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("ApiState").field("keys", &self.keys).finish_non_exhaustive()
    }
}

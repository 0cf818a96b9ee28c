//! The HTTP API. `docs/reference/http-api.md` says what it promises.
//!
//! Edge only: bytes become [`pipeline::ingest::Terms`], answers become JSON. What may be asked for is decided
//! by the ingest stage, what is known by the store's [`Ledger`](store::Ledger).

mod body;
mod broadcasts;
mod create;
mod keys;
mod lines;
mod notifications;
mod object;
mod operate;
mod problem;
mod query;
mod server;
mod stream;
mod view;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use axum::Router;
use axum::http::{Method, StatusCode, Uri};
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::{get, post};
use flow::Clock;
use notification::{Name, Timestamp};
use pipeline::Intake;
use prometheus_client::registry::Registry;
use store::Ledger;

pub use keys::{Key, KeyError, Keys, check_listen, generate, hash, parse_hash};
pub use server::serve;

use problem::Problem;

/// What the API is made of.
pub struct State {
    /// Takes notifications in.
    pub intake: Arc<Intake>,
    /// Answers questions.
    pub ledger: Arc<dyn Ledger>,
    /// Who may call.
    pub keys: Keys,
    /// Whose notifications those of callers without a key are: `default`.
    pub default_tenant: Name,
    /// What the stages count.
    pub registry: Arc<Registry>,
    /// Whether the process is up: after its recovery, and before its drain.
    pub ready: Arc<AtomicBool>,
    /// The time.
    pub clock: Clock,
}

/// [`State`], and when it was made.
struct Shared {
    intake: Arc<Intake>,
    ledger: Arc<dyn Ledger>,
    keys: Keys,
    default_tenant: Name,
    registry: Arc<Registry>,
    ready: Arc<AtomicBool>,
    started_at: Timestamp,
}

/// Every route. For [`serve`], which sets the limits of connections; those of bodies are set here.
pub fn router(state: State) -> Router {
    let State { intake, ledger, keys, default_tenant, registry, ready, clock } = state;
    let started_at = pipeline::timestamp(clock);
    let shared =
        Arc::new(Shared { intake, ledger, keys, default_tenant, registry, ready, started_at });
    let operators = Router::new()
        .route("/v1/status", get(operate::status))
        .route("/v1/log", get(operate::log))
        .route("/v1/audit", get(operate::audit))
        .route(
            "/v1/suppressions",
            get(operate::suppressions).post(operate::suppress).delete(operate::unsuppress),
        )
        .route_layer(from_fn(keys::authorize_operator));
    let callers = Router::new()
        .route("/v1/notifications", get(notifications::list).post(create::create))
        .route("/v1/notifications/{id}", get(notifications::read))
        .route("/v1/notifications/{id}/cancel", post(notifications::cancel))
        .route("/v1/broadcasts", post(broadcasts::create))
        .route("/v1/broadcasts/{id}", get(broadcasts::read))
        .route("/v1/broadcasts/{id}/cancel", post(broadcasts::cancel))
        .route("/metrics", get(operate::metrics))
        .merge(operators)
        .route_layer(from_fn_with_state(Arc::clone(&shared), keys::authorize));
    Router::new()
        .route("/healthz", get(operate::health))
        .route("/readyz", get(operate::ready))
        .merge(callers)
        .fallback(unknown_path)
        .method_not_allowed_fallback(wrong_method)
        .with_state(shared)
}

async fn unknown_path(uri: Uri) -> Problem {
    let path: String = uri.path().chars().take(200).collect();
    Problem::not_found(format!("there is nothing at {path}"))
}

async fn wrong_method(method: Method) -> Problem {
    let detail = format!("{method} is not possible here: the header Allow names what is");
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, detail)
}

// === impl State ===

impl fmt::Debug for State {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("State").field("keys", &self.keys).finish_non_exhaustive()
    }
}

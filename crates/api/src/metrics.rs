//! `GET /metrics`, as text of one of two forms: for operators what the stages count and how things stand, for a tenant where its own
//! notifications stand.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use axum::extract::{Extension, State};
use axum::http::HeaderMap;
use axum::response::Response;
use feed::{FeedProgress, FeedSource};
use notification::{Account, Pauses};
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use store::{ClusterStatus, ErrorKind, LaneStatus, StoreError, WAITING_CHUNKS_COUNTED};

use crate::ApiState;
use crate::caller::Caller;
use crate::exposition::exposed;
use crate::lane_metrics::{add_lanes, add_waiting};
use crate::problem::Problem;
use crate::problem_code::ProblemCode;
use crate::status::{lag, oldest_due};

type Count = Gauge<u64, AtomicU64>;

/// The metrics of the process for an operator, those of its tenant for another caller.
pub(crate) async fn by_key(
    shared: State<Arc<ApiState>>,
    caller: Extension<Caller>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    if caller.is_operator {
        of_process(shared, headers).await
    } else {
        of_tenant(shared, caller, headers).await
    }
}

/// The account of the caller's tenant, its pauses, and for how long it has waited.
pub(crate) async fn of_tenant(
    State(shared): State<Arc<ApiState>>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let reads = shared.reads_of(&caller);
    let mut now = Registry::default();
    // Until what an older version counted is assigned to tenants, it is missing.
    if let Some(account) = reads.tenant_totals(caller.tenant.clone()).await? {
        add_account(account, &mut now);
    }
    let pauses = reads.pauses().await?;
    let own = pauses.iter().filter(|pause| pause.tenant == caller.tenant).count();
    now.register("belfry_pauses", "Pauses of the tenant", count(own as u64));
    let mut list = reads.lanes().await?;
    list.lanes.retain(|status| status.lane.tenant == caller.tenant);
    // Behind so many lanes of others that are due before its own, it is not known.
    let is_known = |due| Some(due) <= list.until;
    if list.are_all() || oldest_due(&list.lanes, &pauses).is_some_and(is_known) {
        add_oldest_due(&list.lanes, &pauses, &shared, &mut now);
    }
    let mut text = String::new();
    encode_registry(&mut text, &now).and_then(|()| encode_eof(&mut text)).map_err(unwritten)?;
    Ok(exposed(&headers, text))
}

/// The registry of the stages, and what the store says as of now. While the store is away, what it would say is missing:
/// `belfry_available` tells.
pub(crate) async fn of_process(
    State(shared): State<Arc<ApiState>>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    // A registry of its own for each scrape: a gauge that cannot be read now is missing, and does not show an old value.
    let mut now = Registry::default();
    let available = Family::<[(&str, &str); 1], Count>::default();
    for (part, is_met) in shared.readiness.needs() {
        available.get_or_create(&[("part", part)]).set(is_met.into());
    }
    now.register("belfry_available", "Whether what the process needs is there, 0 or 1", available);
    now.register_collector(Box::new(shared.request_times.clone()));
    match add_store(&shared, &mut now).await {
        Err(error) if error.kind() != ErrorKind::Unavailable => return Err(error.into()),
        Ok(()) | Err(_) => {}
    }
    let mut text = String::new();
    // The end is written once, behind both: nothing may follow it.
    encode_registry(&mut text, &shared.registry)
        .and_then(|()| encode_registry(&mut text, &now))
        .and_then(|()| encode_eof(&mut text))
        .map_err(unwritten)?;
    Ok(exposed(&headers, text))
}

async fn add_store(shared: &ApiState, now: &mut Registry) -> Result<(), StoreError> {
    add_account(shared.reads.totals().await?, now);
    let pauses = shared.reads.pauses().await?;
    let help =
        "Pauses: broadcasts, lanes, channels and tenants that are not sent until they are resumed";
    now.register("belfry_pauses", help, count(pauses.len() as u64));
    let lanes = shared.reads.lanes().await?;
    add_oldest_due(&lanes.lanes, &pauses, shared, now);
    let channels = shared.intake.channel_names();
    add_lanes(lanes, (&pauses, &channels), shared.intake.now(), now);
    add_waiting(&shared.reads.waiting_counts(WAITING_CHUNKS_COUNTED).await?, &channels, now);
    let parked = Family::<[(&str, String); 1], Count>::default();
    for channel in shared.reads.parked(channels).await? {
        let label = [("channel", channel.channel.to_string())];
        parked.get_or_create(&label).set(channel.notifications);
    }
    let help =
        "Notifications that wait for a channel that is not configured, counted up to a bound";
    now.register("belfry_parked_notifications", help, parked);
    add_feeds(shared, now).await?;
    if let Some(space) = shared.reads.space().await? {
        let help = "Bytes that the store takes";
        now.register("belfry_store_used_bytes", help, count(space.used));
        if let Some(left) = space.left {
            let help = "Bytes that the store may still take before new notifications are refused";
            now.register("belfry_store_left_bytes", help, count(left));
        }
    }
    if let Some(cluster) = shared.reads.cluster().await? {
        add_cluster(&cluster, shared.worker.as_deref(), now);
    }
    Ok(())
}

fn add_account(account: Account, now: &mut Registry) {
    let help = "Notifications ever accepted";
    now.register("belfry_notifications_accepted", help, ConstCounter::new(account.accepted));
    let standing = Family::<[(&str, &str); 1], Count>::default();
    for (state, count) in account.standing() {
        standing.get_or_create(&[("state", state)]).set(count);
    }
    now.register("belfry_notifications", "Notifications by where they stand", standing);
}

fn add_oldest_due(lanes: &[LaneStatus], pauses: &Pauses, shared: &ApiState, now: &mut Registry) {
    let due = lag(oldest_due(lanes, pauses), shared.intake.now());
    let help = "For how many seconds the notification that waits longest has been due";
    now.register("belfry_oldest_due_seconds", help, seconds(due));
}

/// The lag of each feed; that of the suppression list under the name that it had when it was alone, too.
async fn add_feeds(shared: &ApiState, now: &mut Registry) -> Result<(), StoreError> {
    if shared.feeds.is_empty() {
        return Ok(());
    }
    let lags = Family::<[(&'static str, String); 1], Gauge<f64, AtomicU64>>::default();
    for feed in &shared.feeds {
        let lag = FeedProgress::read(&*shared.reads, feed).await?.lag(shared.intake.now());
        lags.get_or_create(&[("feed", feed.name.to_string())]).set(lag.as_secs_f64());
        if feed.source == FeedSource::Suppressions {
            let help = "For how many seconds the application has not been told of a change of the suppression list";
            now.register("belfry_suppression_feed_lag_seconds", help, seconds(lag));
        }
    }
    let help = "For how many seconds the application of a feed has not been told of an event";
    now.register("belfry_feed_lag_seconds", help, lags);
    Ok(())
}

fn add_cluster(cluster: &ClusterStatus, own: Option<&str>, now: &mut Registry) {
    let alive = cluster.workers.iter().filter(|worker| !worker.alive_for.is_zero()).count();
    let own = cluster.workers.iter().find(|worker| Some(worker.name.as_str()) == own);
    let owned = own.map_or(0, |worker| worker.partitions);
    now.register("belfry_workers", "Processes of the cluster that are alive", count(alive as u64));
    let help = "Partitions that this process claims from";
    now.register("belfry_partitions_owned", help, count(owned.into()));
    let help = "Partitions that no process claims from";
    now.register("belfry_partitions_free", help, count(cluster.partitions_free.into()));
    let help = "Rows of the outbox that were put aside, with the reason in belfry.outbox_rejected";
    now.register("belfry_outbox_rejected", help, count(cluster.outbox.rejected));
    let help = "Rows of the outbox that were committed and are not taken yet";
    now.register("belfry_outbox_rows", help, count(cluster.outbox.waiting));
    let help = "How many seconds ago the first row of the outbox that waits was inserted";
    now.register("belfry_outbox_oldest_seconds", help, seconds(cluster.outbox.oldest));
}

fn seconds(span: Duration) -> Gauge<f64, AtomicU64> {
    let gauge = Gauge::default();
    gauge.set(span.as_secs_f64());
    gauge
}

fn count(value: u64) -> Count {
    let gauge = Count::default();
    gauge.set(value);
    gauge
}

fn unwritten(_error: std::fmt::Error) -> Problem {
    Problem::new(ProblemCode::InternalError, "metrics cannot be written")
}

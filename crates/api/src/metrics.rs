//! `GET /metrics`: what the stages count, and how things stand, as text of one of two forms.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use feed::{FeedProgress, FeedSource};
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use store::{ClusterStatus, ErrorKind, StoreError};

use crate::ApiState;
use crate::exposition::exposed;
use crate::problem::Problem;
use crate::problem_code::ProblemCode;
use crate::status::{lag, oldest_due};

type Count = Gauge<u64, AtomicU64>;

/// The registry of the stages, and what the store says as of now. While the store is away, what it would say is missing:
/// `belfry_available` tells.
pub(crate) async fn metrics(
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
    match add_store(&shared, &mut now).await {
        Err(error) if error.kind() != ErrorKind::Unavailable => return Err(error.into()),
        Ok(()) | Err(_) => {}
    }
    let mut text = String::new();
    // The end is written once, behind both: nothing may follow it.
    encode_registry(&mut text, &shared.registry)
        .and_then(|()| encode_registry(&mut text, &now))
        .and_then(|()| encode_eof(&mut text))
        .map_err(|_| Problem::new(ProblemCode::InternalError, "metrics cannot be written"))?;
    Ok(exposed(&headers, text))
}

async fn add_store(shared: &ApiState, now: &mut Registry) -> Result<(), StoreError> {
    let totals = shared.reads.totals().await?;
    now.register(
        "belfry_notifications_accepted",
        "Notifications ever accepted",
        count(totals.accepted),
    );
    let standing = Family::<[(&str, &str); 1], Count>::default();
    for (state, count) in totals.standing() {
        standing.get_or_create(&[("state", state)]).set(count);
    }
    now.register("belfry_notifications", "Notifications by where they stand", standing);
    let pauses = shared.reads.pauses().await?;
    let help =
        "Pauses: broadcasts, lanes, channels and tenants that are not sent until they are resumed";
    now.register("belfry_pauses", help, count(pauses.len() as u64));
    let due = lag(oldest_due(&shared.reads.lanes().await?, &pauses), shared.intake.now());
    let help = "For how many seconds the notification that waits longest has been due";
    now.register("belfry_oldest_due_seconds", help, seconds(due));
    let parked = Family::<[(&str, String); 1], Count>::default();
    for channel in shared.reads.parked(shared.intake.channel_names()).await? {
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
    now.register("belfry_outbox_rejected", help, count(cluster.outbox_rejected));
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

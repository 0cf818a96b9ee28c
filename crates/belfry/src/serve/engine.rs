//! The engine: which backends, which stages, and in which order they start and stop.

use std::sync::Arc;
use std::time::Duration;

use api::{Readiness, ReloadCall, Reloaded};
use flow::Clock;
use flow::tasks::Ended;
use notification::Account;
use pipeline::Intake;
use pipeline::spans::SpanSink;
use prometheus_client::registry::Registry;
use store::{Ending, Store, StoreError};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use super::Role;
use super::backend::Backend;
use super::broker::{self, BrokerLink};
use super::certificates::{Certificates, ReadCertificates};
use super::failed::Failed;
use super::listeners::{ListenPlaces, Listeners};
use super::live::Live;
use super::process_metrics::{ReloadMetrics, registry};
use super::relayed::RelayRoute;
use super::sources;
use super::stages::{SiteSenders, StageParts, Stages};
use crate::config::Config;

/// How long a store may take to note how the process ends: a shared one may be out of reach. An operator waits for it.
const END_PATIENCE: Duration = Duration::from_secs(5);

/// Everything that runs.
#[derive(Debug)]
pub(crate) struct Engine {
    places: ListenPlaces,
    certificates: Option<Arc<Certificates>>,
    backend: Backend,
    /// Of a relay: the account of its store before it read anything.
    began_with: Account,
    link: Option<BrokerLink>,
    /// True from the end of the start to the beginning of the drain.
    works: watch::Sender<bool>,
    stages: Stages,
    intake: Arc<Intake>,
    live: Live,
    reload_calls: Option<mpsc::Receiver<ReloadCall>>,
    reload_metrics: Box<ReloadMetrics>,
    /// Takes the spans of traces; `None` if nothing is traced.
    spans: Option<Arc<dyn SpanSink>>,
}

// === impl Engine ===

impl Engine {
    /// Listens, opens the store and the broker, and starts the stages of `role`, on a machine whose clock is `clock`. Until
    /// then the process lives and is not ready.
    pub(super) async fn start(role: Role, config: &Config, clock: Clock) -> anyhow::Result<Self> {
        Self::start_with(role, config, None, clock).await
    }

    /// Starts an engine that also relays along `route`.
    pub(crate) async fn start_relay(
        config: &Config,
        route: RelayRoute,
        clock: Clock,
    ) -> anyhow::Result<Self> {
        Self::start_with(Role::Both, config, Some(route), clock).await
    }

    async fn start_with(
        role: Role,
        config: &Config,
        route: Option<RelayRoute>,
        clock: Clock,
    ) -> anyhow::Result<Self> {
        role.check(config)?;
        // Before the store is opened, which may be away for long: it says when the process started.
        let reload_metrics = Box::new(ReloadMetrics::new(clock));
        // Files are read and channels built before anything is connected to: a mistake ends the start at once.
        let live = Live::new(config, route.as_ref(), clock)?;
        live.warn_of_forgetful(role);
        let mut random = fastrand::Rng::with_seed(seed(clock));
        // Before the store is opened: it tells other workers the address, and probes are answered while it is waited for.
        let listeners = Listeners::open(&config.server, clock).await?;
        let (places, certificates) = (listeners.places.clone(), listeners.certificates.clone());

        let mut stages = Stages::new();
        let (works, is_working) = watch::channel(false);
        let mut readiness = Readiness::default().and("process", is_working);
        let sites = SiteSenders::starting(&readiness);
        stages.serve_all(listeners, &sites)?;
        let backend = Backend::open(role, config, places.shown(), clock, random.u64(..)).await?;
        // From here on the time of all who share the store: its database's (decision 0022).
        let clock = backend.clock(clock);
        // Without a link to the broker it could hand nothing on: its partitions are left to other workers until then.
        backend.set_working(config.queue.url.is_none());
        check_keys(config, &*backend.store())?;
        // Before its source is read: messages are accepted and delivered while the rest starts.
        let began_with =
            if route.is_some() { backend.reads().totals().await? } else { Account::default() };
        // Before anything is claimed: what waits for a channel that is not configured stays parked.
        backend.store().offer(live.channel_names()).await?;
        let link = BrokerLink::open(role, &config.queue, clock, &mut random).await?;
        for (name, available) in
            [backend.available()].into_iter().chain(link.as_ref().map(BrokerLink::available))
        {
            readiness = readiness.and(name, available);
        }

        // A relay has no configuration to read again: it runs by its arguments.
        let (reloads, reload_calls) = route.is_none().then(api::reload_calls).unzip();
        let mut registry = registry(role, (&live, &backend), &reload_metrics, clock);
        let intake = Arc::new(live.intake(backend.store() as _, clock)?);
        intake.register(&mut registry);
        let spans = open_traces(config, &backend, &mut registry, (clock, &mut random))?;
        let mut parts = StageParts {
            config,
            live: &live,
            backend: &backend,
            clock,
            random,
            registry,
            spans: spans.clone(),
            retention: Arc::new(config.retention.retention(&config.tenants)),
            sources: Vec::new(),
            growth: Arc::default(),
            reloads,
        };
        if role.produces() {
            take_in(&mut stages, &mut parts, &intake, route)?;
        }
        if let Some(certificates) = &certificates {
            stages.watch_certificates(&mut parts, certificates);
        }
        stages.watch_growth(&parts);
        deliver(role, &mut stages, &mut parts, link.as_ref())?;
        // Before it is ready: a caller that is let in must not meet the site of the start.
        parts.open_sites(&sites, Arc::clone(&intake), (readiness, role.produces()))?;
        works.send_replace(true);
        Ok(Self {
            places,
            certificates,
            backend,
            began_with,
            link,
            works,
            stages,
            intake,
            live,
            reload_calls,
            reload_metrics,
            spans,
        })
    }

    /// Goes by `config` from now on, as far as that needs no restart.
    ///
    /// # Errors
    /// When the configuration cannot be used; then nothing has changed.
    pub(super) async fn reload(&mut self, config: Config) -> anyhow::Result<Reloaded> {
        // Before anything is replaced: if they cannot be used, everything stays.
        let files = config.server.tls_files();
        let read = files.filter(|_| self.certificates.is_some()).map(ReadCertificates::read);
        let read = read.transpose().map_err(|error| anyhow::anyhow!("server.tls.{error}"))?;
        check_keys(&config, &*self.backend.store())?;
        let mut changes = self.live.reload(config, &self.intake, self.places.addresses())?;
        if let (Some(certificates), Some(read)) = (&self.certificates, read)
            && certificates.replace(read)
        {
            changes.changed.push("server.tls".to_owned());
        }
        // A store that cannot be told has failed, and ends the process.
        self.backend.store().offer(self.live.channel_names()).await?;
        Ok(changes)
    }

    /// Counts a reload, which has ended with success or was refused, for the metrics.
    pub(super) fn note_reload(&self, is_successful: bool) {
        self.reload_metrics.ended(is_successful);
    }

    /// Callers that ask for a reload, for the loop that makes them, once. Callers are refused when it is dropped.
    pub(super) fn take_reload_calls(&mut self) -> Option<mpsc::Receiver<ReloadCall>> {
        self.reload_calls.take()
    }

    /// Where it listens.
    pub(super) fn places(&self) -> &ListenPlaces {
        &self.places
    }

    /// The account of its store before a relay read anything.
    pub(crate) const fn began_with(&self) -> Account {
        self.began_with
    }

    /// The account of its store.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub(crate) async fn account(&self) -> Result<Account, StoreError> {
        self.backend.reads().totals().await
    }

    /// Its store.
    #[cfg(test)]
    pub(super) fn store(&self) -> Arc<dyn Store> {
        self.backend.store()
    }

    /// The names of all tasks that last as long as the process.
    #[cfg(test)]
    pub(super) async fn tasks(&self) -> Vec<&'static str> {
        let mut names: Vec<&'static str> = self.stages.tasks.names().collect();
        if let Some(store) = self.backend.shared() {
            names.extend(store.tasks().await.names());
        }
        names.extend(self.link.iter().flat_map(|link| link.broker().tasks().names()));
        names
    }

    /// Makes a task panic.
    #[cfg(test)]
    pub(super) async fn sabotage(&self, name: &'static str) {
        self.stages.tasks.sabotage(name);
        if let Some(store) = self.backend.shared() {
            store.tasks().await.sabotage(name);
        }
        self.link.iter().for_each(|link| link.broker().tasks().sabotage(name));
    }

    /// Ends its tasks at once and closes its store, so that another engine can be started in its place.
    #[cfg(test)]
    pub(super) async fn abort(mut self) {
        self.stages.tasks.abort().await;
        // What is answered on other threads may hold the store a moment longer.
        self.backend.close().await;
    }

    /// Waits until something fails that the engine cannot go on without, and says what.
    pub(crate) async fn failed(&mut self) -> Failed {
        let Stages { tasks, senders, failures, .. } = &mut self.stages;
        let stage_ended = tasks.ended();
        let of_stages = Some(stage_ended.clone());
        let of_store = self.backend.ended();
        let of_link = self.link.as_ref().map(BrokerLink::ended);
        // The cause before its consequences: stages end when the store does.
        tokio::select! {
            biased;
            reason = broken(self.backend.failed()) => Failed::otherwise(reason),
            ended = first_end(of_store) => ended,
            ended = first_end(of_link) => ended,
            Some(reason) = failures.recv() => Failed::otherwise(reason),
            ended = first_end(of_stages) => ended,
            Some(ended) = senders.next() => sender_end(ended, &stage_ended),
        }
    }

    /// Stops in the order in which work flows: nothing new comes in, nothing new is claimed, what is on the
    /// wire is answered and settled, and what was not started is handed back. A cluster learns of it at once: other workers take
    /// the partitions over while this process finishes.
    pub(super) async fn drain(&mut self) -> Result<(), &'static str> {
        // Not ready from now on, so that a load balancer sends no more requests.
        self.works.send_replace(false);
        self.stages.stop();
        self.backend.set_working(false);
        // Only the stages use the link from here on: when they have ended, tickets that were not received go back.
        let broker = self.link.take().map(BrokerLink::release);
        while let Some(ended) = self.stages.senders.next().await {
            if let Err(error) = ended {
                tracing::error!(%error, "a sender failed while draining");
            }
        }
        // Behind the senders: settle is among these, and ends when the last of them has reported.
        self.stages.tasks.drain().await;
        if let Some(broker) = broker {
            broker::close(broker).await;
        }
        // A store that failed has not written everything that was reported, however the stages ended.
        let failed = self.backend.failed().borrow().is_some();
        self.backend.close().await;
        // Last of all: a receiver that hangs holds nothing up. On a thread that may wait; a panic there costs spans alone.
        if let Some(spans) = self.spans.take() {
            let _ended = tokio::task::spawn_blocking(move || spans.close()).await;
        }
        if failed { Err("the store failed meanwhile") } else { Ok(()) }
    }

    /// Leaves what is under way to recovery, and notes in the store how the process ends, if the store can be reached.
    pub(super) async fn abandon(&self, ending: Ending) {
        if timeout(END_PATIENCE, self.backend.end(ending)).await.is_err() {
            tracing::warn!(
                "the store was not told how this process ends: other processes take it for killed"
            );
        }
    }
}

/// Checks that a key is configured while keys are stored, which would count for nothing without.
fn check_keys(config: &Config, store: &dyn Store) -> anyhow::Result<()> {
    let stored = store.watch_keys().borrow().len();
    anyhow::ensure!(
        stored == 0 || !config.server.keys.is_empty(),
        "server.keys: {stored} API keys are stored, and without a configured one every caller on this machine may do everything: \
         configure one (`belfry api-key`), if only to revoke those"
    );
    Ok(())
}

/// Opens the way of traces, if there is one; spans name the process as the cluster does, or by a number that is drawn.
#[cfg(feature = "otlp")]
fn open_traces(
    config: &Config,
    backend: &Backend,
    registry: &mut Registry,
    (clock, random): (Clock, &mut fastrand::Rng),
) -> anyhow::Result<Option<Arc<dyn SpanSink>>> {
    let instance = backend.worker().map(str::to_owned);
    let instance = instance.unwrap_or_else(|| format!("{:016x}", random.u64(..)));
    super::traces::open(&config.traces, instance, registry, clock)
}

/// Without the feature a receiver is refused with the configuration.
#[cfg(not(feature = "otlp"))]
fn open_traces(
    _: &Config,
    _: &Backend,
    _: &mut Registry,
    _: (Clock, &mut fastrand::Rng),
) -> anyhow::Result<Option<Arc<dyn SpanSink>>> {
    Ok(None)
}

/// Ends when the store fails, with the reason.
async fn broken(mut failed: watch::Receiver<Option<StoreError>>) -> String {
    let reason = failed.wait_for(Option::is_some).await.ok().and_then(|reason| reason.clone());
    reason.map_or_else(|| "the store's writer is gone".to_owned(), |reason| reason.to_string())
}

/// Ends when one of the tasks of a part does, if there is that part, with the name of the task.
async fn first_end(ended: Option<watch::Receiver<Option<Ended>>>) -> Failed {
    let Some(mut ended) = ended else { return std::future::pending().await };
    let first = ended.wait_for(Option::is_some).await.ok().and_then(|first| *first);
    first.map_or_else(|| Failed::otherwise("its tasks are gone"), Failed::from)
}

/// The reason when a sender ended. It ends when a stage does, which may have ended since that was looked for.
fn sender_end(ended: Result<(), Failed>, stage_ended: &watch::Receiver<Option<Ended>>) -> Failed {
    let cause = || stage_ended.borrow().map(Failed::from);
    ended.err().or_else(cause).unwrap_or_else(|| Failed::otherwise("a sender ended"))
}

/// Starts what a process that takes notifications in does beside the API.
fn take_in(
    stages: &mut Stages,
    parts: &mut StageParts<'_>,
    intake: &Arc<Intake>,
    route: Option<RelayRoute>,
) -> anyhow::Result<()> {
    stages.retain(parts);
    stages.drain_outbox(parts, intake);
    stages.feed(parts, intake)?;
    stages.read_sources(sources::open(parts, intake, route)?);
    stages.index(parts);
    stages.assign_totals(parts)
}

/// Starts the stages that deliver, or that hand on to them and to others by the broker at the end of `link`.
fn deliver(
    role: Role,
    stages: &mut Stages,
    parts: &mut StageParts<'_>,
    link: Option<&BrokerLink>,
) -> anyhow::Result<()> {
    let Some(link) = link else { return stages.dispatch(parts) };
    stages.follow(parts.backend, link);
    if role.produces() {
        stages.issue(parts, link);
    }
    if role.consumes() {
        stages.collect(parts, link)?;
    }
    Ok(())
}

/// Different in every process; nothing secret is drawn from it.
fn seed(clock: Clock) -> u64 {
    // The number of the process tells apart those that start at the same time.
    let pid = u64::from(std::process::id());
    u64::try_from(clock.wall().as_nanos() & u128::from(u64::MAX)).unwrap_or(pid)
        ^ pid.rotate_left(32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use flow::Tasks;

    #[tokio::test]
    async fn a_stage_that_ended_before_a_sender_is_the_reason_although_it_is_seen_later() {
        let mut stages = Tasks::default();
        assert_eq!(sender_end(Ok(()), &stages.ended()).to_string(), "a sender ended");
        stages.spawn("collect", async {});
        assert!(stages.next().await.is_some());
        assert_eq!(sender_end(Ok(()), &stages.ended()).to_string(), "the task collect ended");
    }
}

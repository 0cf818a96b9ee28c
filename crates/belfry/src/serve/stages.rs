//! The stages of a process: how they are connected, started and stopped, and how they fail.

use std::fmt::Display;
use std::sync::Arc;

use api::{ApiListener, ApiState, Readiness, ReloadCall, RequestTraces, Site, StoreGrowth};
use feed::{Feed, FeedPlan, SourceCounts, SourceReader};
use flow::{Clock, Tasks};
use futures_util::future::try_join_all;
use notification::{Chunk, Name, Ticket, limits};
use pipeline::ingest::{self, Intake};
use pipeline::spans::SpanSink;
use pipeline::{
    Collect, Deliver, DestinationLimits, Dispatch, LoadMetrics, Metrics, QuotaShares, Settle,
    ThreadAffinity, report,
};
use prometheus_client::registry::Registry;
use store::{Claims, Retention, StoreError};
use tokio::sync::{mpsc, oneshot, watch};

use super::backend::Backend;
use super::broker::BrokerLink;
use super::certificates::Certificates;
use super::growth::GrowthTask;
use super::indexing::Indexing;
use super::listeners::Listeners;
use super::live::Live;
use super::retention::{RetentionMetrics, RetentionTask};
use super::senders::Senders;
use super::totals::TotalsTask;
use crate::config::Config;

/// Threads for what callers ask: one may be busy with a long request while the other answers.
const API_THREADS: usize = 2;
/// Threads for what operators ask at a place of their own.
const OPERATOR_THREADS: usize = 1;

/// Stages that were started, and how to stop them.
#[derive(Debug)]
pub(super) struct Stages {
    pub(super) tasks: Tasks,
    pub(super) senders: Senders,
    /// Why one of them could not go on.
    pub(super) failures: mpsc::Receiver<String>,
    failing: mpsc::Sender<String>,
    stop: watch::Sender<bool>,
}

/// The parts that stages are built from.
#[derive(Debug)]
pub(super) struct StageParts<'a> {
    pub(super) config: &'a Config,
    pub(super) live: &'a Live,
    pub(super) backend: &'a Backend,
    pub(super) clock: Clock,
    pub(super) random: fastrand::Rng,
    pub(super) registry: Registry,
    /// Takes the spans of traces; `None` if nothing is traced.
    pub(super) spans: Option<Arc<dyn SpanSink>>,
    /// Lifetimes of what is stored.
    pub(super) retention: Arc<Retention>,
    /// Counts of the sources that it reads, by their names.
    pub(super) sources: Vec<(Name, Arc<SourceCounts>)>,
    /// Sizes of the store since the process began.
    pub(super) growth: Arc<StoreGrowth>,
    /// The way of callers that ask for a reload, if there is a configuration to read again.
    pub(super) reloads: Option<mpsc::Sender<ReloadCall>>,
}

/// Closes a queue when the stage that feeds it ends, however it ends: senders take what is in the queue, and end as well.
struct Feeding(queue::MemoryQueue<Arc<Chunk>>);

/// The sites that the listeners serve, whichever they are at a time.
#[derive(Debug)]
pub(super) struct SiteSenders {
    public: watch::Sender<Site>,
    operator: watch::Sender<Site>,
}

async fn serve_one(
    (listener, site, mut stopping): (ApiListener, watch::Receiver<Site>, watch::Receiver<bool>),
) -> std::io::Result<()> {
    let stopped = async move {
        // A sender that is gone stops as well.
        let _stopped = stopping.wait_for(|stopping| *stopping).await;
    };
    api::serve(listener, site, stopped).await
}

// === impl SiteSenders ===

impl SiteSenders {
    /// Sites of a process that does not know yet whether it can work.
    pub(super) fn starting(readiness: &Readiness) -> Self {
        let site = api::starting(readiness.clone());
        Self { public: watch::Sender::new(site.clone()), operator: watch::Sender::new(site) }
    }
}

// === impl Stages ===

impl Stages {
    pub(super) fn new() -> Self {
        let (stop, _) = watch::channel(false);
        let (failing, failures) = mpsc::channel(4);
        let (tasks, senders) = (Tasks::default(), Senders::default());
        Self { tasks, senders, failures, failing, stop }
    }

    /// Tells all of them to take nothing new.
    pub(super) fn stop(&self) {
        self.stop.send_replace(true);
    }

    /// Serves whichever sites there are, on threads of their own: what callers ask for, such as templates that take long, holds
    /// up neither the stages nor the heartbeat of the store, nor what operators ask for at a place of their own.
    pub(super) fn serve_all(
        &mut self,
        listeners: Listeners,
        sites: &SiteSenders,
    ) -> std::io::Result<()> {
        self.serve(("api", API_THREADS), listeners.public, &sites.public)?;
        self.serve(("operator-api", OPERATOR_THREADS), listeners.operator, &sites.operator)
    }

    fn serve(
        &mut self,
        (name, threads): (&'static str, usize),
        listeners: Vec<ApiListener>,
        site: &watch::Sender<Site>,
    ) -> std::io::Result<()> {
        if listeners.is_empty() {
            return Ok(());
        }
        // Each with a receiver of its own: all of them are told.
        let servers: Vec<_> = listeners
            .into_iter()
            .map(|listener| (listener, site.subscribe(), self.stopping()))
            .collect();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(threads)
            .thread_name(name)
            .enable_all()
            .build()?;
        let (ended, end) = oneshot::channel();
        // A thread of its own drives this runtime and drops it: both panic within another runtime.
        std::thread::Builder::new().name(format!("{name}-server")).spawn(move || {
            let served = runtime.block_on(try_join_all(servers.into_iter().map(serve_one)));
            // The receiver is gone when the process is on its way out.
            let _unheard = ended.send(served.map(|_| ()));
        })?;
        self.start(name, async move {
            end.await.unwrap_or_else(|_dropped| Err(std::io::Error::other("the server panicked")))
        });
        Ok(())
    }

    /// Looks after the certificate of the server.
    pub(super) fn watch_certificates(
        &mut self,
        parts: &mut StageParts<'_>,
        certificates: &Arc<Certificates>,
    ) {
        certificates.register(&mut parts.registry);
        self.start("certificates", Arc::clone(certificates).run(self.stopping()));
    }

    /// Takes in what is in the outbox, if the store has one.
    pub(super) fn drain_outbox(&mut self, parts: &StageParts<'_>, intake: &Arc<Intake>) {
        if let Some(store) = parts.backend.shared() {
            let outbox = Arc::clone(store) as _;
            let relay = ingest::OutboxRelay { outbox, intake: Arc::clone(intake) };
            self.start("outbox", relay.run(self.stopping()));
        }
    }

    /// Hands events to applications, by the feeds that are configured.
    pub(super) fn feed(
        &mut self,
        parts: &StageParts<'_>,
        intake: &Arc<Intake>,
    ) -> anyhow::Result<()> {
        let usual: Name = "default".parse()?;
        if let (Some(config), Some(plan)) =
            (&parts.config.suppressions.feed, parts.config.suppressions.plan()?)
        {
            let to = (usual.clone(), config.channel.clone(), config.to.as_str());
            self.start_feed(parts, intake, plan, to);
        }
        for config in &parts.config.feeds {
            let to = (config.tenant(&usual), config.channel.clone(), config.to.as_str());
            self.start_feed(parts, intake, config.plan(&usual), to);
        }
        Ok(())
    }

    /// Runs a feed, whose notifications are of a tenant, on a channel, for a recipient.
    fn start_feed(
        &mut self,
        parts: &StageParts<'_>,
        intake: &Arc<Intake>,
        FeedPlan { name, source }: FeedPlan,
        (tenant, channel, recipient): (Name, Name, &str),
    ) {
        let store = parts.backend.store();
        let feed = Feed {
            name,
            source,
            changes: Claims::<Chunk>::changes(&*store),
            reads: parts.backend.reads(),
            operations: store as _,
            is_shared: parts.backend.worker().is_some(),
            intake: Arc::clone(intake),
            tenant,
            channel,
            recipient: recipient.into(),
        };
        self.start("feed", feed.run(self.stopping()));
    }

    /// Removes what has outlived its lifetime.
    pub(super) fn retain(&mut self, parts: &mut StageParts<'_>) {
        let (store, metrics) = (parts.backend.store(), RetentionMetrics::default());
        metrics.register(&mut parts.registry);
        let task = RetentionTask {
            changes: Claims::<Chunk>::changes(&*store),
            store: store as _,
            retention: Arc::clone(&parts.retention),
            clock: parts.clock,
            metrics,
        };
        self.start("retention", task.run(self.stopping()));
    }

    /// Reads notifications from the sources that are configured. One that cannot be read is tried again, and ends nothing.
    pub(super) fn read_sources(&mut self, readers: Vec<SourceReader>) {
        for reader in readers {
            self.start("source", reader.run(self.stopping()));
        }
    }

    /// Keeps the index by which a recipient's notifications are found.
    pub(super) fn index(&mut self, parts: &StageParts<'_>) {
        let store = parts.backend.store();
        let changes = Claims::<Chunk>::changes(&*store);
        let indexing = Indexing { index: store as _, changes };
        self.start("search", indexing.run(self.stopping()));
    }

    /// Gives what an older version counted without its tenant to the tenants.
    pub(super) fn assign_totals(&mut self, parts: &StageParts<'_>) -> anyhow::Result<()> {
        let task = TotalsTask {
            reads: parts.backend.reads(),
            operations: parts.backend.store() as _,
            worker: parts.backend.worker().map(str::to_owned),
            tenant: "default".parse()?,
            clock: parts.clock,
        };
        self.start("totals", task.run(self.stopping()));
        Ok(())
    }

    /// Looks at the size of the store now and then.
    pub(super) fn watch_growth(&mut self, parts: &StageParts<'_>) {
        let growth = Arc::clone(&parts.growth);
        let task = GrowthTask { reads: parts.backend.reads(), growth, clock: parts.clock };
        self.start("growth", task.run(self.stopping()));
    }

    /// Claims chunks, and hands them to senders in this process.
    pub(super) fn dispatch(&mut self, parts: &mut StageParts<'_>) -> anyhow::Result<()> {
        let queue = queue::MemoryQueue::new(limits::QUEUE_WEIGHT);
        let dispatch: Dispatch<Chunk, Arc<Chunk>> = Dispatch {
            claims: parts.backend.store() as _,
            queue: Arc::new(queue.clone()),
            lease: limits::LEASE,
            clock: parts.clock,
        };
        let (stopping, feeding) = (self.stopping(), Feeding(queue.clone()));
        self.start("dispatch", async move {
            let ended = dispatch.run(stopping).await;
            // Named here, or the task would not hold it: an `async move` block captures only what it mentions.
            drop(feeding);
            ended
        });
        self.deliver(parts, queue)
    }

    /// Claims tickets for chunks, and publishes them to the consumers.
    pub(super) fn issue(&mut self, parts: &StageParts<'_>, link: &BrokerLink) {
        // There are: the check of the configuration refuses a broker beside a store that is not shared.
        let Some(store) = parts.backend.shared() else { return };
        let (lease, clock) = (limits::TICKET_LEASE, parts.clock);
        let dispatch: Dispatch<Ticket, Ticket> =
            Dispatch { claims: Arc::clone(store) as _, queue: link.publisher(), lease, clock };
        let (stopping, in_use) = (self.stopping(), link.in_use());
        self.start("dispatch", async move {
            let ended = dispatch.run(stopping).await;
            drop(in_use);
            ended
        });
    }

    /// Takes a share of the work for as long as there is a link to hand it on by.
    pub(super) fn follow(&mut self, backend: &Backend, link: &BrokerLink) {
        let (backend, (_, mut available)) = (backend.clone(), link.available());
        let mut stopping = self.stopping();
        self.start("share", async move {
            while !*stopping.borrow_and_update() {
                backend.set_working(*available.borrow_and_update());
                tokio::select! {
                    _ = stopping.changed() => {}
                    broker_is_gone = available.changed() => if broker_is_gone.is_err() { break },
                }
            }
            // From now on it claims nothing: the others need not wait until it has left.
            backend.set_working(false);
            Ok::<(), StoreError>(())
        });
    }

    /// Takes chunks for tickets, and hands them to senders in this process.
    pub(super) fn collect(
        &mut self,
        parts: &mut StageParts<'_>,
        link: &BrokerLink,
    ) -> anyhow::Result<()> {
        let Some(store) = parts.backend.shared() else { return Ok(()) };
        let store = Arc::clone(store) as _;
        let queue = queue::MemoryQueue::new(limits::CONSUMER_WEIGHT);
        let (tickets, clock) = (link.consumer(), parts.clock);
        let collect = Collect { tickets, store, queue: Arc::new(queue.clone()), clock };
        let (stopping, feeding, in_use) = (self.stopping(), Feeding(queue.clone()), link.in_use());
        self.start("collect", async move {
            let ended = collect.run(stopping).await;
            drop((feeding, in_use));
            ended
        });
        self.deliver(parts, queue)
    }

    /// Sends what is in `queue`, and writes what came of it.
    fn deliver(
        &mut self,
        parts: &mut StageParts<'_>,
        queue: queue::MemoryQueue<Arc<Chunk>>,
    ) -> anyhow::Result<()> {
        if let Some(store) = parts.backend.shared() {
            let ledger = Arc::clone(store) as _;
            let (quotas, holder) = (parts.live.quotas(), parts.random.i64(..));
            let shares = QuotaShares { quotas, ledger, holder, clock: parts.clock };
            shares.begin();
            self.start("quotas", shares.run(self.stopping()));
        }
        let (reports, reported) = report::channel();
        let metrics = Metrics::default();
        metrics.register(&mut parts.registry, parts.live.channels());
        let limits = Arc::<DestinationLimits>::default();
        parts.registry.register_collector(Box::new(LoadMetrics(Arc::clone(&limits))));
        let deliver = Deliver {
            queue: Arc::new(queue),
            begin: parts.backend.store() as _,
            channels: parts.live.channels(),
            reports,
            stopping: self.stopping(),
            worker_deadline: parts.backend.worker_deadline(),
            quotas: parts.live.quotas(),
            metrics: metrics.clone(),
            spans: parts.spans.clone(),
            clock: parts.clock,
            seed: parts.random.u64(..),
            limits,
            affinity: ThreadAffinity::new(parts.config.delivery.threads()),
        };
        self.senders = Senders::start(&deliver)?;
        // It holds a sender of reports: settle ends when the last one is gone, and the threads have theirs.
        drop(deliver);
        let settle = Settle {
            store: parts.backend.store() as _,
            reports: reported,
            policies: parts.live.policies(),
            metrics,
            clock: parts.clock,
            salt: parts.random.u64(..),
        };
        self.start("settle", settle.run());
        Ok(())
    }

    /// Runs a stage until it ends, and tells when it failed.
    fn start<E: Display>(
        &mut self,
        name: &'static str,
        run: impl Future<Output = Result<(), E>> + Send + 'static,
    ) {
        let failing = self.failing.clone();
        self.tasks.spawn(name, async move {
            if let Err(error) = run.await {
                // The engine ends by the first reason: one that finds no room is not needed.
                let _told_already = failing.try_send(format!("{name}: {error}"));
            }
        });
    }

    fn stopping(&self) -> watch::Receiver<bool> {
        self.stop.subscribe()
    }
}

// === impl StageParts ===

impl StageParts<'_> {
    /// Puts the sites in the place of those of the start, once everything runs.
    pub(super) fn open_sites(
        self,
        sites: &SiteSenders,
        intake: Arc<Intake>,
        (readiness, takes_in): (Readiness, bool),
    ) -> anyhow::Result<()> {
        let has_operator = self.config.server.operator.is_some();
        let state = Arc::new(self.api_state(intake, readiness, takes_in)?);
        if has_operator {
            let (public, operator) = api::sites(&state);
            sites.operator.send_replace(operator);
            sites.public.send_replace(public);
        } else {
            sites.public.send_replace(api::site(&state));
        }
        Ok(())
    }

    fn api_state(
        self,
        intake: Arc<Intake>,
        readiness: Readiness,
        takes_in: bool,
    ) -> anyhow::Result<ApiState> {
        let store = self.backend.store();
        let (mut random, settings) = (self.random, &self.config.traces);
        let traces = self.spans.map(|sink| {
            let seed = std::array::from_fn(|_| random.u64(..));
            Arc::new(RequestTraces::new(sink, settings.ratio, settings.follow_callers, seed))
        });
        Ok(ApiState {
            intake,
            changes: Claims::<Chunk>::changes(&*store),
            reads: self.backend.reads(),
            tenant_reads: self.backend.tenant_reads(),
            growth: self.growth,
            pruning: api::Pruning { store: Arc::clone(&store) as _, retention: self.retention },
            keys: Arc::new(api::KeyRing::new(
                self.live.keys(),
                Arc::clone(&store) as _,
                (self.backend.worker_deadline(), self.clock),
            )),
            reloads: self.reloads,
            trail: Arc::clone(&store) as _,
            operations: api::Locked::new(store),
            sources: self.sources,
            default_tenant: "default".parse()?,
            registry: Arc::new(self.registry),
            readiness,
            worker: self.backend.worker().map(str::to_owned),
            policies: self.live.policies(),
            channels: self.live.configured_channels(),
            feeds: if takes_in { self.config.feed_plans()? } else { Vec::new() },
            shares: api::ApiShares::default(),
            live: api::LiveStatus::default(),
            request_times: api::RequestTimes::default(),
            access_log: self.config.log.requests,
            traces,
            takes_in,
            started_at: pipeline::timestamp(self.clock),
        })
    }
}

// === impl Feeding ===

impl Drop for Feeding {
    fn drop(&mut self) {
        self.0.close();
    }
}

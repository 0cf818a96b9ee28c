//! The engine: which backends, which stages, and in which order they start and stop.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context as _;
use api::State;
use flow::{Clock, Tasks, Tenure};
use notification::{Chunk, limits};
use pipeline::ingest::Intake;
use pipeline::{Deliver, Dispatch, Metrics, Settle, report};
use prometheus_client::registry::Registry;
use store::StoreError;
use store::sqlite::Sqlite;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};

use super::senders::Senders;
use crate::config::Config;

/// Everything that runs.
#[derive(Debug)]
pub(super) struct Engine {
    listen: SocketAddr,
    store: Arc<Sqlite>,
    ready: Arc<AtomicBool>,
    stop: watch::Sender<bool>,
    tasks: Tasks,
    senders: Senders,
    failures: mpsc::Receiver<String>,
}

// === impl Engine ===

impl Engine {
    /// Opens the store, recovers what a former process left, and starts every stage.
    pub(super) async fn start(config: &Config) -> anyhow::Result<Self> {
        let clock = Clock::system();
        let channels = config.build_channels()?;
        let mut random = fastrand::Rng::with_seed(seed(clock));
        let options = config.store.options(random.u64(..));
        let now = pipeline::timestamp(clock);
        let (store, recovery) = Sqlite::open(&config.store.directory, options, now)?;
        let store = Arc::new(store);
        tracing::info!(?recovery, "store opened");
        let listener = TcpListener::bind(config.server.listen)
            .await
            .with_context(|| format!("cannot listen on {}", config.server.listen))?;
        let listen = listener.local_addr()?;

        let (stop, stopping) = watch::channel(false);
        let (failing, failures) = mpsc::channel(4);
        let queue = queue::Memory::new(limits::QUEUE_WEIGHT);
        let (reports, reported) = report::channel();
        let mut registry = Registry::default();
        let metrics = Metrics::default();
        metrics.register(&mut registry);

        let deliver = Deliver {
            queue: Arc::new(queue.clone()),
            begin: Arc::clone(&store) as _,
            channels: channels.clone(),
            reports,
            stopping: stopping.clone(),
            tenure: Tenure::unlimited(),
            clock,
            seed: random.u64(..),
        };
        let senders = Senders::start(config.delivery.threads(), &deliver)?;
        drop(deliver);

        let mut tasks = Tasks::default();
        let settle = Settle {
            store: Arc::clone(&store) as _,
            reports: reported,
            policies: config.retry_policies()?,
            metrics,
            clock,
            random: random.fork(),
        };
        stage(&mut tasks, "settle", &failing, settle.run());
        let dispatch = Dispatch {
            claims: Arc::clone(&store) as _,
            queue: Arc::new(queue.clone()),
            lease: limits::LEASE,
            clock,
        };
        let dispatch = publish(dispatch, stopping.clone(), Closing(queue));
        stage(&mut tasks, "dispatch", &failing, dispatch);
        let ready = Arc::new(AtomicBool::new(true));
        let intake = Arc::new(Intake::new(Arc::clone(&store) as _, Arc::new(channels), clock));
        let router = api::router(State {
            intake: Arc::clone(&intake),
            ledger: Arc::clone(&store) as _,
            keys: config.server.api_keys(),
            default_tenant: "default".parse()?,
            registry: Arc::new(registry),
            ready: Arc::clone(&ready),
            clock,
        });
        let api = api::serve(listener, router, intake, stopped(stopping));
        stage(&mut tasks, "api", &failing, api);
        Ok(Self { listen, store, ready, stop, tasks, senders, failures })
    }

    /// Where it listens.
    pub(super) fn listen(&self) -> SocketAddr {
        self.listen
    }

    /// Waits until something fails that the engine cannot go on without, and says what.
    pub(super) async fn failed(&mut self) -> String {
        // The cause before its consequences: stages end when the store does.
        tokio::select! {
            biased;
            failure = broken(self.store.failed()) => failure,
            Some(failure) = self.failures.recv() => failure,
            Some(ended) = self.senders.next() => ended.err().unwrap_or_else(|| "a sender ended".to_owned()),
            Some(ended) = self.tasks.next() => match ended {
                Ok(name) => format!("{name} ended"),
                Err(panicked) => format!("{} panicked", panicked.name),
            },
        }
    }

    /// Stops in the order in which work flows: nothing new comes in, nothing new is claimed, what is on the
    /// wire is answered and settled, and what was not started is handed back.
    pub(super) async fn drain(&mut self) -> Result<(), &'static str> {
        self.ready.store(false, Ordering::Relaxed);
        let _stages_are_gone = self.stop.send(true);
        while let Some(ended) = self.senders.next().await {
            if let Err(error) = ended {
                tracing::error!(%error, "a sender failed while draining");
            }
        }
        self.tasks.drain().await;
        let failed = self.store.failed().borrow().is_some();
        self.store.close().await;
        if failed { Err("the store failed meanwhile") } else { Ok(()) }
    }
}

/// Runs a stage until it ends, and tells when it failed.
fn stage<E: std::fmt::Display>(
    tasks: &mut Tasks,
    name: &'static str,
    failing: &mpsc::Sender<String>,
    run: impl Future<Output = Result<(), E>> + Send + 'static,
) {
    let failing = failing.clone();
    tasks.spawn(name, async move {
        if let Err(error) = run.await {
            let _told_already = failing.try_send(format!("{name}: {error}"));
        }
    });
}

/// Whoever publishes closes the queue, however it ends: senders take what is in it, and end as well.
struct Closing(queue::Memory<Arc<Chunk>>);

async fn publish(
    dispatch: Dispatch<Chunk, Arc<Chunk>>,
    stopping: watch::Receiver<bool>,
    closing: Closing,
) -> Result<(), StoreError> {
    let result = dispatch.run(stopping).await;
    drop(closing);
    result
}

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Ends when the store fails, with the reason.
async fn broken(mut failed: watch::Receiver<Option<StoreError>>) -> String {
    let reason = failed.wait_for(Option::is_some).await.ok().and_then(|reason| reason.clone());
    reason.map_or_else(|| "the store's writer is gone".to_owned(), |reason| reason.to_string())
}

/// Ends when `stopping` turns true.
async fn stopped(mut stopping: watch::Receiver<bool>) {
    // A sender that is gone stops as well.
    let _stopped = stopping.wait_for(|stopping| *stopping).await;
}

/// Different in every process; nothing secret is drawn from it.
fn seed(clock: Clock) -> u64 {
    let pid = u64::from(std::process::id());
    u64::try_from(clock.wall().as_nanos() & u128::from(u64::MAX)).unwrap_or(pid)
        ^ pid.rotate_left(32)
}

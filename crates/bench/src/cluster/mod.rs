//! Several engines on one PostgreSQL, with or without a broker, and everything that may befall them.
//!
//! All of it is real: processes of the released binary, servers of the distribution's packages, links through proxies.
//!
//! - [`faults`]: which faults a round meets, drawn from a seed.
//! - [`worker`]: one engine.
//! - [`round`]: a load under faults, and what must hold after it.

pub mod faults;
pub mod round;
pub mod worker;

use std::path::PathBuf;
use std::str::FromStr;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::ScopedJoinHandle;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use testbed::{Database, Kafka, Nats, PostgresOptions, PostgresServer, Proxy, RabbitMq};

use crate::client::BenchClient;
use crate::port::HeldPort;
use crate::process::{EngineProcess, EngineRole, EngineSettings, SimulatorProcess, configure};
use crate::tally::{JournalBooks, JournalTail};
use crate::usage::{Usage, cpu_of_tree};
use crate::workload::Workload;

pub use worker::ClusterWorker;

use worker::Access;

/// The servers behind the engines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backing {
    /// PostgreSQL alone.
    Postgres,
    /// And RabbitMQ.
    RabbitMq,
    /// And NATS JetStream.
    Nats,
    /// And Kafka.
    Kafka,
}

/// The settings of a cluster.
#[derive(Debug, Clone)]
pub struct ClusterSetup {
    /// The binary under test.
    pub binary: PathBuf,
    /// Where everything of the engines and the simulator goes; should be empty.
    pub directory: PathBuf,
    /// The servers.
    pub backing: Backing,
    /// One engine each.
    pub roles: Vec<EngineRole>,
    /// True if links lead through proxies, so that they can be broken.
    pub has_links: bool,
    /// Settings of every engine, as its environment has them: `BELFRY__CHANNELS__IOS__CONCURRENCY`.
    pub engine_settings: Vec<(String, String)>,
    /// Settings of PostgreSQL.
    pub store_settings: Vec<(&'static str, &'static str)>,
    /// Passed to the simulator.
    pub simulator_flags: Vec<String>,
}

/// A running cluster. Everything ends when it is dropped.
#[derive(Debug)]
pub struct Cluster {
    // Dropped in this order: engines before the servers they use.
    workers: Vec<ClusterWorker>,
    simulator: SimulatorProcess,
    operator: BenchClient,
    broker: Option<Mutex<BrokerChoice>>,
    database: Database,
    store: Mutex<PostgresServer>,
}

/// The broker of a cluster.
#[derive(Debug)]
pub enum BrokerChoice {
    /// RabbitMQ.
    RabbitMq(RabbitMq),
    /// NATS JetStream.
    Nats(Nats),
    /// Kafka.
    Kafka(Kafka),
}

/// Processor time by group, so far.
#[derive(Debug, Clone, Copy, Default)]
pub struct Cpu {
    /// All engines.
    pub engines: Duration,
    /// PostgreSQL with all its processes.
    pub store: Duration,
    /// The broker.
    pub broker: Duration,
    /// The simulator: stands for the providers, and is not ours to speed up.
    pub simulator: Duration,
}

/// Between two looks at another process.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// The chunks that are left, and who has them.
const SELECT_CHUNKS: &str = "SELECT format('%s guarantee %s attempt %s epoch %s count %s due %s %s %s until %s begun through %s', \
       chunk.id, batch.guarantee, chunk.attempt, chunk.epoch, chunk.count, to_timestamp(chunk.due_at / 1000.0), \
       CASE WHEN chunk.is_ticket THEN 'ticket of' ELSE 'taken by' END, worker.name, \
       to_timestamp(chunk.lease_until / 1000.0), chunk.begun_through) \
     FROM belfry.chunk JOIN belfry.batch ON batch.id = chunk.batch LEFT JOIN belfry.worker ON worker.id = chunk.worker \
     ORDER BY chunk.id LIMIT 100";

// === impl Backing ===

impl Backing {
    /// Every combination.
    pub const ALL: [Self; 4] = [Self::Postgres, Self::RabbitMq, Self::Nats, Self::Kafka];

    /// The name of what is behind PostgreSQL, or its own where there is nothing.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Postgres => "PostgreSQL",
            Self::RabbitMq => "RabbitMQ",
            Self::Nats => "NATS",
            Self::Kafka => "Kafka",
        }
    }

    /// `producers` and `consumers` where there is a broker between them; that many engines that do both where not.
    pub fn roles(self, producers: usize, consumers: usize) -> Vec<EngineRole> {
        match self {
            Self::Postgres => vec![EngineRole::Serve; producers + consumers],
            Self::RabbitMq | Self::Nats | Self::Kafka => {
                [vec![EngineRole::Produce; producers], vec![EngineRole::Consume; consumers]]
                    .concat()
            }
        }
    }
}

impl FromStr for Backing {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "postgres" => Ok(Self::Postgres),
            "rabbitmq" => Ok(Self::RabbitMq),
            "nats" => Ok(Self::Nats),
            "kafka" => Ok(Self::Kafka),
            _ => bail!("{text} is neither postgres nor rabbitmq nor nats nor kafka"),
        }
    }
}

// === impl Cluster ===

impl Cluster {
    /// Starts servers, simulator and engines; the engines all at once.
    ///
    /// # Errors
    /// When one of them does not start.
    pub fn start(setup: &ClusterSetup) -> Result<Self> {
        let store = PostgresServer::start_with(PostgresOptions {
            settings: &setup.store_settings,
            tls: None,
        })?;
        let database = store.create_database()?;
        let broker = BrokerChoice::start(setup.backing)?;
        let simulator =
            SimulatorProcess::start(&setup.binary, &setup.directory, &setup.simulator_flags)?;
        let mut workers = Vec::new();
        for (i, role) in setup.roles.iter().enumerate() {
            let name = format!("{}-{i}", role.as_str());
            workers.push(ClusterWorker {
                role: *role,
                binary: setup.binary.clone(),
                directory: setup.directory.join(&name),
                name,
                settings: setup.engine_settings.clone(),
                simulator: simulator.ready.clone(),
                store: Access::new(database.url(), setup.has_links)?,
                broker: broker.as_ref().map(|broker| broker.access(setup.has_links)).transpose()?,
                port: HeldPort::any()?,
                client: OnceLock::new(),
                engine: Mutex::new(None),
            });
        }
        at_once(&workers, ClusterWorker::start)?;
        let first = workers.iter().find(|worker| worker.role.is_called());
        let operator =
            operator(setup, &simulator, &database, first.context("nobody takes anything in")?)?;
        let broker = broker.map(Mutex::new);
        Ok(Self { workers, simulator, operator, broker, database, store: Mutex::new(store) })
    }

    /// The engines, in the order of their roles.
    pub fn workers(&self) -> &[ClusterWorker] {
        &self.workers
    }

    /// The engines that take notifications in.
    pub fn producers(&self) -> Vec<&ClusterWorker> {
        self.workers.iter().filter(|worker| worker.role.is_called()).collect()
    }

    /// Commands with a configuration that leads to the servers directly, whatever befalls the links; for the API, the
    /// first engine that has one.
    pub fn operator(&self) -> &BenchClient {
        &self.operator
    }

    /// The engines' database, for a look from outside.
    pub fn database(&self) -> &Database {
        &self.database
    }

    /// PostgreSQL.
    pub fn store(&self) -> MutexGuard<'_, PostgresServer> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The broker.
    pub fn broker(&self) -> Option<MutexGuard<'_, BrokerChoice>> {
        let broker = self.broker.as_ref()?;
        Some(broker.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The simulator, for its addresses and its books.
    pub fn simulator(&self) -> &SimulatorProcess {
        &self.simulator
    }

    /// A counter of the simulator's books.
    ///
    /// # Errors
    /// When they cannot be opened.
    pub fn journal(&self) -> Result<JournalTail> {
        JournalTail::open(&self.simulator.ready.journal)
    }

    /// The provider's books.
    ///
    /// # Errors
    /// When they cannot be read, or name a recipient that the workload does not have.
    pub fn books(&self, workload: &Workload) -> Result<JournalBooks> {
        JournalBooks::read(&self.simulator.ready.journal, workload)
    }

    /// Waits until the account says that `expected` were accepted and nothing is pending.
    ///
    /// # Errors
    /// When it does not come to that within `patience`, or an engine ended by itself.
    pub fn drain(&self, expected: u64, patience: Duration) -> Result<()> {
        let clock = flow::Clock::system();
        let started = clock.monotonic();
        loop {
            let audit = self.operator.audit()?;
            // More than expected ends the wait as well: whether the account is right is judged afterwards.
            if audit.accepted >= expected && audit.pending == 0 {
                return Ok(());
            }
            self.workers.iter().try_for_each(ClusterWorker::check)?;
            if clock.monotonic().duration_since(started) > patience {
                bail!("not drained after {patience:?}: {audit:?}\n{}", self.state());
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Evidence of an unfinished run: the first engine's status, the chunks that are left, and the warnings of each engine.
    fn state(&self) -> String {
        let status =
            self.workers.first().context("no engine").and_then(|worker| worker.client()?.status());
        let chunks = self.database.query(SELECT_CHUNKS);
        let [status, chunks] =
            [status, chunks].map(|told| told.unwrap_or_else(|error| format!("{error:#}")));
        let warnings =
            self.workers.iter().map(|worker| format!("{}:\n{}\n", worker.name, worker.warnings()));
        format!("{status}\nchunks:\n{chunks}\n{}", warnings.collect::<String>())
    }

    /// Stops every engine in good order, all at once.
    ///
    /// # Errors
    /// When one does not end well.
    pub fn stop(&self) -> Result<()> {
        at_once(&self.workers, ClusterWorker::stop)
    }

    /// The resources that all running engines have used together so far: the sums.
    ///
    /// # Errors
    /// When the kernel does not say.
    pub fn engines_usage(&self) -> Result<Usage> {
        let mut sum = Usage::default();
        for worker in &self.workers {
            let engine = worker.engine();
            let usage = engine.as_ref().map_or(Ok(Usage::default()), EngineProcess::usage)?;
            sum.cpu += usage.cpu;
            sum.memory_bytes += usage.memory_bytes;
            sum.memory_bytes_max += usage.memory_bytes_max;
        }
        Ok(sum)
    }

    /// Processor time so far.
    ///
    /// # Errors
    /// When the kernel does not say.
    pub fn cpu(&self) -> Result<Cpu> {
        Ok(Cpu {
            engines: self.engines_usage()?.cpu,
            store: cpu_of(self.store().process())?,
            broker: self.broker().map_or(Ok(Duration::ZERO), |broker| broker.cpu())?,
            simulator: self.simulator.usage()?.cpu,
        })
    }
}

// === impl BrokerChoice ===

impl BrokerChoice {
    /// Starts the broker of `backing`, empty; `None` where it has none.
    ///
    /// # Errors
    /// When it is not installed, or does not start.
    pub fn start(backing: Backing) -> Result<Option<Self>> {
        Ok(match backing {
            Backing::Postgres => None,
            Backing::RabbitMq => Some(Self::RabbitMq(RabbitMq::start()?)),
            Backing::Nats => Some(Self::Nats(Nats::start()?)),
            Backing::Kafka => Some(Self::Kafka(Kafka::start()?)),
        })
    }

    /// Its address, with user and password.
    pub fn url(&self) -> String {
        match self {
            Self::RabbitMq(broker) => broker.url(),
            Self::Nats(broker) => broker.url(),
            Self::Kafka(broker) => broker.url(),
        }
    }

    /// How an engine reaches it.
    fn access(&self, has_link: bool) -> Result<Access> {
        match self {
            // Its clients go to the addresses that it tells them.
            Self::Kafka(broker) if has_link => {
                let link = broker.proxy()?;
                Ok(Access { url: link.url().to_owned(), link: Some(link) })
            }
            Self::RabbitMq(_) | Self::Nats(_) | Self::Kafka(_) => {
                Access::new(&self.url(), has_link)
            }
        }
    }

    /// Processor time so far, with all its processes.
    ///
    /// # Errors
    /// When the kernel does not say.
    pub fn cpu(&self) -> Result<Duration> {
        cpu_of(self.process())
    }

    fn process(&self) -> Option<u32> {
        match self {
            Self::RabbitMq(broker) => broker.process(),
            Self::Nats(broker) => broker.process(),
            Self::Kafka(broker) => broker.process(),
        }
    }

    fn kill(&mut self) -> Result<()> {
        match self {
            Self::RabbitMq(broker) => broker.kill(),
            Self::Nats(broker) => broker.kill(),
            Self::Kafka(broker) => broker.kill(),
        }
    }

    fn start_again(&mut self) -> Result<()> {
        match self {
            Self::RabbitMq(broker) => broker.start_again(),
            Self::Nats(broker) => broker.start_again(),
            Self::Kafka(broker) => broker.start_again(),
        }
    }

    fn wipe(&mut self) -> Result<()> {
        match self {
            Self::RabbitMq(broker) => broker.wipe(),
            Self::Nats(broker) => broker.wipe(),
            Self::Kafka(broker) => broker.wipe(),
        }
    }
}

// === impl Access ===

impl Access {
    fn new(url: &str, has_link: bool) -> Result<Self> {
        let link = has_link.then(|| Proxy::before(url)).transpose()?;
        let url = link.as_ref().map_or_else(|| url.to_owned(), |link| link.url().to_owned());
        Ok(Self { url, link })
    }
}

/// Processor time of a server with all its processes; one that is down for a while has none, and uses nothing.
fn cpu_of(process: Option<u32>) -> Result<Duration> {
    process.map_or(Ok(Duration::ZERO), cpu_of_tree)
}

/// Does the same to all of them, each in a thread of its own.
fn at_once<T: Send>(
    all: impl IntoIterator<Item = T>,
    act: impl Fn(T) -> Result<()> + Sync,
) -> Result<()> {
    let act = &act;
    std::thread::scope(|scope| {
        let running: Vec<_> = all.into_iter().map(|one| scope.spawn(move || act(one))).collect();
        running.into_iter().try_for_each(join)
    })
}

fn join(thread: ScopedJoinHandle<'_, Result<()>>) -> Result<()> {
    thread.join().unwrap_or_else(|_panic| bail!("a thread of the harness panicked"))
}

fn operator(
    setup: &ClusterSetup,
    simulator: &SimulatorProcess,
    database: &Database,
    worker: &ClusterWorker,
) -> Result<BenchClient> {
    let settings = EngineSettings {
        binary: &setup.binary,
        directory: &setup.directory,
        listen: worker.listen(),
        environment: &[],
        role: worker.role,
        store: Some(database.url()),
        queue: None,
    };
    let config = configure(settings, &simulator.ready)?;
    Ok(BenchClient { config, ..worker.client()?.clone() })
}

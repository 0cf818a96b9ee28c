//! Whole engines within a test's process, with a clock of their own, between real servers and a provider that keeps books.

mod clocks;
mod endings;
mod metrics;
mod quotas;
mod tasks;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use bytes::Bytes;
use flow::Clock;
use hyper::Method;
use notification::{Account, Timestamp};
use provider_sim::journal::Reader;
use provider_sim::{Running, Simulator, SimulatorOptions};
use tempfile::TempDir;

use super::Role;
use super::engine::Engine;
use crate::args::TlsFiles;
use crate::client;
use crate::config::{BrokerKind, Config, Flags};

/// Anything that is waited for comes within this.
const PATIENCE: Duration = Duration::from_secs(90);
/// Between two looks at what is waited for.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How long the provider takes for an answer: long enough that something is on the wire at any moment.
const LATENCY: Duration = Duration::from_millis(100);
/// An endpoint of the provider that never answers.
const SILENT: &str = "/silent";

/// A store, perhaps a broker, and a provider.
struct EngineWorld {
    directory: TempDir,
    provider: Running,
    places: String,
    /// Dropped after everything that works in it.
    database: Option<testbed::Database>,
}

/// The engines of one test: one process, or a producer and a consumer with a broker between them.
#[derive(Debug, Clone, Copy)]
enum Deployment {
    OneMachine,
    Shared,
    Behind(BrokerKind),
}

/// One notification as the provider saw it: when it first arrived, microseconds since the Unix epoch, and how often.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct TestArrival {
    first_us: u64,
    times: usize,
}

// === impl Deployment ===

impl Deployment {
    fn roles(self) -> &'static [Role] {
        match self {
            Self::OneMachine | Self::Shared => &[Role::Both],
            Self::Behind(_) => &[Role::Produce, Role::Consume],
        }
    }

    /// Servers for it, a fresh store, and a provider. Blocks.
    fn world(self) -> EngineWorld {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path().join("data");
        let mut places = String::new();
        let database = match self {
            Self::OneMachine => {
                writeln!(places, "store.directory = {data:?}").unwrap();
                None
            }
            Self::Shared | Self::Behind(_) => {
                let database = testbed::postgres::shared().unwrap().create().unwrap();
                writeln!(places, "store.url = {:?}", database.url()).unwrap();
                Some(database)
            }
        };
        if let Self::Behind(broker) = self {
            let url = match broker {
                BrokerKind::RabbitMq => testbed::rabbitmq::shared_url().unwrap(),
                BrokerKind::Nats => testbed::nats::shared_url().unwrap(),
                BrokerKind::Sqs => {
                    let endpoint = testbed::aws::shared_sqs_url().unwrap();
                    format!("sqs://key:secret@eu-central-1?endpoint={endpoint}")
                }
                BrokerKind::Kafka => testbed::kafka::shared_url().unwrap(),
            };
            let prefix = testbed::unique_prefix();
            writeln!(places, "queue.url = {url:?}\nqueue.prefix = {prefix:?}").unwrap();
        }
        let any = "127.0.0.1:0".parse().unwrap();
        let mut options = SimulatorOptions {
            apns: any,
            webhook: any,
            journal: directory.path().join("journal"),
            tls_dir: directory.path().join("tls"),
            ..SimulatorOptions::default()
        };
        options.faults.latency = LATENCY;
        options.faults.silent_to = Some(SILENT.to_owned());
        let provider = Simulator::start(options).unwrap();
        EngineWorld { directory, provider, places, database }
    }
}

// === impl EngineWorld ===

impl EngineWorld {
    async fn of(deployment: Deployment) -> Self {
        tokio::task::spawn_blocking(move || deployment.world()).await.unwrap()
    }

    fn config(&self) -> Config {
        let text = format!(
            "server.listen = \"127.0.0.1:0\"\ndelivery.senders = 1\n{}\n[channels.hooks]\nkind = \"webhook\"\n\
             ca_file = {:?}\nallow_networks = [\"127.0.0.0/8\"]\n\
             secrets = [\"whsec_YmVsZnJ5IGRlbW86IG5vdCBhIHJlYWwgc2VjcmV0ISE=\"]\n",
            self.places, self.provider.ca
        );
        let path = self.directory.path().join("belfry.toml");
        std::fs::write(&path, text).unwrap();
        Config::load(Some(&path), Flags::default()).unwrap()
    }

    async fn start(&self, role: Role, clock: Clock) -> Engine {
        Engine::start(role, &self.config(), clock).await.unwrap()
    }

    /// Has `count` notifications under `guarantee` accepted by `engine`, and gives their identifiers.
    async fn send(
        &self,
        engine: &Engine,
        count: usize,
        guarantee: &str,
        send_at: Option<Timestamp>,
    ) -> Vec<String> {
        let send_at = send_at.map(|at| format!(r#", "send_at": "{at}""#)).unwrap_or_default();
        let to = format!("https://{}/hook", self.provider.webhook);
        let one = format!(
            r#"{{"channel": "hooks", "to": "{to}", "content": {{}}, "guarantee": "{guarantee}"{send_at}}}"#
        );
        self.post(engine, format!("[{}]", vec![one; count].join(","))).await
    }

    /// Has the notifications in `body` accepted by `engine`, and gives their identifiers.
    async fn post(&self, engine: &Engine, body: String) -> Vec<String> {
        let api = client::EngineApi::new(
            &format!("http://{}", engine.places().shown().unwrap()),
            None,
            TlsFiles::default(),
        )
        .unwrap();
        let call = api.call(&mut None, Method::POST, "/v1/notifications", Bytes::from(body)).await;
        let answer: serde_json::Value = call.unwrap().into_result().unwrap().json().unwrap();
        serde_json::from_value(answer["ids"].clone()).unwrap()
    }

    /// The arrivals, by identifier.
    fn arrivals(&self) -> BTreeMap<String, TestArrival> {
        let mut arrivals: BTreeMap<String, TestArrival> = BTreeMap::new();
        let mut reader = Reader::open(&self.provider.journal).unwrap();
        while let Some(record) = reader.next_record().unwrap() {
            let first = TestArrival { first_us: record.received_us, times: 0 };
            arrivals.entry(record.id.to_owned()).or_insert(first).times += 1;
        }
        arrivals
    }

    /// Waits until `count` have arrived.
    async fn arrived(&self, count: usize) {
        eventually(&format!("{count} arrive"), async || self.arrivals().len() >= count).await;
    }
}

/// Waits until nothing is pending of `accepted` notifications, and gives the account.
async fn settled(engine: &Engine, accepted: u64) -> Account {
    let store = engine.store();
    eventually("everything is settled", async || {
        let totals = store.reader().totals().await.unwrap();
        totals.accepted == accepted && totals.pending == 0
    })
    .await;
    store.reader().totals().await.unwrap()
}

/// Looks until `holds`; for what does not pass once it is so.
async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let mut looks = tokio::time::interval(LOOK_EVERY);
    let looking = async {
        while !holds().await {
            looks.tick().await;
        }
    };
    let seen = tokio::time::timeout(PATIENCE, looking).await;
    assert!(seen.is_ok(), "not within {PATIENCE:?}: {what}");
}

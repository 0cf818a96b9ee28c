//! The faults of processes that share a database and a broker: of these servers, of their links, and of each other.

use std::path::Path;

use bench::workload::token;
use bench::{SimulatorProcess, SimulatorReady};
use serde_json::json;
use stream::connect::NatsAddress;
use tempfile::TempDir;
use testbed::{Database, Proxy};

use crate::process::Process;
use crate::timeline::Timeline;

pub(crate) const ALERTS: &[&str] = &[
    "BelfryClockOff",
    "BelfryDown",
    "BelfryFeedBehind",
    "BelfryOutboxBehind",
    "BelfryOutboxRejected",
    "BelfryPartitionsWithoutOwner",
    "BelfryProviderDown",
    "BelfrySourceFailing",
    "BelfrySuppressionFeedBehind",
    "BelfryUnavailable",
    "BelfryWorkerLost",
];

/// Recipients that the provider finds gone, of those that are sent to.
const GONE: f64 = 0.05;
/// Longer than any rule looks back.
const LONG: usize = 90;
/// By how much the clock of the database is behind, seconds; more than a feed may be.
const BEHIND: u64 = 310;

/// A producer and a consumer, and the links to what they need.
struct World {
    database: Database,
    store: Proxy,
    broker: Proxy,
    /// To the broker, for what is read from it.
    source: Proxy,
    /// To the application that is told of events.
    receiver: Proxy,
    producer: Process,
    consumer: Process,
    timeline: Timeline,
    /// Recipients that were used.
    used: u64,
    /// The provider, and where configurations and logs lie.
    _kept: (SimulatorProcess, TempDir),
}

#[test]
fn processes_that_share_a_store_fire_an_alert_for_each_fault_and_none_otherwise() {
    let mut world = World::start();
    world.ordinary_load();
    world.the_database_is_away();
    world.the_broker_is_away();
    world.a_source_is_away();
    world.a_row_cannot_be_sent();
    world.the_producer_is_killed();
    world.the_clock_is_behind_and_a_receiver_is_gone();
    world.timeline.judge(ALERTS);
}

// === impl World ===

impl World {
    fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let flags = ["--dead-tokens".to_owned(), GONE.to_string()];
        let binary = Path::new(env!("CARGO_BIN_EXE_belfry"));
        let simulator = SimulatorProcess::start(binary, directory.path(), &flags).unwrap();
        let database = testbed::postgres::shared().unwrap().create().unwrap();
        let nats = testbed::nats::shared_url().unwrap();
        let orders = testbed::unique_prefix();
        make_stream(&nats, &orders);
        let link = |url: &str| Proxy::before(url).unwrap();
        let (store, broker, source) = (link(database.url()), link(&nats), link(&nats));
        let receiver = link(&format!("https://{}/events", simulator.ready.webhook));
        let urls = [&store, &broker, &source, &receiver].map(Proxy::url);
        let config = configuration(directory.path(), &simulator.ready, urls, &orders);
        let start = |role, name| Process::start(directory.path(), role, name, &config);
        let (producer, consumer) = (start("produce", "producer"), start("consume", "consumer"));
        let timeline = Timeline::new();
        Self {
            database,
            store,
            broker,
            source,
            receiver,
            producer,
            consumer,
            timeline,
            used: 0,
            _kept: (simulator, directory),
        }
    }

    /// Things stay as they are.
    fn hold(&mut self, minutes: usize) {
        self.timeline.hold(minutes, &[self.producer.scrape(), self.consumer.scrape()]);
    }

    /// Things stay as they are, and at the end of it these alerts are firing.
    fn phase(&mut self, phase: &'static str, minutes: usize, alerts: &[&'static str]) {
        let scraped = [self.producer.scrape(), self.consumer.scrape()];
        self.timeline.phase(phase, minutes, &scraped, alerts);
    }

    /// Sends something to 500 device tokens, of which the provider finds some gone, and waits until it has answered for each.
    fn push(&mut self) {
        let tokens: Vec<String> = (self.used..self.used + 500).map(token).collect();
        self.used += 500;
        let is_gone = |token: &&String| provider_sim::is_dead(token, GONE);
        let gone = u32::try_from(tokens.iter().filter(is_gone).count()).unwrap();
        assert!(gone > 0);
        let counts = ["delivered", "refused"].map(|outcome| {
            format!("belfry_deliveries_total{{channel=\"ios\",outcome=\"{outcome}\"}}")
        });
        let before = counts.each_ref().map(|count| self.consumer.value(count).unwrap());
        let to = |to| json!({ "channel": "ios", "to": to, "content": { "aps": {} } });
        self.producer.send(&tokens.iter().map(to).collect::<Vec<_>>());
        for ((count, before), more) in counts.iter().zip(before).zip([500 - gone, gone]) {
            self.consumer.until(count, |value| value >= before + f64::from(more));
        }
    }

    /// Waits until both processes say of `part` whether it is there.
    fn available(&self, part: &str, is_there: bool) {
        let series = format!("belfry_available{{part=\"{part}\"}}");
        for process in [&self.producer, &self.consumer] {
            process.until(&series, |value| (value > 0.0) == is_there);
        }
    }

    /// Waits until all partitions have an owner, and both processes are known.
    fn complete(&self) {
        self.consumer.until("belfry_workers", |workers| workers > 1.0);
        self.consumer.until("belfry_partitions_free", |free| free < 1.0);
    }

    /// Deliveries, some that are refused, and what both feeds tell of them.
    fn ordinary_load(&mut self) {
        self.complete();
        self.hold(10);
        self.push();
        self.receive();
        self.phase("under ordinary load", LONG, &[]);
    }

    /// Waits until the application was told of all events.
    fn receive(&self) {
        for feed in
            ["belfry_feed_lag_seconds{feed=\"ends\"}", "belfry_suppression_feed_lag_seconds"]
        {
            self.producer.until(feed, |lag| lag == 0.0);
        }
        self.producer.until("belfry_notifications{state=\"pending\"}", |pending| pending < 1.0);
    }

    fn the_database_is_away(&mut self) {
        self.store.cut();
        self.available("database", false);
        self.phase("without the database", 10, &["BelfryUnavailable"]);
        self.store.pass();
        self.available("database", true);
        self.complete();
        self.phase("with the database back", LONG, &[]);
    }

    fn the_broker_is_away(&mut self) {
        self.broker.cut();
        self.available("broker", false);
        // The producer has nowhere to put what it would claim.
        self.consumer.until("belfry_partitions_free", |free| free > 0.0);
        let alerts = ["BelfryPartitionsWithoutOwner", "BelfryUnavailable"];
        self.phase("without the broker", 10, &alerts);
        self.broker.pass();
        self.available("broker", true);
        self.complete();
        self.phase("with the broker back", LONG, &[]);
    }

    fn a_source_is_away(&mut self) {
        let failing = "belfry_source_failing{source=\"orders\"}";
        self.source.cut();
        self.producer.until(failing, |failing| failing > 0.0);
        self.phase("without a source", 10, &["BelfrySourceFailing"]);
        self.source.pass();
        self.producer.until(failing, |failing| failing < 1.0);
        self.phase("with the source back", LONG, &[]);
    }

    fn a_row_cannot_be_sent(&mut self) {
        let row = "INSERT INTO belfry.outbox (tenant, channel, recipient, content) \
                   VALUES ('default', 'sms', '+1', '{}')";
        self.database.query(row).unwrap();
        self.producer.until("belfry_outbox_rejected", |rows| rows > 0.0);
        self.phase("with a row of an unknown channel", 10, &["BelfryOutboxRejected"]);
        self.phase("long after the row", LONG, &[]);
    }

    fn the_producer_is_killed(&mut self) {
        self.producer.kill();
        self.consumer.until("belfry_partitions_free", |free| free > 0.0);
        self.consumer.until("belfry_workers", |workers| workers < 2.0);
        let alerts = ["BelfryDown", "BelfryPartitionsWithoutOwner", "BelfryWorkerLost"];
        self.phase("with the producer killed", 10, &alerts);
        // By a clock that is behind, so that it is old as soon as it waits.
        let row = "INSERT INTO belfry.outbox (channel, recipient, content, inserted_at) \
                   VALUES ('ios', repeat('3f', 32), '{\"aps\": {}}', clock_timestamp() - interval '70 s')";
        self.database.query(row).unwrap();
        self.consumer.until("belfry_outbox_oldest_seconds", |age| age > 60.0);
        let alerts = [
            "BelfryDown",
            "BelfryOutboxBehind",
            "BelfryPartitionsWithoutOwner",
            "BelfryWorkerLost",
        ];
        self.phase("with a row that no process takes", 10, &alerts);
        self.producer.start_again();
        self.complete();
        self.consumer.until("belfry_outbox_rows", |rows| rows < 1.0);
        self.phase("with a producer again", LONG, &[]);
    }

    /// Events that the application has not taken were written by a clock that is behind, and are old as soon as the clock is set: five
    /// minutes need not be waited for.
    fn the_clock_is_behind_and_a_receiver_is_gone(&mut self) {
        self.stop();
        // In the schema that the processes look at first.
        let function = format!(
            "CREATE FUNCTION belfry.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE \
             AS 'SELECT pg_catalog.clock_timestamp() - interval ''{BEHIND} s'''"
        );
        self.database.query(&function).unwrap();
        self.start_again();
        self.phase("with the database's clock behind", 10, &["BelfryClockOff"]);
        self.receiver.cut();
        self.push();
        self.stop();
        self.database.query("DROP FUNCTION belfry.clock_timestamp()").unwrap();
        self.start_again();
        for feed in
            ["belfry_feed_lag_seconds{feed=\"ends\"}", "belfry_suppression_feed_lag_seconds"]
        {
            self.producer.until(feed, |lag| lag > 300.0);
        }
        let alerts = ["BelfryFeedBehind", "BelfrySuppressionFeedBehind"];
        self.phase("with a receiver gone", 10, &alerts);
        self.hold(10);
        let deferred = "belfry_deliveries_total{channel=\"hooks\",outcome=\"deferred\"}";
        let before = self.consumer.value(deferred).unwrap();
        self.consumer.until(deferred, |deferrals| deferrals > before);
        let alerts = ["BelfryFeedBehind", "BelfryProviderDown", "BelfrySuppressionFeedBehind"];
        self.phase("with a receiver gone for long", 10, &alerts);
        self.receiver.pass();
        self.receive();
        self.phase("with the receiver back", LONG, &[]);
    }

    fn stop(&mut self) {
        self.consumer.stop();
        self.producer.stop();
    }

    fn start_again(&mut self) {
        self.producer.start_again();
        self.consumer.start_again();
        self.complete();
    }
}

/// Makes a stream of NATS with all subjects of this name.
fn make_stream(url: &str, name: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let address = NatsAddress::parse(url).unwrap();
        let options = address.options("test", 16, None).await.unwrap();
        let client = options.connect(address.server()).await.unwrap();
        let config = async_nats::jetstream::stream::Config {
            name: name.to_owned(),
            subjects: vec![format!("{name}.>")],
            ..Default::default()
        };
        async_nats::jetstream::new(client).create_stream(config).await.unwrap();
    });
}

fn configuration(
    directory: &Path,
    ready: &SimulatorReady,
    [store, broker, source, receiver]: [&str; 4],
    orders: &str,
) -> String {
    let key = directory.join("apns.p8");
    std::fs::write(&key, rcgen::KeyPair::generate().unwrap().serialize_pem()).unwrap();
    let SimulatorReady { apns, ca, .. } = ready;
    let prefix = testbed::unique_prefix();
    format!(
        "server.listen = \"127.0.0.1:0\"\n\
         [store]\nurl = {store:?}\n[queue]\nurl = {broker:?}\nprefix = {prefix:?}\n\
         [channels.ios]\nkind = \"apns\"\nendpoint = \"https://{apns}\"\nca_file = {ca:?}\nkey_file = {key:?}\n\
         key_id = \"BELFRYKEY1\"\nteam_id = \"BELFRYTEAM\"\ntopic = \"org.belfry.test\"\n\
         [channels.hooks]\nkind = \"webhook\"\nsecrets = [\"whsec_YmVsZnJ5IGRlbW86IG5vdCBhIHJlYWwgc2VjcmV0ISE=\"]\n\
         allow_networks = [\"127.0.0.0/8\"]\nca_file = {ca:?}\n\
         [suppressions.feed]\nchannel = \"hooks\"\nto = \"{receiver}/suppressions\"\n\
         [[feeds]]\nname = \"ends\"\nchannel = \"hooks\"\nto = \"{receiver}/ends\"\nchannels = [\"ios\"]\n\
         [[sources]]\nname = \"orders\"\nurl = \"{source}/{orders}.new\"\ndrop_bad_messages = true\n"
    )
}

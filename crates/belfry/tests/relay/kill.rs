//! SIGKILL at seeded moments, and restarts of the target's server: nothing is lost, little comes twice, keys keep their order.

use std::collections::{BTreeMap, BTreeSet};
use std::process::{Command, Stdio};

use stream::Record;
use testbed::Nats;
use tokio::time::timeout;

use crate::command::{PATIENCE, put_all, record, relay, take, terminate};
use crate::systems::{Place, System};

/// Messages of a run, and their keys.
pub(crate) const MESSAGES: usize = 3_000;
/// The message that comes last.
const LAST: usize = MESSAGES - 1;
const KEYS: usize = 7;
/// Kills of a run.
const KILLS: usize = 2;
/// Messages in hand: as many may come again with each kill.
const BUFFER: usize = 300;

/// Pairs that every test run passes with one seed.
const FEW: &[(System, System)] = &[
    (System::Kafka, System::Kafka),
    (System::Sqs, System::Kinesis),
    (System::RabbitMq, System::Nats),
];
/// Pairs of the long run.
pub(crate) const ALL: &[(System, System)] = &[
    (System::Kafka, System::Kafka),
    (System::Kafka, System::Kinesis),
    (System::Kafka, System::SqsFifo),
    (System::SqsFifo, System::Kafka),
    (System::Sqs, System::Kinesis),
    (System::Sqs, System::Nats),
    (System::Kinesis, System::Kafka),
    (System::Kinesis, System::RabbitMq),
    (System::RabbitMq, System::Sqs),
    (System::RabbitMq, System::Nats),
    (System::Nats, System::RabbitMq),
    (System::Nats, System::Kafka),
];

/// Messages that arrived: the numbers of each key, in the order in which they came.
#[derive(Debug, Default)]
pub(crate) struct Arrived {
    by_key: BTreeMap<String, Vec<usize>>,
    count: usize,
    numbers: BTreeSet<usize>,
    /// In NATS, where an identifier is a place in the stream.
    ids: BTreeSet<String>,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_at_any_moment_it_loses_nothing_and_keeps_the_order_of_keys() {
    let seeds = seeds();
    let pairs = if seeds > 1 { ALL } else { FEW };
    for seed in 1..=seeds {
        for (from, to) in pairs {
            let (from, to) = (from.place(None).await, to.place(None).await);
            run(&from, &to, seed, async |_kill| {}).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_while_its_targets_server_is_restarted_it_loses_nothing() {
    for seed in 1..=seeds() {
        let mut server = Nats::start().unwrap();
        let from = System::RabbitMq.place(None).await;
        let to = System::Nats.place(Some(server.url())).await;
        run(&from, &to, seed, async |kill| {
            if kill < KILLS {
                server.kill().unwrap();
                server.start_again().unwrap();
            }
        })
        .await;
    }
}

/// Relays without a store and with kills, `between` before each start; and once more until all is there.
async fn run(from: &Place, to: &Place, seed: u64, between: impl AsyncFnMut(usize)) {
    let folder = tempfile::tempdir().unwrap();
    let positions = folder.path().join("positions");
    let (buffer, positions) = (BUFFER.to_string(), positions.to_str().unwrap().to_owned());
    let start = || relay(&from.url, &to.url, &["--buffer", &buffer, "--positions", &positions]);
    let arrived = relay_with_kills(from, to, seed, start, between).await;
    let what = format!("{:?} to {:?}, seed {seed}", from.system, to.system);
    let twice = arrived.count - MESSAGES;
    assert!(twice <= KILLS * BUFFER, "{what}: {twice} came twice");
    if has_order(from.system) && has_order(to.system) {
        for (key, numbers) in arrived.by_key {
            let mut known = BTreeSet::new();
            let first: Vec<usize> =
                numbers.into_iter().filter(|number| known.insert(*number)).collect();
            assert!(first.is_sorted(), "{what}: {key} {first:?}");
        }
    }
}

/// Relays [`MESSAGES`] messages, by a process that is started [`KILLS`] times to be killed at seeded moments, and once more until all is
/// there and it is told to end. `between` comes after each start.
pub(crate) async fn relay_with_kills(
    from: &Place,
    to: &Place,
    seed: u64,
    command: impl Fn() -> Command,
    mut between: impl AsyncFnMut(usize),
) -> Arrived {
    let what = format!("{:?} to {:?}, seed {seed}", from.system, to.system);
    let mut random = fastrand::Rng::with_seed(seed);
    let message = |number: usize| record(&format!("k{}", number % KEYS), &number.to_string());
    let records: Vec<Record> = (0..LAST).map(message).collect();
    put_all(&*from.target(), &records).await;
    let judge = to.source().await;
    let mut arrived = Arrived::default();
    for kill in 0..=KILLS {
        let mut running = command().stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        between(kill).await;
        // After a seeded part of what is left has come; at last all of it.
        let left = LAST - arrived.numbers.len();
        let until = if kill < KILLS {
            LAST - left + random.usize(0..=left / 2)
        } else {
            // One that only this process can relay: it runs when it is told to end.
            put_all(&*from.target(), &[message(LAST)]).await;
            MESSAGES
        };
        let came = async {
            while arrived.numbers.len() < until {
                for message in take(&*judge, PATIENCE).await {
                    // A server that was killed may have forgotten that it was acknowledged: that is no second put.
                    if to.system != System::Nats || arrived.ids.insert(message.id) {
                        arrived.add(&message.body.unwrap());
                    }
                }
            }
        };
        let came = timeout(2 * PATIENCE, came).await;
        assert!(came.is_ok(), "{what}: {} of {until} came", arrived.numbers.len());
        if kill < KILLS {
            running.kill().unwrap();
            running.wait().unwrap();
        } else {
            let output = terminate(running);
            assert_eq!(output.status.code(), Some(0), "{what}");
        }
    }
    judge.close().await;
    arrived
}

/// Kinesis as a target is one of ordered puts here; NATS has a subject as its key, and `RabbitMQ` none.
fn has_order(system: System) -> bool {
    matches!(system, System::Kafka | System::Kinesis | System::SqsFifo)
}

impl Arrived {
    fn add(&mut self, body: &bytes::Bytes) {
        let number: usize = std::str::from_utf8(body).unwrap().parse().unwrap();
        self.by_key.entry(format!("k{}", number % KEYS)).or_default().push(number);
        self.numbers.insert(number);
        self.count += 1;
    }
}

/// Seeds of a run; more than one pass all pairs.
#[expect(clippy::disallowed_methods, reason = "tests have no configuration but the environment")]
pub(crate) fn seeds() -> u64 {
    std::env::var("BELFRY_RELAY_SEEDS").map_or(1, |text| text.parse().unwrap())
}

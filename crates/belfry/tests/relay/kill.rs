//! SIGKILL at seeded moments, and restarts of the target's server: nothing is lost, little comes twice, keys keep their order.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read as _, Seek as _};
use std::process::{Command, Stdio};

use stream::Record;
use tokio::time::timeout;

use crate::command::{PATIENCE, put_all, record, relay, take, terminate};
use crate::own_server::OwnServer;
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

/// Restarts that every test run passes with one seed.
const FEW_RESTARTS: &[(System, System, RestartedEnd)] = &[
    (System::RabbitMq, System::Nats, RestartedEnd::Target),
    (System::Sqs, System::Kinesis, RestartedEnd::Target),
];
/// Restarts of the long run: each server at each end.
pub(crate) const RESTARTS: &[(System, System, RestartedEnd)] = &[
    (System::RabbitMq, System::Nats, RestartedEnd::Target),
    (System::RabbitMq, System::Nats, RestartedEnd::Source),
    (System::Nats, System::RabbitMq, RestartedEnd::Target),
    (System::Nats, System::RabbitMq, RestartedEnd::Source),
    (System::Kafka, System::Kafka, RestartedEnd::Target),
    (System::Kafka, System::Kafka, RestartedEnd::Source),
    (System::Kafka, System::Sqs, RestartedEnd::Target),
    (System::Sqs, System::Kinesis, RestartedEnd::Source),
    (System::Sqs, System::Kinesis, RestartedEnd::Target),
    (System::Kinesis, System::RabbitMq, RestartedEnd::Source),
];
/// Messages that the judge has in hand at most.
const JUDGED: usize = 1_000;

/// The end whose server is restarted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RestartedEnd {
    Source,
    Target,
}

/// Messages that arrived: the numbers of each key, in the order in which they came.
#[derive(Debug, Default)]
pub(crate) struct Arrived {
    by_key: BTreeMap<String, Vec<usize>>,
    count: usize,
    numbers: BTreeSet<usize>,
    /// Of messages that arrived, where an identifier is that of one put.
    ids: BTreeSet<String>,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_at_any_moment_it_loses_nothing_and_keeps_the_order_of_keys() {
    let seeds = seeds();
    let pairs = if seeds > 1 { ALL } else { FEW };
    for seed in 1..=seeds {
        for (from, to) in pairs {
            let (from, to) = (from.place(None).await, to.place(None).await);
            run(&from, &to, seed, KILLS * BUFFER, &mut |_kill| {}).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_while_a_server_is_restarted_it_loses_nothing() {
    let seeds = seeds();
    for seed in 1..=seeds {
        for restarts in if seeds > 1 { RESTARTS } else { FEW_RESTARTS } {
            with_restarts(*restarts, async |from, to, between| {
                // Each restart may have as many come again as a kill, and RabbitMQ gives the judge again what it did not see acknowledged.
                let judged = if to.system == System::RabbitMq { KILLS * JUDGED } else { 0 };
                run(&from, &to, seed, 2 * KILLS * BUFFER + judged, between).await;
            })
            .await;
        }
    }
}

/// Has `run` relay between two places, the server of one of which is restarted after each start but the last.
pub(crate) async fn with_restarts(
    (from, to, restarted): (System, System, RestartedEnd),
    run: impl AsyncFnOnce(Place, Place, &mut dyn FnMut(usize)),
) {
    let system = if restarted == RestartedEnd::Source { from } else { to };
    let mut server = OwnServer::start(system);
    let url_for = |end| (restarted == end).then(|| server.url());
    let from = from.place(url_for(RestartedEnd::Source)).await;
    let to = to.place(url_for(RestartedEnd::Target)).await;
    let mut restart = |kill| {
        if kill < KILLS {
            server.restart();
        }
    };
    run(from, to, &mut restart).await;
}

/// Relays without a store and with kills, `between` after each start; and once more until all is there. At most `most_twice` come twice.
async fn run(
    from: &Place,
    to: &Place,
    seed: u64,
    most_twice: usize,
    between: &mut dyn FnMut(usize),
) {
    let folder = tempfile::tempdir().unwrap();
    let positions = folder.path().join("positions");
    let (buffer, positions) = (BUFFER.to_string(), positions.to_str().unwrap().to_owned());
    let start = || relay(&from.url, &to.url, &["--buffer", &buffer, "--positions", &positions]);
    let arrived = relay_with_kills(from, to, seed, start, between).await;
    let what = format!("{:?} to {:?}, seed {seed}", from.system, to.system);
    let twice = arrived.count - MESSAGES;
    assert!(twice <= most_twice, "{what}: {twice} came twice");
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
    between: &mut dyn FnMut(usize),
) -> Arrived {
    let what = format!("{:?} to {:?}, seed {seed}", from.system, to.system);
    let mut random = fastrand::Rng::with_seed(seed);
    let message = |number: usize| record(&format!("k{}", number % KEYS), &number.to_string());
    let records: Vec<Record> = (0..LAST).map(message).collect();
    put_all(&*from.target(), &records).await;
    let judge = to.source().await;
    let (mut arrived, mut trouble) = (Arrived::default(), None);
    for kill in 0..=KILLS {
        let mut said = tempfile::tempfile().unwrap();
        let stderr = said.try_clone().unwrap();
        let mut running = command().stdout(Stdio::null()).stderr(stderr).spawn().unwrap();
        between(kill);
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
                let taken = take(&*judge, PATIENCE).await;
                trouble = taken.as_ref().err().map(ToString::to_string);
                for message in taken.unwrap_or_default() {
                    // A server that was killed may have forgotten that it was acknowledged: that is no second put.
                    if !has_places(to.system) || arrived.ids.insert(message.id) {
                        arrived.add(&message.body.unwrap());
                    }
                }
            }
        };
        let came = timeout(2 * PATIENCE, came).await.is_ok();
        let (numbers, mut words) = (arrived.numbers.len(), String::new());
        if !came {
            said.rewind().and_then(|()| said.read_to_string(&mut words)).unwrap();
        }
        assert!(
            came,
            "{what}, kill {kill}: {numbers} of {until} came; the judge: {trouble:?}; the relay: {words}"
        );
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

/// The identifier of a message is that of its put; in `RabbitMQ` and FIFO queues it is the record's.
fn has_places(system: System) -> bool {
    !matches!(system, System::RabbitMq | System::SqsFifo)
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

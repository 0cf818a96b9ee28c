//! `consumers-messages`: one message of a broker for each notification, as a queue is used by hand, and nothing done with it.
//!
//! It is the floor beside `consumers`, whose messages are tickets for up to 1,000 notifications each. The messages go through the clients
//! that Belfry has: durable, published with confirms, received and acknowledged, both at once, by one process. They are tickets for one
//! notification, 32 bytes; a message with a content of its own costs more.

use std::collections::HashSet;
use std::ops::Range;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use flow::Clock;
use notification::{ChunkId, Epoch, Priority, Ticket, Timestamp, limits};
use queue::{Broker, BrokerOptions};
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;

use super::job::as_float;
use super::{Bench, few};
use crate::cluster::{Backing, BrokerChoice};
use crate::report::{Floor, Point, RowReport, Unit, median};
use crate::usage::own_cpu;

/// The figures of one run; processor times in microseconds for each message.
#[derive(Debug, Clone, Copy)]
struct MessageFigures {
    per_minute: f64,
    client_us: f64,
    broker_us: f64,
    /// Messages that came again, which a broker may do.
    repeated: u64,
}

const BACKINGS: [Backing; 3] = [Backing::RabbitMq, Backing::Nats, Backing::Kafka];
/// Messages that are published together, and their confirms waited for; and how many such groups are under way at a time.
const PUBLISHED: u32 = 1_024;
const GROUPS: u64 = 2;
/// Messages that may be published and not received yet: far fewer than the queue takes, and than come within the life of a message.
const AHEAD: usize = 16 * PUBLISHED as usize;
/// One message for each so many goes first and is not counted: a virtual machine compiles what it runs often.
const WARM_UP: u64 = 4;
/// For how long a message is good, as it says; a queue gives it 30 s at most.
const LEASE: Duration = Duration::from_hours(1);
/// After which without any message, the rest is lost.
const QUIET: Duration = Duration::from_secs(30);

pub(super) fn run(bench: &Bench) -> Result<RowReport> {
    let title =
        "A broker by itself: one message for each notification, published, received, acknowledged";
    let mut report = few(bench, "consumers-messages", title, Unit::PerMinute);
    let messages = bench.size.pick(50_000, 500_000);
    report.configuration = vec![
        ("messages".into(), format!("{messages}, of 32 bytes, durable; before these a quarter")),
        ("client".into(), "Belfry's own; publisher and consumer in one process".into()),
    ];
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    for backing in BACKINGS {
        let mut runs = Vec::new();
        for run in 1..=report.repetitions {
            bench.say(format!("{} by itself, run {run}", backing.name()));
            match measure(&runtime, backing, messages) {
                Ok(figures) => runs.push(figures),
                // A broker that does not do it alone says nothing of Belfry, which lives with that.
                Err(error) => {
                    report.notes.push(format!("{} is left out: {error:#}", backing.name()));
                    break;
                }
            }
        }
        let repeated: u64 = runs.iter().map(|run| run.repeated).sum();
        if repeated > 0 {
            report.notes.push(format!("{} gave {repeated} messages out again", backing.name()));
        }
        if !runs.is_empty() {
            report.points.push(point(backing, &runs));
        }
    }
    Ok(report)
}

/// The floors for the points of `consumers` with the same broker, and what that takes of the processors.
pub(super) fn add_floors(messages: &RowReport, consumers: &mut RowReport) {
    for point in &mut consumers.points {
        let Some(alone) = messages.points.iter().find(|it| point.setting.ends_with(&it.setting))
        else {
            continue;
        };
        let broker = &alone.setting;
        point.floor = Some(Floor {
            tool: format!("{broker}, one message for each notification"),
            per_minute: Some(alone.figure.value()),
            // Its client sends nothing, so its processor time is not to be compared with an engine's.
            cpu_us_per_item: None,
        });
        let [tickets, messages] = [&*point, alone].map(broker_us);
        consumers.notes.push(format!(
            "{broker} takes {tickets:.2} us of a processor for each notification, and {messages:.1} us for each message"
        ));
    }
}

fn broker_us(point: &Point) -> f64 {
    let servers = point.servers_cpu_us_per_item.iter();
    servers.filter(|(name, _)| name == "broker").map(|(_, us)| us).sum()
}

fn point(backing: Backing, runs: &[MessageFigures]) -> Point {
    let of = |value: fn(&MessageFigures) -> f64| runs.iter().map(value).collect::<Vec<f64>>();
    Point {
        cpu_us_per_item: Some(median(&of(|run| run.client_us))),
        servers_cpu_us_per_item: vec![("broker".to_owned(), median(&of(|run| run.broker_us)))],
        ..Point::of_runs(backing.name(), Unit::PerMinute, &of(|run| run.per_minute))
    }
}

fn measure(runtime: &Runtime, backing: Backing, messages: u64) -> Result<MessageFigures> {
    let choice = BrokerChoice::start(backing)?.context("it has no broker")?;
    runtime.block_on(async {
        let clock = Clock::system();
        let broker = open(&choice, clock)?;
        let mut available = broker.available();
        let linked = tokio::time::timeout(QUIET, available.wait_for(|is_there| *is_there)).await;
        ensure!(matches!(linked, Ok(Ok(_))), "it is not reached: {:?}", broker.trouble());
        let warm_up = messages / WARM_UP;
        pass(&broker, 0..warm_up, clock).await?;
        let (started, client_before, broker_before) = (clock.monotonic(), own_cpu(), choice.cpu()?);
        let repeated = pass(&broker, warm_up..warm_up + messages, clock).await?;
        let took = clock.monotonic().duration_since(started);
        let each = |cpu: Duration| cpu.as_secs_f64() * 1e6 / as_float(messages);
        let (client, server) = (own_cpu(), choice.cpu()?);
        broker.drain().await;
        Ok(MessageFigures {
            per_minute: 60.0 * as_float(messages) / took.as_secs_f64(),
            client_us: each(client.saturating_sub(client_before)),
            broker_us: each(server.saturating_sub(broker_before)),
            repeated,
        })
    })
}

fn open(choice: &BrokerChoice, clock: Clock) -> Result<Broker> {
    let options = BrokerOptions::new(choice.url(), testbed::unique_prefix());
    let random = fastrand::Rng::with_seed(1);
    Ok(match choice {
        BrokerChoice::RabbitMq(_) => queue::rabbitmq::open(&options, clock, random)?,
        BrokerChoice::Nats(_) => queue::nats::open(&options, clock, random)?,
        BrokerChoice::Kafka(_) => queue::kafka::open(&options, clock, random)?,
    })
}

/// Publishes messages with these numbers and receives them all; how many came again.
async fn pass(broker: &Broker, numbers: Range<u64>, clock: Clock) -> Result<u64> {
    let room = Semaphore::new(AHEAD);
    let lease_until = Timestamp::from_unix(clock.wall()).plus(LEASE);
    let publisher = |group| publish(broker, &room, numbers.clone(), group, lease_until);
    let received = receive(broker, &room, numbers.clone());
    let ((), (), repeated) = tokio::try_join!(publisher(0), publisher(1), received)?;
    Ok(repeated)
}

/// Publishes each second group of `numbers`, from the one with the number `group` on.
async fn publish(
    broker: &Broker,
    room: &Semaphore,
    numbers: Range<u64>,
    group: u64,
    lease_until: Timestamp,
) -> Result<()> {
    let publisher = broker.publisher();
    let (size, end) = (u64::from(PUBLISHED), numbers.end);
    let ticket = |number| Ticket {
        chunk: ChunkId(number),
        epoch: Epoch(1),
        priority: Priority::Normal,
        lease_until,
        count: 1,
    };
    let firsts = numbers.step_by(usize::try_from(size * GROUPS)?).map(|first| first + group * size);
    for first in firsts {
        room.acquire_many(PUBLISHED).await?.forget();
        let tickets = (first..end.min(first + size)).map(ticket).collect();
        for answer in publisher.publish(tickets).await {
            answer.context("a message was not confirmed")?;
        }
    }
    Ok(())
}

/// Receives until all of `numbers` came; how many came again.
async fn receive(broker: &Broker, room: &Semaphore, numbers: Range<u64>) -> Result<u64> {
    let consumer = broker.consumer();
    let (mut repeated, mut missing) = (0, numbers.clone().collect::<HashSet<u64>>());
    while !missing.is_empty() {
        let next = consumer.receive(Priority::Bulk, limits::TAKE_TICKETS);
        let Ok(next) = tokio::time::timeout(QUIET, next).await else {
            bail!("{} messages do not come", missing.len());
        };
        for message in next {
            if missing.remove(&message.item.chunk.0) {
                room.add_permits(1);
            } else {
                repeated += 1;
            }
            message.receipt.acknowledge().await.map_err(|(_receipt, error)| error)?;
        }
    }
    Ok(repeated)
}

//! `consumers-messages`: one message of a broker for each notification, as a queue is used by hand, and nothing done with it.
//!
//! It is the floor beside `consumers`, whose messages are tickets for up to 1,000 notifications each. The messages go through the clients
//! that Belfry has: durable, published with confirms, received and acknowledged, both at once, by one process. They are tickets for one
//! notification, 32 bytes; a message with a content of its own costs more.

use std::collections::HashSet;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use flow::Clock;
use notification::{ChunkId, Epoch, Priority, Ticket, Timestamp, limits};
use queue::{Broker, BrokerOptions};

use super::job::as_float;
use super::{Bench, few, missing};
use crate::cluster::{Backing, BrokerChoice};
use crate::report::{Floor, Point, RowReport, Unit, median};
use crate::usage::own_cpu;

/// The figures of one run; processor times in microseconds for each message.
#[derive(Debug, Clone, Copy)]
struct MessageFigures {
    per_minute: f64,
    client_us: f64,
    broker_us: f64,
    lost: u64,
    duplicated: u64,
}

const BACKINGS: [Backing; 3] = [Backing::RabbitMq, Backing::Nats, Backing::Kafka];
/// Messages that are published together, and their confirms waited for.
const PUBLISHED: u64 = 1_024;
/// For which a message is good: longer than a run takes.
const LEASE: Duration = Duration::from_hours(1);
/// After which without any, those that have not come are lost.
const QUIET: Duration = Duration::from_secs(30);

pub(super) fn run(bench: &Bench) -> Result<RowReport> {
    let title =
        "A broker by itself: one message for each notification, published, received, acknowledged";
    let mut report = few(bench, "consumers-messages", title, Unit::PerMinute);
    let messages = bench.size.pick(50_000, 500_000);
    report.configuration = vec![
        ("messages".into(), format!("{messages}, of 32 bytes, durable")),
        ("client".into(), "Belfry's own; publisher and consumer in one process".into()),
    ];
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    for backing in BACKINGS {
        let mut runs = Vec::new();
        for run in 1..=report.repetitions {
            bench.say(format!("{} by itself, run {run}", backing.name()));
            match BrokerChoice::start(backing) {
                Ok(Some(broker)) => runs.push(runtime.block_on(measure(&broker, messages))?),
                Ok(None) => {}
                Err(error) => {
                    report.notes.push(missing(backing.name(), error)?);
                    break;
                }
            }
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
        lost: runs.iter().map(|run| run.lost).sum(),
        duplicated: runs.iter().map(|run| run.duplicated).sum(),
        ..Point::of_runs(backing.name(), Unit::PerMinute, &of(|run| run.per_minute))
    }
}

async fn measure(choice: &BrokerChoice, messages: u64) -> Result<MessageFigures> {
    let clock = Clock::system();
    let broker = open(choice, clock)?;
    let mut available = broker.available();
    let linked = tokio::time::timeout(QUIET, available.wait_for(|is_there| *is_there)).await;
    ensure!(linked.is_ok(), "the broker is not reached: {:?}", broker.trouble());
    let (started, client_before, broker_before) = (clock.monotonic(), own_cpu(), choice.cpu()?);
    let until = Timestamp::from_unix(clock.wall()).plus(LEASE);
    let (published, received) =
        tokio::join!(publish(&broker, messages, until), receive(&broker, messages));
    published?;
    let (received, distinct) = received?;
    let took = clock.monotonic().duration_since(started);
    let each = |cpu: Duration| cpu.as_secs_f64() * 1e6 / as_float(messages);
    let (client, server) = (own_cpu(), choice.cpu()?);
    broker.drain().await;
    Ok(MessageFigures {
        per_minute: 60.0 * as_float(messages) / took.as_secs_f64(),
        client_us: each(client.saturating_sub(client_before)),
        broker_us: each(server.saturating_sub(broker_before)),
        lost: messages - distinct,
        duplicated: received - distinct,
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

async fn publish(broker: &Broker, messages: u64, lease_until: Timestamp) -> Result<()> {
    let publisher = broker.publisher();
    let ticket = |number| Ticket {
        chunk: ChunkId(number),
        epoch: Epoch(1),
        priority: Priority::Normal,
        lease_until,
        count: 1,
    };
    for first in (0..messages).step_by(usize::try_from(PUBLISHED)?) {
        let last = messages.min(first + PUBLISHED);
        for answer in publisher.publish((first..last).map(ticket).collect()).await {
            answer.context("a message was not confirmed")?;
        }
    }
    Ok(())
}

/// Receives until each of so many messages came; how many were received, and how many different ones.
async fn receive(broker: &Broker, messages: u64) -> Result<(u64, u64)> {
    let consumer = broker.consumer();
    let (mut received, mut seen) = (0, HashSet::new());
    while (seen.len() as u64) < messages {
        let next = consumer.receive(Priority::Bulk, limits::TAKE_TICKETS);
        let next = tokio::time::timeout(QUIET, next).await;
        let Ok(next) = next else { break };
        for message in next {
            seen.insert(message.item.chunk);
            received += 1;
            message.receipt.acknowledge().await.map_err(|(_receipt, error)| error)?;
        }
    }
    Ok((received, seen.len() as u64))
}

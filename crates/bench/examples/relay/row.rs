//! SQS to Kinesis: the relay beside a pool of threads.

use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};
use aws_sdk_kinesis::types::ShardIteratorType::TrimHorizon;
use aws_sdk_sqs::types::QueueAttributeName;
use bench::Usage;
use flow::Clock;
use futures_util::StreamExt as _;
use stream::aws::{AwsSettings, sdk_config};
use stream::sqs::{SqsSettings, SqsTarget};
use stream::{Record, Target as _};
use testbed::aws::{ElasticMq, Moto};
use tokio::runtime::Runtime;

use crate::counting::CountingWay;
use crate::{Running, median, myself, pinned};

/// The servers, a queue and a stream.
pub(crate) struct Rig {
    runtime: Runtime,
    pub(crate) queues: ElasticMq,
    pub(crate) streams: Moto,
    sqs: aws_sdk_sqs::Client,
    kinesis: aws_sdk_kinesis::Client,
}

/// One of those that are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Relay,
    Pool(usize),
}

/// Work of one in [`SPAN`].
#[derive(Debug, Clone, Copy)]
struct Measured {
    per_minute: f64,
    cpu_micros: f64,
}

/// Time of one measurement, after a second to start.
const SPAN: Duration = Duration::from_secs(10);
const BEFORE: Duration = Duration::from_secs(1);
/// Bytes of a message.
const BODY: usize = 256;
/// Messages that are put before a measurement: more than any takes.
const FOR_RELAY: usize = 60_000;
const FOR_POOL: usize = 10_000;
/// Messages of the counted run.
const COUNTED: usize = 3_000;
const QUEUE: &str = "orders";
const STREAM: &str = "events";

pub(crate) fn run(binary: &Path, rounds: usize) -> Result<()> {
    let mut rig = Rig::start()?;
    for way in [Way::Pool(6), Way::Relay] {
        let calls = rig.calls(way, binary)?;
        println!("{way:?}: {calls:.3} calls for each message");
    }
    for processors in [1, 2] {
        let ways = [Way::Pool(6), Way::Pool(3), Way::Relay];
        let mut measured = vec![Vec::new(); ways.len()];
        for _ in 0..rounds {
            for (way, all) in ways.iter().zip(&mut measured) {
                let one = rig.measure(*way, binary, processors)?;
                println!(
                    "{processors} processors, {way:?}: {:.0} a minute, {:.0} us of its own CPU for each",
                    one.per_minute, one.cpu_micros
                );
                all.push(one);
            }
        }
        let middle = |all: &[Measured]| median(all.iter().map(|one| one.per_minute).collect());
        let rates: Vec<f64> = measured.iter().map(|all| middle(all)).collect();
        if let [six, three, relay] = rates[..] {
            let (of_six, of_three) = (relay / six, relay / three);
            println!(
                "{processors} processors: medians {six:.0}, {three:.0}, {relay:.0} a minute: {of_six:.1} and {of_three:.1} times"
            );
        }
    }
    Ok(())
}

impl Rig {
    pub(crate) fn start() -> Result<Self> {
        let runtime = Runtime::new()?;
        let (queues, streams) = (ElasticMq::start()?, Moto::start()?);
        let settings = settings(&queues.url());
        let sqs = aws_sdk_sqs::Client::new(&runtime.block_on(sdk_config(&settings))?);
        let config = runtime.block_on(sdk_config(&self::settings(&streams.url())))?;
        let kinesis = aws_sdk_kinesis::Client::new(&config);
        let create = kinesis.create_stream().stream_name(STREAM).shard_count(4);
        runtime.block_on(create.send())?;
        Ok(Self { runtime, queues, streams, sqs, kinesis })
    }

    /// An empty queue with so many messages.
    pub(crate) fn fill(&mut self, count: usize) -> Result<()> {
        self.queues.wipe()?;
        let create = self
            .sqs
            .create_queue()
            .queue_name(QUEUE)
            .attributes(QueueAttributeName::VisibilityTimeout, "30");
        self.runtime.block_on(create.send())?;
        let url = from_url(&self.queues.url());
        self.runtime.block_on(async {
            let target = SqsTarget::new(SqsSettings::from_url(&url)?, Clock::system())?;
            let body: bytes::Bytes = vec![b'x'; BODY].into();
            let record = |id: usize| Record { key: None, body: body.clone(), id: id.to_string() };
            let records: Vec<Record> = (0..count).map(record).collect();
            let puts = records.chunks(10).map(|records| target.put(records));
            let mut puts = futures_util::stream::iter(puts).buffer_unordered(8);
            while let Some(answers) = puts.next().await {
                answers.into_iter().collect::<Result<Vec<()>, _>>()?;
            }
            anyhow::Ok(())
        })
    }

    /// Messages in the queue, those included that are in hand.
    pub(crate) fn left(&self) -> Result<u64> {
        Ok(self.attributes()?.iter().sum())
    }

    /// Messages that are visible, and those that are in hand.
    pub(crate) fn attributes(&self) -> Result<[u64; 2]> {
        let names = [
            QueueAttributeName::ApproximateNumberOfMessages,
            QueueAttributeName::ApproximateNumberOfMessagesNotVisible,
        ];
        self.runtime.block_on(async {
            let url = self.sqs.get_queue_url().queue_name(QUEUE).send().await?;
            let url = url.queue_url.context("a queue has a URL")?;
            let call = self.sqs.get_queue_attributes().queue_url(url);
            let answer = call.set_attribute_names(Some(names.to_vec())).send().await?;
            let attributes = answer.attributes.unwrap_or_default();
            let [visible, held] = names.map(|name| attributes.get(&name).map(|text| text.parse()));
            Ok([visible.context("it says so")??, held.context("it says so")??])
        })
    }

    /// Records in the stream.
    pub(crate) fn records(&self) -> Result<usize> {
        self.runtime.block_on(async {
            let mut count = 0;
            let shards = self.kinesis.list_shards().stream_name(STREAM).send().await?;
            for shard in shards.shards.unwrap_or_default() {
                let call = self.kinesis.get_shard_iterator().stream_name(STREAM);
                let call = call.shard_id(shard.shard_id).shard_iterator_type(TrimHorizon);
                let mut iterator = call.send().await?.shard_iterator;
                loop {
                    let call = self.kinesis.get_records().set_shard_iterator(iterator);
                    let read = call.limit(10_000).send().await?;
                    if read.records.is_empty() {
                        break;
                    }
                    (count, iterator) = (count + read.records.len(), read.next_shard_iterator);
                }
            }
            Ok(count)
        })
    }

    fn measure(&mut self, way: Way, binary: &Path, processors: usize) -> Result<Measured> {
        self.fill(if way == Way::Relay { FOR_RELAY } else { FOR_POOL })?;
        let running = begin(way, binary, (&self.queues.url(), &self.streams.url()), processors)?;
        thread::sleep(BEFORE);
        let (left, cpu, begun) = (self.left()?, Usage::of_process(running.id())?.cpu, now());
        thread::sleep(SPAN);
        let (later, cpu_later, spent) =
            (self.left()?, Usage::of_process(running.id())?.cpu, now() - begun);
        anyhow::ensure!(later > 0, "too few messages were put before");
        drop(running);
        let done = left.saturating_sub(later) as f64;
        let per_minute = done / spent.as_secs_f64() * 60.0;
        Ok(Measured {
            per_minute,
            cpu_micros: cpu_later.saturating_sub(cpu).as_secs_f64() * 1e6 / done,
        })
    }

    /// Requests for each message.
    fn calls(&mut self, way: Way, binary: &Path) -> Result<f64> {
        self.fill(COUNTED)?;
        let queues = CountingWay::to(&self.queues.url())?;
        let streams = CountingWay::to(&self.streams.url())?;
        let running = begin(way, binary, (&queues.url, &streams.url), 2)?;
        while self.left()? > 0 {
            thread::sleep(Duration::from_millis(100));
        }
        drop(running);
        Ok((queues.requests() + streams.requests()) as f64 / COUNTED as f64)
    }
}

fn begin(
    way: Way,
    binary: &Path,
    (queues, streams): (&str, &str),
    processors: usize,
) -> Result<Running> {
    let (from, to) = (from_url(queues), to_url(streams));
    match way {
        Way::Relay => {
            pinned(binary, &["relay", "--direct", "--from", &from, "--to", &to], processors)
        }
        Way::Pool(threads) => {
            pinned(&myself()?, &["pool", &from, &to, &threads.to_string()], processors)
        }
    }
}

pub(crate) fn from_url(endpoint: &str) -> String {
    format!("sqs://key:secret@{QUEUE}?region=eu-central-1&endpoint={endpoint}")
}

pub(crate) fn to_url(endpoint: &str) -> String {
    format!("kinesis://key:secret@{STREAM}?region=eu-central-1&endpoint={endpoint}")
}

fn settings(endpoint: &str) -> AwsSettings {
    let url = from_url(endpoint);
    // It is one of ours.
    SqsSettings::from_url(&url).map(|settings| settings.aws).unwrap_or_default()
}

fn now() -> tokio::time::Instant {
    Clock::system().monotonic()
}

//! From one Kafka topic to another: the relay beside a plain copy.

use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};
use bench::Usage;
use flow::Clock;
use krafka::Kafka as Client;
use krafka::admin::{CreateTopicsOptions, ListOffsetsOptions, NewTopic, OffsetSpec};
use krafka::consumer::{AutoOffsetReset, TopicPartition};
use stream::kafka::{KafkaSettings, KafkaTarget, connect};
use stream::{Record, Target as _};
use testbed::Kafka;
use tokio::runtime::Runtime;

use crate::{Running, median, myself, pinned};

/// A node, and its topics.
pub(crate) struct Rig {
    runtime: Runtime,
    pub(crate) node: Kafka,
    client: Client,
}

pub(crate) const MESSAGES: u32 = 1_000_000;
const PARTITIONS: i32 = 6;
const BODY: usize = 100;
const FROM: &str = "from";
const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) fn run(binary: &Path, rounds: usize) -> Result<()> {
    let rig = Rig::start()?;
    rig.fill(MESSAGES)?;
    let mut rates = [Vec::new(), Vec::new()];
    for round in 0..rounds {
        for (way, rates) in ["plain copy", "relay"].iter().zip(&mut rates) {
            let to = format!("to-{}-{round}", way.replace(' ', "-"));
            rig.create(&to)?;
            let url = |topic: &str| format!("{}/{topic}?group={to}", rig.node.url());
            let (from, to_url) = (url(FROM), url(&to));
            let running = if *way == "relay" {
                pinned(binary, &["relay", "--direct", "--from", &from, "--to", &to_url], 2)?
            } else {
                pinned(&myself()?, &["plain-copy", &from, &to_url], 2)?
            };
            let (rate, usage) = rig.watch(&to, &running)?;
            println!(
                "{way}: {rate:.0} a second, {:.1} us of its own CPU for each, {} MiB at most",
                usage.cpu.as_secs_f64() * 1e6 / f64::from(MESSAGES),
                usage.memory_bytes_max >> 20
            );
            rates.push(rate);
        }
    }
    let [plain, relay] = rates.map(median);
    println!("medians {plain:.0} and {relay:.0} a second: {:.2}", relay / plain);
    Ok(())
}

impl Rig {
    pub(crate) fn start() -> Result<Self> {
        let (runtime, node) = (Runtime::new()?, Kafka::start()?);
        let settings: KafkaSettings = node.url().parse()?;
        let client = runtime.block_on(connect(&settings, PATIENCE))?;
        let rig = Self { runtime, node, client };
        rig.create(FROM)?;
        Ok(rig)
    }

    pub(crate) fn create(&self, topic: &str) -> Result<()> {
        let new = NewTopic::new(topic, PARTITIONS, 1)?;
        let admin = self.client.admin();
        let created = admin.create_topics([new], CreateTopicsOptions::default());
        self.runtime.block_on(created)?.remove(topic).context("an answer for the topic")??;
        Ok(())
    }

    pub(crate) fn fill(&self, count: u32) -> Result<()> {
        let settings: KafkaSettings = format!("{}/{FROM}", self.node.url()).parse()?;
        let target = KafkaTarget::new(settings)?;
        let body: bytes::Bytes = vec![b'x'; BODY].into();
        let mut numbers = 0..count;
        self.runtime.block_on(async {
            loop {
                let record = |number: u32| Record {
                    key: Some((number % 1_000).to_string().into()),
                    body: body.clone(),
                    id: number.to_string(),
                };
                let records: Vec<Record> = numbers.by_ref().take(5_000).map(record).collect();
                if records.is_empty() {
                    return Ok(());
                }
                target.put(&records).await.into_iter().collect::<Result<Vec<()>, _>>()?;
            }
        })
    }

    /// Records in `topic`.
    pub(crate) fn count(&self, topic: &str) -> Result<i64> {
        let of = |partition| (TopicPartition::new(topic, partition), OffsetSpec::Latest);
        let admin = self.client.admin();
        let listed = admin.list_offsets((0..PARTITIONS).map(of), ListOffsetsOptions::default());
        let listed = self.runtime.block_on(listed)?;
        let mut sum = 0;
        for listed in listed.into_values() {
            sum += listed?.offset;
        }
        Ok(sum)
    }

    /// Records a second from the first to the last in `topic`, and what `running` used.
    fn watch(&self, topic: &str, running: &Running) -> Result<(f64, Usage)> {
        let now = || Clock::system().monotonic();
        let mut begun = None;
        loop {
            let count = self.count(topic)?;
            if count > 0 && begun.is_none() {
                begun = Some((now(), count));
            }
            if count >= i64::from(MESSAGES) {
                let (at, first) = begun.context("it began")?;
                let usage = Usage::of_process(running.id())?;
                return Ok(((count - first) as f64 / (now() - at).as_secs_f64(), usage));
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Copies until it is killed: what is polled is enqueued, awaited and committed.
pub(crate) fn plain_copy(from: &str, to: &str) -> Result<()> {
    let (from, to): (KafkaSettings, KafkaSettings) = (from.parse()?, to.parse()?);
    Runtime::new()?.block_on(async {
        let kafka = connect(&from, PATIENCE).await?;
        let consumer = kafka
            .consumer(from.group.clone().unwrap_or_default())
            .enable_auto_commit(false)
            .auto_offset_reset(AutoOffsetReset::Earliest)
            .max_poll_records(2_000)
            .build()
            .await?;
        let producer =
            kafka.producer().linger(Duration::from_millis(2)).batch_size(256 << 10).build().await?;
        consumer.subscribe([&from.topic]).await?;
        loop {
            let mut queued = Vec::new();
            for record in consumer.poll(Duration::from_secs(1)).await? {
                let mut made =
                    krafka::Record::new(to.topic.clone(), record.value.unwrap_or_default());
                if let Some(key) = record.key {
                    made = made.key(key);
                }
                queued.push(producer.enqueue(made).await?);
            }
            for queued in queued {
                let _position = queued.await?;
            }
            consumer.commit().await?;
        }
    })
}

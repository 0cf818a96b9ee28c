//! `stream-copy`: from one topic of Kafka to another.

use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use flow::Clock;
use krafka::Kafka as Client;
use krafka::admin::{CreateTopicsOptions, ListOffsetsOptions, NewTopic, OffsetSpec};
use krafka::consumer::{AutoOffsetReset, TopicPartition};
use stream::kafka::{KafkaSettings, KafkaTarget, connect};
use stream::{Record, Target as _};
use testbed::Kafka;
use tokio::runtime::Runtime;

use super::measure::PROCESSORS;
use super::process::PinnedProcess;
use crate::report::{Check, Point, RowReport, Unit, median};
use crate::rows::Bench;
use crate::usage::Usage;

/// A node, and its topics.
#[derive(Debug)]
pub struct KafkaRig {
    runtime: Runtime,
    node: Kafka,
    client: Client,
}

/// One copy of all messages.
#[derive(Debug, Clone, Copy)]
struct CopyRun {
    per_minute: f64,
    usage: Usage,
    /// Records of the target beyond the messages of the source.
    duplicated: u64,
}

/// Messages that are copied.
pub const MESSAGES: u32 = 1_000_000;
const PARTITIONS: i32 = 6;
const BODY: usize = 100;
const FROM: &str = "from";
/// Of one call to the node.
const PATIENCE: Duration = Duration::from_secs(10);
/// A copy that takes longer has failed.
const COPY_PATIENCE: Duration = Duration::from_mins(10);
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// The relay beside the plain copy.
const RATIO_MIN: f64 = 0.8;

/// The relay beside the plain copy, in turn; and with a store, which accounts for each message.
pub(super) fn report(bench: &Bench, rig: &KafkaRig) -> Result<RowReport> {
    let title =
        "From one topic of Kafka to another: the relay, and a loop that does nothing but copy";
    let mut report = bench.report("stream-copy", title, Unit::PerMinute);
    report.configuration = vec![
        ("node".into(), "one, on the same processors, 6 partitions".into()),
        ("messages".into(), format!("{MESSAGES} of {BODY} bytes")),
    ];
    rig.fill(MESSAGES)?;
    let (mut plain, mut relay, mut accounted) = (Vec::new(), Vec::new(), Vec::new());
    for run in 1..=bench.repetitions {
        bench.say(format!("from Kafka to Kafka: {MESSAGES} messages, run {run}"));
        plain.push(rig.copy(bench, &["bench", "stream-copy"], &format!("plain-{run}"))?);
        relay.push(rig.copy(bench, &["relay", "--direct"], &format!("relay-{run}"))?);
        let store = tempfile::tempdir()?;
        let stored = ["relay", "--store", &*store.path().to_string_lossy()];
        accounted.push(rig.copy(bench, &stored, &format!("accounted-{run}"))?);
    }
    let (plain, relay) = (point("plain copy", &plain), point("relay --direct", &relay));
    let accounted = point("relay with a store", &accounted);
    let ratio = relay.figure.value() / plain.figure.value();
    report.checks.push(Check {
        what: format!(
            "the relay without a store has at least {RATIO_MIN} of the rate of the plain copy"
        ),
        found: format!("{ratio:.2}"),
        holds: ratio >= RATIO_MIN,
    });
    report.notes.push(
        "counted by the offsets of the target, which say nothing of which record it is".into(),
    );
    (report.points, report.auto) = (vec![plain, accounted], Some(relay));
    Ok(report)
}

fn point(setting: &str, runs: &[CopyRun]) -> Point {
    let of = |value: fn(&CopyRun) -> f64| runs.iter().map(value).collect::<Vec<f64>>();
    let cpu = of(|run| run.usage.cpu.as_secs_f64() * 1e6 / f64::from(MESSAGES));
    Point {
        cpu_us_per_item: Some(median(&cpu)),
        memory_bytes_max: runs.iter().map(|run| run.usage.memory_bytes_max).max(),
        duplicated: runs.iter().map(|run| run.duplicated).sum(),
        ..Point::of_runs(setting, Unit::PerMinute, &of(|run| run.per_minute))
    }
}

// === impl KafkaRig ===

impl KafkaRig {
    /// Starts a node with a topic `from`.
    ///
    /// # Errors
    /// When it was not fetched or does not start; the error says which script fetches it.
    pub fn start() -> Result<Self> {
        let (runtime, node) = (Runtime::new()?, Kafka::start()?);
        let settings: KafkaSettings = node.url().parse()?;
        let client = runtime.block_on(connect(&settings, PATIENCE))?;
        let rig = Self { runtime, node, client };
        rig.create(FROM)?;
        Ok(rig)
    }

    /// Where the node listens: the URL of a topic without its name.
    pub fn url(&self) -> String {
        self.node.url()
    }

    /// The process of the node, to stop it.
    pub fn process(&self) -> Option<u32> {
        self.node.process()
    }

    /// Creates `topic`.
    ///
    /// # Errors
    /// When the node refuses.
    pub fn create(&self, topic: &str) -> Result<()> {
        let new = NewTopic::new(topic, PARTITIONS, 1)?;
        let admin = self.client.admin();
        let created = admin.create_topics([new], CreateTopicsOptions::default());
        self.runtime.block_on(created)?.remove(topic).context("an answer for the topic")??;
        Ok(())
    }

    /// Puts so many messages into the topic `from`.
    ///
    /// # Errors
    /// When the node does not take one.
    pub fn fill(&self, count: u32) -> Result<()> {
        let settings: KafkaSettings = format!("{}/{FROM}", self.node.url()).parse()?;
        let target = KafkaTarget::new(settings)?;
        // JSON, which a store keeps.
        let body: bytes::Bytes = format!("\"{}\"", "x".repeat(BODY - 2)).into();
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

    /// Records in `topic`, by its offsets.
    ///
    /// # Errors
    /// When the node does not say.
    pub fn count(&self, topic: &str) -> Result<i64> {
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

    /// Copies everything to the new topic `to`, by the binary with these first `words`.
    fn copy(&self, bench: &Bench, words: &[&str], to: &str) -> Result<CopyRun> {
        self.create(to)?;
        let url = |topic: &str| format!("{}/{topic}?group={to}", self.node.url());
        let (from, to_url) = (url(FROM), url(to));
        let mut arguments = words.to_vec();
        if words.contains(&"relay") {
            arguments.extend(["--from", &from, "--to", &to_url]);
        } else {
            arguments.extend([&*from, &*to_url]);
        }
        self.watch(to, PinnedProcess::start(bench.binary(), &arguments, PROCESSORS)?)
    }

    /// Waits until all is in `topic`. The rate is from the first record that is seen there to the last.
    fn watch(&self, topic: &str, mut running: PinnedProcess) -> Result<CopyRun> {
        let (clock, all) = (Clock::system(), i64::from(MESSAGES));
        let started = clock.monotonic();
        let mut begun = None;
        loop {
            let (count, now) = (self.count(topic)?, clock.monotonic());
            if count > 0 && begun.is_none() {
                begun = Some((now, count));
            }
            if count >= all {
                let (at, first) = begun.context("it began")?;
                let moved = f64::from(i32::try_from(all - first.min(all))?);
                let per_minute = 60.0 * moved / (now - at).as_secs_f64();
                let duplicated = u64::try_from(count - all)?;
                return Ok(CopyRun { per_minute, usage: running.usage()?, duplicated });
            }
            running.ensure_runs()?;
            ensure!(now - started < COPY_PATIENCE, "{count} of {all} were copied");
            thread::sleep(LOOK_EVERY);
        }
    }
}

/// Copies one topic to another (URLs of `belfry relay`) until it is killed: records that were polled are enqueued, awaited and committed.
///
/// # Errors
/// When a URL is none, or a call fails.
pub fn copy_main(from: &str, to: &str) -> Result<()> {
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

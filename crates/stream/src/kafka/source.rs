//! Reading a topic as a member of a consumer group.
//!
//! A task polls, whatever callers do, so that the group's changes are followed while messages are in hand. It fetches only while a caller
//! waits; otherwise all partitions are paused, and a poll costs no request.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use flow::{Backoff, Tasks};
use futures_util::FutureExt as _;
use krafka::admin::{ListOffsetsOptions, OffsetSpec, TopicPartition};
use krafka::consumer::{AutoOffsetReset, Consumer, GroupProtocol, PartitionAssignmentStrategy};
use krafka::error::KrafkaError;
use krafka::{CloseOptions, GroupMembershipOperation, Kafka};
use tokio::sync::Mutex;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use super::client::{connect_by, explain, partitions};
use super::member::{Departure, GroupChanges, Member};
use super::settings::KafkaSettings;
use super::stall::{PartitionStanding, StallWatch};
use super::unread::{UnreadWatch, group_standing};
use crate::{Source, StreamError, StreamMessage, StreamReceipt};

/// A topic that is read as a member of a consumer group. A new group begins with the oldest message.
#[derive(Debug)]
pub struct KafkaSource {
    member: Arc<Member>,
    tasks: Mutex<Tasks>,
}

/// The task of a source.
#[derive(Debug)]
struct Poller {
    member: Arc<Member>,
    /// Its identity in the group, through all that it is taken for lost by (`group.instance.id`, KIP-345).
    instance: String,
}

/// Time to connect, and for a request.
const PATIENCE: Duration = Duration::from_secs(5);
/// Longest poll while a caller waits.
const POLL: Duration = Duration::from_secs(1);
/// Polls in vain after which the broker is asked whether it is there.
const EMPTY_POLLS: u32 = 5;
/// Between two polls while none waits: within this time the member follows a change of its group. Such a poll costs no request.
const IDLE_POLL: Duration = Duration::from_millis(250);
/// How long a member may be silent until its partitions go to others: the least that brokers allow as they come.
const SESSION: Duration = Duration::from_secs(6);
/// Three in a [`SESSION`], as is usual.
const HEARTBEAT: Duration = Duration::from_secs(2);
/// How long the others wait for a member that does not follow a change of the group. The task follows within [`POLL`].
const REBALANCE: Duration = Duration::from_secs(30);
/// Messages that one poll gives, and that are decoded ahead of it.
const POLL_MESSAGES: i32 = 2_000;
/// Bytes of one answer of a broker, unless its first batch is larger. Of an answer the client keeps what one poll and the next give,
/// and throws the rest away: more would be fetched again and again.
const FETCH_BYTES: i32 = 2 * 1024 * 1024;
/// Bytes of one partition in it.
const PARTITION_BYTES: i32 = 256 * 1024;
/// Between two looks at the group, each of two requests. A partition that no member reads is given out after two of them.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Age of what is known of the topic from which a look asks for it anew: each does.
const TOPIC_KNOWN_FOR: Duration = Duration::from_secs(4);
/// Time to commit and to leave the group.
const FAREWELL: Duration = Duration::from_secs(5);
/// The first pause after a failure, at most; the next ones double.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// The longest pause, at most.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

// === impl KafkaSource ===

impl KafkaSource {
    /// Starts to connect, and returns at once. `random` draws the jitter of pauses.
    ///
    /// # Errors
    /// When `settings` cannot work: they contradict each other, or have no topic or no group.
    pub fn open(settings: KafkaSettings, random: fastrand::Rng) -> Result<Self, StreamError> {
        Self::open_with(settings, random, None)
    }

    /// [`open`](Self::open), with `departure` asked about messages in hand of partitions that leave.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_with(
        settings: KafkaSettings,
        mut random: fastrand::Rng,
        departure: Option<Arc<dyn Departure>>,
    ) -> Result<Self, StreamError> {
        settings.check()?;
        if settings.topic.is_empty() || settings.group.as_deref().is_none_or(str::is_empty) {
            let text =
                "a source in Kafka needs a topic and a group: kafka://host:port/topic?group=name";
            return Err(StreamError::Refused(text.to_owned()));
        }
        let member = Arc::new(Member::new(settings, departure));
        let poller = Poller { member: Arc::clone(&member), instance: new_instance(&mut random) };
        let mut tasks = Tasks::default();
        tasks.spawn("kafka-source", poller.run(random));
        Ok(Self { member, tasks: Mutex::new(tasks) })
    }

    /// Acknowledges messages, without an answer for each: those that are with another member by now are passed over. Commits what is
    /// due, also with an empty list.
    ///
    /// # Errors
    /// When what is due could not be committed; it stays due.
    pub async fn settle(&self, receipts: &[StreamReceipt]) -> Result<(), StreamError> {
        self.member.settle(receipts).await
    }

    async fn arrived(&self, messages: usize) -> Result<Vec<StreamMessage>, StreamError> {
        let _caller = self.member.caller();
        loop {
            let notice = self.member.arrived.notified();
            tokio::pin!(notice);
            // Registers before looking, so that nothing that comes in between is missed.
            notice.as_mut().enable();
            if let Some(given) = self.member.give(messages.max(1)) {
                return given;
            }
            self.member.asked.notify_one();
            notice.await;
        }
    }
}

#[async_trait]
impl Source for KafkaSource {
    async fn fetch(
        &self,
        messages: usize,
        wait: Duration,
    ) -> Result<Vec<StreamMessage>, StreamError> {
        timeout(wait, self.arrived(messages)).await.unwrap_or_else(|_none| Ok(Vec::new()))
    }

    async fn acknowledge(&self, receipts: &[StreamReceipt]) -> Vec<Result<(), StreamError>> {
        self.member.acknowledge(receipts).await
    }

    async fn give_back(&self, receipts: &[StreamReceipt]) {
        self.member.give_back(receipts);
    }

    async fn close(&self) {
        self.member.close();
        self.member.asked.notify_one();
        if let Some(consumer) = self.member.consumer() {
            consumer.wakeup();
        }
        self.tasks.lock().await.drain().await;
    }
}

impl Drop for KafkaSource {
    fn drop(&mut self) {
        // Left alone it would stay in the group for as long as a rebalance may take, and hold its partitions.
        let consumer = self.member.replace_consumer(None);
        if let (Some(consumer), Ok(runtime)) = (consumer, tokio::runtime::Handle::try_current()) {
            runtime.spawn(async move { farewell(&consumer).await });
        }
    }
}

// === impl Poller ===

impl Poller {
    async fn run(self, mut random: fastrand::Rng) {
        let (mut failures, mut unread) = (0, UnreadWatch::default());
        while !self.member.is_closed() {
            let error = match self.join().await {
                Ok((kafka, consumer)) => {
                    let connection = (&kafka, &*consumer);
                    let ended =
                        self.poll(connection, &mut failures, &mut unread, &mut random).await;
                    // Before the consumer is gone: its last commit goes by it.
                    farewell(&consumer).await;
                    self.member.replace_consumer(None);
                    self.member.forget_all();
                    ended
                }
                Err(error) => Err(error),
            };
            let Err(error) = error else { return };
            self.member.complain(error);
            failures += 1;
            sleep(backoff().delay(failures, None, &mut random)).await;
        }
    }

    /// Connects and subscribes.
    async fn join(&self) -> Result<(Kafka, Arc<Consumer>), StreamError> {
        let settings = &self.member.settings;
        let group = settings.group.clone().unwrap_or_default();
        let kafka =
            connect_by(settings, PATIENCE, |client| client.metadata_max_age(TOPIC_KNOWN_FOR))
                .await?;
        // One that is not there would be waited for.
        partitions(&kafka, settings, PATIENCE).await?;
        let consumer = kafka
            .consumer(group)
            .enable_auto_commit(false)
            .auto_offset_reset(AutoOffsetReset::Earliest)
            // Brokers have let a member be silent for 45 s by the newer protocol, and do not let it choose less.
            .group_protocol(GroupProtocol::Classic)
            // A heartbeat waits behind a join that waits for other members, and is answered as one of an old generation then. The
            // client takes itself for lost by that (krafka 0.28.1), and joins anew. Without an identity that stays, the group would
            // keep its old name as a member that vanished, and wait for the end of its session with the next join, for ever.
            .group_instance_id(&self.instance)
            .partition_assignment_strategy(PartitionAssignmentStrategy::CooperativeSticky)
            .session_timeout(SESSION)
            .heartbeat_interval(HEARTBEAT)
            .max_poll_interval(REBALANCE)
            .max_poll_records(POLL_MESSAGES)
            .max_buffered_records(POLL_MESSAGES)
            .fetch_max_bytes(FETCH_BYTES)
            .max_partition_fetch_bytes(PARTITION_BYTES)
            .metrics_push(false)
            .rebalance_listener(GroupChanges(Arc::clone(&self.member)))
            .build();
        let explained = |error: KrafkaError| explain(settings, &error);
        let consumer = Arc::new(consumer.await.map_err(explained)?);
        if let Err(error) = consumer.subscribe([&settings.topic]).await {
            farewell(&consumer).await;
            return Err(explain(settings, &error));
        }
        self.member.replace_consumer(Some(Arc::clone(&consumer)));
        Ok((kafka, consumer))
    }

    /// Polls until the source is closed.
    ///
    /// # Errors
    /// When the connection is of no more use.
    async fn poll(
        &self,
        (kafka, consumer): (&Kafka, &Consumer),
        failures: &mut u16,
        unread: &mut UnreadWatch,
        random: &mut fastrand::Rng,
    ) -> Result<(), StreamError> {
        let (mut empty_polls, mut watch) = (0, StallWatch::default());
        let mut looks = interval(LOOK_EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while !self.member.is_closed() {
            if looks.tick().now_or_never().is_some() {
                self.look_at_group(kafka, consumer, unread).await?;
            }
            let wants = self.member.wants_more();
            let assignment = consumer.assignment().await;
            for (topic, partitions) in &assignment {
                if wants {
                    consumer.resume(topic, partitions).await;
                } else {
                    consumer.pause(topic, partitions).await;
                }
            }
            // Polls are short while nothing is wanted, and say nothing of how long it has none.
            if watch.is_bereft(
                wants && self.member.awaits_partitions(),
                assignment.values().all(Vec::is_empty),
            ) {
                return Err(StreamError::Unavailable(
                    "its partitions went, and none came again".to_owned(),
                ));
            }
            // Never dropped half-way: it may be in the middle of a change of the group.
            let settings = &self.member.settings;
            // While all is paused it would return at once, again and again, as soon as its buffer is full.
            let polled = consumer.poll(if wants { POLL } else { Duration::ZERO }).await;
            let trouble = match polled {
                Ok(records) => {
                    empty_polls = if records.is_empty() && wants { empty_polls + 1 } else { 0 };
                    if empty_polls == 0 {
                        watch.forget();
                    }
                    self.member.take(records);
                    let is_silent = empty_polls >= EMPTY_POLLS;
                    empty_polls = if is_silent { 1 } else { empty_polls };
                    if is_silent { self.check(kafka, consumer, &mut watch).await? } else { None }
                }
                Err(KrafkaError::Wakeup) => None,
                Err(error) if error.is_retriable() => Some(explain(settings, &error)),
                Err(error) => return Err(explain(settings, &error)),
            };
            match trouble {
                None => {
                    *failures = 0;
                    if !self.member.wants_more() && !self.member.is_closed() {
                        let _asked = timeout(IDLE_POLL, self.member.asked.notified()).await;
                    }
                }
                Some(trouble) => {
                    self.member.complain(trouble);
                    *failures = failures.saturating_add(1);
                    sleep(backoff().delay(*failures, None, random)).await;
                }
            }
        }
        Ok(())
    }

    /// Asks for the partitions that no member of the group reads.
    ///
    /// # Errors
    /// When the member is to join anew for one.
    async fn look_at_group(
        &self,
        kafka: &Kafka,
        consumer: &Consumer,
        watch: &mut UnreadWatch,
    ) -> Result<(), StreamError> {
        let looked = group_standing(kafka, consumer, &self.member.settings, PATIENCE);
        // All of its requests together: nothing is polled meanwhile, and an end of the source waits for it.
        let standing = match timeout(PATIENCE, looked).await {
            Ok(Ok(standing)) => standing,
            Ok(Err(error)) => {
                tracing::debug!(%error, "the group was not described");
                None
            }
            Err(_late) => None,
        };
        match watch.look(standing) {
            Some(partition) => Err(StreamError::Unavailable(format!(
                "partition {partition} is read by no member: this one joins its group anew, and it is given out"
            ))),
            None => Ok(()),
        }
    }

    /// Asks the broker whether it is there, and for more: a poll says nothing of a broker that is away, for it waits for it. Gives
    /// what is wrong and may pass.
    ///
    /// # Errors
    /// When the member is to join anew.
    async fn check(
        &self,
        kafka: &Kafka,
        consumer: &Consumer,
        watch: &mut StallWatch,
    ) -> Result<Option<StreamError>, StreamError> {
        let settings = &self.member.settings;
        if let Err(trouble) = partitions(kafka, settings, PATIENCE).await {
            return Ok(Some(trouble));
        }
        match standings(kafka, consumer, settings).await {
            Ok(standings) => match watch.look(&standings) {
                Some(partition) => Err(StreamError::Unavailable(format!(
                    "partition {partition} is not read to its end and nothing is received: this member joins its group anew"
                ))),
                None => Ok(None),
            },
            Err(trouble) => Ok(Some(trouble)),
        }
    }
}

/// The identity of a member: no other has it, of this process by a count, and of others by their number and `random`. Two members with
/// one would drive each other out of their group.
fn new_instance(random: &mut fastrand::Rng) -> String {
    static OPENED: AtomicU64 = AtomicU64::new(0);
    let number = OPENED.fetch_add(1, Ordering::Relaxed);
    format!("belfry-{:016x}-{}-{number}", random.u64(..), std::process::id())
}

/// How far each partition of a member is read, and its end.
async fn standings(
    kafka: &Kafka,
    consumer: &Consumer,
    settings: &KafkaSettings,
) -> Result<Vec<PartitionStanding>, StreamError> {
    let topic = &settings.topic;
    let assigned = consumer.assignment().await.remove(topic).unwrap_or_default();
    // A member may have none: there are more members than partitions.
    if assigned.is_empty() {
        return Ok(Vec::new());
    }
    let places = assigned.iter().map(|partition| TopicPartition::new(topic.clone(), *partition));
    let options = ListOffsetsOptions::default().timeout(PATIENCE);
    let specs = places.map(|place| (place, OffsetSpec::Latest));
    let ends = kafka.admin().list_offsets(specs, options).await;
    let ends = ends.map_err(|error| explain(settings, &error))?;
    let mut standings = Vec::with_capacity(assigned.len());
    for (place, end) in ends {
        // One whose leader is away has no end now.
        if let Ok(end) = end {
            let (partition, end) = (place.partition, end.offset);
            let position = consumer.fetch_position(topic, partition).await;
            standings.push(PartitionStanding { partition, position, end });
        }
    }
    Ok(standings)
}

/// Commits, and leaves the group.
async fn farewell(consumer: &Consumer) {
    let options = CloseOptions::new()
        .timeout(FAREWELL)
        // By default a member with an identity of its own would stay, and hold its partitions until its session ends.
        .group_membership_operation(GroupMembershipOperation::LeaveGroup);
    if let Err(error) = consumer.close_with(options).await {
        tracing::debug!(%error, "the group was not left in good order");
    }
}

fn backoff() -> Backoff {
    Backoff::new(FIRST_PAUSE, LONGEST_PAUSE).unwrap_or(Backoff::DEFAULT)
}

//! Writing to a topic: an idempotent producer, acknowledged by all replicas in sync.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use krafka::CloseOptions;
use krafka::error::{ErrorCode, KrafkaError, ProtocolErrorKind};
use krafka::producer::Producer;
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::client::{connect, explain};
use super::settings::KafkaSettings;
use crate::{BatchLimits, OpenTargets, PutError, Record, StreamError, Target};

/// A topic that is written to. Records of one key lie in one partition, in the order in which they were put. The id of a record is in its
/// header `id`.
#[derive(Debug)]
pub struct KafkaTarget {
    settings: KafkaSettings,
    producer: Mutex<Option<Arc<Producer>>>,
}

/// The topics of a cluster, to write to.
#[derive(Debug)]
pub struct KafkaTargets {
    settings: KafkaSettings,
}

/// Time to connect, and for a request.
const PATIENCE: Duration = Duration::from_secs(5);
/// Time until the topic is known and there is place in the producer's buffer.
const BLOCKED: Duration = Duration::from_secs(5);
/// Time for a record, with the producer's own repetitions.
const DELIVERY: Duration = Duration::from_secs(15);
/// How long a record may wait for others of its partition.
const LINGER: Duration = Duration::from_millis(2);
/// Bytes of one partition that travel together.
const BATCH_BYTES: usize = 256 * 1024;
/// Bytes that wait in the producer: twice what a call may put.
const BUFFER_BYTES: usize = 2 * PUT_BYTES;
/// Records of one call.
const PUT_RECORDS: usize = 5_000;
/// Bytes of one call.
const PUT_BYTES: usize = 8 * 1024 * 1024;
/// Room of a request around its records.
const FRAME_BYTES: usize = 1024 * 1024;

/// Kafka's bound of a topic's name.
const NAME_BYTES: usize = 249;

// === impl KafkaTargets ===

impl KafkaTargets {
    /// The topics of the cluster of `settings`, which name none.
    ///
    /// # Errors
    /// When `settings` cannot work, or name a topic or a group.
    pub fn new(settings: KafkaSettings) -> Result<Self, StreamError> {
        settings.check()?;
        if !settings.topic.is_empty() || settings.group.is_some() {
            let text = "recipients name the topics: leave topic and group out";
            return Err(StreamError::Refused(text.to_owned()));
        }
        Ok(Self { settings })
    }
}

impl OpenTargets for KafkaTargets {
    fn check(&self, name: &str) -> Result<(), StreamError> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        let is_name = (1..=NAME_BYTES).contains(&name.len()) && !matches!(name, "." | "..");
        if is_name && name.chars().all(is_plain) {
            return Ok(());
        }
        Err(StreamError::Refused(format!(
            "{name:?} is not a topic of Kafka: 1 to {NAME_BYTES} letters, digits, -, _ and dots"
        )))
    }

    fn open(&self, name: &str) -> Result<Box<dyn Target>, StreamError> {
        self.check(name)?;
        let settings = KafkaSettings { topic: name.to_owned(), ..self.settings.clone() };
        Ok(Box::new(KafkaTarget::new(settings)?))
    }
}

// === impl KafkaTarget ===

impl KafkaTarget {
    /// A target that connects with its first records.
    ///
    /// # Errors
    /// When `settings` cannot work: they contradict each other, or have no topic.
    pub fn new(settings: KafkaSettings) -> Result<Self, StreamError> {
        settings.check()?;
        if settings.topic.is_empty() {
            let text = "a target in Kafka needs a topic: kafka://host:port/topic";
            return Err(StreamError::Refused(text.to_owned()));
        }
        Ok(Self { settings, producer: Mutex::new(None) })
    }

    async fn producer(&self) -> Result<Arc<Producer>, StreamError> {
        let mut producer = self.producer.lock().await;
        if let Some(producer) = &*producer {
            return Ok(Arc::clone(producer));
        }
        let kafka = connect(&self.settings, PATIENCE).await?;
        let made = kafka
            .producer()
            .linger(LINGER)
            .delivery_timeout(DELIVERY)
            .max_block(BLOCKED)
            .batch_size(BATCH_BYTES)
            .buffer_memory(BUFFER_BYTES.max(2 * self.settings.record_bytes))
            .max_request_size(BATCH_BYTES.max(self.settings.record_bytes) + FRAME_BYTES)
            .metrics_push(false)
            .build();
        let made = Arc::new(made.await.map_err(|error| explain(&self.settings, &error))?);
        *producer = Some(Arc::clone(&made));
        Ok(made)
    }

    /// A broker refuses a batch as too large as a whole, and the producer's own batches have records of several puts: what was refused so is put
    /// again in halves, until what is too large is alone. Records of one key that were taken meanwhile come before it.
    async fn put_all(
        &self,
        producer: &Producer,
        records: &[Record],
    ) -> Vec<Result<(), KrafkaError>> {
        let mut answers = self.put_by(producer, records).await;
        let is_to_try = |answers: &[Result<(), KrafkaError>], place: &usize| {
            let fits = |record: &Record| record.bytes() <= self.settings.record_bytes;
            records.get(*place).is_some_and(fits) && answers.get(*place).is_some_and(is_too_large)
        };
        let mut groups = vec![(0..records.len()).collect::<Vec<usize>>()];
        while let Some(mut group) = groups.pop() {
            let was_alone = group.len() < 2;
            group.retain(|place| is_to_try(&answers, place));
            if was_alone || group.is_empty() {
                continue;
            }
            let rear = group.split_off(group.len().div_ceil(2));
            for half in [&group, &rear] {
                let again = half.iter().filter_map(|place| records.get(*place).cloned());
                let again: Vec<Record> = again.collect();
                for (place, answer) in half.iter().zip(self.put_by(producer, &again).await) {
                    if let Some(slot) = answers.get_mut(*place) {
                        *slot = answer;
                    }
                }
            }
            groups.extend([rear, group]);
        }
        answers
    }

    async fn put_by(
        &self,
        producer: &Producer,
        records: &[Record],
    ) -> Vec<Result<(), KrafkaError>> {
        let mut queued = Vec::with_capacity(records.len());
        for record in records {
            if record.bytes() > self.settings.record_bytes {
                queued.push(Err(KrafkaError::broker(
                    ErrorCode::MessageTooLarge,
                    "it is over record_bytes",
                )));
                continue;
            }
            let mut made = krafka::Record::new(self.settings.topic.clone(), record.body.clone());
            if let Some(key) = &record.key {
                made = made.key(key.clone());
            }
            made = made.header("id", record.id.clone());
            // One after the other: the order of this call is that of the partition.
            queued.push(producer.enqueue(made).await);
        }
        let answered = queued.into_iter().map(async |queued| queued?.await.map(|_position| ()));
        join_all(answered).await
    }
}

#[async_trait]
impl Target for KafkaTarget {
    fn limits(&self) -> BatchLimits {
        let record_bytes = self.settings.record_bytes;
        BatchLimits { records: PUT_RECORDS, bytes: PUT_BYTES.max(record_bytes), record_bytes }
    }

    fn keeps_order(&self) -> bool {
        true
    }

    async fn put(&self, records: &[Record]) -> Vec<Result<(), PutError>> {
        if records.is_empty() {
            return Vec::new();
        }
        // Others may be trying to connect before it.
        let producer = match timeout(PATIENCE, self.producer()).await {
            Ok(Ok(producer)) => producer,
            Ok(Err(error)) => {
                return vec![Err(PutError::NotTaken(error.to_string())); records.len()];
            }
            Err(_late) => {
                let why = explain(&self.settings, &KrafkaError::timeout("connecting"));
                return vec![Err(PutError::NotTaken(why.to_string())); records.len()];
            }
        };
        let answers = self.put_all(&producer, records).await;
        if answers.iter().any(|answer| answer.as_ref().is_err_and(KrafkaError::is_fatal)) {
            // The next call makes another one.
            *self.producer.lock().await = None;
        }
        let meant = |answer: Result<(), KrafkaError>| {
            answer.map_err(|error| verdict(&self.settings, &error))
        };
        answers.into_iter().map(meant).collect()
    }

    async fn close(&self) {
        if let Some(producer) = self.producer.lock().await.take() {
            let closed = producer.close_with(CloseOptions::new().timeout(DELIVERY)).await;
            if let Err(error) = closed {
                tracing::debug!(%error, "the producer was not closed in good order");
            }
        }
    }
}

/// True if the broker said so of a batch.
fn is_too_large(answer: &Result<(), KrafkaError>) -> bool {
    let is_size = |code: &ErrorCode| {
        matches!(code, ErrorCode::MessageTooLarge | ErrorCode::RecordListTooLarge)
    };
    matches!(answer, Err(KrafkaError::Broker { code, .. }) if is_size(code))
}

/// The verdict on a record that failed by `error`.
#[expect(clippy::wildcard_enum_match_arm, reason = "whatever else it is, it may have been taken")]
fn verdict(settings: &KafkaSettings, error: &KrafkaError) -> PutError {
    let why = explain(settings, error).to_string();
    match error {
        KrafkaError::Protocol { kind: ProtocolErrorKind::FrameTooLarge, .. }
        | KrafkaError::Serialization { .. }
        | KrafkaError::Compression { .. } => PutError::Refused(why),
        KrafkaError::DeliveryTimeout { possibly_written: false, .. }
        | KrafkaError::Config { .. }
        | KrafkaError::Auth { .. }
        | KrafkaError::UnknownTopic { .. } => PutError::NotTaken(why),
        KrafkaError::Broker { code, .. } => match code {
            ErrorCode::MessageTooLarge
            | ErrorCode::RecordListTooLarge
            | ErrorCode::InvalidRecord
            | ErrorCode::InvalidTimestamp => PutError::Refused(why),
            ErrorCode::ThrottlingQuotaExceeded => PutError::Throttled { after: None, why },
            // The broker says no to these before it writes.
            ErrorCode::TopicAuthorizationFailed
            | ErrorCode::ClusterAuthorizationFailed
            | ErrorCode::SaslAuthenticationFailed
            | ErrorCode::UnknownTopicOrPartition
            | ErrorCode::UnknownTopicId
            | ErrorCode::NotEnoughReplicas
            | ErrorCode::PolicyViolation => PutError::NotTaken(why),
            _ => PutError::Unknown(why),
        },
        _ => PutError::Unknown(why),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_a_topic_by_its_name() {
        let targets = KafkaTargets::new("kafka://host".parse().unwrap()).unwrap();
        assert!(targets.open("Orders.paid-1_x").unwrap().keeps_order());
        let long = "x".repeat(250);
        for name in ["", ".", "..", "a b", "a/b", "a?group=g", long.as_str()] {
            assert!(matches!(targets.open(name), Err(StreamError::Refused(_))), "{name}");
        }
        for url in ["kafka://host/topic", "kafka://host?group=g"] {
            assert!(KafkaTargets::new(url.parse().unwrap()).is_err(), "{url}");
        }
    }
}

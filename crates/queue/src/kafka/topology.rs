//! The topics and groups.
//!
//! | name | what |
//! |---|---|
//! | topics `<prefix>.urgent`, `.normal`, `.bulk` | several partitions, nothing kept for long |
//! | groups of the same names | the consuming processes |
//!
//! A topic that is there is used as it is, so an operator may choose partitions, replicas and retention by creating it first.

use std::collections::HashMap;
use std::time::Duration;

use krafka::Kafka;
use krafka::admin::{
    CreateTopicsOptions, DescribeTopicsOptions, ListConsumerGroupOffsetsOptions,
    ListOffsetsOptions, NewTopic, OffsetSpec, TopicPartition,
};
use krafka::error::{ErrorCode, KrafkaError};
use notification::{Priority, limits};
use stream::kafka::{KafkaSettings, explain};

use super::of_stream;
use crate::broker::capacity::WaitingTickets;
use crate::broker::error::BrokerError;
use crate::broker::limits::LINK_TIMEOUT;

/// The names and bounds of one prefix.
#[derive(Debug, Clone)]
pub(super) struct KafkaTopology {
    pub(super) settings: KafkaSettings,
    pub(super) prefix: String,
    pub(super) tickets_max: u64,
}

/// Partitions by the code of their topic's priority.
pub(super) type PartitionCounts = [i32; Priority::ALL.len()];

/// Partitions of a topic that is created here: as many processes may consume. Where there are more, the operator creates the topics.
const PARTITIONS: i32 = 16;
/// How long a ticket is kept: longer than any is good.
const RETENTION: Duration = limits::TICKET_LEASE.saturating_mul(2);
/// Files are deleted whole, once all in them is old enough: bytes of one.
const SEGMENT_BYTES: u32 = 16 * 1024 * 1024;

// === impl KafkaTopology ===

impl KafkaTopology {
    /// The topic of `priority`, and the group that reads it.
    pub(super) fn name(&self, priority: Priority) -> String {
        format!("{}.{priority}", self.prefix)
    }

    /// The settings of a member of the group of `priority`.
    pub(super) fn of_member(&self, priority: Priority) -> KafkaSettings {
        let name = self.name(priority);
        KafkaSettings { topic: name.clone(), group: Some(name), ..self.settings.clone() }
    }

    /// Creates what is missing, and gives the partitions of each topic.
    pub(super) async fn create(&self, kafka: &Kafka) -> Result<PartitionCounts, BrokerError> {
        let admin = kafka.admin();
        let names: Vec<String> =
            Priority::ALL.iter().map(|priority| self.name(*priority)).collect();
        let options = DescribeTopicsOptions::default().timeout(LINK_TIMEOUT);
        let described = admin.describe_topics(&names, options).await;
        let mut described = described.map_err(|error| self.explain(&error))?;
        let mut counts = PartitionCounts::default();
        let mut missing = Vec::new();
        for (count, name) in counts.iter_mut().zip(&names) {
            match described.remove(name) {
                Some(Ok(topic)) => {
                    *count = i32::try_from(topic.partitions.len()).unwrap_or(i32::MAX);
                }
                Some(Err(error)) if !is_unknown(&error) => return Err(self.explain(&error)),
                Some(Err(_)) | None => {
                    *count = PARTITIONS;
                    missing.push(topic(name).map_err(|error| self.explain(&error))?);
                }
            }
        }
        if missing.is_empty() {
            return Ok(counts);
        }
        let options = CreateTopicsOptions::default().timeout(LINK_TIMEOUT);
        let created = admin.create_topics(missing, options).await;
        for created in created.map_err(|error| self.explain(&error))?.into_values() {
            match created {
                // Another process was faster.
                Ok(()) | Err(KrafkaError::Broker { code: ErrorCode::TopicAlreadyExists, .. }) => {}
                Err(error) => return Err(self.explain(&error)),
            }
        }
        Ok(counts)
    }

    /// Tickets that are not acknowledged, per priority.
    pub(super) async fn waiting(
        &self,
        kafka: &Kafka,
        counts: PartitionCounts,
    ) -> Result<WaitingTickets, BrokerError> {
        let all: Vec<TopicPartition> = Priority::ALL
            .iter()
            .zip(counts)
            .flat_map(|(priority, count)| {
                (0..count).map(|partition| TopicPartition::new(self.name(*priority), partition))
            })
            .collect();
        let (first, last) = tokio::join!(
            self.offsets(kafka, &all, OffsetSpec::Earliest),
            self.offsets(kafka, &all, OffsetSpec::Latest),
        );
        let (first, last) = (first?, last?);
        let mut waiting = WaitingTickets::default();
        for (waiting, priority) in waiting.iter_mut().zip(Priority::ALL) {
            let name = self.name(*priority);
            let committed = self.committed(kafka, &name).await?;
            for (place, last) in last.iter().filter(|(place, _last)| place.topic == name) {
                // What was deleted by its age does not wait.
                let first = first.get(place).copied().unwrap_or_default();
                let done = committed.get(place).copied().unwrap_or_default().max(first);
                *waiting += u64::try_from(last - done).unwrap_or_default();
            }
        }
        Ok(waiting)
    }

    async fn offsets(
        &self,
        kafka: &Kafka,
        of: &[TopicPartition],
        spec: OffsetSpec,
    ) -> Result<HashMap<TopicPartition, i64>, BrokerError> {
        let specs = of.iter().map(|place| (place.clone(), spec));
        let options = ListOffsetsOptions::default().timeout(LINK_TIMEOUT);
        let listed = kafka.admin().list_offsets(specs, options).await;
        let listed = listed.map_err(|error| self.explain(&error))?;
        // One whose leader is away has no number now.
        Ok(listed.into_iter().filter_map(|(place, at)| Some((place, at.ok()?.offset))).collect())
    }

    async fn committed(
        &self,
        kafka: &Kafka,
        group: &str,
    ) -> Result<HashMap<TopicPartition, i64>, BrokerError> {
        let options = ListConsumerGroupOffsetsOptions::default().timeout(LINK_TIMEOUT);
        match kafka.admin().list_consumer_group_offsets(group, options).await {
            Ok(offsets) => Ok(offsets
                .into_iter()
                .filter_map(|(place, offset)| Some((place, offset.ok()?.offset?)))
                .collect()),
            // No process has consumed yet.
            Err(KrafkaError::Broker { code: ErrorCode::GroupIdNotFound, .. }) => Ok(HashMap::new()),
            Err(error) => Err(self.explain(&error)),
        }
    }

    /// The meaning of `error`, and what to do about it.
    pub(super) fn explain(&self, error: &KrafkaError) -> BrokerError {
        of_stream(explain(&self.settings, error))
    }
}

fn topic(name: &str) -> Result<NewTopic, KrafkaError> {
    // As many replicas as are usual there: a lost ticket is issued anew (decision 0007).
    let topic = NewTopic::new(name, PARTITIONS, -1)?;
    let retention = RETENTION.as_millis().to_string();
    Ok(topic
        .with_config("cleanup.policy", "delete")
        .with_config("retention.ms", retention.clone())
        .with_config("segment.ms", retention)
        .with_config("segment.bytes", SEGMENT_BYTES.to_string())
        // By the broker's clock: those of producers may differ.
        .with_config("message.timestamp.type", "LogAppendTime"))
}

fn is_unknown(error: &KrafkaError) -> bool {
    matches!(
        error,
        KrafkaError::UnknownTopic { .. }
            | KrafkaError::Broker { code: ErrorCode::UnknownTopicOrPartition, .. }
    )
}

//! Consuming a queue.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use flow::Clock;
use futures_util::StreamExt as _;
use futures_util::future::join_all;
use lapin::message::Delivery;
use lapin::options::{BasicAckOptions, BasicConsumeOptions, BasicNackOptions, BasicQosOptions};
use lapin::types::FieldTable;
use lapin::{Acker, Consumer};
use tokio::time::timeout;

use super::link::{AmqpConnector, AmqpLink};
use crate::connect::AmqpAddress;
use crate::{Source, StreamError, StreamMessage, StreamReceipt};

/// Options of a source.
#[derive(Debug, Clone)]
pub struct RabbitMqSourceOptions {
    /// The queue.
    pub queue: String,
    /// Messages that are held or read ahead, at most. A fetch gives none while so many are held.
    pub prefetch: u16,
    /// More root certificates to trust, PEM.
    pub ca_file: Option<PathBuf>,
}

/// A queue that is read from. Connects with the first fetch.
#[derive(Debug)]
pub struct RabbitMqSource {
    connector: AmqpConnector,
    options: RabbitMqSourceOptions,
    random: Mutex<fastrand::Rng>,
    consuming: tokio::sync::Mutex<Option<Consuming>>,
    held: Mutex<HeldDeliveries>,
}

#[derive(Debug)]
struct Consuming {
    link: AmqpLink,
    consumer: Consumer,
    /// Distinguishes its messages without an identifier from those of any other connection.
    nonce: u64,
    /// Messages that arrived for a fetch that is not done, or was dropped.
    arrived: Vec<StreamMessage>,
}

/// Wait for a further message, once there is one: they arrive one by one.
const GATHER: Duration = Duration::from_millis(2);

/// The deliveries that were given and not acknowledged, by their receipts, in the order in which they came.
#[derive(Debug, Default)]
struct HeldDeliveries {
    next: u64,
    deliveries: BTreeMap<u64, Acker>,
}

// === impl RabbitMqSource ===

impl RabbitMqSource {
    /// A source at the broker of `address`. `random` makes identifiers for messages without one: no two processes must have the
    /// same.
    pub fn new(
        address: AmqpAddress,
        options: RabbitMqSourceOptions,
        random: fastrand::Rng,
        clock: Clock,
    ) -> Self {
        let (ca_file, name) = (options.ca_file.clone(), format!("from {}", options.queue));
        let connector = AmqpConnector { address, ca_file, name, clock };
        let (random, consuming) = (Mutex::new(random), tokio::sync::Mutex::default());
        Self { connector, options, random, consuming, held: Mutex::default() }
    }

    async fn consume(&self) -> Result<Consuming, StreamError> {
        let link = self.connector.connect().await?;
        let begin = async {
            let RabbitMqSourceOptions { queue, prefetch, .. } = &self.options;
            link.channel.basic_qos(*prefetch, BasicQosOptions::default()).await?;
            // The broker chooses the name of the consumer.
            let (name, options) = ("".into(), BasicConsumeOptions::default());
            let queue = queue.as_str().into();
            link.channel.basic_consume(queue, name, options, FieldTable::default()).await
        };
        let consumer = begin.await.map_err(|error| self.connector.address.explain(&error))?;
        Ok(Consuming { link, consumer, nonce: self.next_nonce(), arrived: Vec::new() })
    }

    fn held(&self) -> MutexGuard<'_, HeldDeliveries> {
        // Whole between any two statements.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has up to `messages` arrive, if the first of them comes within `wait`.
    ///
    /// # Errors
    /// When the consumer ended, and none had arrived before; with what the broker said.
    async fn gather(
        &self,
        current: &mut Consuming,
        messages: usize,
        mut wait: Duration,
    ) -> Result<(), Option<lapin::Error>> {
        while current.arrived.len() < messages {
            if !current.arrived.is_empty() {
                wait = GATHER;
            }
            match timeout(wait, current.consumer.next()).await {
                Err(_nothing_came) => break,
                Ok(Some(Ok(delivery))) => {
                    let message = self.message(current.nonce, delivery);
                    current.arrived.push(message);
                }
                Ok(_ended) if !current.arrived.is_empty() => break,
                Ok(ended) => return Err(ended.and_then(Result::err)),
            }
        }
        Ok(())
    }

    fn next_nonce(&self) -> u64 {
        self.random.lock().unwrap_or_else(PoisonError::into_inner).u64(..)
    }

    fn lost(&self) -> StreamError {
        let address = &self.connector.address;
        StreamError::Unavailable(format!("the connection to RabbitMQ at {address} was lost"))
    }

    fn message(&self, nonce: u64, delivery: Delivery) -> StreamMessage {
        let Delivery { delivery_tag, routing_key, properties, data, acker, .. } = delivery;
        let named = properties.message_id().as_ref().map(|id| id.as_str().to_owned());
        let id = named.filter(|id| !id.is_empty());
        let id = id.unwrap_or_else(|| format!("{nonce:016x}:{delivery_tag}"));
        let receipt = self.held().hold(acker);
        let key = Some(Bytes::copy_from_slice(routing_key.as_str().as_bytes()));
        StreamMessage { id, key, body: Some(data.into()), receipt }
    }
}

#[async_trait]
impl Source for RabbitMqSource {
    async fn fetch(
        &self,
        messages: usize,
        wait: Duration,
    ) -> Result<Vec<StreamMessage>, StreamError> {
        let mut consuming = self.consuming.lock().await;
        if consuming.as_ref().is_none_or(|consuming| !consuming.link.is_connected()) {
            // What was held by the lost one comes again.
            *consuming = None;
            self.held().deliveries.clear();
        }
        let current = match &mut *consuming {
            Some(current) => current,
            none => none.insert(self.consume().await?),
        };
        if messages == 0 {
            return Ok(Vec::new());
        }
        if let Err(lost) = self.gather(current, messages, wait).await {
            let error =
                lost.map_or_else(|| self.lost(), |lost| self.connector.address.explain(&lost));
            *consuming = None;
            self.held().deliveries.clear();
            return Err(error);
        }
        let count = messages.min(current.arrived.len());
        Ok(current.arrived.drain(..count).collect())
    }

    async fn acknowledge(&self, receipts: &[StreamReceipt]) -> Vec<Result<(), StreamError>> {
        let (together, others) = self.held().take(receipts);
        let multiple = BasicAckOptions { multiple: true };
        let mut done = BTreeSet::new();
        if let Some((count, acker)) = together
            && matches!(acker.ack(multiple).await, Ok(true))
        {
            done.extend(count);
        }
        let one = async |(receipt, acker): (u64, Acker)| {
            matches!(acker.ack(BasicAckOptions::default()).await, Ok(true)).then_some(receipt)
        };
        done.extend(join_all(others.into_iter().map(one)).await.into_iter().flatten());
        let answer = |receipt: &StreamReceipt| {
            if done.contains(&receipt.0) { Ok(()) } else { Err(self.lost()) }
        };
        receipts.iter().map(answer).collect()
    }

    async fn give_back(&self, receipts: &[StreamReceipt]) {
        let ackers: Vec<Acker> = {
            let mut held = self.held();
            receipts.iter().filter_map(|receipt| held.deliveries.remove(&receipt.0)).collect()
        };
        let requeue = BasicNackOptions { requeue: true, ..Default::default() };
        // When the connection is gone, the broker gives it out again anyway.
        let _given_back = join_all(ackers.iter().map(|acker| acker.nack(requeue))).await;
    }

    async fn close(&self) {
        // The broker gives out again what is held and what was read ahead.
        if let Some(consuming) = self.consuming.lock().await.take() {
            consuming.link.close().await;
        }
        self.held().deliveries.clear();
    }
}

// === impl HeldDeliveries ===

/// Receipts that one acknowledgement covers, and its handle.
type Together = Option<(Vec<u64>, Acker)>;

impl HeldDeliveries {
    fn hold(&mut self, acker: Acker) -> StreamReceipt {
        self.next += 1;
        self.deliveries.insert(self.next, acker);
        StreamReceipt(self.next)
    }

    /// Takes what is held of `receipts`: the oldest, before which nothing else is held, can be acknowledged in one; and the others.
    /// What was read ahead came later than anything that is held.
    fn take(&mut self, receipts: &[StreamReceipt]) -> (Together, Vec<(u64, Acker)>) {
        let wanted: BTreeSet<u64> = receipts.iter().map(|receipt| receipt.0).collect();
        let (mut covered, mut last) = (Vec::new(), None);
        while let Some(oldest) = self.deliveries.first_entry() {
            if !wanted.contains(oldest.key()) {
                break;
            }
            let (receipt, acker) = oldest.remove_entry();
            covered.push(receipt);
            last = Some(acker);
        }
        let others = wanted
            .into_iter()
            .filter_map(|receipt| Some((receipt, self.deliveries.remove(&receipt)?)))
            .collect();
        (last.map(|acker| (covered, acker)), others)
    }
}

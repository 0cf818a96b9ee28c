//! Publishing with confirms, a batch at a time.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use flow::Clock;
use futures_util::future::join_all;
use lapin::options::{BasicPublishOptions, ConfirmSelectOptions, ExchangeDeclareOptions};
use lapin::types::FieldTable;
use lapin::{BasicProperties, Confirmation, ExchangeKind};
use tokio::sync::Mutex;
use tokio::time::timeout_at;

use super::link::{AmqpConnector, AmqpLink};
use crate::connect::AmqpAddress;
use crate::{BatchLimits, OpenTargets, PutError, Record, StreamError, Target};

/// An exchange that records are published to, with one routing key. Connects with the first of them.
#[derive(Debug)]
pub struct RabbitMqTarget {
    connector: AmqpConnector,
    exchange: String,
    key: String,
    link: Mutex<Option<Arc<AmqpLink>>>,
}

/// The exchanges of a broker, to publish to. A target is called by exchange and routing key, `exchange/key`; `/queue` is a queue by its
/// own name.
#[derive(Debug)]
pub struct RabbitMqTargets {
    /// The broker.
    pub address: AmqpAddress,
    /// More root certificates to trust, PEM.
    pub ca_file: Option<PathBuf>,
    /// The time.
    pub clock: Clock,
}

/// A broker takes messages of 16 MiB unless it says otherwise; a batch is bounded for our own memory.
const LIMITS: BatchLimits = BatchLimits { records: 1_000, bytes: 16 << 20, record_bytes: 16 << 20 };
/// Longest time of a put, with a broker that does not confirm.
const PUT_TIMEOUT: Duration = Duration::from_secs(10);
/// Survives a restart of the broker.
const PERSISTENT: u8 = 2;
/// Bytes of a name in AMQP.
const NAME_BYTES: usize = 255;

// === impl RabbitMqTargets ===

impl OpenTargets for RabbitMqTargets {
    fn check(&self, name: &str) -> Result<(), StreamError> {
        parse(name).map(drop)
    }

    fn open(&self, name: &str) -> Result<Box<dyn Target>, StreamError> {
        let (address, ca_file) = (self.address.clone(), self.ca_file.clone());
        Ok(Box::new(RabbitMqTarget::new(address, ca_file, parse(name)?, self.clock)?))
    }
}

/// Exchange and routing key.
fn parse(name: &str) -> Result<(&str, &str), StreamError> {
    let parts = name.split_once('/').filter(|(exchange, key)| {
        exchange.len() <= NAME_BYTES && key.len() <= NAME_BYTES && name.len() > 1
    });
    parts.ok_or_else(|| {
        StreamError::Refused(format!(
            "{name:?} is not an exchange and a routing key, `exchange/key`, nor a queue, `/queue`"
        ))
    })
}

// === impl RabbitMqTarget ===

impl RabbitMqTarget {
    /// `exchange` (empty for the one that has every queue by its name) at the broker of `address`; with TLS it must be certified by an
    /// authority of the system or of `ca_file`, PEM.
    ///
    /// # Errors
    /// When `exchange` or `key` is longer than AMQP's 255 bytes.
    pub fn new(
        address: AmqpAddress,
        ca_file: Option<PathBuf>,
        (exchange, key): (&str, &str),
        clock: Clock,
    ) -> Result<Self, StreamError> {
        if exchange.len() > NAME_BYTES || key.len() > NAME_BYTES {
            return Err(StreamError::Refused(format!(
                "an exchange or a routing key has at most {NAME_BYTES} bytes"
            )));
        }
        let connector =
            AmqpConnector { address, ca_file, name: format!("to {exchange}/{key}"), clock };
        let (exchange, key) = (exchange.to_owned(), key.to_owned());
        Ok(Self { connector, exchange, key, link: Mutex::default() })
    }

    async fn link(&self) -> Result<Arc<AmqpLink>, StreamError> {
        let mut link = self.link.lock().await;
        match &*link {
            Some(link) if link.is_connected() => Ok(Arc::clone(link)),
            _lost => Ok(Arc::clone(link.insert(Arc::new(self.connect().await?)))),
        }
    }

    async fn connect(&self) -> Result<AmqpLink, StreamError> {
        let link = self.connector.connect().await?;
        let prepare = async {
            link.channel.confirm_select(ConfirmSelectOptions::default()).await?;
            // Asked for here: a publish to one that is missing ends the channel, and leaves all that is under way in doubt.
            if !self.exchange.is_empty() {
                let options = ExchangeDeclareOptions { passive: true, ..Default::default() };
                let (name, kind) = (self.exchange.as_str().into(), ExchangeKind::Direct);
                link.channel.exchange_declare(name, kind, options, FieldTable::default()).await?;
            }
            Ok(())
        };
        prepare.await.map_err(|error| self.connector.address.explain(&error))?;
        Ok(link)
    }
}

#[async_trait]
impl Target for RabbitMqTarget {
    fn limits(&self) -> BatchLimits {
        LIMITS
    }

    fn keeps_order(&self) -> bool {
        true
    }

    async fn put(&self, records: &[Record]) -> Vec<Result<(), PutError>> {
        if records.is_empty() {
            return Vec::new();
        }
        let deadline = self.connector.clock.monotonic() + PUT_TIMEOUT;
        let link = match timeout_at(deadline, self.link()).await {
            Ok(Ok(link)) => link,
            Ok(Err(error)) => {
                return vec![Err(PutError::NotTaken(error.to_string())); records.len()];
            }
            Err(_late) => {
                let words = format!("RabbitMQ at {}: not reached", self.connector.address);
                return vec![Err(PutError::NotTaken(words)); records.len()];
            }
        };
        // All are started before the first is waited for: one after the other, each would wait for the socket.
        let started = records.iter().map(|record| {
            let options = BasicPublishOptions { mandatory: true, ..Default::default() };
            let (exchange, key) = (self.exchange.as_str().into(), self.key.as_str().into());
            link.channel.basic_publish(exchange, key, options, &record.body, properties(record))
        });
        let Ok(sent) = timeout_at(deadline, join_all(started)).await else {
            return vec![Err(late()); records.len()];
        };
        let mut answers = Vec::with_capacity(records.len());
        for sent in sent {
            let confirmed = match sent {
                Ok(confirm) => timeout_at(deadline, confirm).await.map_err(|_late| late()),
                Err(error) => Ok(Err(error)),
            };
            answers.push(confirmed.and_then(|confirmed| self.answer(confirmed)));
        }
        answers
    }

    async fn close(&self) {
        if let Some(link) = self.link.lock().await.take() {
            link.close().await;
        }
    }
}

impl RabbitMqTarget {
    fn answer(&self, confirmed: lapin::Result<Confirmation>) -> Result<(), PutError> {
        match confirmed {
            Ok(Confirmation::Ack(None)) => Ok(()),
            Ok(Confirmation::Ack(Some(_returned))) => Err(PutError::NotTaken(format!(
                "no queue is bound to exchange {:?} by {:?}: bind one",
                self.exchange, self.key
            ))),
            // By a queue with a length limit that rejects what is beyond.
            Ok(Confirmation::Nack(_returned)) => {
                Err(PutError::Throttled { after: None, why: "its queue is full".to_owned() })
            }
            Ok(Confirmation::NotRequested) => {
                Err(PutError::Unknown("the channel has no confirms".to_owned()))
            }
            Err(error) => {
                Err(PutError::Unknown(self.connector.address.explain(&error).to_string()))
            }
        }
    }
}

fn properties(record: &Record) -> BasicProperties {
    BasicProperties::default()
        .with_delivery_mode(PERSISTENT)
        .with_message_id(record.id.as_str().into())
}

fn late() -> PutError {
    PutError::Unknown(format!("no answer within {} s", PUT_TIMEOUT.as_secs()))
}

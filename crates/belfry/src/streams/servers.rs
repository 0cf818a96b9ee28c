//! The places of servers whose URL names no queue or subject by itself: NATS and RabbitMQ.

use std::path::PathBuf;

use flow::Clock;
use percent_encoding::percent_decode_str;
use stream::StreamError;
use stream::connect::{AmqpAddress, NatsAddress};
use stream::nats::{NatsSource, NatsSourceOptions, NatsTarget};
use stream::rabbitmq::{RabbitMqSource, RabbitMqSourceOptions, RabbitMqTarget};

/// A subject of NATS.
#[derive(Debug, Clone)]
pub(crate) struct NatsPlace {
    address: NatsAddress,
    pub(super) subject: String,
    /// The durable consumer; without it the reader's name.
    consumer: Option<String>,
    ca_file: Option<PathBuf>,
}

/// A queue of RabbitMQ, or an exchange with a routing key.
#[derive(Debug, Clone)]
pub(crate) struct RabbitMqPlace {
    address: AmqpAddress,
    /// Empty where the URL names an exchange.
    pub(super) queue: String,
    /// Exchange and routing key, where it names no queue.
    exchange: Option<(String, String)>,
    prefetch: u16,
    ca_file: Option<PathBuf>,
}

/// A URL, without its own parameters.
struct ParsedUrl {
    /// All in front of the question mark.
    base: String,
    parameters: Vec<(String, String)>,
}

/// Messages of RabbitMQ that are held or read ahead, unless the URL says otherwise: four batches.
const USUAL_PREFETCH: u16 = 2_000;

// === impl NatsPlace ===

impl NatsPlace {
    pub(super) fn parse(text: &str, ca_file: Option<PathBuf>) -> Result<Self, StreamError> {
        let url = ParsedUrl::of(text)?;
        let host_end = url.base.find("://").map_or(0, |at| at + "://".len());
        let behind = url.base.get(host_end..).unwrap_or_default();
        let (host, subject) = behind.split_once('/').unwrap_or((behind, ""));
        let mut address = format!("{}{host}", url.base.get(..host_end).unwrap_or_default());
        let (mut consumer, mut file) = (None, None);
        for (name, value) in url.parameters {
            match name.as_str() {
                "consumer" => consumer = Some(value),
                "ca_file" => file = Some(PathBuf::from(value)),
                "credentials" => address.extend(["?credentials=", &value]),
                _other => return refuse("its parameters are consumer, credentials and ca_file"),
            }
        }
        let address = NatsAddress::parse(&address)?;
        Ok(Self { address, subject: decoded(subject)?, consumer, ca_file: ca_file.or(file) })
    }

    pub(super) fn source(&self, reader: String, clock: Clock) -> NatsSource {
        let Self { address, subject, consumer, ca_file } = self.clone();
        let consumer = consumer.unwrap_or(reader);
        NatsSource::new(address, NatsSourceOptions { subject, consumer, ca_file }, clock)
    }

    pub(super) fn target(&self, clock: Clock) -> Result<NatsTarget, StreamError> {
        let Self { address, subject, ca_file, .. } = self.clone();
        NatsTarget::new(address, ca_file, &subject, clock)
    }
}

// === impl RabbitMqPlace ===

impl RabbitMqPlace {
    pub(super) fn parse(text: &str, ca_file: Option<PathBuf>) -> Result<Self, StreamError> {
        let url = ParsedUrl::of(text)?;
        let (mut queue, mut exchange, mut key) = (String::new(), None, None);
        let (mut prefetch, mut file) = (USUAL_PREFETCH, None);
        for (name, value) in url.parameters {
            match name.as_str() {
                "queue" => queue = value,
                "exchange" => exchange = Some(value),
                "key" => key = Some(value),
                "ca_file" => file = Some(PathBuf::from(value)),
                "prefetch" => match value.parse() {
                    Ok(number) if number > 0 => prefetch = number,
                    _other => return refuse("prefetch must be 1 to 65535"),
                },
                _other => {
                    return refuse(
                        "its parameters are queue or exchange and key, prefetch and ca_file",
                    );
                }
            }
        }
        let exchange = match (exchange, key) {
            (None, None) => None,
            (Some(_), _) | (_, Some(_)) if !queue.is_empty() => {
                return refuse("it names a queue and an exchange: leave one of them out");
            }
            (exchange, key) => Some((exchange.unwrap_or_default(), key.unwrap_or_default())),
        };
        let address = AmqpAddress::parse(&url.base)?;
        Ok(Self { address, queue, exchange, prefetch, ca_file: ca_file.or(file) })
    }

    pub(super) fn source(&self, random: fastrand::Rng, clock: Clock) -> RabbitMqSource {
        let Self { address, queue, prefetch, ca_file, .. } = self.clone();
        RabbitMqSource::new(
            address,
            RabbitMqSourceOptions { queue, prefetch, ca_file },
            random,
            clock,
        )
    }

    pub(super) fn target(&self, clock: Clock) -> Result<RabbitMqTarget, StreamError> {
        let Self { address, ca_file, .. } = self.clone();
        RabbitMqTarget::new(address, ca_file, self.put_to()?, clock)
    }

    /// Another queue, or another `exchange/key`.
    pub(super) fn rename(&mut self, name: String) {
        let exchange = name.split_once('/');
        self.exchange = exchange.map(|(exchange, key)| (exchange.to_owned(), key.to_owned()));
        self.queue = if self.exchange.is_some() { String::new() } else { name };
    }

    /// Exchange and routing key; the exchange without a name has every queue by its own.
    pub(super) fn put_to(&self) -> Result<(&str, &str), StreamError> {
        match &self.exchange {
            Some((exchange, key)) => Ok((exchange, key)),
            None if self.queue.is_empty() => {
                refuse("it names no queue: amqp://HOST/VHOST?queue=NAME, or ?exchange=NAME&key=KEY")
            }
            None => Ok(("", &self.queue)),
        }
    }
}

// === impl ParsedUrl ===

impl ParsedUrl {
    fn of(text: &str) -> Result<Self, StreamError> {
        let (base, query) = text.split_once('?').unwrap_or((text, ""));
        let mut parameters = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            parameters.push((decoded(name)?, decoded(value)?));
        }
        Ok(Self { base: base.to_owned(), parameters })
    }
}

// === helpers ===

fn decoded(text: &str) -> Result<String, StreamError> {
    match percent_decode_str(text).decode_utf8() {
        Ok(text) => Ok(text.into_owned()),
        Err(_other) => refuse("a part of it is not percent-encoded UTF-8"),
    }
}

pub(super) fn refuse<T>(why: impl Into<String>) -> Result<T, StreamError> {
    Err(StreamError::Refused(why.into()))
}

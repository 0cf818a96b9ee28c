//! A place in a stream of another system, as its URL names it:
//!
//! | URL | read from | put into |
//! |---|---|---|
//! | `nats://HOST/SUBJECT`, `tls://` | a durable consumer (`?consumer=`) | the subject |
//! | `amqp://HOST/VHOST?queue=QUEUE`, `amqps://` | the queue (`?prefetch=`) | the queue, or `?exchange=&key=` |
//! | `kafka://HOST,HOST/TOPIC` | a consumer group (`?group=`) | the topic |
//! | `sqs://QUEUE?region=REGION` | the queue | the queue |
//! | `kinesis://STREAM?region=REGION` | all shards | the stream |

use std::path::Path;
#[cfg(any(feature = "kinesis", feature = "sqs"))]
use std::sync::Arc;

use flow::Clock;
#[cfg(feature = "kafka")]
use stream::kafka::{KafkaSettings, KafkaSource, KafkaTarget};
#[cfg(feature = "kinesis")]
use stream::kinesis::{KinesisSettings, KinesisSource, KinesisTarget, Positions};
#[cfg(feature = "sqs")]
use stream::sqs::{SqsSettings, SqsSource, SqsTarget};
use stream::{Source, StreamError, Target};

#[cfg(any(feature = "kinesis", feature = "sqs"))]
use super::late::LateSource;
use super::servers::{NatsPlace, RabbitMqPlace, refuse};
use crate::config::ServerUrl;

/// A place in a stream. Its `Debug` form shows no credential.
#[derive(Debug, Clone)]
pub(crate) enum StreamPlace {
    Nats(NatsPlace),
    RabbitMq(RabbitMqPlace),
    #[cfg(feature = "kafka")]
    Kafka(KafkaSettings),
    #[cfg(feature = "sqs")]
    Sqs(SqsSettings),
    #[cfg(feature = "kinesis")]
    Kinesis(KinesisSettings),
}

/// The needs of a source beside its place.
#[derive(Debug)]
pub(crate) struct SourceParts {
    /// The consumer in NATS and the group in Kafka where the URL names none: readers of one name share the messages.
    pub(crate) reader: String,
    pub(crate) clock: Clock,
    pub(crate) random: fastrand::Rng,
    /// Where the positions in the shards of Kinesis are kept.
    #[cfg(feature = "kinesis")]
    pub(crate) positions: Arc<dyn Positions>,
}

// === impl StreamPlace ===

impl StreamPlace {
    /// Reads `url`; `ca_file` has more root certificates to trust, PEM, and goes before the parameter of this name. Connects to nothing.
    ///
    /// # Errors
    /// When it is no such URL, or this program was built without its system. No message repeats a part that may be a secret.
    pub(crate) fn parse(url: &ServerUrl, ca_file: Option<&Path>) -> Result<Self, StreamError> {
        let text = url.expose();
        let ca_file = ca_file.map(Path::to_path_buf);
        match url.scheme() {
            "nats" | "tls" => NatsPlace::parse(&text, ca_file).map(Self::Nats),
            "amqp" | "amqps" => RabbitMqPlace::parse(&text, ca_file).map(Self::RabbitMq),
            #[cfg(feature = "kafka")]
            "kafka" => {
                let mut settings: KafkaSettings = text.parse()?;
                settings.ca_file = ca_file.or(settings.ca_file);
                Ok(Self::Kafka(settings))
            }
            #[cfg(feature = "sqs")]
            "sqs" => {
                let mut settings = SqsSettings::from_url(&text)?;
                settings.aws.ca_file = ca_file.or(settings.aws.ca_file);
                Ok(Self::Sqs(settings))
            }
            #[cfg(feature = "kinesis")]
            "kinesis" => {
                let mut settings = KinesisSettings::from_url(&text)?;
                settings.aws.ca_file = ca_file.or(settings.aws.ca_file);
                Ok(Self::Kinesis(settings))
            }
            #[cfg(not(all(feature = "kafka", feature = "kinesis", feature = "sqs")))]
            system @ ("kafka" | "kinesis" | "sqs") => {
                refuse(format!("this program was built without the feature `{system}`"))
            }
            scheme => refuse(format!(
                "there is no stream for {scheme}:// URLs: begin it with nats:// or tls:// (NATS), amqp:// or amqps:// \
                 (RabbitMQ), kafka:// (Kafka), sqs:// (Amazon SQS), kinesis:// (Amazon Kinesis)"
            )),
        }
    }

    /// The place called `name` in the same system, by the same credentials: a subject, a queue (or `exchange/key` in RabbitMQ), a topic,
    /// a stream.
    pub(crate) fn beside(&self, name: &str) -> Self {
        let name = name.to_owned();
        let mut place = self.clone();
        match &mut place {
            Self::Nats(nats) => nats.subject = name,
            Self::RabbitMq(rabbit) => rabbit.rename(name),
            #[cfg(feature = "kafka")]
            Self::Kafka(kafka) => kafka.topic = name,
            #[cfg(feature = "sqs")]
            Self::Sqs(sqs) => sqs.queue = name,
            #[cfg(feature = "kinesis")]
            Self::Kinesis(kinesis) => kinesis.stream = name,
        }
        place
    }

    /// Its system, and its name there, as recipients of a stream channel have them.
    ///
    /// # Errors
    /// When it names nothing to put into, with how that is named.
    pub(crate) fn recipient(&self) -> Result<(&'static str, String), StreamError> {
        Ok(match self {
            Self::Nats(nats) => ("nats", nats.subject.clone()),
            Self::RabbitMq(rabbit) => {
                let (exchange, key) = rabbit.put_to()?;
                ("amqp", format!("{exchange}/{key}"))
            }
            #[cfg(feature = "kafka")]
            Self::Kafka(kafka) => ("kafka", kafka.topic.clone()),
            #[cfg(feature = "sqs")]
            Self::Sqs(sqs) => ("sqs", sqs.queue.clone()),
            #[cfg(feature = "kinesis")]
            Self::Kinesis(kinesis) => ("kinesis", kinesis.stream.clone()),
        })
    }

    /// Checks that it can be read from, without I/O.
    ///
    /// # Errors
    /// When it names nothing to read, with how that is named.
    pub(crate) fn check_source(&self) -> Result<(), StreamError> {
        match self {
            Self::Nats(nats) if nats.subject.is_empty() => {
                refuse("it names no subject: nats://HOST:PORT/SUBJECT")
            }
            Self::RabbitMq(rabbit) if rabbit.queue.is_empty() => {
                refuse("it names no queue: amqp://HOST/VHOST?queue=NAME")
            }
            #[cfg(feature = "kafka")]
            Self::Kafka(kafka) if kafka.topic.is_empty() => {
                refuse("it names no topic: kafka://HOST:PORT/TOPIC")
            }
            #[cfg(feature = "sqs")]
            Self::Sqs(sqs) => sqs.check(),
            #[cfg(feature = "kinesis")]
            Self::Kinesis(kinesis) => kinesis.check(),
            _named => Ok(()),
        }
    }

    /// A source that reads from it, which connects with its first fetch (Kafka: at once, in the background).
    ///
    /// # Errors
    /// As [`check_source`](Self::check_source).
    pub(crate) fn source(&self, parts: SourceParts) -> Result<Box<dyn Source>, StreamError> {
        self.check_source()?;
        let SourceParts { reader, clock, random, .. } = parts;
        Ok(match self {
            Self::Nats(place) => Box::new(place.source(reader, clock)),
            Self::RabbitMq(place) => Box::new(place.source(random, clock)),
            #[cfg(feature = "kafka")]
            Self::Kafka(settings) => {
                let group = Some(settings.group.clone().unwrap_or(reader));
                let settings = KafkaSettings { group, ..settings.clone() };
                Box::new(KafkaSource::open(settings, random)?)
            }
            #[cfg(feature = "sqs")]
            Self::Sqs(settings) => {
                let settings = Arc::new(settings.clone());
                Box::new(LateSource::new(move || {
                    let settings = Arc::clone(&settings);
                    async move { Ok(Box::new(SqsSource::open(&settings, clock).await?) as _) }
                }))
            }
            #[cfg(feature = "kinesis")]
            Self::Kinesis(settings) => {
                let (settings, positions) = (Arc::new(settings.clone()), parts.positions);
                Box::new(LateSource::new(move || {
                    let (settings, positions) = (Arc::clone(&settings), Arc::clone(&positions));
                    async move {
                        Ok(Box::new(KinesisSource::open(&settings, positions, clock).await?) as _)
                    }
                }))
            }
        })
    }

    /// A target that puts into it, which connects with its first records.
    ///
    /// # Errors
    /// When nothing can be put there under this name, with what a name is like.
    pub(crate) fn target(&self, clock: Clock) -> Result<Box<dyn Target>, StreamError> {
        Ok(match self {
            Self::Nats(place) => Box::new(place.target(clock)?),
            Self::RabbitMq(place) => Box::new(place.target(clock)?),
            #[cfg(feature = "kafka")]
            Self::Kafka(settings) => Box::new(KafkaTarget::new(settings.clone())?),
            #[cfg(feature = "sqs")]
            Self::Sqs(settings) => Box::new(SqsTarget::new(settings.clone(), clock)?),
            #[cfg(feature = "kinesis")]
            Self::Kinesis(settings) => Box::new(KinesisTarget::new(settings.clone(), clock)?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<StreamPlace, StreamError> {
        StreamPlace::parse(&text.parse().unwrap(), None)
    }

    #[test]
    fn a_url_names_a_place_that_can_be_read_and_one_beside_it() {
        for text in [
            "nats://me:canary@host:1/orders.>?consumer=c&credentials=/f&ca_file=/ca",
            "tls://host/orders",
            "amqp://me:canary@host:1/v?queue=orders&prefetch=10",
            "amqps://host?queue=orders",
            #[cfg(feature = "kafka")]
            "kafka://me:canary@host/orders?security=sasl_plaintext",
            #[cfg(feature = "sqs")]
            "sqs://key:canary@orders?region=a",
            #[cfg(feature = "kinesis")]
            "kinesis://key:canary@orders?region=a",
        ] {
            let place = parse(text).unwrap();
            assert_eq!(place.check_source(), Ok(()), "{text}");
            let beside = place.beside("dead");
            assert!(beside.target(Clock::system()).is_ok(), "{text}");
            assert!(!format!("{place:?} {beside:?}").contains("canary"), "{place:?}");
        }
    }

    #[test]
    fn a_queue_of_rabbitmq_is_written_to_by_its_name_or_through_an_exchange() {
        let put_to = |place: &StreamPlace| {
            let StreamPlace::RabbitMq(place) = place else { panic!("{place:?}") };
            place.put_to().map(|(exchange, key)| format!("{exchange}/{key}"))
        };
        let place = parse("amqp://host/v?queue=a").unwrap();
        assert_eq!(put_to(&place).as_deref(), Ok("/a"));
        assert_eq!(put_to(&place.beside("b")).as_deref(), Ok("/b"));
        assert_eq!(put_to(&place.beside("x/b")).as_deref(), Ok("x/b"));
        let place = parse("amqp://host/v?exchange=x&key=k").unwrap();
        assert_eq!(put_to(&place).as_deref(), Ok("x/k"));
        assert!(place.check_source().is_err());
    }

    #[test]
    fn what_names_nothing_is_refused_without_repeating_a_secret() {
        for (text, word) in [
            ("postgres://me:canary@host/x", "no stream for postgres"),
            ("nats://me:canary@host", "names no subject"),
            ("nats://me:canary@host/x?colour=red", "parameters are consumer"),
            ("amqp://me:canary@host/v", "names no queue"),
            ("amqp://me:canary@host/v?queue=a&key=b", "leave one of them out"),
            ("amqp://me:canary@host/v?queue=a&prefetch=0", "1 to 65535"),
            ("amqp://me:canary@host/v?queue=%ff", "UTF-8"),
            #[cfg(feature = "kafka")]
            ("kafka://host", "names no topic"),
            #[cfg(not(feature = "kafka"))]
            ("kafka://host/orders", "without the feature `kafka`"),
            #[cfg(not(feature = "sqs"))]
            ("sqs://orders", "without the feature `sqs`"),
            #[cfg(not(feature = "kinesis"))]
            ("kinesis://orders", "without the feature `kinesis`"),
        ] {
            let error = parse(text).and_then(|place| place.check_source()).unwrap_err().to_string();
            assert!(error.contains(word), "{text}: {error}");
            assert!(!error.contains("canary"), "{error}");
        }
    }
}

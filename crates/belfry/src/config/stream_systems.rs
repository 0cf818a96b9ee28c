//! The systems of a stream channel: one section of its settings, and one opener of targets, for each.

use std::sync::Arc;

use channel::ChannelError;
use channel::stream::{AwsServer, Settings, StreamServer, StreamSystems};
use flow::Clock;
use stream::connect::{AmqpAddress, NatsAddress};
use stream::nats::NatsTargets;
use stream::rabbitmq::RabbitMqTargets;
use stream::{OpenTargets, StreamError};

use super::server_url::ServerUrl;

/// The openers of all sections of `settings`. Reads passwords, and connects to nothing.
///
/// # Errors
/// What is wrong with a section, under its name.
pub(super) fn of(settings: &Settings) -> Result<StreamSystems, ChannelError> {
    let mut systems = StreamSystems::new();
    if let Some(server) = &settings.nats {
        systems.insert("nats", open("nats", server, nats)?);
    }
    if let Some(server) = &settings.amqp {
        systems.insert("amqp", open("amqp", server, amqp)?);
    }
    if let Some(server) = &settings.kafka {
        systems.insert("kafka", kafka(server)?);
    }
    if let Some(server) = &settings.sqs {
        systems.insert("sqs", sqs(server)?);
    }
    if let Some(server) = &settings.kinesis {
        systems.insert("kinesis", kinesis(server)?);
    }
    Ok(systems)
}

#[cfg(any(feature = "sqs", feature = "kinesis"))]
type ReadSecret<'a> = Result<Option<std::borrow::Cow<'a, str>>, ChannelError>;

type OpenedSystem = Result<Arc<dyn OpenTargets>, StreamError>;

fn open(
    section: &'static str,
    server: &StreamServer,
    open: impl Fn(&str, &StreamServer) -> OpenedSystem,
) -> Result<Arc<dyn OpenTargets>, ChannelError> {
    let refuse = |message: String| ChannelError::setting(section, format!("url: {message}"));
    let mut url: ServerUrl =
        server.url.expose().parse().map_err(|message: &str| refuse(message.to_owned()))?;
    if let Some(password) = server.read_password().map_err(|error| under(section, &error))? {
        url = url.with_password(&password).map_err(refuse)?;
    }
    open(&url.expose(), server).map_err(|error| refuse(error.to_string()))
}

/// `error` under the name of `section`.
fn under(section: &'static str, error: &ChannelError) -> ChannelError {
    ChannelError::setting(section, error.to_string())
}

fn nats(url: &str, server: &StreamServer) -> OpenedSystem {
    let (address, ca_file) = (NatsAddress::parse(url)?, server.ca_file.clone());
    Ok(Arc::new(NatsTargets { address, ca_file, clock: Clock::system() }))
}

fn amqp(url: &str, server: &StreamServer) -> OpenedSystem {
    let (address, ca_file) = (AmqpAddress::parse(url)?, server.ca_file.clone());
    Ok(Arc::new(RabbitMqTargets { address, ca_file, clock: Clock::system() }))
}

#[cfg(feature = "kafka")]
fn kafka(server: &StreamServer) -> Result<Arc<dyn OpenTargets>, ChannelError> {
    use stream::kafka::{KafkaSettings, KafkaTargets};

    open("kafka", server, |url, server| {
        let settings: KafkaSettings = url.parse()?;
        let ca_file = server.ca_file.clone().or(settings.ca_file);
        Ok(Arc::new(KafkaTargets::new(KafkaSettings { ca_file, ..settings })?))
    })
}

#[cfg(feature = "sqs")]
fn sqs(server: &AwsServer) -> Result<Arc<dyn OpenTargets>, ChannelError> {
    let (aws, account) = (aws("sqs", server)?, server.account.clone());
    Ok(Arc::new(stream::sqs::SqsTargets { aws, account, clock: Clock::system() }))
}

#[cfg(feature = "kinesis")]
fn kinesis(server: &AwsServer) -> Result<Arc<dyn OpenTargets>, ChannelError> {
    let (aws, ordered) = (aws("kinesis", server)?, server.ordered);
    Ok(Arc::new(stream::kinesis::KinesisTargets { aws, ordered, clock: Clock::system() }))
}

/// The settings of a service of AWS, its secrets in the clear.
#[cfg(any(feature = "sqs", feature = "kinesis"))]
fn aws(
    section: &'static str,
    server: &AwsServer,
) -> Result<stream::aws::AwsSettings, ChannelError> {
    let opened = |secret: ReadSecret<'_>| {
        let text = secret.map_err(|error| under(section, &error))?;
        Ok::<_, ChannelError>(text.map(|text| channel::Secret::new(text.into_owned())))
    };
    let settings = stream::aws::AwsSettings {
        region: server.region.clone(),
        endpoint: server.endpoint.clone(),
        ca_file: server.ca_file.clone(),
        profile: server.profile.clone(),
        role: server.role.clone(),
        sts_endpoint: server.sts_endpoint.clone(),
        external_id: server.external_id.clone(),
        access_key_id: server.access_key_id.clone(),
        secret_access_key: opened(server.read_secret_access_key())?,
        session_token: opened(server.read_session_token())?,
    };
    match settings.check() {
        Ok(()) => Ok(settings),
        Err(error) => Err(ChannelError::setting(section, error.to_string())),
    }
}

#[cfg(not(feature = "kafka"))]
fn kafka(_server: &StreamServer) -> Result<Arc<dyn OpenTargets>, ChannelError> {
    Err(not_built_in("kafka"))
}

#[cfg(not(feature = "sqs"))]
fn sqs(_server: &AwsServer) -> Result<Arc<dyn OpenTargets>, ChannelError> {
    Err(not_built_in("sqs"))
}

#[cfg(not(feature = "kinesis"))]
fn kinesis(_server: &AwsServer) -> Result<Arc<dyn OpenTargets>, ChannelError> {
    Err(not_built_in("kinesis"))
}

#[cfg(not(all(feature = "kafka", feature = "sqs", feature = "kinesis")))]
fn not_built_in(section: &'static str) -> ChannelError {
    ChannelError::setting(
        section,
        format!("this program was built without the feature `{section}`"),
    )
}

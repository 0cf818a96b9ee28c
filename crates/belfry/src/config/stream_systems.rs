//! The systems of a stream channel: one section of its settings, and one opener of targets, for each.

use std::sync::Arc;

use channel::ChannelError;
use channel::stream::{Settings, StreamServer, StreamSystems};
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
    Ok(systems)
}

type OpenedSystem = Result<Arc<dyn OpenTargets>, StreamError>;

fn open(
    section: &'static str,
    server: &StreamServer,
    open: impl Fn(&str, &StreamServer) -> OpenedSystem,
) -> Result<Arc<dyn OpenTargets>, ChannelError> {
    let refuse = |message: String| ChannelError::setting(section, format!("url: {message}"));
    let mut url: ServerUrl =
        server.url.expose().parse().map_err(|message: &str| refuse(message.to_owned()))?;
    if let Some(password) = server.read_password()? {
        url = url.with_password(&password).map_err(refuse)?;
    }
    open(&url.expose(), server).map_err(|error| refuse(error.to_string()))
}

fn nats(url: &str, server: &StreamServer) -> OpenedSystem {
    let (address, ca_file) = (NatsAddress::parse(url)?, server.ca_file.clone());
    Ok(Arc::new(NatsTargets { address, ca_file, clock: Clock::system() }))
}

fn amqp(url: &str, server: &StreamServer) -> OpenedSystem {
    let (address, ca_file) = (AmqpAddress::parse(url)?, server.ca_file.clone());
    Ok(Arc::new(RabbitMqTargets { address, ca_file, clock: Clock::system() }))
}

//! Connections to a cluster, and the meaning of what goes wrong with them.

use std::time::Duration;

use krafka::admin::DescribeTopicsOptions;
use krafka::auth::{AuthConfig, TlsConfig};
use krafka::error::{ErrorCode, KrafkaError};
use krafka::{Kafka, KafkaBuilder};

use super::settings::{KafkaSettings, SaslMechanism};
use crate::StreamError;

/// The name by which clients say who they are.
pub(super) const CLIENT_ID: &str = "belfry";

/// Connects to the first broker that answers, within `patience`, which is also the time that each later request has.
///
/// # Errors
/// When none answers, or one refuses the credentials; in words for operators, without secrets.
pub async fn connect(settings: &KafkaSettings, patience: Duration) -> Result<Kafka, StreamError> {
    connect_by(settings, patience, |client| client).await
}

/// [`connect`], by a client with further settings.
pub(super) async fn connect_by(
    settings: &KafkaSettings,
    patience: Duration,
    set: impl FnOnce(KafkaBuilder) -> KafkaBuilder,
) -> Result<Kafka, StreamError> {
    let client = Kafka::builder(settings.brokers.join(","))
        .client_id(CLIENT_ID)
        .security(security(settings))
        .connect_timeout(patience)
        .request_timeout(patience);
    match tokio::time::timeout(patience, set(client).connect()).await {
        Ok(Ok(kafka)) => Ok(kafka),
        Ok(Err(error)) => Err(explain(settings, &error)),
        Err(_late) => Err(explain(settings, &KrafkaError::timeout("connecting"))),
    }
}

/// Asks whether the topic is there, and gives its number of partitions.
///
/// # Errors
/// When it is not, or no broker answers within `patience`.
pub async fn partitions(
    kafka: &Kafka,
    settings: &KafkaSettings,
    patience: Duration,
) -> Result<usize, StreamError> {
    let topic = settings.topic.as_str();
    let options = DescribeTopicsOptions::default().timeout(patience);
    let described = kafka.admin().describe_topics([topic], options).await;
    let described = described.and_then(|mut topics| {
        topics.remove(topic).unwrap_or_else(|| Err(KrafkaError::unknown_topic(topic)))
    });
    let described = described.map_err(|error| explain(settings, &error))?;
    Ok(described.partitions.len())
}

/// The meaning of `error`, and what to do about it.
pub fn explain(settings: &KafkaSettings, error: &KrafkaError) -> StreamError {
    let (brokers, topic) = (settings.shown(), &settings.topic);
    #[expect(clippy::wildcard_enum_match_arm, reason = "what the library may add is no denial")]
    match error {
        KrafkaError::Auth { message, .. } => StreamError::Refused(format!(
            "Kafka at {brokers} refuses this user, password or certificate ({message}): correct the address"
        )),
        KrafkaError::Config { message } => {
            StreamError::Refused(format!("Kafka cannot be reached by these settings ({message})"))
        }
        KrafkaError::UnknownTopic { .. } => unknown_topic(&brokers, topic),
        KrafkaError::Broker { code, message } => match code {
            ErrorCode::UnknownTopicOrPartition | ErrorCode::UnknownTopicId => {
                unknown_topic(&brokers, topic)
            }
            ErrorCode::SaslAuthenticationFailed => StreamError::Refused(format!(
                "Kafka at {brokers} refuses this user or password: correct the address"
            )),
            ErrorCode::TopicAuthorizationFailed
            | ErrorCode::GroupAuthorizationFailed
            | ErrorCode::ClusterAuthorizationFailed => StreamError::Refused(format!(
                "Kafka at {brokers} denies a right ({code:?}): let the user read, write and describe the topic and \
                 read the group"
            )),
            _ => StreamError::Unavailable(format!(
                "Kafka at {brokers} did not do what it was asked ({code:?}: {message})"
            )),
        },
        KrafkaError::Network(_) | KrafkaError::Timeout { .. } => StreamError::Unavailable(format!(
            "cannot reach Kafka at {brokers} ({error}): is it running, and is the address right?"
        )),
        other => StreamError::Unavailable(format!(
            "Kafka at {brokers} did not do what it was asked ({other})"
        )),
    }
}

fn unknown_topic(brokers: &str, topic: &str) -> StreamError {
    StreamError::Refused(format!(
        "there is no topic \"{topic}\" in Kafka at {brokers}, or the user may not see it: create it, or correct the name"
    ))
}

fn security(settings: &KafkaSettings) -> AuthConfig {
    let sasl = match (&settings.user, &settings.password) {
        (Some(user), Some(password)) => Some((user, password.expose())),
        _none => None,
    };
    let auth = match (sasl, settings.mechanism) {
        (None, _) => AuthConfig::plaintext(),
        (Some((user, password)), SaslMechanism::Plain) => AuthConfig::sasl_plain(user, password),
        (Some((user, password)), SaslMechanism::ScramSha256) => {
            AuthConfig::sasl_scram_sha256(user, password)
        }
        (Some((user, password)), SaslMechanism::ScramSha512) => {
            AuthConfig::sasl_scram_sha512(user, password)
        }
    };
    if !settings.has_tls() {
        return auth;
    }
    let tls = TlsConfig::new().with_native_roots();
    auth.with_tls(match &settings.ca_file {
        Some(path) => tls.with_ca_cert(path.to_string_lossy()),
        None => tls,
    })
}

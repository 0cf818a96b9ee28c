//! SQS and Kinesis against `ElasticMQ` and moto.
#![expect(clippy::unwrap_used, reason = "all of it is test code: a failure here fails the test")]

mod conformance;
mod credentials;
mod kinesis;
mod sqs;

use std::time::Duration;

use aws_sdk_sqs::types::QueueAttributeName;
use bytes::Bytes;
use flow::Clock;
use net::redact::Secret;
use stream::aws::{AwsSettings, sdk_config};
use stream::kinesis::{KinesisSettings, KinesisTarget};
use stream::sqs::{SqsSettings, SqsTarget};
use stream::{Record, Source};

/// Any wait for a server ends before.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) fn aws(endpoint: &str) -> AwsSettings {
    AwsSettings {
        region: Some("eu-central-1".to_owned()),
        endpoint: Some(endpoint.to_owned()),
        access_key_id: Some("key".to_owned()),
        secret_access_key: Some(Secret::new("canary")),
        ..AwsSettings::default()
    }
}

/// A client of another program.
pub(crate) async fn sqs_client(endpoint: &str) -> aws_sdk_sqs::Client {
    aws_sdk_sqs::Client::new(&sdk_config(&aws(endpoint)).await.unwrap())
}

/// A queue of its own; a FIFO one by its name.
pub(crate) async fn create_queue(endpoint: &str, suffix: &str) -> String {
    let name = format!("{}{suffix}", testbed::unique_prefix());
    let mut create = sqs_client(endpoint).await.create_queue().queue_name(&name);
    if suffix == ".fifo" {
        create = create.attributes(QueueAttributeName::FifoQueue, "true");
    }
    create.send().await.unwrap();
    name
}

pub(crate) fn record(key: Option<&str>, id: &str, body: &str) -> Record {
    let key = key.map(|key| Bytes::copy_from_slice(key.as_bytes()));
    Record { key, body: Bytes::copy_from_slice(body.as_bytes()), id: id.to_owned() }
}

/// Fetches until there are `count`, and gives them.
pub(crate) async fn fetch_all(source: &dyn Source, count: usize) -> Vec<stream::StreamMessage> {
    let mut all = Vec::new();
    while all.len() < count {
        let fetched = source.fetch(count - all.len(), PATIENCE).await.unwrap();
        assert!(!fetched.is_empty(), "{} of {count}", all.len());
        all.extend(fetched);
    }
    all
}

pub(crate) fn texts(messages: &[stream::StreamMessage]) -> Vec<String> {
    let text = |body: &Bytes| String::from_utf8_lossy(body).into_owned();
    messages.iter().map(|message| message.body.as_ref().map_or_else(String::new, text)).collect()
}

pub(crate) fn sqs_target(settings: &SqsSettings) -> SqsTarget {
    SqsTarget::new(settings.clone(), Clock::system()).unwrap()
}

pub(crate) fn kinesis_target(settings: &KinesisSettings) -> KinesisTarget {
    KinesisTarget::new(settings.clone(), Clock::system()).unwrap()
}

//! The conformance suite.

use std::sync::Arc;

use async_trait::async_trait;
use flow::Clock;
use stream::conformance::{Carried, TestedStream, exercise};
use stream::kinesis::{KinesisSettings, KinesisSource, MemoryPositions, Positions};
use stream::sqs::{SqsSettings, SqsSource};
use stream::{Source, Target};

use crate::{aws, create_queue, kinesis, kinesis_target, sqs_target};

#[derive(Debug)]
struct TestedSqs(SqsSettings);

#[derive(Debug)]
struct TestedKinesis {
    settings: KinesisSettings,
    positions: Arc<MemoryPositions>,
}

/// A FIFO queue gives nothing more of a group while a message of it is held, so a reader of several at a time cannot count on them.
#[tokio::test]
async fn a_standard_queue_is_a_stream() {
    let endpoint = testbed::aws::shared_sqs_url().unwrap();
    let make = async || {
        let queue = create_queue(&endpoint, "").await;
        Box::new(TestedSqs(SqsSettings::new(queue, aws(&endpoint)))) as Box<dyn TestedStream>
    };
    exercise(make).await;
}

#[tokio::test]
async fn kinesis_is_a_stream() {
    let make = async || {
        let (settings, positions) = (kinesis::create(2).await, Arc::default());
        Box::new(TestedKinesis { settings, positions }) as Box<dyn TestedStream>
    };
    exercise(make).await;
}

#[async_trait]
impl TestedStream for TestedSqs {
    async fn source(&self) -> Box<dyn Source> {
        Box::new(SqsSource::open(&self.0, Clock::system()).await.unwrap())
    }

    async fn target(&self) -> Box<dyn Target> {
        Box::new(sqs_target(&self.0))
    }

    /// Bodies in SQS are text.
    fn carries(&self) -> Carried {
        Carried { key: false, binary: false, id: true, single: true, shared: true }
    }
}

#[async_trait]
impl TestedStream for TestedKinesis {
    async fn source(&self) -> Box<dyn Source> {
        let positions: Arc<dyn Positions> = Arc::clone(&self.positions) as _;
        Box::new(KinesisSource::open(&self.settings, positions, Clock::system()).await.unwrap())
    }

    async fn target(&self) -> Box<dyn Target> {
        Box::new(kinesis_target(&self.settings))
    }

    /// Two sources each read the whole stream: there are no leases between them.
    fn carries(&self) -> Carried {
        Carried { key: true, binary: true, id: true, single: true, shared: false }
    }
}

//! Queues of `ElasticMQ`, and queues and streams of moto.

use std::collections::BTreeSet;
use std::sync::Arc;

use aws_sdk_sqs::types::QueueAttributeName;
use channel::conformance::exercise;
use channel::{Channel, Secret, Tools};
use notification::{Bytes, Content, Verdict};
use stream::aws::{AwsSettings, sdk_config};
use stream::kinesis::{KinesisSettings, KinesisSource, KinesisTargets, MemoryPositions, Positions};
use stream::sqs::{SqsSettings, SqsSource, SqsTargets};
use stream::{OpenTargets, Source as _};

use crate::{
    Subject, bodies, channel, check_keys, chunk, clock_now, keyed_chunk, local, send, verdicts,
};

pub(crate) fn settings(endpoint: &str) -> AwsSettings {
    AwsSettings {
        region: Some("eu-central-1".to_owned()),
        endpoint: Some(endpoint.to_owned()),
        access_key_id: Some("key".to_owned()),
        secret_access_key: Some(Secret::new("secret")),
        ..AwsSettings::default()
    }
}

async fn create_queues(aws: &AwsSettings, standard: &[&str], fifo: &str) {
    let client = aws_sdk_sqs::Client::new(&sdk_config(aws).await.unwrap());
    for name in standard {
        client.create_queue().queue_name(*name).send().await.unwrap();
    }
    let create = client.create_queue().queue_name(fifo);
    create.attributes(QueueAttributeName::FifoQueue, "true").send().await.unwrap();
}

async fn create_streams(aws: &AwsSettings, names: &[&str]) {
    let client = aws_sdk_kinesis::Client::new(&sdk_config(aws).await.unwrap());
    for name in names {
        client.create_stream().stream_name(*name).shard_count(2).send().await.unwrap();
    }
}

#[tokio::test]
async fn sqs_is_a_channel() {
    let aws = settings(&testbed::aws::shared_sqs_url().unwrap());
    let queue = testbed::unique_prefix();
    let (suite, fifo) = (format!("{queue}-suite"), format!("{queue}.fifo"));
    create_queues(&aws, &[&queue, &suite], &fifo).await;
    let clock = clock_now();
    let open: Arc<dyn OpenTargets> =
        Arc::new(SqsTargets { aws: aws.clone(), account: None, clock });
    let subject = Subject { system: "sqs", name: suite, open: Arc::clone(&open), cuts_off: None };
    local(exercise(&subject, clock)).await;
    local(async {
        let sender = channel("sqs", open).open(Tools::new(clock, 1)).unwrap();
        let recipient = format!("sqs:{queue}");
        let mut mixed = chunk(clock, &recipient, 500);
        // No character of XML: SQS takes none of these, and the other nine of its call.
        let payload = "\"\u{ffff}\"".to_owned().into();
        let content = Content { payload, options: Bytes::new(), fallback: None };
        mixed.deliveries[77].content = Some(Box::new(content));
        let mut expected = vec![Verdict::Accepted; 500];
        expected[77] = Verdict::Refused { gone: false };
        assert_eq!(verdicts(&send(&*sender, clock, &mixed, None).await), expected);
        let keyed = keyed_chunk(clock, &format!("sqs:{fifo}"), 100, 7);
        let reports = send(&*sender, clock, &keyed, None).await;
        assert_eq!(verdicts(&reports), vec![Verdict::Accepted; 100]);
        let nowhere = format!("sqs:{queue}-nowhere");
        let reports = send(&*sender, clock, &chunk(clock, &nowhere, 12), None).await;
        assert_eq!(verdicts(&reports), [Verdict::Deferred { after: None }; 12]);
        sender.close().await;
    })
    .await;
    let source =
        async |queue| SqsSource::open(&SqsSettings::new(queue, aws.clone()), clock).await.unwrap();
    let (standard, fifo) = (source(queue).await, source(fifo).await);
    let came: BTreeSet<Bytes> = bodies(&standard, 499).await.into_iter().collect();
    assert_eq!(came.len(), 499);
    check_keys(&bodies(&fifo, 100).await, 7);
    standard.close().await;
    fifo.close().await;
}

#[tokio::test]
async fn kinesis_is_a_channel() {
    let aws = settings(&testbed::aws::shared_moto_url().unwrap());
    let stream = testbed::unique_prefix();
    let (suite, keyed) = (format!("{stream}-suite"), format!("{stream}-keyed"));
    create_streams(&aws, &[&stream, &suite, &keyed]).await;
    let clock = clock_now();
    let targets = |ordered| -> Arc<dyn OpenTargets> {
        Arc::new(KinesisTargets { aws: aws.clone(), ordered, clock })
    };
    let open = targets(false);
    let subject = Subject { system: "kinesis", name: suite, open, cuts_off: None };
    local(exercise(&subject, clock)).await;
    local(async {
        let tools = Tools::new(clock, 1);
        let sender = channel("kinesis", targets(false)).open(tools.clone()).unwrap();
        let recipient = format!("kinesis:{stream}");
        let reports = send(&*sender, clock, &chunk(clock, &recipient, 1_000), None).await;
        assert_eq!(verdicts(&reports), vec![Verdict::Accepted; 1_000]);
        let nowhere = format!("kinesis:{stream}-nowhere");
        let reports = send(&*sender, clock, &chunk(clock, &nowhere, 2), None).await;
        assert_eq!(verdicts(&reports), [Verdict::Deferred { after: None }; 2]);
        sender.close().await;
        let sender = channel("kinesis", targets(true)).open(tools).unwrap();
        let chunk_of_keys = keyed_chunk(clock, &format!("kinesis:{keyed}"), 100, 7);
        let reports = send(&*sender, clock, &chunk_of_keys, None).await;
        assert_eq!(verdicts(&reports), vec![Verdict::Accepted; 100]);
        sender.close().await;
    })
    .await;
    let source = async |stream| {
        let positions: Arc<dyn Positions> = Arc::new(MemoryPositions::default());
        let settings = KinesisSettings::new(stream, aws.clone());
        KinesisSource::open(&settings, positions, clock).await.unwrap()
    };
    let came: BTreeSet<Bytes> = bodies(&source(stream).await, 1_000).await.into_iter().collect();
    assert_eq!(came.len(), 1_000);
    check_keys(&bodies(&source(keyed).await, 100).await, 7);
}

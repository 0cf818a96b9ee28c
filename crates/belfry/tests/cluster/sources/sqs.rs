//! SQS: a queue that gives again what was not deleted in time.

use bytes::Bytes;
use flow::Clock;
use serde_json::Value;
use stream::aws::sdk_config;
use stream::aws::sqs_queue::SqsQueue;
use stream::sqs::{SqsSettings, SqsSource, SqsTarget};

use super::{BAD, check_letters, kill_twice, letters, notification, put_all, records, runtime};
use crate::support::{Cluster, eventually};

/// Messages that are notifications: ten of them are one call.
const GOOD: u64 = 3_000;

/// Messages of the queue, those that are given and not deleted too.
async fn count(queue: &SqsQueue) -> Option<u64> {
    let attributes = queue.attributes().await.ok()?;
    let counts = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"];
    counts.into_iter().map(|name| attributes.get(name)?.parse::<u64>().ok()).sum()
}

#[test]
fn an_engine_that_is_killed_reads_every_message_of_sqs_once() {
    let (endpoint, name) = (testbed::aws::shared_sqs_url().unwrap(), testbed::unique_prefix());
    let (runtime, dead) = (runtime(), format!("{name}-dead"));
    // What a killed engine had in hand comes again soon.
    let parameters = format!("region=us-east-1&endpoint={endpoint}&visibility_seconds=5");
    let url = |queue: &str| format!("sqs://key:secret@{queue}?{parameters}");
    let settings = |queue: &str| SqsSettings::from_url(&url(queue)).unwrap();
    // SQS takes neither empty messages nor control characters.
    let bad = [
        Bytes::from_static(b"{\"no\": \"notification\"}"),
        Bytes::from_static(b"no JSON"),
        vec![b'x'; 200_000].into(),
    ];
    let queue = runtime.block_on(async {
        let config = sdk_config(&settings(&name).aws).await.unwrap();
        let queue = SqsQueue::find_or_create(&config, &name, &[]).await.unwrap();
        SqsQueue::find_or_create(&config, &dead, &[]).await.unwrap();
        let target = SqsTarget::new(settings(&name), Clock::system()).unwrap();
        put_all(&target, &records(GOOD, notification, &bad)).await;
        queue
    });
    let source =
        format!("[{{ name = \"orders\", url = \"{}\", dead_letters = \"{dead}\" }}]", url(&name));
    let cluster = Cluster::on_disk(GOOD, &[]).with("BELFRY__SOURCES", source);
    kill_twice(&cluster, GOOD, 4711);
    let engine = cluster.start("serve", "engine");
    cluster.drained(&engine, GOOD);
    // SQS drops no letter that comes twice.
    let letters: Vec<Value> = runtime.block_on(async {
        let source = SqsSource::open(&settings(&dead), Clock::system()).await.unwrap();
        letters(&source, BAD).await
    });
    check_letters(&letters, BAD);
    eventually("nothing is left", || runtime.block_on(count(&queue)) == Some(0));
    engine.stop();
}

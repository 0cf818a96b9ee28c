//! The servers of the row `stream`, with a queue and a stream in them.

use std::collections::HashSet;
use std::ops::Range;

use anyhow::{Context as _, Result, ensure};
use aws_sdk_kinesis::types::ShardIteratorType::TrimHorizon;
use aws_sdk_sqs::types::{QueueAttributeName, SendMessageBatchRequestEntry};
use futures_util::StreamExt as _;
use stream::aws::{AwsUrl, sdk_config};
use testbed::aws::{ElasticMq, Moto};
use tokio::runtime::Runtime;

/// `ElasticMQ` with a queue, and moto with a stream.
#[derive(Debug)]
pub struct StreamRig {
    runtime: Runtime,
    queues: ElasticMq,
    streams: Moto,
    sqs: aws_sdk_sqs::Client,
    kinesis: aws_sdk_kinesis::Client,
}

/// Records of the stream, counted by the numbers of their messages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ArrivedRecords {
    /// Messages that are there.
    pub messages: u64,
    /// Records beyond the first of a message.
    pub repeated: u64,
}

/// Bytes of a message, of which the first [`DIGITS`] are its number.
const BODY: usize = 256;
const DIGITS: usize = 10;
/// Seconds after which a message that is in hand is seen again.
const VISIBILITY: &str = "30";
const QUEUE: &str = "orders";
const STREAM: &str = "events";
/// moto looks through all records of a shard for each that is put: with many shards, and a new stream for each measurement, its own
/// work stays small beside that of those who are compared.
const SHARDS: i32 = 64;
/// Messages of one call that fills the queue, which is the bound of SQS, and calls at a time.
const SENT: usize = 10;
const SENDS: usize = 8;
/// Records of one answer of the stream, at most.
const READ: i32 = 10_000;

// === impl StreamRig ===

impl StreamRig {
    /// Starts both servers.
    ///
    /// # Errors
    /// When one was not fetched or does not start; the error says which script fetches it.
    pub fn start() -> Result<Self> {
        let runtime = Runtime::new()?;
        let (queues, streams) = (ElasticMq::start_in_memory()?, Moto::start()?);
        let sqs = AwsUrl::parse(&from_url(&queues.url()), "sqs")?.aws;
        let kinesis = AwsUrl::parse(&to_url(&streams.url()), "kinesis")?.aws;
        let (sqs, kinesis) =
            (runtime.block_on(sdk_config(&sqs))?, runtime.block_on(sdk_config(&kinesis))?);
        let (sqs, kinesis) =
            (aws_sdk_sqs::Client::new(&sqs), aws_sdk_kinesis::Client::new(&kinesis));
        let rig = Self { runtime, queues, streams, sqs, kinesis };
        rig.runtime.block_on(rig.create())?;
        Ok(rig)
    }

    /// Where the servers listen: SQS, and Kinesis.
    pub fn endpoints(&self) -> (String, String) {
        (self.queues.url(), self.streams.url())
    }

    /// The process of the server with the stream, to stop it.
    pub fn target_process(&self) -> Option<u32> {
        self.streams.process()
    }

    /// Makes the stream empty, and the queue too but for `count` messages, whose numbers begin at 0.
    ///
    /// # Errors
    /// When a server does not do its part.
    pub fn fill(&self, count: usize) -> Result<()> {
        self.runtime.block_on(async {
            self.kinesis.delete_stream().stream_name(STREAM).send().await?;
            let url = self.sqs.get_queue_url().queue_name(QUEUE).send().await?.queue_url;
            self.sqs.delete_queue().set_queue_url(url).send().await?;
            let url = self.create().await?;
            let firsts = (0..count).step_by(SENT);
            let sends = firsts.map(|first| self.send(&url, first..count.min(first + SENT)));
            let mut sends = futures_util::stream::iter(sends).buffer_unordered(SENDS);
            while let Some(sent) = sends.next().await {
                sent?;
            }
            Ok(())
        })
    }

    /// Messages in the queue, those included that are in hand.
    ///
    /// # Errors
    /// When the server does not say.
    pub fn left(&self) -> Result<u64> {
        Ok(self.attributes()?.iter().sum())
    }

    /// Messages that are visible, and those that are in hand.
    ///
    /// # Errors
    /// When the server does not say.
    pub fn attributes(&self) -> Result<[u64; 2]> {
        let names = [
            QueueAttributeName::ApproximateNumberOfMessages,
            QueueAttributeName::ApproximateNumberOfMessagesNotVisible,
        ];
        self.runtime.block_on(async {
            let url = self.sqs.get_queue_url().queue_name(QUEUE).send().await?;
            let url = url.queue_url.context("a queue has a URL")?;
            let call = self.sqs.get_queue_attributes().queue_url(url);
            let answer = call.set_attribute_names(Some(names.to_vec())).send().await?;
            let attributes = answer.attributes.unwrap_or_default();
            let [visible, held] = names.map(|name| attributes.get(&name).map(|text| text.parse()));
            Ok([visible.context("it says so")??, held.context("it says so")??])
        })
    }

    /// Reads the whole stream.
    ///
    /// # Errors
    /// When the server does not answer, or a record has no number.
    pub fn arrived(&self) -> Result<ArrivedRecords> {
        self.runtime.block_on(async {
            let mut numbers = Numbers::default();
            let shards = self.kinesis.list_shards().stream_name(STREAM).send().await?;
            for shard in shards.shards.unwrap_or_default() {
                let call = self.kinesis.get_shard_iterator().stream_name(STREAM);
                let call = call.shard_id(shard.shard_id).shard_iterator_type(TrimHorizon);
                let mut iterator = call.send().await?.shard_iterator;
                loop {
                    let call = self.kinesis.get_records().set_shard_iterator(iterator);
                    let read = call.limit(READ).send().await?;
                    if read.records.is_empty() {
                        break;
                    }
                    for record in &read.records {
                        numbers.note(record.data.as_ref())?;
                    }
                    iterator = read.next_shard_iterator;
                }
            }
            Ok(numbers.count())
        })
    }

    /// Has the queue take the messages of these `numbers`, at most [`SENT`].
    async fn send(&self, url: &str, numbers: Range<usize>) -> Result<()> {
        let entries = numbers.map(|number| {
            let entry = SendMessageBatchRequestEntry::builder().id(number.to_string());
            entry.message_body(message(number)).build()
        });
        let entries = entries.collect::<Result<Vec<_>, _>>()?;
        let send = self.sqs.send_message_batch().queue_url(url).set_entries(Some(entries));
        let failed = send.send().await?.failed;
        ensure!(failed.is_empty(), "the queue did not take {failed:?}");
        Ok(())
    }

    /// Creates the stream and the queue, and gives the URL of this.
    async fn create(&self) -> Result<String> {
        let create = self.kinesis.create_stream().stream_name(STREAM).shard_count(SHARDS);
        create.send().await?;
        let create = self.sqs.create_queue().queue_name(QUEUE);
        let create = create.attributes(QueueAttributeName::VisibilityTimeout, VISIBILITY);
        create.send().await?.queue_url.context("a queue has a URL")
    }
}

/// The URL of the queue for `belfry relay`.
pub fn from_url(endpoint: &str) -> String {
    format!("sqs://key:secret@{QUEUE}?region=eu-central-1&endpoint={endpoint}")
}

/// The URL of the stream, likewise.
pub fn to_url(endpoint: &str) -> String {
    format!("kinesis://key:secret@{STREAM}?region=eu-central-1&endpoint={endpoint}")
}

/// The message `number`.
fn message(number: usize) -> String {
    format!("{number:0DIGITS$}{}", "x".repeat(BODY - DIGITS))
}

/// Numbers of messages that were read.
#[derive(Debug, Default)]
struct Numbers {
    seen: HashSet<u64>,
    repeated: u64,
}

// === impl Numbers ===

impl Numbers {
    fn note(&mut self, body: &[u8]) -> Result<()> {
        let digits = body.get(..DIGITS).and_then(|digits| str::from_utf8(digits).ok());
        let number = digits.and_then(|digits| digits.parse().ok());
        let is_new = self.seen.insert(number.context("a record that was never sent")?);
        self.repeated += u64::from(!is_new);
        Ok(())
    }

    fn count(&self) -> ArrivedRecords {
        ArrivedRecords { messages: self.seen.len() as u64, repeated: self.repeated }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_counted_by_its_number() {
        let mut numbers = Numbers::default();
        for number in [7, 8, 7, 4_000_000_000] {
            let message = message(number);
            assert_eq!(message.len(), BODY);
            numbers.note(message.as_bytes()).unwrap();
        }
        assert_eq!(numbers.count(), ArrivedRecords { messages: 3, repeated: 1 });
        assert!(numbers.note(b"something else").is_err());
    }
}

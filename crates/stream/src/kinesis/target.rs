//! The target: batches with a verdict for each record.

use async_trait::async_trait;
use aws_sdk_kinesis::Client;
use aws_sdk_kinesis::error::BuildError;
use aws_sdk_kinesis::primitives::Blob;
use aws_sdk_kinesis::types::{PutRecordsRequestEntry, PutRecordsResultEntry};
use flow::Clock;
use tokio::sync::OnceCell;

use super::settings::KinesisSettings;
use crate::aws::{
    AwsFailure, AwsSettings, KeyOrder, entry_failure, find_once, plain_key, put_in_batches,
    sdk_config,
};
use crate::{BatchLimits, OpenTargets, PutError, Record, StreamError, Target};

/// A stream to write to, which is looked up with the first records.
///
/// The partition key is the record's key, in hexadecimal when it is no printable ASCII, or its identifier. Kinesis drops no repeated
/// records.
#[derive(Debug)]
pub struct KinesisTarget {
    settings: KinesisSettings,
    clock: Clock,
    client: OnceCell<Client>,
}

/// The streams of an account, to write to.
#[derive(Debug)]
pub struct KinesisTargets {
    /// Region, endpoint and credentials.
    pub aws: AwsSettings,
    /// Whether the order of each key is kept, which costs calls.
    pub ordered: bool,
    /// The time.
    pub clock: Clock,
}

/// Kinesis's bounds of `PutRecords`, and of a record, less the room of partition keys: they are longer than the keys that they stand
/// for, or stand for none.
const LIMITS: BatchLimits = BatchLimits {
    records: RECORDS_MAX,
    bytes: (5 << 20) - RECORDS_MAX * KEY_BYTES,
    record_bytes: (1 << 20) - KEY_BYTES,
};
/// Kinesis's bound of `PutRecords`.
const RECORDS_MAX: usize = 500;
/// Kinesis's bound of a partition key, characters.
const KEY_BYTES: usize = 256;
/// Kinesis's bound of a stream's name.
const NAME_BYTES: usize = 128;

// === impl KinesisTargets ===

impl OpenTargets for KinesisTargets {
    /// A name alone, no ARN: callers name targets, and must not choose the region and the account that our requests go to.
    fn check(&self, name: &str) -> Result<(), StreamError> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if (1..=NAME_BYTES).contains(&name.len()) && name.chars().all(is_plain) {
            return Ok(());
        }
        Err(StreamError::Refused(format!(
            "{name:?} is not the name of a stream of Kinesis: 1 to {NAME_BYTES} letters, digits, -, _ and dots"
        )))
    }

    fn open(&self, name: &str) -> Result<Box<dyn Target>, StreamError> {
        self.check(name)?;
        let stream = KinesisSettings::new(name, self.aws.clone());
        let settings = KinesisSettings { ordered: self.ordered, ..stream };
        Ok(Box::new(KinesisTarget::new(settings, self.clock)?))
    }
}

// === impl KinesisTarget ===

impl KinesisTarget {
    /// The stream of `settings`. Connects to nothing yet.
    ///
    /// # Errors
    /// When settings cannot work.
    pub fn new(settings: KinesisSettings, clock: Clock) -> Result<Self, StreamError> {
        settings.check()?;
        Ok(Self { settings, clock, client: OnceCell::new() })
    }

    /// Finds the stream now.
    ///
    /// # Errors
    /// When it is not there or may not be used, or there are no credentials, or it is not reached.
    pub async fn find(&self) -> Result<(), StreamError> {
        self.client().await.map(drop)
    }

    async fn client(&self) -> Result<&Client, StreamError> {
        find_once(&self.client, self.clock, || self.look_up()).await
    }

    async fn look_up(&self) -> Result<Client, StreamError> {
        let client = Client::new(&sdk_config(&self.settings.aws).await?);
        let (name, arn) = self.settings.name_and_arn();
        let found = client.describe_stream_summary().set_stream_name(name).set_stream_arn(arn);
        let found = Box::pin(found.send()).await;
        let place = self.settings.place();
        found.map_err(|error| AwsFailure::of(&error, &place).into_stream_error())?;
        Ok(client)
    }

    async fn put_records(
        &self,
        client: &Client,
        records: Vec<&Record>,
    ) -> Vec<Result<(), PutError>> {
        let entries: Vec<_> = records.iter().map(|record| entry(record)).collect();
        let good: Vec<PutRecordsRequestEntry> = entries.iter().flatten().cloned().collect();
        let mut answers = self.call(client, good).await.into_iter();
        let answer = |entry: Result<PutRecordsRequestEntry, PutError>| {
            entry?;
            answers.next().unwrap_or_else(|| Err(silent()))
        };
        entries.into_iter().map(answer).collect()
    }

    async fn call(
        &self,
        client: &Client,
        entries: Vec<PutRecordsRequestEntry>,
    ) -> Vec<Result<(), PutError>> {
        let (count, place) = (entries.len(), self.settings.place());
        if entries.is_empty() {
            return Vec::new();
        }
        let (name, arn) = self.settings.name_and_arn();
        let call = client.put_records().set_stream_name(name).set_stream_arn(arn);
        match Box::pin(call.set_records(Some(entries)).send()).await {
            Ok(answer) => verdicts(count, &answer.records, &place),
            Err(error) => {
                let failure = AwsFailure::of(&error, &place).of_each(count);
                vec![Err(failure.into_put_error()); count]
            }
        }
    }
}

#[async_trait]
impl Target for KinesisTarget {
    fn limits(&self) -> BatchLimits {
        LIMITS
    }

    /// Only with the setting `ordered`, and at a price. Kinesis may take the second record of a key and not the first, and what is then
    /// put again comes behind; so a call has one record of each key, and 500 of one key take 500 calls, one after the other: about 100 a second
    /// at 10 ms each. Without the setting a batch is one call.
    fn keeps_order(&self) -> bool {
        self.settings.ordered
    }

    async fn put(&self, records: &[Record]) -> Vec<Result<(), PutError>> {
        if records.is_empty() {
            return Vec::new();
        }
        let client = match self.client().await {
            Ok(client) => client,
            Err(error) => return vec![Err(PutError::NotTaken(error.to_string())); records.len()],
        };
        let order = if self.settings.ordered { KeyOrder::ByKey } else { KeyOrder::Free };
        put_in_batches(records, order, self.clock, |batch| self.put_records(client, batch)).await
    }

    async fn close(&self) {}
}

/// The answer for each of `count` records.
fn verdicts(
    count: usize,
    entries: &[PutRecordsResultEntry],
    place: &str,
) -> Vec<Result<(), PutError>> {
    let verdict = |number: usize| {
        let entry = entries.get(number).ok_or_else(silent)?;
        match (entry.error_code(), entry.sequence_number()) {
            (Some(code), _) => {
                let message = entry.error_message().unwrap_or_default();
                // The codes of records are of throughput and of the service; a request that is wrong fails as a whole.
                Err(entry_failure(code, false, message, place).into_put_error())
            }
            (None, Some(_sequence_number)) => Ok(()),
            (None, None) => Err(silent()),
        }
    };
    (0..count).map(verdict).collect()
}

fn entry(record: &Record) -> Result<PutRecordsRequestEntry, PutError> {
    let key = record.key.as_deref().unwrap_or(record.id.as_bytes());
    let key = plain_key(key, KEY_BYTES).ok_or_else(|| {
        PutError::Refused("its key is empty or too long for a partition key of Kinesis".to_owned())
    })?;
    // Its own check of what is missing: nothing is.
    let refused = |error: BuildError| PutError::Refused(error.to_string());
    let entry = PutRecordsRequestEntry::builder().partition_key(key);
    entry.data(Blob::new(record.body.to_vec())).build().map_err(refused)
}

fn silent() -> PutError {
    PutError::Unknown("Kinesis did not answer for it".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_a_stream_by_its_name_alone() {
        let aws = AwsSettings::default();
        let targets = KinesisTargets { aws, ordered: true, clock: Clock::system() };
        assert!(targets.open("Orders-1_eu.all").unwrap().keeps_order());
        let long = "x".repeat(129);
        for name in ["", "a b", "arn:aws:kinesis:eu-west-1:1:stream/a", "a/b", long.as_str()] {
            assert!(matches!(targets.open(name), Err(StreamError::Refused(_))), "{name}");
        }
    }

    /// An answer as Kinesis gives it when a shard is busy, with the code and the message of its reference (`PutRecords`).
    #[test]
    fn a_partial_answer_has_a_verdict_for_each() {
        let taken = || PutRecordsResultEntry::builder().sequence_number("1").shard_id("s").build();
        let failed = |code: &str| {
            let entry = PutRecordsResultEntry::builder().error_code(code);
            entry.error_message("Rate exceeded for shard shardId-000000000001").build()
        };
        let entries = [
            taken(),
            failed("ProvisionedThroughputExceededException"),
            failed("InternalFailure"),
            taken(),
            PutRecordsResultEntry::builder().build(),
        ];
        let verdicts = verdicts(6, &entries, "Kinesis");
        assert_eq!((&verdicts[0], &verdicts[3]), (&Ok(()), &Ok(())));
        assert!(
            matches!(&verdicts[1], Err(PutError::Throttled { after: None, why }) if why.contains("Rate exceeded"))
        );
        for unknown in [2, 4, 5] {
            assert!(matches!(verdicts[unknown], Err(PutError::Unknown(_))), "{unknown}");
        }
    }
}

//! The target: batches with a verdict for each record.

use async_trait::async_trait;
use aws_sdk_kinesis::Client;
use aws_sdk_kinesis::error::BuildError;
use aws_sdk_kinesis::primitives::Blob;
use aws_sdk_kinesis::types::{PutRecordsRequestEntry, PutRecordsResultEntry};

use super::settings::KinesisSettings;
use crate::aws::{AwsFailure, KeyOrder, entry_failure, plain_key, put_in_batches, sdk_config};
use crate::{BatchLimits, PutError, Record, StreamError, Target};

/// A stream to write to.
///
/// The partition key is the record's key, in hexadecimal when it is no printable ASCII, or its identifier. Kinesis drops no repeated
/// records.
#[derive(Debug)]
pub struct KinesisTarget {
    client: Client,
    settings: KinesisSettings,
}

/// Kinesis's bounds of `PutRecords`, and of a record with its partition key.
const LIMITS: BatchLimits = BatchLimits { records: 500, bytes: 5 << 20, record_bytes: 1 << 20 };
/// Kinesis's bound of a partition key, characters.
const KEY_BYTES: usize = 256;

// === impl KinesisTarget ===

impl KinesisTarget {
    /// Finds the stream of `settings`.
    ///
    /// # Errors
    /// When settings cannot work, or the stream is not there or may not be used.
    pub async fn open(settings: &KinesisSettings) -> Result<Self, StreamError> {
        settings.check()?;
        let client = Client::new(&sdk_config(&settings.aws).await?);
        let (name, arn) = settings.name_and_arn();
        let found = client.describe_stream_summary().set_stream_name(name).set_stream_arn(arn);
        let found = found.send().await;
        found.map_err(|error| AwsFailure::of(&error, &settings.place()).into_stream_error())?;
        Ok(Self { client, settings: settings.clone() })
    }

    async fn put_records(&self, records: Vec<&Record>) -> Vec<Result<(), PutError>> {
        let entries: Vec<_> = records.iter().map(|record| entry(record)).collect();
        let good: Vec<PutRecordsRequestEntry> = entries.iter().flatten().cloned().collect();
        let mut answers = self.call(good).await.into_iter();
        let answer = |entry: Result<PutRecordsRequestEntry, PutError>| {
            entry?;
            answers.next().unwrap_or_else(|| Err(silent()))
        };
        entries.into_iter().map(answer).collect()
    }

    async fn call(&self, entries: Vec<PutRecordsRequestEntry>) -> Vec<Result<(), PutError>> {
        let (count, place) = (entries.len(), self.settings.place());
        if entries.is_empty() {
            return Vec::new();
        }
        let (name, arn) = self.settings.name_and_arn();
        let call = self.client.put_records().set_stream_name(name).set_stream_arn(arn);
        match call.set_records(Some(entries)).send().await {
            Ok(answer) => verdicts(count, &answer.records, &place),
            Err(error) => vec![Err(AwsFailure::of(&error, &place).into_put_error()); count],
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
        let order = if self.settings.ordered { KeyOrder::ByKey } else { KeyOrder::Free };
        put_in_batches(records, order, |batch| self.put_records(batch)).await
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

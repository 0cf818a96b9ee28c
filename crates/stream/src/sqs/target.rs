//! The target: batches of ten with a verdict for each.

use async_trait::async_trait;
use flow::Clock;
use tokio::sync::OnceCell;

use super::settings::{FIFO, SqsSettings};
use crate::aws::sqs_queue::{ENTRIES_MAX, SqsEntry, SqsOrder, SqsQueue};
use crate::aws::{AwsFailure, AwsSettings, KeyOrder, find_once, plain_key, put_in_batches};
use crate::{BatchLimits, OpenTargets, PutError, Record, StreamError, Target};

/// A queue to write to, which is looked up with the first records.
///
/// A body must be UTF-8 text without control characters: SQS takes nothing else. In a FIFO queue the key is the message group and the
/// identifier drops repeated messages for five minutes; both are hexadecimal when they are no printable ASCII. A record without a
/// key is a group of its own. A standard queue has neither.
#[derive(Debug)]
pub struct SqsTarget {
    settings: SqsSettings,
    clock: Clock,
    queue: OnceCell<SqsQueue>,
}

/// The queues of an account, to write to.
#[derive(Debug)]
pub struct SqsTargets {
    /// Region, endpoint and credentials.
    pub aws: AwsSettings,
    /// The account that the queues are of, if not that of the credentials.
    pub account: Option<String>,
    /// The time.
    pub clock: Clock,
}

/// SQS's bound of a message and of a batch.
const BYTES_MAX: usize = 1 << 20;
/// SQS's bound of a message group's name and a deduplication identifier.
const NAME_BYTES: usize = 128;
/// SQS's bound of a queue's name.
const QUEUE_NAME_BYTES: usize = 80;

// === impl SqsTargets ===

impl SqsTargets {
    fn settings(&self, name: &str) -> SqsSettings {
        let queue = SqsSettings::new(name, self.aws.clone());
        SqsSettings { account: self.account.clone(), ..queue }
    }
}

impl OpenTargets for SqsTargets {
    /// A name alone, not the URL of a queue: callers name targets, and must not choose the server that our requests go to.
    fn check(&self, name: &str) -> Result<(), StreamError> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        let stem = name.strip_suffix(FIFO).unwrap_or(name);
        if !stem.is_empty() && stem.chars().all(is_plain) && name.len() <= QUEUE_NAME_BYTES {
            return Ok(());
        }
        Err(StreamError::Refused(format!(
            "{name:?} is not the name of a queue of SQS: 1 to {QUEUE_NAME_BYTES} letters, digits, - and _, and {FIFO} at \
             the end of a FIFO queue's"
        )))
    }

    fn open(&self, name: &str) -> Result<Box<dyn Target>, StreamError> {
        self.check(name)?;
        Ok(Box::new(SqsTarget::new(self.settings(name), self.clock)?))
    }
}

// === impl SqsTarget ===

impl SqsTarget {
    /// The queue of `settings`. Connects to nothing yet.
    ///
    /// # Errors
    /// When settings cannot work.
    pub fn new(settings: SqsSettings, clock: Clock) -> Result<Self, StreamError> {
        settings.check()?;
        Ok(Self { settings, clock, queue: OnceCell::new() })
    }

    /// Finds the queue now.
    ///
    /// # Errors
    /// When it is not there or may not be used, or there are no credentials, or it is not reached.
    pub async fn find(&self) -> Result<(), StreamError> {
        self.queue().await.map(drop)
    }

    async fn queue(&self) -> Result<&SqsQueue, StreamError> {
        find_once(&self.queue, self.clock, || self.settings.find()).await
    }

    async fn send(&self, queue: &SqsQueue, records: Vec<&Record>) -> Vec<Result<(), PutError>> {
        let is_fifo = queue.is_fifo();
        let entries: Vec<_> = records.iter().map(|record| entry(record, is_fifo)).collect();
        let good: Vec<SqsEntry> = entries.iter().flatten().cloned().collect();
        let sent = if good.is_empty() { Vec::new() } else { queue.send(good).await };
        let mut answers = sent.into_iter();
        let silent = || Err(PutError::Unknown("no answer came for it".to_owned()));
        let answer = |entry: Result<SqsEntry, PutError>| {
            entry?;
            answers.next().map_or_else(silent, |answer| answer.map_err(AwsFailure::into_put_error))
        };
        entries.into_iter().map(answer).collect()
    }
}

#[async_trait]
impl Target for SqsTarget {
    fn limits(&self) -> BatchLimits {
        BatchLimits { records: ENTRIES_MAX, bytes: BYTES_MAX, record_bytes: BYTES_MAX }
    }

    /// A FIFO queue does, at the price that a call has one record of each key: ten of one key take ten calls, one after the other.
    fn keeps_order(&self) -> bool {
        self.settings.is_fifo()
    }

    async fn put(&self, records: &[Record]) -> Vec<Result<(), PutError>> {
        if records.is_empty() {
            return Vec::new();
        }
        let queue = match self.queue().await {
            Ok(queue) => queue,
            Err(error) => return vec![Err(PutError::NotTaken(error.to_string())); records.len()],
        };
        let order = if queue.is_fifo() { KeyOrder::ByKey } else { KeyOrder::Free };
        put_in_batches(records, order, self.clock, |batch| self.send(queue, batch)).await
    }

    async fn close(&self) {}
}

fn entry(record: &Record, is_fifo: bool) -> Result<SqsEntry, PutError> {
    let body = std::str::from_utf8(&record.body).ok().filter(|body| body.chars().all(is_allowed));
    let Some(body) = body else {
        let why = "SQS takes UTF-8 text without control characters: encode the body, in base64 for example";
        return Err(PutError::Refused(why.to_owned()));
    };
    if body.is_empty() {
        return Err(PutError::Refused("SQS takes no empty body".to_owned()));
    }
    let order = if is_fifo { Some(order(record)?) } else { None };
    Ok(SqsEntry { body: body.to_owned(), order })
}

fn order(record: &Record) -> Result<SqsOrder, PutError> {
    let name = |what: &str, bytes: &[u8]| {
        let name = plain_key(bytes, NAME_BYTES);
        name.ok_or_else(|| PutError::Refused(format!("its {what} is empty or too long for SQS")))
    };
    let deduplication = name("identifier", record.id.as_bytes())?;
    let group = match &record.key {
        Some(key) => name("key", key)?,
        None => deduplication.clone(),
    };
    Ok(SqsOrder { group, deduplication })
}

/// The characters of a message, by SQS's reference (`SendMessage`).
fn is_allowed(character: char) -> bool {
    matches!(
        character,
        '\t' | '\n' | '\r' | ' '..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..='\u{10ffff}'
    )
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn a_target_is_a_queue_by_its_name_alone() {
        let targets = SqsTargets {
            aws: AwsSettings::default(),
            account: Some("1234".to_owned()),
            clock: Clock::system(),
        };
        for (name, keeps_order) in [("orders", false), ("Or-ders_2.fifo", true)] {
            assert_eq!(targets.open(name).unwrap().keeps_order(), keeps_order, "{name}");
        }
        let long = "x".repeat(81);
        for name in ["", ".fifo", "a b", "http://169.254.169.254/1/q", "a.b", "../q", long.as_str()]
        {
            assert!(matches!(targets.open(name), Err(StreamError::Refused(_))), "{name}");
        }
    }

    #[test]
    fn what_sqs_cannot_carry_is_refused_by_itself() {
        let record = |key: Option<&'static [u8]>, body: &'static [u8]| Record {
            key: key.map(Bytes::from_static),
            body: Bytes::from_static(body),
            id: "id 1".to_owned(),
        };
        for body in [&b""[..], b"\xff", b"\0", "\u{ffff}".as_bytes()] {
            assert!(matches!(entry(&record(None, body), false), Err(PutError::Refused(_))));
        }
        assert_eq!(entry(&record(Some(b"k"), b"{}\n"), false).unwrap().order, None);
        let order = entry(&record(Some(b"k"), b"{}"), true).unwrap().order.unwrap();
        assert_eq!((order.group.as_str(), order.deduplication.as_str()), ("k", "69642031"));
        let order = entry(&record(None, b"{}"), true).unwrap().order.unwrap();
        assert_eq!(order.group, order.deduplication);
        assert!(entry(&record(Some(&[0; 65]), b"{}"), true).is_err());
    }
}

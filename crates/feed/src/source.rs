//! Sources: notifications that are read from streams of other systems.
//!
//! A batch of messages is fetched, checked as a request is, stored, and then acknowledged: what a crash leaves unacknowledged comes
//! again, and its idempotency key, the name of the source with the identifier of the message, has it stored once. A message that is no
//! notification goes to the dead letters with the reason, or is counted and logged where there are none; it holds up no other. While
//! ingest has no room nothing is fetched.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use aws_lc_rs::digest;
use flow::LogThrottle;
use notification::{ByteString, Draft, Idempotency, Name, limits};
use pipeline::Intake;
use pipeline::ingest::json::ParseError;
use pipeline::ingest::{IngestError, parse};
use serde::Serialize;
use store::{Admission, ErrorKind, StoreError};
use stream::{Record, Source, StreamMessage, StreamReceipt, Target};
use tokio::sync::watch;
use tokio::time::sleep;

/// Reads notifications of one tenant from a source.
#[derive(Debug)]
pub struct SourceReader {
    /// Name of the source in the configuration: a part of its idempotency keys.
    pub name: Name,
    /// The source.
    pub source: Arc<dyn Source>,
    /// Tenant of the notifications.
    pub tenant: Name,
    /// Intake that accepts them.
    pub intake: Arc<Intake>,
    /// Target of the messages that are no notifications; `None` to have them logged and dropped.
    pub dead_letters: Option<Arc<dyn Target>>,
    /// Counts of its messages.
    pub counts: Arc<SourceCounts>,
}

/// Messages of a source so far.
#[derive(Debug, Default)]
pub struct SourceCounts {
    /// Stored as notifications.
    pub accepted: AtomicU64,
    /// Stored before, and come again.
    pub repeated: AtomicU64,
    /// No notifications: put to the dead letters, or dropped where there are none.
    pub dead: AtomicU64,
}

/// A dead letter.
#[derive(Serialize)]
struct DeadLetter<'a> {
    source: &'a str,
    id: &'a str,
    reason: &'a str,
    /// The content; bytes that are no UTF-8 are replaced.
    body: std::borrow::Cow<'a, str>,
}

/// Fates of the messages of a batch.
#[derive(Debug, Default)]
struct Sorted {
    drafts: Vec<(StreamReceipt, Draft)>,
    dead: Vec<(StreamMessage, String)>,
    /// Messages for which ingest has no room now.
    back: Vec<StreamReceipt>,
}

/// Messages of one batch: as many as a transaction of the store takes well.
const BATCH: usize = 500;
/// Time for which a fetch waits for the first message.
const FETCH_WAIT: Duration = Duration::from_secs(20);
/// Time between two tries while the source, the store or the dead letters are away.
const TRY_AGAIN_AFTER: Duration = Duration::from_secs(1);
/// Time between two log lines about the same trouble.
const WARN_EVERY: Duration = Duration::from_mins(1);
/// The prefix of keys of sources. No caller's key has a control character.
const SOURCE_KEYS: char = '\u{1}';
/// Bytes of the identifier of a message that stand in its key as they are. A longer one is there as its SHA-256.
const PLAIN_ID_BYTES: usize = 128;

const _: () = assert!(limits::KEY_BYTES >= PLAIN_ID_BYTES + 64 + 16);

// === impl SourceReader ===

impl SourceReader {
    /// Reads until `stopping` turns true, and closes the source.
    ///
    /// # Errors
    /// When the store failed: what was not acknowledged comes again.
    pub async fn run(self, mut stopping: watch::Receiver<bool>) -> Result<(), StoreError> {
        let mut throttle = LogThrottle::new(WARN_EVERY);
        let mut ended = Ok(());
        while !*stopping.borrow() {
            let batch = tokio::select! {
                biased;
                _ = stopping.wait_for(|stopping| *stopping) => break,
                batch = self.fetch(&mut throttle) => batch,
            };
            match self.take_in(batch, &mut throttle).await {
                Ok(true) => {}
                Ok(false) => tokio::select! {
                    () = sleep(TRY_AGAIN_AFTER) => {}
                    _ = stopping.wait_for(|stopping| *stopping) => {}
                },
                Err(error) => {
                    ended = Err(error);
                    break;
                }
            }
        }
        self.source.close().await;
        ended
    }

    /// The next messages, once ingest has room for a stream.
    async fn fetch(&self, throttle: &mut LogThrottle) -> Vec<StreamMessage> {
        loop {
            match self.intake.reserve_for_stream(&self.tenant).await {
                // Given back at once: a fetch may wait long, and callers need the room meanwhile.
                Ok(reservation) => drop(reservation),
                Err(_no_room) => {
                    sleep(TRY_AGAIN_AFTER).await;
                    continue;
                }
            }
            match self.source.fetch(BATCH, FETCH_WAIT).await {
                Ok(messages) if messages.is_empty() => {}
                Ok(messages) => return messages,
                Err(error) => {
                    let source = &self.name;
                    if throttle.admits(self.intake.clock()) {
                        tracing::warn!(%source, %error, "the source cannot be read");
                    }
                    sleep(TRY_AGAIN_AFTER).await;
                }
            }
        }
    }

    /// Stores a batch, and then acknowledges it; false if a part of it was given back, and is to be tried later.
    async fn take_in(
        &self,
        messages: Vec<StreamMessage>,
        throttle: &mut LogThrottle,
    ) -> Result<bool, StoreError> {
        let mut done = Vec::with_capacity(messages.len());
        let Sorted { drafts, mut dead, mut back } = self.sort(messages.clone()).await;
        let (receipts, drafts): (Vec<_>, Vec<_>) = drafts.into_iter().unzip();
        match self.intake.accept_each(drafts).await {
            Ok(answers) => {
                for (receipt, answer) in receipts.into_iter().zip(answers) {
                    match answer {
                        Ok(admission) => {
                            self.count(admission);
                            done.push(receipt);
                        }
                        Err(invalid) => {
                            let message = messages.iter().find(|one| one.receipt == receipt);
                            dead.extend(message.map(|one| (one.clone(), invalid.to_string())));
                        }
                    }
                }
            }
            Err(error) if error.kind() == ErrorKind::Fatal => return Err(error),
            // The store itself logs that it is away.
            Err(_error) => back.extend(receipts),
        }
        for (receipt, is_buried) in self.bury(dead, throttle).await {
            if is_buried {
                done.push(receipt);
            } else {
                back.push(receipt);
            }
        }
        // One that is not acknowledged comes again, and is found to be stored.
        let acknowledged = self.source.acknowledge(&done).await;
        if let Some(Err(error)) = acknowledged.into_iter().find(Result::is_err) {
            let source = &self.name;
            if throttle.admits(self.intake.clock()) {
                tracing::warn!(%source, %error, "messages were not acknowledged: they come again");
            }
        }
        self.source.give_back(&back).await;
        Ok(back.is_empty())
    }

    /// Checks each message.
    async fn sort(&self, messages: Vec<StreamMessage>) -> Sorted {
        let mut sorted = Sorted::default();
        for message in messages {
            match self.draft(&message).await {
                Ok(draft) => sorted.drafts.push((message.receipt, draft)),
                Err(IngestError::Invalid(invalid)) => {
                    sorted.dead.push((message, invalid.to_string()));
                }
                Err(_no_room_or_away) => sorted.back.push(message.receipt),
            }
        }
        sorted
    }

    /// The notification of a message.
    async fn draft(&self, message: &StreamMessage) -> Result<Draft, IngestError> {
        let invalid = |words: &str| pipeline::ingest::InvalidField::new("", words);
        let body = message.body.clone().ok_or_else(|| invalid("it has no content"))?;
        if body.len() > limits::LINE_BYTES {
            return Err(invalid("it has more bytes than a notification").into());
        }
        let text = ByteString::try_from(body).map_err(|_| invalid("it is not UTF-8"))?;
        let (submission, to) = parse::notification(&text, &text).map_err(|error| match error {
            ParseError::Syntax(words) => invalid(&words),
            ParseError::Invalid(invalid) => invalid,
        })?;
        let has_key = submission.idempotency_key.is_some();
        let now = self.intake.now();
        let mut draft = self.intake.check_in_turn(&self.tenant, submission, to, now).await?;
        if !has_key {
            // Of one fingerprint: a message that comes again is the same one, whatever a template makes of it by then.
            let key = key_of(&self.name, &message.id);
            draft.idempotency = Some(Idempotency { key, fingerprint: [0; 32] });
        }
        Ok(draft)
    }

    fn count(&self, admission: Admission) {
        let counter = match admission {
            Admission::Accepted(_) => &self.counts.accepted,
            Admission::Replayed(_) => &self.counts.repeated,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Puts what is no notification to the dead letters; says of each whether that is done.
    async fn bury(
        &self,
        dead: Vec<(StreamMessage, String)>,
        throttle: &mut LogThrottle,
    ) -> Vec<(StreamReceipt, bool)> {
        let Some(((_, reason), count)) = dead.first().map(|first| (first, dead.len())) else {
            return Vec::new();
        };
        let source = &self.name;
        if throttle.admits(self.intake.clock()) {
            tracing::warn!(%source, count, %reason, "messages are no notifications; the first reason");
        }
        let mut buried = vec![true; dead.len()];
        if let Some(target) = &self.dead_letters {
            let records: Vec<Record> =
                dead.iter().map(|(message, reason)| self.letter(message, reason)).collect();
            buried.clear();
            while let Some(open) = records.get(buried.len()..)
                && !open.is_empty()
            {
                // One that is too large for the target goes alone, and is refused there.
                let count = target.limits().fitting(open).max(1).min(open.len());
                let answers = target.put(open.get(..count).unwrap_or(open)).await;
                buried.extend(answers.iter().map(Result::is_ok));
            }
        }
        let count = buried.iter().filter(|is_buried| **is_buried).count();
        self.counts.dead.fetch_add(count as u64, Ordering::Relaxed);
        dead.into_iter().map(|(message, _)| message.receipt).zip(buried).collect()
    }

    fn letter(&self, message: &StreamMessage, reason: &str) -> Record {
        let body = message.body.as_deref().unwrap_or_default();
        let body = String::from_utf8_lossy(body);
        let letter = DeadLetter { source: self.name.as_str(), id: &message.id, reason, body };
        // Texts alone: there is nothing that JSON could not hold.
        let body = serde_json::to_vec(&letter).unwrap_or_default().into();
        Record { key: message.key.clone(), body, id: hashed(&message.id) }
    }
}

/// The idempotency key of a message.
fn key_of(source: &Name, id: &str) -> ByteString {
    let hash = (id.len() > PLAIN_ID_BYTES).then(|| hashed(id));
    let id = hash.as_deref().unwrap_or(id);
    format!("{SOURCE_KEYS}source {source} {id}").into()
}

/// The SHA-256 of `id`, hexadecimal.
fn hashed(id: &str) -> String {
    let digest = digest::digest(&digest::SHA256, id.as_bytes());
    digest.as_ref().iter().fold(String::new(), |mut text, byte| {
        // A text takes everything.
        let _written = write!(text, "{byte:02x}");
        text
    })
}

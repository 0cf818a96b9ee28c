//! Sources: notifications that are read from streams of other systems.
//!
//! A batch of messages is fetched, checked as a request is, stored, and then acknowledged: what a crash leaves unacknowledged comes
//! again, and its idempotency key, the name of the source with the identifier of the message, has it stored once. A message that is no
//! notification, and of which none is made, goes to the dead letters with the reason; it holds up no other. While ingest has no room,
//! nothing is fetched; while the store or the dead letters are away, messages are given back and the source waits. What keeps a source
//! from work is logged once, and its end.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use flow::Backoff;
use notification::{ByteString, Draft, Name, Timestamp, limits};
use pipeline::Intake;
use pipeline::ingest::json::ParseError;
use pipeline::ingest::{IngestError, InvalidField, parse};
use store::{Admission, ErrorKind, StoreError};
use stream::dead_letter::{RECORD_ID_BYTES, record_id};
use stream::{Source, StreamMessage, StreamReceipt};
use tokio::sync::watch;
use tokio::time::sleep;

use crate::dead_letters::DeadLetters;
use crate::shape::MessageShape;

/// Reads notifications of one tenant from a source.
#[derive(Debug)]
pub struct SourceReader {
    /// Name of the source in the configuration: a part of its idempotency keys.
    pub name: Name,
    /// The source.
    pub source: Arc<dyn Source>,
    /// Tenant of the notifications.
    pub tenant: Name,
    /// How its messages become notifications.
    pub shape: MessageShape,
    /// Intake that accepts them.
    pub intake: Arc<Intake>,
    /// Destination of the messages that are no notifications.
    pub dead_letters: DeadLetters,
    /// Counts of its messages.
    pub counts: Arc<SourceCounts>,
    /// Draws the jitter of pauses.
    pub random: fastrand::Rng,
}

/// Messages of a source so far, in this process.
#[derive(Debug, Default)]
pub struct SourceCounts {
    /// Fetched, those that came again too.
    pub read: AtomicU64,
    /// Stored as notifications.
    pub accepted: AtomicU64,
    /// Stored before, and come again.
    pub repeated: AtomicU64,
    /// No notifications: put to the dead letters, or dropped where there are none.
    pub dead: AtomicU64,
    /// Acknowledged to the source.
    pub acknowledged: AtomicU64,
    /// While it waits for something that fails: itself, the store, the dead letters.
    trouble: Mutex<Option<SourceTrouble>>,
}

/// The trouble that keeps a source from its work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceTrouble {
    /// The last error.
    pub reason: String,
    /// When it began.
    pub since: Timestamp,
}

/// A source that is read.
#[derive(Debug)]
struct SourceRun {
    reader: SourceReader,
    obstacle: Option<Obstacle>,
    /// Failures in a row.
    failures: u16,
    /// True once a bad message was logged in the current row of batches with bad messages.
    is_bad_logged: bool,
    /// Messages of the next fetch.
    next_batch: usize,
}

/// The obstacle of a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Obstacle {
    Source,
    Store,
    DeadLetters,
    Acknowledgements,
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
/// Bytes of one batch, about: after large messages fewer are fetched at a time.
const BATCH_BYTES: usize = 8 * 1024 * 1024;
/// Time for which a fetch waits for the first message.
const FETCH_WAIT: Duration = Duration::from_secs(20);
/// Time between two looks while ingest has no room.
const TRY_AGAIN_AFTER: Duration = Duration::from_secs(1);
/// The prefix of keys of sources. No caller's key has a control character.
const SOURCE_KEYS: char = '\u{1}';

const _: () = assert!(limits::KEY_BYTES >= RECORD_ID_BYTES + 64 + 16);

// === impl SourceReader ===

impl SourceReader {
    /// Reads until `stopping` turns true, and closes the source and the dead letters: what was stored is acknowledged, the rest given
    /// back.
    ///
    /// # Errors
    /// When the store failed: what was not acknowledged comes again.
    pub async fn run(self, stopping: watch::Receiver<bool>) -> Result<(), StoreError> {
        let mut run = SourceRun {
            reader: self,
            obstacle: None,
            failures: 0,
            is_bad_logged: false,
            next_batch: BATCH,
        };
        let ended = run.read(stopping).await;
        run.reader.source.close().await;
        run.reader.dead_letters.close().await;
        ended
    }

    /// Waits until ingest has room for a stream.
    async fn wait_for_room(&self) {
        // Given back at once: a fetch may wait long, and callers need the room meanwhile.
        while self.intake.reserve_for_stream(&self.tenant).await.map(drop).is_err() {
            sleep(TRY_AGAIN_AFTER).await;
        }
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
        let invalid = |words: &str| InvalidField::new("", words);
        let json = self.shape.notification(message, &self.intake, &self.tenant).await?;
        if json.len() > limits::LINE_BYTES {
            return Err(invalid("it has more bytes than a notification").into());
        }
        let text = ByteString::try_from(json).map_err(|_| invalid("it is not UTF-8"))?;
        let (mut submission, to) =
            parse::notification(&text, &text).map_err(|error| match error {
                ParseError::Syntax(words) => invalid(&words),
                ParseError::Invalid(invalid) => invalid,
            })?;
        submission.message_key = Some(key_of(&self.name, &message.id));
        self.intake.check_in_turn(&self.tenant, submission, to, self.intake.now()).await
    }
}

// === impl SourceCounts ===

impl SourceCounts {
    /// The trouble that keeps the source from its work now, if there is one.
    pub fn trouble(&self) -> Option<SourceTrouble> {
        self.lock().clone()
    }

    /// Notes that it waits for something since `now`, unless it does already.
    fn note_trouble(&self, reason: &str, now: Timestamp) {
        let mut trouble = self.lock();
        let since = trouble.as_ref().map_or(now, |trouble| trouble.since);
        *trouble = Some(SourceTrouble { reason: reason.to_owned(), since });
    }

    fn lock(&self) -> MutexGuard<'_, Option<SourceTrouble>> {
        // Whole between any two statements.
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self, admission: Admission) {
        match admission {
            Admission::Accepted(_) => add(&self.accepted, 1),
            Admission::Replayed(_) => add(&self.repeated, 1),
        }
    }
}

// === impl SourceRun ===

impl SourceRun {
    async fn read(&mut self, mut stopping: watch::Receiver<bool>) -> Result<(), StoreError> {
        while !*stopping.borrow() {
            let fetched = tokio::select! {
                biased;
                _ = stopping.wait_for(|stopping| *stopping) => break,
                fetched = self.fetch() => fetched,
            };
            let goes_well = match fetched {
                Ok(messages) if messages.is_empty() => {
                    // It can be read. What else may be wrong shows with the next message.
                    self.works_again(Obstacle::Source);
                    true
                }
                Ok(messages) => {
                    self.works_again(Obstacle::Source);
                    self.take_in(messages).await?
                }
                Err(error) => {
                    self.fails(Obstacle::Source, &error.to_string());
                    false
                }
            };
            if goes_well {
                self.failures = 0;
                continue;
            }
            self.failures = self.failures.saturating_add(1);
            let pause = Backoff::CONNECT.delay(self.failures, None, &mut self.reader.random);
            tokio::select! {
                () = sleep(pause) => {}
                _ = stopping.wait_for(|stopping| *stopping) => {}
            }
        }
        Ok(())
    }

    /// The next messages, once ingest has room.
    async fn fetch(&self) -> Result<Vec<StreamMessage>, stream::StreamError> {
        self.reader.wait_for_room().await;
        self.reader.source.fetch(self.next_batch, FETCH_WAIT).await
    }

    /// Stores a batch, and then acknowledges it; false if a part of it was given back, and is to be tried later.
    async fn take_in(&mut self, messages: Vec<StreamMessage>) -> Result<bool, StoreError> {
        self.next_batch = next_batch(&messages);
        add(&self.reader.counts.read, messages.len());
        let Sorted { drafts, mut dead, mut back } = self.reader.sort(messages.clone()).await;
        let mut done = Vec::with_capacity(messages.len());
        let (receipts, drafts): (Vec<_>, Vec<_>) = drafts.into_iter().unzip();
        match self.reader.intake.accept_each(drafts).await {
            Ok(answers) => {
                self.works_again(Obstacle::Store);
                for (receipt, answer) in receipts.into_iter().zip(answers) {
                    match answer {
                        Ok(admission) => {
                            self.reader.counts.count(admission);
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
            Err(error) => {
                self.fails(Obstacle::Store, &error.to_string());
                back.extend(receipts);
            }
        }
        for (receipt, is_buried) in self.bury(dead).await {
            if is_buried {
                done.push(receipt);
            } else {
                back.push(receipt);
            }
        }
        self.acknowledge(&done).await;
        self.reader.source.give_back(&back).await;
        Ok(back.is_empty())
    }

    async fn acknowledge(&mut self, done: &[StreamReceipt]) {
        if done.is_empty() {
            return;
        }
        // One that is not acknowledged comes again, and is found to be stored.
        let answers = self.reader.source.acknowledge(done).await;
        let acknowledged = answers.iter().filter(|answer| answer.is_ok()).count();
        add(&self.reader.counts.acknowledged, acknowledged);
        match answers.into_iter().find_map(Result::err) {
            Some(error) => self.fails(Obstacle::Acknowledgements, &error.to_string()),
            None => self.works_again(Obstacle::Acknowledgements),
        }
    }

    /// Puts what is no notification to the dead letters; says of each whether that is done.
    async fn bury(&mut self, dead: Vec<(StreamMessage, String)>) -> Vec<(StreamReceipt, bool)> {
        let Some(((_, reason), count)) = dead.first().map(|first| (first, dead.len())) else {
            self.is_bad_logged = false;
            return Vec::new();
        };
        let source = &self.reader.name;
        if !std::mem::replace(&mut self.is_bad_logged, true) {
            tracing::warn!(%source, count, %reason, "messages are no notifications; the first reason");
        }
        let buried = self.reader.dead_letters.bury(source, &dead).await;
        let count = buried.iter().filter(|answer| answer.is_ok()).count();
        add(&self.reader.counts.dead, count);
        match buried.iter().find_map(|answer| answer.as_ref().err()) {
            Some(error) => self.fails(Obstacle::DeadLetters, error),
            None => self.works_again(Obstacle::DeadLetters),
        }
        let receipts = dead.into_iter().map(|(message, _)| message.receipt);
        receipts.zip(buried.iter().map(Result::is_ok)).collect()
    }

    /// Notes that `obstacle` keeps the source from its work, and logs it if that is new.
    fn fails(&mut self, obstacle: Obstacle, error: &str) {
        self.reader.counts.note_trouble(error, self.reader.intake.now());
        if self.obstacle.replace(obstacle) == Some(obstacle) {
            return;
        }
        let source = &self.reader.name;
        match obstacle {
            Obstacle::Source => {
                tracing::warn!(%source, error, "the source cannot be read: it is tried again");
            }
            Obstacle::Store => {
                tracing::warn!(%source, error, "the store takes nothing: the source waits");
            }
            Obstacle::DeadLetters => tracing::warn!(
                %source,
                error,
                "the dead letters cannot be written: bad messages are given back, and the source waits"
            ),
            Obstacle::Acknowledgements => {
                tracing::warn!(%source, error, "messages were not acknowledged: they come again");
            }
        }
    }

    /// Notes that `obstacle` is over, and logs it if it was there.
    fn works_again(&mut self, obstacle: Obstacle) {
        if self.obstacle == Some(obstacle) {
            self.obstacle = None;
            *self.reader.counts.lock() = None;
            let source = &self.reader.name;
            tracing::info!(%source, "the source is read again");
        }
    }
}

// === helpers ===

/// How many messages like these make a batch.
fn next_batch(messages: &[StreamMessage]) -> usize {
    let bytes: usize =
        messages.iter().filter_map(|message| message.body.as_ref()).map(bytes::Bytes::len).sum();
    let average = bytes / messages.len().max(1);
    (BATCH_BYTES / average.max(1)).clamp(1, BATCH)
}

fn add(counter: &AtomicU64, count: usize) {
    counter.fetch_add(count as u64, Ordering::Relaxed);
}

/// The idempotency key of a message.
fn key_of(source: &Name, id: &str) -> ByteString {
    format!("{SOURCE_KEYS}source {source} {}", record_id(id)).into()
}

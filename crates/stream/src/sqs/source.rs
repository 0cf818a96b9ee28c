//! The source: long polls, several receives at a time when much waits, and a heartbeat for what is held.

use std::sync::Arc;
use std::sync::Mutex as StdMutex;
use std::time::Duration;

use async_trait::async_trait;
use flow::{Clock, Tasks};
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::held::SqsMessagesHeld;
use super::settings::SqsSettings;
use crate::aws::sqs_queue::{ENTRIES_MAX, SqsQueue, WAIT_MAX};
use crate::aws::{AwsFailure, AwsFailureKind};
use crate::{Source, StreamError, StreamMessage, StreamReceipt};

/// A queue to read from. Dropping it gives nothing back: what was held comes again after its visibility.
#[derive(Debug)]
pub struct SqsSource {
    reader: Arc<QueueReader>,
    clock: Clock,
    receiving: Mutex<Receiving>,
    /// The heartbeat.
    tasks: StdMutex<Tasks>,
}

/// The queue and what was received from it.
#[derive(Debug)]
struct QueueReader {
    queue: SqsQueue,
    visibility: Duration,
    held: SqsMessagesHeld,
}

/// Receives under way.
#[derive(Debug, Default)]
struct Receiving {
    /// Each gives how many messages came. Not ended with the fetch that began them: what they bring would be invisible for a while.
    calls: JoinSet<Result<usize, AwsFailure>>,
    /// True if the last receive was full: then more waits, and it is asked for by several at a time.
    is_busy: bool,
}

/// Receives at a time: 160 messages in the time of one call.
const RECEIVES_MAX: usize = 16;

// === impl SqsSource ===

impl SqsSource {
    /// Finds the queue of `settings`, and begins to hold what is fetched from it.
    ///
    /// # Errors
    /// When settings cannot work, or the queue is not there or may not be used.
    pub async fn open(settings: &SqsSettings, clock: Clock) -> Result<Self, StreamError> {
        let reader = Arc::new(QueueReader {
            queue: settings.find().await?,
            visibility: settings.visibility(),
            held: SqsMessagesHeld::default(),
        });
        let mut tasks = Tasks::default();
        let beating = Arc::clone(&reader);
        tasks.spawn("sqs-heartbeat", async move { beating.beat().await });
        let tasks = StdMutex::new(tasks);
        Ok(Self { reader, clock, receiving: Mutex::default(), tasks })
    }
}

#[async_trait]
impl Source for SqsSource {
    /// Gives the messages of one receive, or of up to 16 at a time while receives are full. SQS waits in whole
    /// seconds, so a part of one counts as one.
    async fn fetch(
        &self,
        messages: usize,
        wait: Duration,
    ) -> Result<Vec<StreamMessage>, StreamError> {
        let deadline = self.clock.monotonic() + wait;
        let mut receiving = self.receiving.lock().await;
        let mut has_asked = false;
        loop {
            let fetched = self.reader.held.fetch(messages);
            if !fetched.is_empty() {
                return Ok(fetched);
            }
            // A receive of a fetch that was dropped may be under way.
            if receiving.calls.is_empty() {
                let left = deadline.saturating_duration_since(self.clock.monotonic());
                if has_asked && left.is_zero() {
                    return Ok(Vec::new());
                }
                receiving.begin(&self.reader, messages, left);
            }
            has_asked = true;
            receiving.settle(&self.reader, messages).await?;
        }
    }

    /// Deletes by batches of ten, several at a time.
    async fn acknowledge(&self, receipts: &[StreamReceipt]) -> Vec<Result<(), StreamError>> {
        let taken = self.reader.held.take(receipts);
        let handles: Vec<String> = taken.iter().flatten().cloned().collect();
        let mut answers = self.reader.queue.delete(&handles).await.into_iter();
        let answer = |handle: &Option<String>| match handle {
            Some(_handle) => {
                answers.next().unwrap_or(Ok(())).map_err(AwsFailure::into_stream_error)
            }
            None => Err(StreamError::Refused("no such message is held here".to_owned())),
        };
        taken.iter().map(answer).collect()
    }

    async fn give_back(&self, receipts: &[StreamReceipt]) {
        let handles: Vec<String> = self.reader.held.take(receipts).into_iter().flatten().collect();
        self.reader.give_back(&handles).await;
    }

    async fn close(&self) {
        // What a receive under way brings comes again after its visibility.
        self.receiving.lock().await.calls.shutdown().await;
        *self.tasks.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Tasks::default();
        let handles = self.reader.held.take_all();
        self.reader.give_back(&handles).await;
    }
}

// === impl Receiving ===

impl Receiving {
    /// Begins receives for `messages`: one that waits, or several that do not while much waits.
    fn begin(&mut self, reader: &Arc<QueueReader>, messages: usize, wait: Duration) {
        let (calls, wait) = if self.is_busy {
            (messages.div_ceil(ENTRIES_MAX).clamp(1, RECEIVES_MAX), Duration::ZERO)
        } else {
            (1, wait.min(WAIT_MAX))
        };
        for call in 0..calls {
            let reader = Arc::clone(reader);
            let most = messages.saturating_sub(call * ENTRIES_MAX).clamp(1, ENTRIES_MAX);
            self.calls.spawn(async move {
                let received = reader.queue.receive(most, wait, reader.visibility).await?;
                let count = received.len();
                reader.held.put(received);
                Ok(count)
            });
        }
    }

    /// Waits for all receives, and for more of them if the one that waited was full.
    ///
    /// # Errors
    /// When one failed, and no other brought something.
    async fn settle(
        &mut self,
        reader: &Arc<QueueReader>,
        messages: usize,
    ) -> Result<(), StreamError> {
        let (was_busy, mut brought, mut failed) = (self.is_busy, 0, None);
        while let Some(ended) = self.calls.join_next().await {
            match ended {
                Ok(Ok(count)) => brought += count,
                Ok(Err(failure)) => failed = Some(failure),
                Err(_panicked_or_ended) => {}
            }
        }
        self.is_busy = brought >= ENTRIES_MAX;
        if let Some(failure) = failed.filter(|_| brought == 0) {
            return Err(failure.into_stream_error());
        }
        if self.is_busy && !was_busy && messages > brought {
            self.begin(reader, messages - brought, Duration::ZERO);
            // Something was brought already: that one of these fails is said by the next fetch.
            let _later = Box::pin(self.settle(reader, 0)).await;
        }
        Ok(())
    }
}

// === impl QueueReader ===

impl QueueReader {
    /// Extends the visibility of what is held, for ever. Sleeps while nothing is.
    async fn beat(&self) {
        loop {
            self.held.in_use().await;
            // Twice a third passes until a message is first extended; the last third is for the call.
            sleep(self.visibility / 3).await;
            let (receipts, handles) = self.held.kept();
            let answers = self.queue.set_visibility(&handles, self.visibility).await;
            let mut lost = Vec::new();
            for (receipt, answer) in receipts.into_iter().zip(answers) {
                let Err(failure) = answer else { continue };
                let place = self.queue.place();
                tracing::warn!(place, error = failure.text, "a held message was not extended");
                if matches!(failure.kind, AwsFailureKind::Refused | AwsFailureKind::Invalid) {
                    lost.push(receipt);
                }
            }
            // Extending these is in vain: they come again, or are gone.
            self.held.forget(&lost);
        }
    }

    async fn give_back(&self, handles: &[String]) {
        for answer in self.queue.set_visibility(handles, Duration::ZERO).await {
            if let Err(failure) = answer {
                let place = self.queue.place();
                tracing::debug!(place, error = failure.text, "a message comes back later");
            }
        }
    }
}

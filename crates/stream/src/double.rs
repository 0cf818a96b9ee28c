//! A stream in memory, for tests of what reads and writes streams. Its failures are scripted.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::{Notify, watch};
use tokio::time::timeout;

use crate::{
    BatchLimits, PutError, Record, Source, StreamError, StreamMessage, StreamReceipt, Target,
};

/// A stream in memory. Clones are handles on the same one.
#[derive(Debug, Clone)]
pub struct StreamDouble {
    limits: BatchLimits,
    shared: Arc<SharedStream>,
    /// Puts wait while this is true.
    stalled: watch::Sender<bool>,
}

/// Reads from a [`StreamDouble`].
#[derive(Debug)]
pub struct DoubleSource {
    stream: StreamDouble,
    held: Mutex<BTreeSet<u64>>,
}

/// Writes to a [`StreamDouble`].
#[derive(Debug)]
pub struct DoubleTarget(StreamDouble);

#[derive(Debug, Default)]
struct SharedStream {
    state: Mutex<DoubleState>,
    arrived: Notify,
}

#[derive(Debug, Default)]
struct DoubleState {
    waiting: VecDeque<StreamMessage>,
    held: BTreeMap<u64, StreamMessage>,
    next: u64,
    /// Records of each call of `put`, as they came.
    puts: Vec<Vec<Record>>,
    fetches: usize,
    acknowledged: Vec<String>,
    put_failures: VecDeque<Option<PutError>>,
    fetch_failures: VecDeque<StreamError>,
    acknowledge_failures: VecDeque<StreamError>,
}

/// Bounds of a call to it, unless a test says otherwise.
const LIMITS: BatchLimits = BatchLimits { records: 500, bytes: 5 << 20, record_bytes: 1 << 20 };

// === impl StreamDouble ===

impl Default for StreamDouble {
    fn default() -> Self {
        Self::new(LIMITS)
    }
}

impl StreamDouble {
    /// An empty stream whose target takes so much in a call.
    pub fn new(limits: BatchLimits) -> Self {
        Self { limits, shared: Arc::default(), stalled: watch::Sender::new(false) }
    }

    /// Another reader.
    pub fn source(&self) -> DoubleSource {
        DoubleSource { stream: self.clone(), held: Mutex::default() }
    }

    /// Another writer.
    pub fn target(&self) -> DoubleTarget {
        DoubleTarget(self.clone())
    }

    /// Has a message of this body wait; `None` is a tombstone. Its identifier is `m` and its number, from 0 on.
    pub fn push(&self, key: Option<&'static str>, body: Option<Bytes>) {
        let mut state = self.state();
        let number = state.take_number();
        let key = key.map(|key| Bytes::from_static(key.as_bytes()));
        state.waiting.push_back(StreamMessage {
            id: format!("m{number}"),
            key,
            body,
            receipt: StreamReceipt(number),
        });
        drop(state);
        self.shared.arrived.notify_waiters();
    }

    /// The answers to the next records: `None` takes one. Records beyond are taken.
    pub fn fail_puts(&self, answers: impl IntoIterator<Item = Option<PutError>>) {
        self.state().put_failures.extend(answers);
    }

    /// Has the next calls of `fetch` fail.
    pub fn fail_fetches(&self, errors: impl IntoIterator<Item = StreamError>) {
        self.state().fetch_failures.extend(errors);
        self.shared.arrived.notify_waiters();
    }

    /// Has the acknowledgements of the next messages fail; they come again.
    pub fn fail_acknowledgements(&self, errors: impl IntoIterator<Item = StreamError>) {
        self.state().acknowledge_failures.extend(errors);
    }

    /// Has puts wait, or wait no longer.
    pub fn stall(&self, stalled: bool) {
        self.stalled.send_replace(stalled);
    }

    /// The records of each call of `put` so far, refused ones too.
    pub fn puts(&self) -> Vec<Vec<Record>> {
        self.state().puts.clone()
    }

    /// Calls of `fetch` so far.
    pub fn fetches(&self) -> usize {
        self.state().fetches
    }

    /// The identifiers of acknowledged messages, in order.
    pub fn acknowledged(&self) -> Vec<String> {
        self.state().acknowledged.clone()
    }

    /// Waits until so many messages were acknowledged.
    pub async fn until_acknowledged(&self, messages: usize) {
        loop {
            let mut changed = std::pin::pin!(self.shared.arrived.notified());
            changed.as_mut().enable();
            if self.state().acknowledged.len() >= messages {
                return;
            }
            changed.await;
        }
    }

    /// The bodies that wait, in order.
    pub fn waiting(&self) -> Vec<Bytes> {
        self.state().waiting.iter().filter_map(|message| message.body.clone()).collect()
    }

    fn state(&self) -> MutexGuard<'_, DoubleState> {
        // Whole between any two statements.
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl DoubleSource ===

impl DoubleSource {
    fn held(&self) -> MutexGuard<'_, BTreeSet<u64>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Up to `messages` of those that wait.
    fn take(&self, messages: usize) -> Result<Vec<StreamMessage>, StreamError> {
        let mut state = self.stream.state();
        if let Some(error) = state.fetch_failures.pop_front() {
            return Err(error);
        }
        let count = messages.min(state.waiting.len());
        let taken: Vec<StreamMessage> = state.waiting.drain(..count).collect();
        state.held.extend(taken.iter().map(|message| (message.receipt.0, message.clone())));
        drop(state);
        self.held().extend(taken.iter().map(|message| message.receipt.0));
        Ok(taken)
    }
}

#[async_trait]
impl Source for DoubleSource {
    async fn fetch(
        &self,
        messages: usize,
        wait: Duration,
    ) -> Result<Vec<StreamMessage>, StreamError> {
        self.stream.state().fetches += 1;
        let fetched = async {
            loop {
                let mut arrived = std::pin::pin!(self.stream.shared.arrived.notified());
                arrived.as_mut().enable();
                let taken = self.take(messages)?;
                if !taken.is_empty() {
                    return Ok(taken);
                }
                arrived.await;
            }
        };
        timeout(wait, fetched).await.unwrap_or_else(|_nothing_came| Ok(Vec::new()))
    }

    async fn acknowledge(&self, receipts: &[StreamReceipt]) -> Vec<Result<(), StreamError>> {
        let one = |receipt: &StreamReceipt| {
            let mut state = self.stream.state();
            if !self.held().remove(&receipt.0) {
                return Err(StreamError::Unavailable("it is not held here".to_owned()));
            }
            let Some(message) = state.held.remove(&receipt.0) else { return Ok(()) };
            if let Some(error) = state.acknowledge_failures.pop_front() {
                state.waiting.push_front(message);
                return Err(error);
            }
            state.acknowledged.push(message.id);
            Ok(())
        };
        let answers = receipts.iter().map(one).collect();
        self.stream.shared.arrived.notify_waiters();
        answers
    }

    async fn give_back(&self, receipts: &[StreamReceipt]) {
        let mut state = self.stream.state();
        // Last first, each to the front: they wait in their old order then.
        for receipt in receipts.iter().rev() {
            let is_held = self.held().remove(&receipt.0);
            let message = state.held.remove(&receipt.0).filter(|_| is_held);
            if let Some(message) = message {
                state.waiting.push_front(message);
            }
        }
        drop(state);
        self.stream.shared.arrived.notify_waiters();
    }

    async fn close(&self) {
        let held: Vec<StreamReceipt> = self.held().iter().copied().map(StreamReceipt).collect();
        self.give_back(&held).await;
    }
}

// === impl DoubleTarget ===

#[async_trait]
impl Target for DoubleTarget {
    fn limits(&self) -> BatchLimits {
        self.0.limits
    }

    fn keeps_order(&self) -> bool {
        true
    }

    async fn put(&self, records: &[Record]) -> Vec<Result<(), PutError>> {
        // Its sender lives as long as this.
        let _open = self.0.stalled.subscribe().wait_for(|stalled| !stalled).await.is_ok();
        let mut state = self.0.state();
        state.puts.push(records.to_vec());
        let one = |record: &Record| {
            let answer = state.put_failures.pop_front().flatten();
            let receipt = StreamReceipt(state.take_number());
            if answer.is_none() || matches!(answer, Some(PutError::Unknown(_))) {
                let Record { key, body, id } = record.clone();
                state.waiting.push_back(StreamMessage { id, key, body: Some(body), receipt });
            }
            answer.map_or(Ok(()), Err)
        };
        let answers = records.iter().map(one).collect();
        drop(state);
        self.0.shared.arrived.notify_waiters();
        answers
    }

    async fn close(&self) {}
}

// === impl DoubleState ===

impl DoubleState {
    fn take_number(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }
}

//! The messages that a source holds: those that arrived and were not fetched yet, and those that are not answered for.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::Notify;

use crate::aws::sqs_queue::SqsMessage;
use crate::{StreamMessage, StreamReceipt};

/// Handles by receipt, and what is to be fetched.
#[derive(Debug, Default)]
pub(super) struct SqsMessagesHeld {
    state: Mutex<HeldHandles>,
    arrived: Notify,
}

#[derive(Debug, Default)]
struct HeldHandles {
    next: u64,
    held: BTreeMap<u64, HeldHandle>,
    waiting: VecDeque<StreamMessage>,
}

#[derive(Debug)]
struct HeldHandle {
    handle: String,
    /// True if an earlier look saw it.
    seen: bool,
}

// === impl SqsMessagesHeld ===

impl SqsMessagesHeld {
    /// Holds messages that were received.
    pub(super) fn put(&self, received: Vec<SqsMessage>) {
        let mut state = self.state();
        for SqsMessage { id, handle, body, group, .. } in received {
            let number = state.next;
            state.next += 1;
            state.held.insert(number, HeldHandle { handle, seen: false });
            let (key, body) = (group.map(Bytes::from), Some(Bytes::from(body)));
            state.waiting.push_back(StreamMessage {
                id,
                key,
                body,
                receipt: StreamReceipt(number),
            });
        }
        drop(state);
        self.arrived.notify_waiters();
    }

    /// Up to `messages` that arrived.
    pub(super) fn fetch(&self, messages: usize) -> Vec<StreamMessage> {
        let mut state = self.state();
        let count = messages.min(state.waiting.len());
        state.waiting.drain(..count).collect()
    }

    /// The handle of each of `receipts` that is held; they are held no longer.
    pub(super) fn take(&self, receipts: &[StreamReceipt]) -> Vec<Option<String>> {
        let mut state = self.state();
        let take = |receipt: &StreamReceipt| state.held.remove(&receipt.0).map(|held| held.handle);
        receipts.iter().map(take).collect()
    }

    /// Holds `receipts` no longer.
    pub(super) fn forget(&self, receipts: &[StreamReceipt]) {
        let mut state = self.state();
        for receipt in receipts {
            state.held.remove(&receipt.0);
        }
    }

    /// The handles of all; nothing is held any longer.
    pub(super) fn take_all(&self) -> Vec<String> {
        let mut state = self.state();
        state.waiting.clear();
        std::mem::take(&mut state.held).into_values().map(|held| held.handle).collect()
    }

    /// The receipts and handles of all that was here at the last call already: most are answered for between two looks.
    pub(super) fn kept(&self) -> (Vec<StreamReceipt>, Vec<String>) {
        let mut state = self.state();
        let old = state.held.iter_mut().filter_map(|(number, held)| {
            std::mem::replace(&mut held.seen, true)
                .then(|| (StreamReceipt(*number), held.handle.clone()))
        });
        old.unzip()
    }

    /// Waits until something is held.
    pub(super) async fn in_use(&self) {
        loop {
            // Before the look, so that what arrives in between is not missed.
            let arrived = self.arrived.notified();
            if !self.state().held.is_empty() {
                return;
            }
            arrived.await;
        }
    }

    fn state(&self) -> MutexGuard<'_, HeldHandles> {
        // Every critical section leaves the state whole, even if it panicked.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

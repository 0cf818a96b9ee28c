//! What the parts of one process share.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use flow::{Clock, Tenure};
use notification::BatchId;
use tokio::sync::watch;

use super::board::Board;
use super::notices;
use crate::StoreError;

/// One process's view of the cluster.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) clock: Clock,
    /// The store's tag.
    pub(super) realm: u16,
    pub(super) tenure: Tenure,
    /// Whether it claims at all.
    pub(super) produces: bool,
    worker: AtomicI64,
    /// A bit for each partition that is ours.
    partitions: AtomicU64,
    consumers_alive: AtomicUsize,
    producers_alive: AtomicUsize,
    board: Mutex<Board>,
    /// Server processes behind our own connections: what they tell is known.
    backends: Mutex<[i32; 2]>,
    /// Whether each writer has its connection.
    linked: [AtomicBool; 2],
    pub(super) changes: watch::Sender<u64>,
    pub(super) available: watch::Sender<bool>,
    pub(super) failed: watch::Sender<Option<StoreError>>,
}

/// Which writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Intake = 0,
    Work = 1,
}

/// Virtual partitions: many more than processes, so that shares differ little.
pub(super) const PARTITIONS: u8 = 64;

// === impl Shared ===

impl Shared {
    pub(super) fn new(clock: Clock, realm: u16, produces: bool) -> Self {
        Self {
            clock,
            realm,
            tenure: Tenure::ended(clock.monotonic()),
            produces,
            worker: AtomicI64::new(0),
            partitions: AtomicU64::new(0),
            consumers_alive: AtomicUsize::new(0),
            producers_alive: AtomicUsize::new(0),
            board: Mutex::new(Board::new()),
            backends: Mutex::default(),
            linked: [AtomicBool::new(true), AtomicBool::new(true)],
            changes: watch::Sender::new(0),
            available: watch::Sender::new(true),
            failed: watch::Sender::new(None),
        }
    }

    pub(super) fn board(&self) -> MutexGuard<'_, Board> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number under which this process is registered now.
    pub(super) fn worker(&self) -> i64 {
        self.worker.load(Ordering::Relaxed)
    }

    /// This process is registered under `worker`.
    pub(super) fn set_worker(&self, worker: i64) {
        self.worker.store(worker, Ordering::Relaxed);
    }

    /// Whether a partition is ours, as far as is known.
    pub(super) fn owns(&self, partition: u8) -> bool {
        self.partitions.load(Ordering::Relaxed) >> partition & 1 != 0
    }

    /// Whether nobody else can claim of `partition` meanwhile, so that nobody else needs to be told of it.
    pub(super) fn owns_surely(&self, partition: u8) -> bool {
        self.owns(partition) && self.tenure.holds(self.clock)
    }

    /// These partitions are ours from now on; the lanes are read anew if they changed.
    pub(super) fn set_partitions(&self, partitions: u64) {
        if self.partitions.swap(partitions, Ordering::Relaxed) != partitions {
            self.board().distrust();
            self.wake();
        }
    }

    /// How many processes deliver, and how many issue what they deliver.
    pub(super) fn set_alive(&self, consumers: usize, producers: usize) {
        let before = self.consumers_alive.swap(consumers, Ordering::Relaxed);
        self.producers_alive.store(producers, Ordering::Relaxed);
        if before != consumers {
            self.wake();
        }
    }

    /// A window for each live consumer, shared among the live producers; 0 when nobody delivers.
    pub(super) fn scaled(&self, window: usize) -> usize {
        let consumers = self.consumers_alive.load(Ordering::Relaxed);
        let producers = self.producers_alive.load(Ordering::Relaxed).max(1);
        window.saturating_mul(consumers) / producers
    }

    /// Something may be claimable now.
    pub(super) fn wake(&self) {
        self.changes.send_modify(|change| *change += 1);
    }

    /// Takes in a notification.
    pub(super) fn hear(&self, notification: &tokio_postgres::Notification) {
        let is_own = self.backends().contains(&notification.process_id());
        if is_own || notification.channel() != notices::CHANNEL {
            return;
        }
        let mut board = self.board();
        for notice in notices::read(notification.payload()) {
            board.hear(notice, |partition| self.owns(partition));
        }
        drop(board);
        self.wake();
    }

    /// A writer has its connection, or lost it.
    pub(super) fn set_link(&self, role: Role, backend: Option<i32>) {
        if let Some(place) = self.backends().get_mut(role as usize) {
            *place = backend.unwrap_or(0);
        }
        if let Some(linked) = self.linked.get(role as usize) {
            linked.store(backend.is_some(), Ordering::Relaxed);
        }
        let available = self.linked.iter().all(|linked| linked.load(Ordering::Relaxed));
        self.available.send_if_modified(|before| std::mem::replace(before, available) != available);
    }

    fn backends(&self) -> MutexGuard<'_, [i32; 2]> {
        self.backends.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The partition of a batch. The same arithmetic stands in [`PARTITION`].
pub(super) fn partition_of(batch: BatchId) -> u8 {
    let spread = (batch.0 % 65_521) * 40_503 % 65_536 / 1_024;
    u8::try_from(spread).unwrap_or(PARTITIONS - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_spread_evenly_over_the_partitions() {
        let mut batches = [0; PARTITIONS as usize];
        for number in 1..=64_000 {
            batches[usize::from(partition_of(BatchId(number)))] += 1;
        }
        assert!(batches.iter().all(|count| (900..1_100).contains(count)), "{batches:?}");
    }
}

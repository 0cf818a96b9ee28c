//! The loop that puts the deliveries of all jobs of a thread to one target.
//!
//! A put is made at once when none is under way. Meanwhile records gather, and further puts begin beside it when they are full: so a
//! record alone waits for nothing, and a thousand are a few puts.

use std::sync::Arc;

use ::stream::{BatchLimits, PutError, Record, Target};
use bytes::Bytes;
use flow::Clock;
use flow::merge::{Bounds, Control, Groups, Merge, MergeHandle, Merging};
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use net::tasks::LocalTasks;
use tokio::task::{unconstrained, yield_now};

use super::pending::{Pending, PutItem, PutOutcome};

/// The way to one target.
#[derive(Debug)]
pub(super) struct TargetOutbox {
    target: Arc<dyn Target>,
    handle: MergeHandle<PutItem>,
    control: Control,
    tasks: LocalTasks,
}

/// Puts under way at a time to one target.
const PUTS: usize = 16;
/// Records of a put. One that takes more would wait for them while others could be under way beside it.
const PUT_RECORDS: usize = 1_000;
/// Records that wait in the loop. More wait with their callers.
const PENDING: usize = 4_096;
/// Turns of the thread that bring no further record, before a batch goes as it is: some microseconds.
const VAIN_YIELDS: usize = 2;
/// Bytes of records that are taken into the loop at a time.
const GROUP_BYTES: usize = 8 << 20;

// === impl TargetOutbox ===

impl TargetOutbox {
    /// Begins the loop on this thread.
    pub(super) fn open(target: Box<dyn Target>, clock: Clock) -> Self {
        let target: Arc<dyn Target> = target.into();
        let bounds = Bounds { items: PENDING, weight: GROUP_BYTES, waiting: PENDING };
        let Merge { callers: [handle], loops, control } = Merge::new(Merging::Shared, bounds);
        let tasks = LocalTasks::default();
        for groups in loops {
            tasks.spawn(run(Arc::clone(&target), groups, clock));
        }
        Self { target, handle, control, tasks }
    }

    /// Puts `record`, and waits for its verdict.
    pub(super) async fn put(&self, record: Record) -> PutOutcome {
        // Without the task's budget: once it is used up, those that begin later would be handed in first.
        let put = unconstrained(self.handle.call(|outcome| PutItem { record, outcome })).await;
        put.unwrap_or_else(|_closed| {
            let taken = Err(PutError::Unknown("the loop of its target has ended".to_owned()));
            PutOutcome { taken, on_wire: std::time::Duration::ZERO }
        })
    }

    /// Ends the loop and the connection. No record is under way.
    pub(super) async fn close(&self) {
        self.control.close().await;
        self.tasks.join().await;
        self.target.close().await;
    }
}

async fn run(target: Arc<dyn Target>, mut groups: Groups<PutItem>, clock: Clock) {
    let limits = target.limits();
    let limits = BatchLimits { records: limits.records.min(PUT_RECORDS), ..limits };
    let mut pending = Pending::default();
    let mut under_way = FuturesUnordered::new();
    let mut is_open = true;
    loop {
        while under_way.is_empty() || (under_way.len() < PUTS && pending.len() >= limits.records) {
            let batch = pending.take(limits);
            if batch.is_empty() {
                break;
            }
            under_way.push(put(&*target, batch, clock));
        }
        if !is_open && under_way.is_empty() {
            return;
        }
        tokio::select! {
            biased;
            Some(keys) = under_way.next(), if !under_way.is_empty() => pending.release(&keys),
            group = groups.next(), if is_open && pending.len() < PENDING => match group {
                Some(mut items) => {
                    gather(&mut groups, &mut items, limits.records).await;
                    pending.extend(items);
                }
                None => is_open = false,
            },
        }
    }
}

/// Adds to `items` what callers hand in now, until none does or a batch is full: a job hands in some deliveries at a turn, and the others
/// when it is polled next.
async fn gather(groups: &mut Groups<PutItem>, items: &mut Vec<PutItem>, full: usize) {
    let mut vain = 0;
    while items.len() < full && vain < VAIN_YIELDS {
        yield_now().await;
        let before = items.len();
        groups.add_waiting(items, full);
        vain = if items.len() > before { 0 } else { vain + 1 };
    }
}

/// Puts a batch, and tells each its verdict; gives the keys that are free again.
async fn put(target: &dyn Target, batch: Vec<PutItem>, clock: Clock) -> Vec<Bytes> {
    let (records, outcomes): (Vec<Record>, Vec<_>) =
        batch.into_iter().map(|item| (item.record, item.outcome)).unzip();
    let begun = clock.monotonic();
    let verdicts = target.put(&records).await;
    let on_wire = clock.monotonic().saturating_duration_since(begun);
    for (taken, outcome) in verdicts.into_iter().zip(outcomes) {
        // Its attempt may have been given up.
        let _told = outcome.send(PutOutcome { taken, on_wire });
    }
    records.into_iter().filter_map(|record| record.key).collect()
}

//! The cost of retention on SQLite: rows removed per second, and bytes of the file before, after, and filled again.
//!
//! `cargo run --release -p store --example retention DIRECTORY [batches] [one-offs]`
//!
//! Fills a store in DIRECTORY, which must not exist, with delivered batches of 1,000 and batches of one; removes all of them, part by
//! part; and fills it once more. 10,000 batches and 1,000,000 one-offs take some 2 GiB; the directory is left there.

#![expect(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a measurement reads the clock, prints, and fails by panicking"
)]

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use notification::{Disposition, Draft, State};
use store::conformance::{Shape, at, claim_all, settle_all};
use store::sqlite::Options;
use store::{Ingest as _, Lifetimes, Prune as _, Removed, Retention, Sqlite, TenantRetention};

const DAY: Duration = Duration::from_hours(24);
/// When all of them are due, milliseconds.
const LATER: i64 = 2_000_000_000;
/// Notifications that are taken in and delivered at a time.
const AT_ONCE: u64 = 50_000;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().expect("a directory");
    let directory = Path::new(&directory);
    let mut numbers = arguments.map(|text| text.parse().expect("a number"));
    let batches: u64 = numbers.next().unwrap_or(10_000);
    let one_offs: u64 = numbers.next().unwrap_or(1_000_000);
    assert!(!directory.exists(), "a directory that is not there yet");
    let (store, _) = Sqlite::open(directory, Options::new(1), at(0)).expect("a store");
    for round in 0..2 {
        let began = Instant::now();
        fill(&store, batches * 1_000, |_| 0).await;
        // Each has a due time of its own, and so a batch.
        fill(&store, one_offs, |number| i64::try_from(number).expect("a number") * 1_000).await;
        println!("round {round}: filled in {:?}, {} MiB", began.elapsed(), size(directory));
        for (part, days) in [("contents", 8), ("recipients", 31), ("outcomes", 91)] {
            let (removed, spent) = prune(&store, days).await;
            let rows = u32::try_from(batches + one_offs).expect("a number");
            println!("{part}: {removed:?}, {:?} a row, {} MiB", spent / rows, size(directory));
        }
    }
}

/// Has `count` notifications accepted and delivered.
async fn fill(store: &Sqlite, count: u64, due_at: impl Fn(u64) -> i64) {
    for first in (0..count).step_by(usize::try_from(AT_ONCE).expect("a number")) {
        let draft = |number: u64| -> Draft {
            let due_at = due_at(number);
            Shape { due_at, ..Shape::default() }.draft(&format!("{number:0>64x}"))
        };
        let drafts = (first..count.min(first + AT_ONCE)).map(draft).collect();
        store.ingest(drafts, at(0)).await.expect("accepted");
        loop {
            let chunks = claim_all(store, LATER).await;
            if chunks.is_empty() {
                break;
            }
            for chunk in chunks {
                settle_all(store, &chunk, Disposition::Ended(State::Delivered)).await;
            }
        }
    }
}

async fn prune(store: &Sqlite, days: u32) -> (Removed, Duration) {
    let lifetimes =
        Lifetimes { content: Some(DAY * 7), recipient: Some(DAY * 30), outcome: Some(DAY * 90) };
    let default = TenantRetention { lifetimes, by_state: BTreeMap::new() };
    let retention = Retention { default, ..Retention::for_ever() };
    let (began, mut removed) = (Instant::now(), Removed::default());
    loop {
        let step = store.prune(&retention, at(0).plus(DAY * days)).await.expect("pruned");
        removed.add(&step.removed);
        if !step.goes_on {
            return (removed, began.elapsed());
        }
    }
}

/// MiB of the database.
fn size(directory: &Path) -> u64 {
    std::fs::metadata(directory.join("belfry.db")).expect("a database").len() >> 20
}

//! The cost of the SQLite store: microseconds of CPU per notification, by step.
//!
//! `cargo run --release -p store --features conformance --example store_speed [notifications]`

#![expect(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a measurement reads the clock, prints, and fails by panicking"
)]

mod speed;

use std::path::Path;
use std::time::Instant;

use notification::{ByteString, Chunk, limits};
use store::conformance::{at, claim_request, the_books_balance};
use store::sqlite::Options;
use store::{ClaimRequest, Claims, ReadStore, Settlements, Sqlite};

use speed::{cpu_us, parts};

/// A step under measurement.
struct Step {
    name: &'static str,
    items: usize,
    wall: Instant,
    cpu_us: u64,
}

impl Step {
    fn start(name: &'static str, items: usize) -> Self {
        Self { name, items, wall: Instant::now(), cpu_us: cpu_us("self") }
    }

    #[expect(clippy::cast_precision_loss, reason = "shown with two decimals")]
    fn stop(self) {
        let cpu = (cpu_us("self") - self.cpu_us) as f64 / self.items as f64;
        let wall = self.wall.elapsed().as_secs_f64();
        println!("{:42} {cpu:8.2} us/item {wall:8.2} s {:8} KiB", self.name, resident_kib());
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let count = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(1_000_000);
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path();
    let store = open(path);
    run_broadcast(&store, count).await;
    the_way_through(&store, 1_000, false).await;
    ingest_own(&store, count).await;
    the_way_through(&store, 100, true).await;
    let step = Step::start("audit, all ended", 2 * count);
    the_books_balance(&store).await;
    step.stop();
    drop(store);
    backlog(path, 5 * count).await;
}

fn open(path: &Path) -> Sqlite {
    Sqlite::open(path, Options::new(1), at(0)).expect("open").0
}

async fn run_broadcast(store: &Sqlite, count: usize) {
    let step = Step::start("ingest of a broadcast", count);
    speed::broadcast(store, count, limits::BATCH_ITEMS).await;
    step.stop();
}

async fn ingest_own(store: &Sqlite, count: usize) {
    let step = Step::start("making 1,000-draft requests (not the store)", count);
    speed::make_own(count);
    step.stop();
    let step = Step::start("that, and their ingest, own contents", count);
    speed::ingest_own(store, count).await;
    step.stop();
}

async fn the_way_through(store: &Sqlite, part: usize, own: bool) {
    let pending =
        usize::try_from(store.reader().totals().await.expect("totals").pending).expect("fits");
    let (claim, settle) = if own {
        ("claim, own contents", "settle in parts of 100")
    } else {
        ("claim of a broadcast", "settle in parts of 1,000")
    };
    let request = ClaimRequest { items: limits::CLAIM_ITEMS, ..claim_request(0) };
    let step = Step::start(claim, pending);
    let mut chunks: Vec<Chunk> = Vec::new();
    loop {
        let claimed = store.claim(request).await.expect("claim").chunks;
        if claimed.is_empty() {
            break;
        }
        // A settlement needs no more than this: contents would fill the memory here.
        let bare = |chunk: Chunk| Chunk { content: None, ..chunk };
        chunks.extend(claimed.into_iter().map(bare).map(without_contents));
    }
    step.stop();
    let step = Step::start(settle, pending);
    for eight in chunks.chunks(8) {
        let settlements = eight.iter().flat_map(|chunk| parts(chunk, part));
        store.settle(settlements.collect()).await.expect("settle");
    }
    step.stop();
}

fn without_contents(mut chunk: Chunk) -> Chunk {
    for delivery in &mut chunk.deliveries {
        delivery.content = None;
        delivery.recipient = ByteString::new();
    }
    chunk
}

/// A backlog of `count`, opened anew.
async fn backlog(path: &Path, count: usize) {
    let store = open(path);
    run_broadcast(&store, count).await;
    drop(store);
    let step = Step::start("open with that backlog", count);
    let store = open(path);
    step.stop();
    let step = Step::start("first claim", limits::CLAIM_ITEMS);
    let claim = store.claim(ClaimRequest { items: 8_000, ..claim_request(0) }).await;
    assert_eq!(claim.expect("claim").chunks[0].deliveries.len(), limits::BATCH_ITEMS);
    step.stop();
    let step = Step::start("audit of everything", count);
    the_books_balance(&store).await;
    step.stop();
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("procfs");
    let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|text| text.parse().ok()).unwrap_or(0)
}

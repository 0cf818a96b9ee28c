//! The cost of the PostgreSQL store: microseconds of wall time and CPU per notification, by step.
//!
//! `cargo run --release -p store --features conformance --example postgres_speed [notifications] [url]`
//!
//! A server of its own is started without an address, with the defaults of its version: commits are synced.

#![expect(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a measurement reads the clock, prints, and fails by panicking"
)]

mod speed;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use flow::Clock;
use notification::{Chunk, limits};
use store::conformance::{Shape, at, claim_request, name, the_books_balance};
use store::postgres::Options;
use store::{
    ClaimRequest, Claims, Ingest, Operations, Postgres, ReadStore, Settlements, Suppression,
};
use testbed::PostgresOptions;

use speed::{cpu_us, parts, token};

/// A step under measurement.
struct Step {
    name: &'static str,
    items: usize,
    wall: Instant,
    ours_us: u64,
    theirs_us: u64,
}

impl Step {
    fn start(name: &'static str, items: usize) -> Self {
        let (ours_us, theirs_us) = (cpu_us("self"), servers_us());
        Self { name, items, wall: Instant::now(), ours_us, theirs_us }
    }

    #[expect(clippy::cast_precision_loss, reason = "shown with two decimals")]
    fn stop(self) {
        let each = |us: u64| us as f64 / self.items as f64;
        let wall = each(u64::try_from(self.wall.elapsed().as_micros()).unwrap_or(u64::MAX));
        let ours = each(cpu_us("self") - self.ours_us);
        let theirs = each(servers_us().saturating_sub(self.theirs_us));
        println!(
            "{:44} {wall:7.2} us wall, {ours:6.2} us CPU here, {theirs:6.2} us CPU there",
            self.name
        );
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let mut arguments = std::env::args().skip(1);
    let count = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(1_000_000);
    let server = match arguments.next() {
        Some(_) => None,
        None => Some(
            testbed::PostgresServer::start_with(PostgresOptions {
                settings: &[("shared_buffers", "512MB"), ("max_wal_size", "4GB")],
                tls: None,
            })
            .expect("a server"),
        ),
    };
    let url = match &server {
        Some(server) => server.url(),
        None => std::env::args().nth(2).expect("an address"),
    };
    let store = Arc::new(open(&url).await);
    let step = Step::start("ingest of a broadcast", count);
    speed::broadcast(&*store, count, 8 * limits::BATCH_ITEMS).await;
    step.stop();
    the_way_through(&store, 1_000, "of a broadcast").await;
    own(&store, count).await;
    the_way_through(&store, 256, "with own contents").await;
    let gone = Suppression {
        channel: name("channel"),
        recipient: "somebody".into(),
        reason: String::new(),
        status: 0,
        since: at(0),
    };
    store.suppress(vec![gone], at(0)).await.expect("suppress");
    one_offs(&store, count / 10).await;
    the_way_through(&store, 256, "of one-offs, somebody is suppressed").await;
    own(&store, count).await;
    the_way_through(&store, 256, "with own contents, somebody is suppressed").await;
    let step = Step::start("audit of everything", 3 * count);
    the_books_balance(&*store).await;
    step.stop();
    store.close().await;
}

async fn open(url: &str) -> Postgres {
    Postgres::open(Options::new(url), Clock::system()).await.expect("open")
}

async fn own(store: &Postgres, count: usize) {
    let step = Step::start("making 1,000-draft requests (not the store)", count);
    speed::make_own(count);
    step.stop();
    let step = Step::start("that, and their ingest, own contents", count);
    speed::ingest_own(store, count).await;
    step.stop();
}

/// Webhooks: ten drafts each for many destinations.
async fn one_offs(store: &Postgres, count: usize) {
    let step = Step::start("ingest of one-offs for 1,000 destinations", count);
    for first in (0..count).step_by(2_000) {
        let draft = |number: usize| {
            let mut draft = Shape::default().draft(&token(number));
            draft.envelope.lane.destination = format!("https://{}.example", number % 1_000).into();
            draft
        };
        store.ingest((first..first + 2_000).map(draft).collect(), at(0)).await.expect("ingest");
    }
    step.stop();
}

/// Claims and settles as the pipeline does: settlements come in parts, while the next chunk is claimed.
async fn the_way_through(store: &Arc<Postgres>, part: usize, what: &'static str) {
    let pending =
        usize::try_from(store.reader().totals().await.expect("totals").pending).expect("fits");
    println!("  {what}:");
    let step = Step::start("claim and settle, together", pending);
    let request = ClaimRequest { items: limits::CLAIM_ITEMS, ..claim_request(0) };
    let mut settling = VecDeque::new();
    loop {
        let claim: store::Claim<Chunk> = store.claim(request).await.expect("claim");
        if claim.chunks.is_empty() && claim.next_at.is_none_or(|at| at > request.now) {
            break;
        }
        let settlements = claim.chunks.iter().flat_map(|chunk| parts(chunk, part)).collect();
        let store = Arc::clone(store);
        settling.push_back(tokio::spawn(async move {
            let Vec { .. } = store.settle(settlements).await.expect("settle");
        }));
        if settling.len() > 2 {
            settling.pop_front().expect("one").await.expect("settled");
        }
    }
    for one in settling {
        one.await.expect("settled");
    }
    step.stop();
    let left = store.reader().totals().await.expect("totals").pending;
    assert_eq!(left, 0, "everything is settled");
}

/// User and system time of every process of PostgreSQL that runs now.
fn servers_us() -> u64 {
    let processes = std::fs::read_dir("/proc").expect("procfs").flatten();
    let named = processes.filter_map(|process| process.file_name().into_string().ok());
    let is_server = |process: &String| {
        std::fs::read_to_string(format!("/proc/{process}/comm"))
            .is_ok_and(|it| it.trim() == "postgres")
    };
    named.filter(is_server).map(|process| cpu_us(&process)).sum()
}

//! Days of a store with retention: whether its size stays what it is.
//!
//! `cargo run --release -p store --example simulated_days STORE [days] [broadcast] [one-offs] [minutes]`
//!
//! Each day STORE, a directory that does not exist or `postgres` for a server of its own, takes in a broadcast of so many and so many
//! notifications one by one, these to destinations that it did not have before; ends them (one chunk of a hundred dead, the others
//! delivered), indexes them, and removes what is over: contents after 7 days, recipients after 30, outcomes after 90, lanes. All times are
//! of the simulated days, of which the last one is today. It ends after so many days, or with the day in which so many minutes by the clock
//! are over. A line tells of every tenth day; a directory is left there.

#![expect(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a measurement reads the clock, prints, and fails by panicking"
)]

#[path = "support/mod.rs"]
mod support;

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use notification::{Chunk, Disposition, Draft, OutcomeGroup, Settlement, State, Timestamp};
use store::conformance::{Shape, claim_all};
use store::{Lifetimes, Removed, Retention, Store, TenantRetention};

use support::MeasuredStore;

const DAY: Duration = Duration::from_hours(24);
/// Notifications that are taken in and ended at a time.
const AT_ONCE: u64 = 50_000;
/// Notifications of a batch.
const BATCH: u64 = 1_000;
/// Destinations of a day's notifications that come one by one: each day has others.
const NEW_ENDPOINTS: u64 = 100;
/// Days between two lines.
const TOLD_EVERY: u32 = 10;

/// How long the parts of a day took.
#[derive(Default)]
struct DayTimes {
    taken_in: Duration,
    indexed: Duration,
    removed: Duration,
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let mut arguments = std::env::args().skip(1);
    let place = arguments.next().expect("a directory, or `postgres`");
    let mut numbers = arguments.map(|text| text.parse().expect("a number"));
    let mut number = |default| numbers.next().unwrap_or(default);
    let (days, broadcast, one_offs) = (number(120), number(500_000), number(20_000));
    let longest = Duration::from_mins(number(u64::from(u32::MAX)));
    let days = u32::try_from(days).expect("days");
    let mut place = MeasuredStore::new(&place);
    let open = place.open().await;
    let store = open.get();
    let today = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time after 1970");
    let today = Timestamp::from_millis(i64::try_from(today.as_millis()).expect("milliseconds"));
    // A day is over before it is removed from: nothing is due after the clock of a server.
    let first = today.minus(DAY * (days + 1));
    let (mut times, mut removed) = (DayTimes::default(), Removed::default());
    let start = Instant::now();
    for day in 0..days {
        let now = first.plus(DAY * day);
        let began = Instant::now();
        take_in(store, now, broadcast, BATCH).await;
        take_in(store, now.plus(Duration::from_hours(6)), one_offs, 1).await;
        times.taken_in += began.elapsed();
        let began = Instant::now();
        while store.advance().await.expect("a step of the index") {}
        times.indexed += began.elapsed();
        let began = Instant::now();
        prune(store, now.plus(DAY / 2), &mut removed).await;
        times.removed += began.elapsed();
        if (day + 1) % TOLD_EVERY == 0 {
            let space = store.reader().space().await.expect("its size").expect("a size");
            let DayTimes { taken_in, indexed, removed: removing } = std::mem::take(&mut times);
            println!(
                "day {:4}: {:6} MiB; of {TOLD_EVERY} days {taken_in:.1?} to take in and end, {indexed:.1?} to index, {removing:.1?} to \
                 remove; {removed:?}",
                day + 1,
                space.used >> 20
            );
        }
        if start.elapsed() >= longest {
            println!("day {:4}: {longest:.0?} are over", day + 1);
            break;
        }
    }
    open.close().await;
    // The account is that of what is on the disk.
    place.restart();
    let open = place.open().await;
    let audit = open.get().reader().audit().await.expect("an audit");
    let (is_balanced, problems) = (audit.account.is_balanced(), audit.problem_count);
    println!("balanced: {is_balanced}, {problems} problems; {:?}", audit.account);
    open.close().await;
}

/// Has `count` notifications accepted and ended at `now`, `of_batch` of them in each batch.
async fn take_in(store: &dyn Store, now: Timestamp, count: u64, of_batch: u64) {
    for first in (0..count).step_by(usize::try_from(AT_ONCE).expect("a number")) {
        let draft = |number: u64| -> Draft {
            // Drafts of one transaction share batches unless their due times differ.
            let due_at = now.millis() + i64::try_from(number / of_batch).expect("a number");
            let mut draft = Shape { due_at, ..Shape::default() }.draft(&format!("{number:0>64x}"));
            if of_batch == 1 {
                let endpoint = number % NEW_ENDPOINTS;
                let destination = format!("https://{endpoint}.{}.example", now.millis());
                draft.envelope.lane.destination = destination.into();
            }
            draft
        };
        let drafts = (first..count.min(first + AT_ONCE)).map(draft).collect();
        store.ingest(drafts, now).await.expect("accepted");
        let ended_at = now.plus(Duration::from_hours(1));
        loop {
            let chunks = claim_all(store, ended_at.millis()).await;
            if chunks.is_empty() {
                break;
            }
            let settlements = chunks.iter().map(|chunk| end(chunk, ended_at)).collect();
            store.settle(settlements).await.expect("settled");
        }
    }
}

/// The end of all deliveries of a chunk: of one chunk in a hundred they are given up.
fn end(chunk: &Chunk, at: Timestamp) -> Settlement {
    let state = if chunk.id.0.is_multiple_of(100) { State::Dead } else { State::Delivered };
    let group = OutcomeGroup {
        disposition: Disposition::Ended(state),
        status: 200,
        detail: "".into(),
        suppress: false,
        gone_since: [].into(),
        indexes: chunk.deliveries.iter().map(|delivery| delivery.index).collect(),
    };
    Settlement {
        chunk: chunk.id,
        epoch: chunk.epoch,
        at,
        groups: vec![group],
        places: 0,
        latency: None,
        rate_per_minute: None,
        fallbacks: Vec::new(),
    }
}

/// Removes all that is over at `now`.
async fn prune(store: &dyn Store, now: Timestamp, removed: &mut Removed) {
    let lifetimes =
        Lifetimes { content: Some(DAY * 7), recipient: Some(DAY * 30), outcome: Some(DAY * 90) };
    let default = TenantRetention { lifetimes, by_state: BTreeMap::new() };
    let retention = Retention { default, ..Retention::for_ever() };
    loop {
        let step = store.prune(&retention, now).await.expect("pruned");
        removed.add(&step.removed);
        if !step.goes_on {
            return;
        }
    }
}

//! The cost of the search index: bytes and CPU per notification, and the time of a search.
//!
//! `cargo run --release -p store --example search_index STORE [notifications] [one-offs] [tags]`
//!
//! Fills STORE, a directory that does not exist or `postgres` for a server of its own, with batches of 1,000 and batches of one; builds
//! the index; searches for random recipients, of whom each got four notifications; and takes in a million more, in turn with the index
//! at work and without. A directory of 20,000,000 takes some 3 GiB; it is left there. CPU is that of this process, so on PostgreSQL it
//! is without the server's. With `tags`, each has its recipient as an external id as well, and one of so many tags: searches by either are
//! measured then, by a tag for the first page alone.

#![expect(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a measurement reads the clock, prints, and fails by panicking"
)]

#[path = "support/mod.rs"]
mod support;

use std::sync::Arc;
use std::time::{Duration, Instant};

use notification::{ByteString, Bytes, CommonLabels, Draft, Labels, Timestamp};
use store::conformance::{Shape, at, name};
use store::{Filter, ListOrder, Store};

use support::MeasuredStore;

/// Notifications of a batch.
const BATCH: u64 = 1_000;
/// Searches of each kind.
const SEARCHES: usize = 1_000;
/// The pause of the engine between two steps.
const BETWEEN_STEPS: Duration = Duration::from_millis(20);

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let mut arguments = std::env::args().skip(1);
    let place = arguments.next().expect("a directory, or `postgres`");
    let mut numbers = arguments.map(|text| text.parse().expect("a number"));
    let notifications: u64 = numbers.next().unwrap_or(20_000_000);
    let one_offs: u64 = numbers.next().unwrap_or(1_000_000);
    let tags = Tags::new(numbers.next().unwrap_or(0));
    let mut place = MeasuredStore::new(&place);
    let mut store = place.open().await;
    let recipients = (notifications + one_offs) / 4;

    let step = Step::start();
    fill(store.get(), notifications, (recipients, &tags), 1).await;
    step.stop("taken in, by 1,000", notifications);
    index(store.get(), &place, "index, batches of 1,000", notifications).await;
    let step = Step::start();
    fill_one_offs(store.get(), one_offs, (recipients, &tags)).await;
    step.stop("taken in, one by one", one_offs);
    index(store.get(), &place, "index, one-offs", one_offs).await;

    let mut random = fastrand::Rng::with_seed(3);
    search(store.get(), "warm-up", recipients, &mut random).await;
    search(store.get(), "warm", recipients, &mut random).await;
    tags.search(store.get(), "warm", recipients).await;
    // A reader that has just been opened has nothing of its own in memory either.
    store.close().await;
    place.restart();
    if std::process::Command::new("sync").status().is_ok_and(|status| status.success())
        && std::fs::write("/proc/sys/vm/drop_caches", "3").is_ok()
    {
        store = place.open().await;
        search(store.get(), "cold at first", recipients, &mut random).await;
        tags.search(store.get(), "cold at first", recipients).await;
    } else {
        println!("cold: the page cache may not be dropped here");
        store = place.open().await;
    }
    for _ in 0..3 {
        let step = Step::start();
        fill(store.get(), 1_000_000, (recipients, &tags), 5).await;
        step.stop("taken in without the index", 1_000_000);
        let step = Step::start();
        tokio::select! {
            () = keep_index(store.get()) => {}
            () = fill(store.get(), 1_000_000, (recipients, &tags), 6) => {}
        }
        step.stop("taken in beside the index", 1_000_000);
    }
    store.close().await;
}

fn draft(shape: &Shape, recipient: u64, tags: &Tags) -> Draft {
    let draft = shape.draft(&format!("user-{recipient:012}@example.com"));
    Draft { labels: tags.labels_of(recipient), ..draft }
}

/// Takes in batches of 1,000, eight at a time.
async fn fill(store: &dyn Store, notifications: u64, (recipients, tags): (u64, &Tags), seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    for calls in 0..notifications / BATCH / 8 {
        let groups: Vec<Vec<Draft>> = (0..8)
            .map(|call| {
                // Drafts of one transaction share batches unless their due times differ.
                let due_at = i64::try_from(calls * 8 + call).expect("a number") + 1_000_000_000_000;
                let shape = Shape { due_at, ..Shape::default() };
                (0..BATCH).map(|_| draft(&shape, random.u64(0..recipients), tags)).collect()
            })
            .collect();
        let mut groups = groups.into_iter().map(|group| store.ingest(group, now()));
        let mut next = || groups.next().expect("eight");
        let all = tokio::try_join!(next(), next(), next(), next(), next(), next(), next(), next());
        all.expect("accepted");
    }
}

/// Takes in batches of one: no two drafts of a call have an envelope in common.
async fn fill_one_offs(store: &dyn Store, notifications: u64, (recipients, tags): (u64, &Tags)) {
    let mut random = fastrand::Rng::with_seed(2);
    for call in 0..notifications / BATCH {
        let one = |number| {
            let due_at = i64::try_from(call * BATCH + number).expect("a number");
            let shape = Shape { due_at: due_at + 2_000_000_000_000, ..Shape::default() };
            draft(&shape, random.u64(0..recipients), tags)
        };
        store.ingest((0..BATCH).map(one).collect(), now()).await.expect("accepted");
    }
}

async fn index(store: &dyn Store, place: &MeasuredStore, what: &str, notifications: u64) {
    let before = blocks(place).await;
    let step = Step::start();
    let (mut steps, mut longest) = (0, Duration::ZERO);
    loop {
        let began = Instant::now();
        if !store.advance().await.expect("a step") {
            break;
        }
        steps += 1;
        longest = longest.max(began.elapsed());
    }
    step.stop(what, notifications);
    let (blocks, bytes) = blocks(place).await;
    let added = (bytes - before.1) / notifications.cast_signed();
    println!("  {steps} steps, longest {longest:?}; {blocks} blocks, {added} bytes each added");
}

/// Takes steps as the engine does.
async fn keep_index(store: &dyn Store) {
    loop {
        let pause = if store.advance().await.expect("a step") { 1 } else { 50 };
        tokio::time::sleep(BETWEEN_STEPS * pause).await;
    }
}

async fn search(store: &dyn Store, what: &str, recipients: u64, random: &mut fastrand::Rng) {
    let filter = || {
        let recipient = format!("user-{:012}@example.com", random.u64(0..recipients));
        Filter { recipient: Some(recipient.as_str().into()), ..Filter::default() }
    };
    search_by(store, what, filter, usize::MAX).await;
}

/// Searches for up to `items_max` of what each of many filters lists.
async fn search_by(
    store: &dyn Store,
    what: &str,
    mut filter: impl FnMut() -> Filter,
    items_max: usize,
) {
    let (mut times, mut found) = (Vec::with_capacity(SEARCHES), 0);
    for _ in 0..SEARCHES {
        let (tenant, order) = (Some(name("tenant")), ListOrder::NewestFirst);
        let filter = Filter { tenant, order, ..filter() };
        let (began, mut after, mut items) = (Instant::now(), None, 0);
        loop {
            let page = store.reader().list(filter.clone(), after, 20).await.expect("a page");
            items += page.items.len();
            after = page.next;
            if after.is_none() || items >= items_max {
                break;
            }
        }
        found += items;
        times.push(began.elapsed());
    }
    times.sort_unstable();
    let at = |part: usize| times[(SEARCHES * part / 1_000).min(SEARCHES - 1)];
    println!(
        "search, {what}: p50 {:?}, p99 {:?}, longest {:?}; {found} found",
        at(500),
        at(990),
        at(1_000)
    );
}

/// So many tags, of which each notification has one; none, and no external ids either, if there are none.
struct Tags(Vec<Arc<CommonLabels>>);

impl Tags {
    fn new(count: u64) -> Self {
        let tag = |number| {
            let tags = vec![ByteString::from(format!("topic-{number}"))];
            Arc::new(CommonLabels { tags, metadata: Bytes::new() })
        };
        Self((0..count).map(tag).collect())
    }

    fn labels_of(&self, recipient: u64) -> Labels {
        if self.0.is_empty() {
            return Labels::default();
        }
        let place = usize::try_from(recipient).unwrap_or(0) % self.0.len();
        let external_id = ByteString::from(format!("user-{recipient}"));
        Labels { external_id, common: Some(Arc::clone(&self.0[place])) }
    }

    async fn search(&self, store: &dyn Store, what: &str, recipients: u64) {
        if self.0.is_empty() {
            return;
        }
        let mut random = fastrand::Rng::with_seed(4);
        let by_id = || {
            let external_id = format!("user-{}", random.u64(0..recipients));
            Filter { external_id: Some(external_id.into()), ..Filter::default() }
        };
        search_by(store, &format!("by external id, {what}"), by_id, usize::MAX).await;
        let mut random = fastrand::Rng::with_seed(5);
        let by_tag = || {
            let tag = format!("topic-{}", random.usize(0..self.0.len()));
            Filter { tag: Some(tag.into()), ..Filter::default() }
        };
        search_by(store, &format!("by tag, 20 of many, {what}"), by_tag, 20).await;
    }
}

/// Number and bytes of the blocks.
async fn blocks(place: &MeasuredStore) -> (i64, i64) {
    let sql = "SELECT count(*), coalesce(sum(length(postings)), 0)";
    match place {
        MeasuredStore::Directory(directory) => {
            let connection = rusqlite::Connection::open(directory.join("belfry.db"));
            let sql = format!("{sql} FROM search_block");
            let row = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
            connection.expect("a database").query_row(&sql, [], row).expect("a row")
        }
        MeasuredStore::Server(_, database) => {
            let (client, connection) =
                tokio_postgres::connect(database.url(), tokio_postgres::NoTls)
                    .await
                    .expect("a connection");
            let sql = format!("{sql}::int8 FROM belfry.search_block");
            let (row, _) = tokio::join!(
                async {
                    let row = client.query_one(&sql, &[]).await.expect("a row");
                    drop(client);
                    row
                },
                connection
            );
            (row.get(0), row.get(1))
        }
    }
}

fn now() -> Timestamp {
    at(1_000)
}

/// A stretch of time, and the CPU that this process takes in it.
struct Step(Instant, u64);

impl Step {
    fn start() -> Self {
        Self(Instant::now(), cpu_micros())
    }

    fn stop(&self, what: &str, notifications: u64) {
        let (seconds, micros) = (self.0.elapsed().as_secs_f64(), cpu_micros() - self.1);
        let per_item = micros * 1_000 / notifications;
        println!("{what}: {notifications} in {seconds:.1} s; {per_item} ns of CPU each");
    }
}

/// CPU that this process has taken, from `/proc/self/stat`: user and system time, in ticks of 10 ms.
fn cpu_micros() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux");
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split(' ').collect();
    let ticks = |field: usize| fields[field].parse::<u64>().expect("a number");
    (ticks(12) + ticks(13)) * 10_000
}

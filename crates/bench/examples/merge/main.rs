//! One loop for both kinds of callers beside one loop for each: `merge [SECONDS=2] [REPETITIONS=7]`.
//!
//! 8 and 16 callers, half of them of each kind, do one operation after the other for SECONDS, over one connection on which a
//! group is synced as one: of the embedded store, whose callers hand in a notification or settle a delivery; and to a
//! PostgreSQL server of its own, whose callers insert a row or change one. Both variants in turn, REPETITIONS times. Printed are
//! the means over the repetitions, each with its 95 % confidence interval (Student), and the processor time of idle loops.

#![expect(clippy::print_stdout, reason = "a measurement prints")]

mod figures;
mod postgres;
mod sqlite;

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use flow::Clock;
use flow::merge::{Counts, Merging};
use testbed::postgres::PostgresServer;
use tokio::task::JoinSet;
use tokio::time::Instant;

use figures::{Figures, interval};
use postgres::OneConnection;
use sqlite::EmbeddedStore;

/// Callers at a time.
const CALLERS: [usize; 2] = [8, 16];
/// Operations of each caller before those that count.
const WARM_UP: usize = 20;
/// Over which the processor time of idle loops is counted.
const IDLE: Duration = Duration::from_secs(5);

/// The place where groups are performed.
enum Place {
    Sqlite,
    Postgres(PostgresServer),
}

/// One of them, open.
enum Subject {
    Sqlite(EmbeddedStore),
    Postgres(OneConnection),
}

// === impl Place ===

impl Place {
    async fn open(&self, merging: Merging, callers: usize) -> Result<Subject> {
        Ok(match self {
            Self::Sqlite => Subject::Sqlite(EmbeddedStore::open(merging, callers).await?),
            Self::Postgres(server) => {
                Subject::Postgres(OneConnection::open(server, merging, callers).await?)
            }
        })
    }

    const fn name(&self) -> &'static str {
        match self {
            Self::Sqlite => "SQLite: ingest one, settle one",
            Self::Postgres(_) => "PostgreSQL, one connection: insert a row, change a row",
        }
    }
}

// === impl Subject ===

impl Subject {
    /// The operation `number` of a caller; those of even and of odd callers are of different kinds.
    async fn operate(&self, caller: usize, number: usize) -> Result<()> {
        match self {
            Self::Sqlite(store) => store.operate(caller, number).await,
            Self::Postgres(connection) => connection.operate(caller, number).await,
        }
    }

    fn counts(&self) -> Counts {
        match self {
            Self::Sqlite(store) => store.counts(),
            Self::Postgres(connection) => connection.counts(),
        }
    }

    async fn close(&self) {
        match self {
            Self::Sqlite(store) => store.close().await,
            Self::Postgres(connection) => connection.close().await,
        }
    }
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let mut number = |usual| arguments.next().map_or(Ok(usual), |text| text.parse());
    let usage = "usage: merge [SECONDS] [REPETITIONS]";
    let (seconds, repetitions) = (number(2).context(usage)?, number(7).context(usage)?);
    ensure!((2..=11).contains(&repetitions), "2 to 11 repetitions");
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        for place in [Place::Sqlite, Place::Postgres(PostgresServer::start()?)] {
            println!("{}", place.name());
            for callers in CALLERS {
                compare(&place, callers, Duration::from_secs(seconds), repetitions).await?;
            }
            for merging in [Merging::Separate, Merging::Shared] {
                let subject = place.open(merging, 2).await?;
                subject.operate(0, 0).await?;
                subject.operate(1, 0).await?;
                let before = figures::processor_time();
                tokio::time::sleep(IDLE).await;
                let used = figures::processor_time().saturating_sub(before).as_secs_f64()
                    / IDLE.as_secs_f64();
                println!("  {merging:?} idle: {:.4} % of a core", 100.0 * used);
                subject.close().await;
            }
        }
        Ok(())
    })
}

/// Both variants in turn, the first of a pair changing.
async fn compare(place: &Place, callers: usize, time: Duration, repetitions: u64) -> Result<()> {
    let (mut separate, mut shared) = (Vec::new(), Vec::new());
    for repetition in 0..repetitions {
        let mut pair = [Merging::Separate, Merging::Shared];
        if repetition % 2 == 1 {
            pair.reverse();
        }
        for merging in pair {
            let figures = measure(place, merging, callers, time).await?;
            if merging == Merging::Shared { &mut shared } else { &mut separate }.push(figures);
        }
    }
    println!("  {callers} callers");
    for (name, figures) in [("separate", &separate), ("shared", &shared)] {
        println!("    {name:8} {}", figures::summary(figures));
    }
    let ratios = separate.iter().zip(&shared).map(|(one, other)| other.mean_us / one.mean_us);
    println!(
        "    shared / separate, time of an operation, by pairs: {}",
        interval(&ratios.collect::<Vec<_>>())
    );
    Ok(())
}

/// So many callers, for `time`.
async fn measure(
    place: &Place,
    merging: Merging,
    callers: usize,
    time: Duration,
) -> Result<Figures> {
    let subject = Arc::new(place.open(merging, callers).await?);
    let clock = Clock::system();
    run(&subject, callers, 0..WARM_UP, None).await?;
    let (before, cpu_before) = (subject.counts(), figures::processor_time());
    let started = clock.monotonic();
    let took = run(&subject, callers, WARM_UP..usize::MAX, Some(started + time)).await?;
    let (elapsed, cpu) =
        (clock.monotonic() - started, figures::processor_time().saturating_sub(cpu_before));
    let after = subject.counts();
    subject.close().await;
    ensure!(
        after.items - before.items == took.len() as u64,
        "each operation is an item of one group"
    );
    Ok(Figures::new(took, elapsed, cpu, after.groups - before.groups))
}

/// All callers, each with its operations of these `numbers`, one after the other, `until` then; how long each took.
async fn run(
    subject: &Arc<Subject>,
    callers: usize,
    numbers: Range<usize>,
    until: Option<Instant>,
) -> Result<Vec<Duration>> {
    let clock = Clock::system();
    let mut running = JoinSet::new();
    for caller in 0..callers {
        let (subject, numbers) = (Arc::clone(subject), numbers.clone());
        running.spawn(async move {
            let mut took = Vec::new();
            let mut now = clock.monotonic();
            for number in numbers {
                if until.is_some_and(|until| now >= until) {
                    break;
                }
                subject.operate(caller, number).await?;
                let done = clock.monotonic();
                took.push(done - now);
                now = done;
            }
            Ok::<_, anyhow::Error>(took)
        });
    }
    let mut all = Vec::new();
    while let Some(took) = running.join_next().await {
        all.extend(took??);
    }
    Ok(all)
}

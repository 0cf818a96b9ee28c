//! Runs of both variants in turn, over either place.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use flow::Clock;
use flow::merge::{Counts, Merging};
use testbed::PostgresServer;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::figures::Figures;
use super::postgres::OneConnection;
use super::sqlite::EmbeddedStore;
use crate::usage::own_cpu;

/// The place where groups are performed.
pub(super) enum MergePlace {
    Sqlite,
    Postgres(PostgresServer),
}

/// One of them, open.
enum MergeSubject {
    Sqlite(EmbeddedStore),
    Postgres(OneConnection),
}

/// Both variants by so many callers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Comparison {
    /// Callers at a time, half of them of either kind.
    pub(super) callers: usize,
    /// Length of a repetition.
    pub(super) time: Duration,
    /// Length of the span without calls.
    pub(super) idle: Duration,
    /// Of each variant.
    pub(super) repetitions: u32,
}

/// The figures of all repetitions.
#[derive(Debug)]
pub(super) struct Compared {
    pub(super) separate: Vec<Figures>,
    pub(super) shared: Vec<Figures>,
    /// Processor time without calls, part of a core: of separate loops, of the shared one.
    pub(super) idle: [f64; 2],
}

/// Operations of each caller before those that are timed.
const WARM_UP: usize = 20;

// === impl MergePlace ===

impl MergePlace {
    /// The part of a report's name that tells the places apart.
    pub(super) const fn suffix(&self) -> &'static str {
        match self {
            Self::Sqlite => "",
            Self::Postgres(_) => "-postgres",
        }
    }

    pub(super) const fn what(&self) -> &'static str {
        match self {
            Self::Sqlite => "SQLite, synchronous=FULL: ingest one, settle one",
            Self::Postgres(_) => "PostgreSQL, one connection: insert a row, change a row",
        }
    }

    async fn open(&self, merging: Merging, callers: usize) -> Result<MergeSubject> {
        Ok(match self {
            Self::Sqlite => MergeSubject::Sqlite(EmbeddedStore::open(merging, callers).await?),
            Self::Postgres(server) => {
                MergeSubject::Postgres(OneConnection::open(server, merging, callers).await?)
            }
        })
    }
}

// === impl MergeSubject ===

impl MergeSubject {
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

    /// Operations that are there, counted where they are stored.
    async fn stored(&self) -> Result<u64> {
        match self {
            Self::Sqlite(store) => store.stored().await,
            Self::Postgres(connection) => connection.stored(),
        }
    }

    async fn close(&self) {
        match self {
            Self::Sqlite(store) => store.close().await,
            Self::Postgres(connection) => connection.close().await,
        }
    }
}

// === impl Comparison ===

impl Comparison {
    /// Both variants in turn, the first of a pair changing.
    pub(super) async fn run(&self, place: &MergePlace) -> Result<Compared> {
        let (mut separate, mut shared) = (Vec::new(), Vec::new());
        for repetition in 0..self.repetitions {
            let mut pair = [Merging::Separate, Merging::Shared];
            if repetition % 2 == 1 {
                pair.reverse();
            }
            for merging in pair {
                let figures = self.measure(place, merging).await?;
                if merging == Merging::Shared { &mut shared } else { &mut separate }.push(figures);
            }
        }
        let idle = [
            self.idle_cores(place, Merging::Separate).await?,
            self.idle_cores(place, Merging::Shared).await?,
        ];
        Ok(Compared { separate, shared, idle })
    }

    /// One repetition.
    async fn measure(&self, place: &MergePlace, merging: Merging) -> Result<Figures> {
        let subject = Arc::new(place.open(merging, self.callers).await?);
        let clock = Clock::system();
        let warm_up = self.operate(&subject, 0..WARM_UP, None).await?;
        let (before, cpu_before) = (subject.counts(), own_cpu());
        let started = clock.monotonic();
        let took = self.operate(&subject, WARM_UP..usize::MAX, Some(started + self.time)).await?;
        let (elapsed, cpu) = (clock.monotonic() - started, own_cpu().saturating_sub(cpu_before));
        let after = subject.counts();
        let stored = subject.stored().await?;
        subject.close().await;
        ensure!(
            after.items - before.items == took.len() as u64,
            "each operation is an item of one group"
        );
        let answered = (warm_up.len() + took.len()) as u64;
        let figures = Figures::new(took, elapsed, cpu, after.groups - before.groups);
        Ok(figures.with_books(answered, stored))
    }

    /// Processor time without calls, after one of each caller, part of a core.
    async fn idle_cores(&self, place: &MergePlace, merging: Merging) -> Result<f64> {
        let subject = Arc::new(place.open(merging, self.callers).await?);
        self.operate(&subject, 0..1, None).await?;
        let before = own_cpu();
        tokio::time::sleep(self.idle).await;
        let used = own_cpu().saturating_sub(before);
        subject.close().await;
        Ok(used.as_secs_f64() / self.idle.as_secs_f64())
    }

    /// All callers, each with its operations of these `numbers`, one after the other, `until` then; how long each took.
    async fn operate(
        &self,
        subject: &Arc<MergeSubject>,
        numbers: Range<usize>,
        until: Option<Instant>,
    ) -> Result<Vec<Duration>> {
        let mut running = JoinSet::new();
        for caller in 0..self.callers {
            running.spawn(call(Arc::clone(subject), caller, numbers.clone(), until));
        }
        let mut all = Vec::new();
        while let Some(took) = running.join_next().await {
            all.extend(took??);
        }
        Ok(all)
    }
}

/// One caller.
async fn call(
    subject: Arc<MergeSubject>,
    caller: usize,
    numbers: Range<usize>,
    until: Option<Instant>,
) -> Result<Vec<Duration>> {
    let clock = Clock::system();
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
    Ok(took)
}

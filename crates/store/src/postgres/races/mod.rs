//! Interleavings of several processes on a real PostgreSQL, made to happen.
//!
//! A schedule has two or three engines in one process, each with the writers of a real one, on one database. A writer stops
//! before each statement, and before and after each commit ([`super::pause_points`]); a seeded generator decides on the writer
//! that goes on, the next call and its engine, the connection that is lost, and the engine that is declared dead ([`schedule`]).
//! Waits for locks are read from the server ([`cluster`]), so nothing depends on time. The answers to callers are written down
//! and compared, answer by answer and with the store at the end ([`book`], [`finish`]).
//!
//! A finding prints its schedule. `BELFRY_RACE_SEED` plays one seed again, `BELFRY_RACE_SCHEDULES` is the number of schedules,
//! and `BELFRY_RACE_FIRST` the first seed.

mod applications;
mod assignments;
mod book;
mod calls;
mod cluster;
mod controls;
mod directed;
mod feed;
mod finish;
mod gate;
mod lookups;
mod moves;
mod removals;
mod schedule;
mod slices;
mod taken_back;
mod themes;
mod withdrawals;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use cluster::Cluster;
pub(super) use gate::Gate;
use schedule::Schedule;

/// Schedules played by default: as many as two cores play within two minutes.
const SCHEDULES: u64 = 2_000;
/// Calls and other events of one schedule.
const STEPS: usize = 22;
/// Databases side by side.
const DATABASES: u64 = 3;
/// Schedules between two lines about the progress of a long run.
const TELL_EVERY: u64 = 5_000;

/// Plays one seed; the error is the finding, with the schedule.
async fn play(cluster: &mut Cluster, seed: u64, steps: usize) -> Result<(), String> {
    let schedule = Schedule::begin(cluster, seed).await;
    schedule.play(steps).await
}

/// Plays the seeds of one database; the first finding ends all.
fn play_share(seeds: impl Iterator<Item = u64>, done: &AtomicU64, is_over: &AtomicBool) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut cluster = Cluster::start().await;
        for seed in seeds {
            if is_over.load(Ordering::Relaxed) {
                return;
            }
            if let Err(finding) = play(&mut cluster, seed, STEPS).await {
                is_over.store(true, Ordering::Relaxed);
                let played = done.load(Ordering::Relaxed);
                let shortest = shorten(&mut cluster, seed).await.unwrap_or(finding);
                panic!("seed {seed}, after {played} schedules:\n{shortest}");
            }
            let played = done.fetch_add(1, Ordering::Relaxed) + 1;
            if played.is_multiple_of(TELL_EVERY) {
                println!("{played} schedules without a finding");
            }
        }
    });
}

/// Finding of the same seed with fewer steps, if it fails with fewer.
async fn shorten(cluster: &mut Cluster, seed: u64) -> Option<String> {
    for steps in 2..STEPS {
        if let Err(finding) = play(cluster, seed, steps).await {
            return Some(format!("({steps} steps are enough)\n{finding}"));
        }
    }
    None
}

/// A number that the caller gives the test.
#[expect(clippy::disallowed_methods, reason = "the environment of a run says how much of it")]
fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

#[test]
fn whatever_the_interleaving_the_account_balances_and_every_answer_is_true() {
    let (first, count) = match setting("BELFRY_RACE_SEED") {
        Some(seed) => (seed, 1),
        None => (
            setting("BELFRY_RACE_FIRST").unwrap_or(0),
            setting("BELFRY_RACE_SCHEDULES").unwrap_or(SCHEDULES),
        ),
    };
    let (done, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let seeds = |share: u64| (first..first + count).filter(move |seed| seed % DATABASES == share);
    std::thread::scope(|scope| {
        for share in 0..DATABASES {
            let (done, is_over) = (&done, &is_over);
            scope.spawn(move || play_share(seeds(share), done, is_over));
        }
    });
    assert_eq!(done.into_inner(), count);
}

/// A fault whose place has changed cannot be planted any more: a change of the place mends the fault, too.
#[test]
fn every_planted_fault_fits_the_sources() {
    let (mut faults, mut source, mut found) = (0, String::new(), String::new());
    for entry in std::fs::read_dir("tests/planted").unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "patch") {
            continue;
        }
        faults += 1;
        let fault = std::fs::read_to_string(&path).unwrap();
        for line in fault.lines().chain(["@@"]) {
            if let Some(file) = line.strip_prefix("+++ b/") {
                source = std::fs::read_to_string(format!("../../{file}")).unwrap();
            } else if line.starts_with("@@") || line.starts_with("--- a/") {
                assert!(source.contains(&found), "{} does not fit:\n{found}", path.display());
                found.clear();
            } else if let Some(text) = line.strip_prefix(['-', ' ']) {
                found.push_str(text);
                found.push('\n');
            }
        }
    }
    assert!(faults >= 14, "{faults}");
}

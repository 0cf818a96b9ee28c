//! SIGKILL at a random moment, and what must hold after it: nothing lost, nothing doubled beyond the promise.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use crate::trial::{Setup, Trial};
use crate::workload::{Workload, WorkloadGuarantee};

/// The result of one round; a result says that every promise held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Survived {
    /// How often the engine was killed.
    pub kills: u32,
    /// Recipients of at-least-once notifications that got theirs more than once.
    pub duplicates: u64,
    /// Notifications that had arrived and were not settled at the kills: the most that may be repeated.
    pub in_flight: u64,
    /// At-most-once notifications that ended in doubt.
    pub in_doubt: u64,
}

/// Notifications of each guarantee in a round.
const NOTIFICATIONS: u64 = 6_000;
/// A kill comes this long after the start at the latest: somewhere between the first import and the last send.
const KILL_WITHIN_MS: u64 = 800;
/// Kills in a round at the most.
const KILLS: u32 = 3;
/// How long a round may take to drain.
const PATIENCE: Duration = Duration::from_mins(1);

/// Runs one round with its own simulator and store in `directory`. The same seed draws the same
/// delays before each kill.
///
/// # Errors
/// When a promise was broken, with the figures; or when something could not be run.
pub fn round(binary: &Path, directory: &Path, seed: u64) -> Result<Survived> {
    let mut random = fastrand::Rng::with_seed(seed);
    let workload = Workload { tokens: 2 * NOTIFICATIONS, webhooks: Vec::new() };
    // Six thousand of each take one to two seconds at these.
    let (latency_ms, concurrency) = (random.u64(5..15), random.u64(64..120));
    let mut trial = Trial::start(Setup {
        binary: binary.to_owned(),
        directory: directory.to_owned(),
        engine_settings: vec![(
            "BELFRY__CHANNELS__IOS__CONCURRENCY".into(),
            concurrency.to_string(),
        )],
        simulator_flags: vec!["--latency".into(), format!("{latency_ms}ms")],
    })?;
    let least = || (0..NOTIFICATIONS, WorkloadGuarantee::AtLeastOnce, "least-");
    let most = || (NOTIFICATIONS..2 * NOTIFICATIONS, WorkloadGuarantee::AtMostOnce, "most-");
    let import = |trial: &Trial, (numbers, guarantee, key)| trial.import(numbers, guarantee, key);
    let imports = [import(&trial, least()), import(&trial, most())];

    let kills = random.u32(1..=KILLS);
    let mut in_flight = 0;
    for _ in 0..kills {
        std::thread::sleep(Duration::from_millis(random.u64(0..KILL_WITHIN_MS)));
        trial.kill()?;
        let arrived = trial.books(&workload)?.tally_of(0..NOTIFICATIONS).accepted;
        let arrived_most =
            trial.books(&workload)?.tally_of(NOTIFICATIONS..2 * NOTIFICATIONS).accepted;
        let audit = trial.audit()?;
        ensure!(audit.balanced, "after the kill the account does not balance: {audit:?}");
        in_flight += (arrived + arrived_most).saturating_sub(audit.delivered);
        trial.restart()?;
    }
    let [first, second] = imports.map(crate::trial::ImportRun::wait);
    // What the engine did not answer is asked again, under the same keys.
    if first.is_err() {
        import(&trial, least()).wait().context("importing again")?;
    }
    if second.is_err() {
        import(&trial, most()).wait().context("importing again")?;
    }
    trial.drain(PATIENCE, || Ok(()))?;
    let finished = trial.finish(&workload)?;
    let (least, most) = (finished.books.tally_of(least().0), finished.books.tally_of(most().0));
    let audit = finished.audit;

    ensure!(audit.balanced && audit.pending == 0, "the account does not balance: {audit:?}");
    ensure!(audit.accepted == workload.tokens, "not everything was accepted once: {audit:?}");
    ensure!(least.missing == 0, "{} at-least-once notifications are lost", least.missing);
    ensure!(
        least.duplicates <= in_flight,
        "{} duplicates of {in_flight} in flight",
        least.duplicates
    );
    ensure!(
        most.processed_max <= 1,
        "an at-most-once notification was on the wire {} times",
        most.processed_max
    );
    ensure!(most.missing <= audit.in_doubt, "{} at-most-once lost, {audit:?}", most.missing);
    ensure!(
        audit.delivered + audit.in_doubt == audit.accepted,
        "some ended in another way: {audit:?}"
    );
    Ok(Survived { kills, duplicates: least.duplicates, in_flight, in_doubt: audit.in_doubt })
}

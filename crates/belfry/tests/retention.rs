//! Kills of an engine that removes what it has just delivered: the account stays exact, and nothing is sent that was removed.

#![expect(clippy::unwrap_used, reason = "the helpers of a test fail by panicking")]

use std::process::{Command, Output};
use std::time::Duration;

use bench::trial::{Setup, Trial};
use bench::workload::{Workload, WorkloadGuarantee};

/// Notifications of one round.
const NOTIFICATIONS: u64 = 3_000;
/// Kills, unless there are to be more.
const ROUNDS: u64 = 5;
const SEED: u64 = 4;
const PATIENCE: Duration = Duration::from_mins(2);

fn belfry(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_belfry"));
    command.args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// `BELFRY_RETENTION_ROUNDS=50` for more kills.
#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "the knob of a test, which is no part of a configuration"
)]
fn kills_while_settled_notifications_are_removed_leave_the_account_exact() {
    let rounds: u64 =
        std::env::var("BELFRY_RETENTION_ROUNDS").map_or(ROUNDS, |rounds| rounds.parse().unwrap());
    let mut random = fastrand::Rng::with_seed(SEED);
    let directory = tempfile::tempdir().unwrap();
    let mut setup =
        Setup::new(env!("CARGO_BIN_EXE_belfry"), directory.path(), &["--latency", "5ms"]);
    // Rows go while others of the same broadcast are sent.
    let lifetimes = [("CONTENTS", "0s"), ("RECIPIENTS", "100ms"), ("OUTCOMES", "1s")];
    let setting = |(part, lifetime): (&str, &str)| {
        (format!("BELFRY__RETENTION__{part}"), lifetime.to_owned())
    };
    setup.engine_settings.extend(lifetimes.map(setting));
    setup.engine_settings.push(("BELFRY__CHANNELS__IOS__CONCURRENCY".into(), "20".into()));
    let mut trial = Trial::start(setup).unwrap();
    let ranges = |rounds: u64| (0..rounds).map(|it| it * NOTIFICATIONS..(it + 1) * NOTIFICATIONS);
    for (round, range) in (0..).zip(ranges(rounds)) {
        let guarantees = [WorkloadGuarantee::AtLeastOnce, WorkloadGuarantee::AtMostOnce];
        let guarantee = guarantees[usize::from(round % 2 == 1)];
        trial.broadcast(range.clone(), r#"{"aps":{"alert":"news"}}"#, guarantee).unwrap();
        // Of at most once the rounds before may have lost a few.
        let sent = range.start + random.u64(..NOTIFICATIONS * 3 / 4);
        trial.wait_for_lines(sent - sent / 20, PATIENCE, |_lines| ()).unwrap();
        trial.kill().unwrap();
        trial.restart().unwrap();
    }
    trial.drain(PATIENCE, || Ok(())).unwrap();
    let data = directory.path().join("data");
    let listed =
        belfry(&["list", "--store", data.to_str().unwrap(), "--limit", "100000", "--json"]);
    assert!(listed.status.success(), "{}", text(&listed.stderr));
    let left = text(&listed.stdout).lines().count() as u64;
    let workload = Workload { tokens: rounds * NOTIFICATIONS, webhooks: Vec::new() };
    let finished = trial.finish(&workload).unwrap();
    let (audit, books) = (finished.audit, finished.books);
    assert!(audit.balanced, "{audit:?}");
    assert_eq!((audit.accepted, audit.pending), (rounds * NOTIFICATIONS, 0), "{audit:?}");
    assert!(left < rounds * NOTIFICATIONS / 2, "{left} are there, and most are old enough to go");
    for (round, range) in ranges(rounds).enumerate() {
        let tally = books.tally_of(range);
        if round % 2 == 0 {
            assert_eq!(tally.missing, 0, "nothing is lost with at least once");
        } else {
            assert!(tally.processed_max <= 1, "sent twice with at most once");
        }
    }
}

//! Kills of an engine while notifications are requeued: the account stays exact, none is sent twice with at most once, and the next call
//! goes on.

#![expect(clippy::unwrap_used, reason = "the helpers of a test fail by panicking")]

use std::time::Duration;

use bench::client::BenchClient;
use bench::trial::{Setup, Trial};
use bench::workload::{Workload, WorkloadGuarantee};

/// Notifications that are requeued in a round, of each guarantee.
const NOTIFICATIONS: u64 = 400;
/// Requests at the provider in a round before the kill, at most.
const SENT_MAX: u64 = 300;
/// Kills, unless there are to be more.
const ROUNDS: u64 = 5;
const SEED: u64 = 15;
const PATIENCE: Duration = Duration::from_mins(2);

/// Runs a command that succeeds; what it printed.
fn run(client: &BenchClient, name: &str, arguments: &[&str]) -> String {
    let output = client.command(name).args(arguments).output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}: {message}");
    String::from_utf8(output.stdout).unwrap()
}

/// `BELFRY_REQUEUE_ROUNDS=50` for more kills.
#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "the knob of a test, which is no part of a configuration"
)]
fn kills_while_notifications_are_requeued_leave_the_account_exact() {
    let rounds: u64 =
        std::env::var("BELFRY_REQUEUE_ROUNDS").map_or(ROUNDS, |rounds| rounds.parse().unwrap());
    let mut random = fastrand::Rng::with_seed(SEED);
    let directory = tempfile::tempdir().unwrap();
    let mut setup =
        Setup::new(env!("CARGO_BIN_EXE_belfry"), directory.path(), &["--latency", "5ms"]);
    setup.engine_settings.push(("BELFRY__CHANNELS__IOS__CONCURRENCY".into(), "20".into()));
    let mut trial = Trial::start(setup).unwrap();
    let client = trial.engine().client().clone();
    // More than the rounds requeue: each finds some.
    let each = (rounds + 1) * NOTIFICATIONS;
    run(&client, "pause", &["--channel", "ios"]);
    trial.import(0..each, WorkloadGuarantee::AtLeastOnce, "one").wait().unwrap();
    trial.import(each..2 * each, WorkloadGuarantee::AtMostOnce, "other").wait().unwrap();
    run(&client, "cancel", &["--channel", "ios"]);
    run(&client, "resume", &["--channel", "ios"]);
    assert_eq!(trial.audit().unwrap().cancelled, 2 * each);

    let limit = (2 * NOTIFICATIONS).to_string();
    let all = ["--all", "--state", "cancelled", "--since", "2020-01-01T00:00:00Z"];
    let mut journal = trial.journal().unwrap();
    for _ in 0..rounds {
        std::thread::scope(|scope| {
            // Fails where the engine is killed meanwhile.
            let asking = scope.spawn(|| {
                client.command("requeue").args(all).args(["--limit", &limit]).output().unwrap()
            });
            let sent = journal.lines().unwrap() + 1 + random.u64(..SENT_MAX);
            trial.wait_for_lines(sent, PATIENCE, |_lines| ()).unwrap();
            trial.kill().unwrap();
            trial.restart().unwrap();
            asking.join().unwrap();
        });
    }
    run(&client, "requeue", &all);
    trial.drain(PATIENCE, || Ok(())).unwrap();
    let workload = Workload { tokens: 2 * each, webhooks: Vec::new() };
    let finished = trial.finish(&workload).unwrap();
    let (audit, books) = (finished.audit, finished.books);
    assert!(audit.balanced, "{audit:?}");
    let left = (audit.accepted, audit.cancelled, audit.pending);
    assert_eq!(left, (2 * each, 0, 0), "{audit:?}");
    assert_eq!(books.tally_of(0..each).missing, 0, "nothing is lost with at least once");
    let most = books.tally_of(each..2 * each).processed_max;
    assert!(most <= 1, "sent twice with at most once");
}

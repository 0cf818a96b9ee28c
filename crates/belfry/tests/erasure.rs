//! Kills of an engine while recipients are erased: the account stays exact, nothing is sent to who was erased, the next call goes on,
//! and in the end no file has their addresses.

#![expect(clippy::unwrap_used, reason = "the helpers of a test fail by panicking")]

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use bench::client::BenchClient;
use bench::trial::{Setup, Trial};
use bench::workload::{Workload, WorkloadGuarantee, token};

/// Notifications of one round as a broadcast.
const NOTIFICATIONS: u64 = 2_000;
/// Recipients of them that are erased.
const ERASED: usize = 8;
/// Kills, unless there are to be more.
const ROUNDS: u64 = 5;
const SEED: u64 = 9;
const PATIENCE: Duration = Duration::from_mins(2);
/// Tries to erase a recipient to whom something is being sent; each takes as long as a process does to start.
const TRIES: usize = 500;

fn belfry(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_belfry"));
    command.args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// Asks for recipients to be erased, one after the other; fails where the engine is killed meanwhile, or is sending to one.
fn ask(client: &BenchClient, recipients: &[String]) {
    for recipient in recipients {
        client.command("erase").arg(recipient).output().unwrap();
    }
}

/// Erases a recipient, to whom something may be being sent.
fn erase(client: &BenchClient, recipient: &str) {
    let is_erased = |_| {
        let output = client.command("erase").arg(recipient).output().unwrap();
        let message = text(&output.stderr);
        assert!(output.status.success() || message.contains("ask again"), "{message}");
        output.status.success()
    };
    assert!((0..TRIES).any(is_erased), "something is being sent to {recipient} all the time");
}

/// One of `recipients` that is in a file of `directory`.
fn found_in<'r>(
    directory: &Path,
    mut recipients: impl Iterator<Item = &'r String>,
) -> Option<&'r String> {
    let (mut files, mut directories) = (Vec::new(), vec![directory.to_owned()]);
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                directories.push(path);
            } else {
                let bytes = std::fs::read(path).unwrap();
                files.push(String::from_utf8_lossy(&bytes).into_owned());
            }
        }
    }
    recipients.find(|recipient| files.iter().any(|file| file.contains(recipient.as_str())))
}

/// `BELFRY_ERASURE_ROUNDS=50` for more kills.
#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "the knob of a test, which is no part of a configuration"
)]
fn kills_while_recipients_are_erased_leave_nothing_of_them_and_the_account_exact() {
    let rounds: u64 =
        std::env::var("BELFRY_ERASURE_ROUNDS").map_or(ROUNDS, |rounds| rounds.parse().unwrap());
    let mut random = fastrand::Rng::with_seed(SEED);
    let directory = tempfile::tempdir().unwrap();
    let mut setup =
        Setup::new(env!("CARGO_BIN_EXE_belfry"), directory.path(), &["--latency", "5ms"]);
    setup.engine_settings.push(("BELFRY__CHANNELS__IOS__CONCURRENCY".into(), "20".into()));
    let mut trial = Trial::start(setup).unwrap();
    let client = trial.engine().client().clone();
    let journal = trial.simulator().ready.journal.clone();
    let requests =
        |recipient: &str| std::fs::read_to_string(&journal).unwrap().matches(recipient).count();
    // The requests to each that was erased, as of then.
    let mut erased = BTreeMap::new();
    for round in 0..rounds {
        let first = round * NOTIFICATIONS;
        let guarantees = [WorkloadGuarantee::AtLeastOnce, WorkloadGuarantee::AtMostOnce];
        let guarantee = guarantees[usize::from(round % 2 == 1)];
        let numbers: Vec<u64> = (0..ERASED).map(|_| first + random.u64(..NOTIFICATIONS)).collect();
        let recipients: Vec<String> = numbers.iter().map(|number| token(*number)).collect();
        trial.broadcast(first..first + NOTIFICATIONS, "{\"aps\":{}}", guarantee).unwrap();
        let own = |to: &String| {
            format!(r#"{{"channel":"ios","to":"{to}","content":{{"aps":{{"alert":"{to}"}}}}}}"#)
        };
        trial.submit(recipients.iter().map(own)).unwrap();
        std::thread::scope(|scope| {
            let asking = scope.spawn(|| ask(&client, &recipients));
            let sent = lines_of(first, random.u64(..NOTIFICATIONS / 2));
            trial.wait_for_lines(sent, PATIENCE, |_lines| ()).unwrap();
            trial.kill().unwrap();
            trial.restart().unwrap();
            asking.join().unwrap();
        });
        for recipient in recipients {
            erase(&client, &recipient);
            erased.insert(recipient.clone(), requests(&recipient));
        }
    }
    trial.drain(PATIENCE, || Ok(())).unwrap();
    for (recipient, before) in &erased {
        assert_eq!(requests(recipient), *before, "{recipient} was sent to after it was erased");
    }
    let data = directory.path().join("data");
    let kept = token(rounds * NOTIFICATIONS - 1);
    let workload = Workload { tokens: rounds * NOTIFICATIONS, webhooks: Vec::new() };
    let audit = trial.finish(&workload).unwrap().audit;
    let accepted = rounds * (NOTIFICATIONS + ERASED as u64);
    assert!(audit.balanced, "{audit:?}");
    assert_eq!((audit.accepted, audit.pending), (accepted, 0), "{audit:?}");
    let compacted = belfry(&["compact", "--store", data.to_str().unwrap()]);
    assert!(compacted.status.success(), "{}", text(&compacted.stderr));
    assert_eq!(found_in(&data, erased.keys()), None);
    assert!(erased.contains_key(&kept) || found_in(&data, [&kept].into_iter()).is_some());
}

/// Requests at which a round has sent `share` of what it sends, at least: of at most once, the rounds before may have lost a few.
fn lines_of(first: u64, share: u64) -> u64 {
    let sent = first + share;
    sent - sent / 20
}

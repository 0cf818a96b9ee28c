//! A backup that is made while the engine sends, and restored after its disk is lost.

#![expect(clippy::unwrap_used, reason = "the helpers of a test fail by panicking")]

use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use bench::trial::{Setup, Trial};
use bench::workload::{Workload, WorkloadGuarantee};

/// Notifications of each guarantee.
const NOTIFICATIONS: u64 = 6_000;
/// Requests at the provider when the copy is made, and when the disk is lost.
const BEFORE_COPY: u64 = 1_000;
const BEFORE_LOSS: u64 = 5_000;
const PATIENCE: Duration = Duration::from_mins(2);

fn belfry(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_belfry"));
    command.args(arguments).output().unwrap()
}

fn back_up(store: &str, to: &Path) -> Output {
    belfry(&["backup", "--store", store, "--to", to.to_str().unwrap()])
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn a_disk_is_lost_and_the_engine_goes_on_with_its_backup() {
    let directory = tempfile::tempdir().unwrap();
    let mut setup =
        Setup::new(env!("CARGO_BIN_EXE_belfry"), directory.path(), &["--latency", "10ms"]);
    // Some seconds of work, of which the copy is in the middle.
    setup.engine_settings.push(("BELFRY__CHANNELS__IOS__CONCURRENCY".into(), "40".into()));
    let mut trial = Trial::start(setup).unwrap();
    let (least, most) = (0..NOTIFICATIONS, NOTIFICATIONS..2 * NOTIFICATIONS);
    let content = r#"{"aps":{"alert":"news"}}"#;
    trial.broadcast(least.clone(), content, WorkloadGuarantee::AtLeastOnce).unwrap();
    trial.broadcast(most.clone(), content, WorkloadGuarantee::AtMostOnce).unwrap();
    trial.wait_for_lines(BEFORE_COPY, PATIENCE, |_lines| ()).unwrap();

    let (data, copy) = (directory.path().join("data"), directory.path().join("copy"));
    let backup = back_up(data.to_str().unwrap(), &copy);
    assert!(backup.status.success(), "{}", text(&backup.stderr));
    let audit = belfry(&["audit", "--store", copy.to_str().unwrap()]);
    assert!(audit.status.success(), "{}{}", text(&audit.stdout), text(&audit.stderr));
    let again = back_up(data.to_str().unwrap(), &copy);
    assert_eq!(again.status.code(), Some(73), "{}", text(&again.stderr));
    assert!(text(&again.stderr).contains("has a store already"), "{}", text(&again.stderr));

    trial.wait_for_lines(BEFORE_LOSS, PATIENCE, |_lines| ()).unwrap();
    trial.kill().unwrap();
    std::fs::remove_dir_all(&data).unwrap();
    std::fs::rename(&copy, &data).unwrap();
    trial.restart().unwrap();
    trial.drain(PATIENCE, || Ok(())).unwrap();
    let workload = Workload { tokens: 2 * NOTIFICATIONS, webhooks: Vec::new() };
    let finished = trial.finish(&workload).unwrap();
    let (audit, books) = (finished.audit, finished.books);
    assert!(audit.balanced, "{audit:?}");
    assert_eq!((audit.accepted, audit.pending), (2 * NOTIFICATIONS, 0), "{audit:?}");
    let (least, most) = (books.tally_of(least), books.tally_of(most));
    assert_eq!(least.missing, 0, "nothing is lost with at least once");
    assert!(most.processed_max <= 1, "sent {} times with at most once", most.processed_max);
    assert!(most.missing <= audit.in_doubt, "{} of {audit:?}", most.missing);
    assert!(audit.in_doubt > 0 && least.duplicates > 0, "the copy was made in the middle");
}

#[test]
fn a_database_has_its_own_tools_and_a_missing_store_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let copy = directory.path().join("copy");
    let server = back_up("postgres://127.0.0.1:1/belfry", &copy);
    assert_eq!(server.status.code(), Some(78));
    assert!(text(&server.stderr).contains("pg_dump"), "{}", text(&server.stderr));
    let missing = back_up(directory.path().join("none").to_str().unwrap(), &copy);
    assert_eq!(missing.status.code(), Some(1));
    assert!(text(&missing.stderr).contains("there is no store in"), "{}", text(&missing.stderr));
    assert!(!copy.exists());
}

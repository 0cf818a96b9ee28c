//! The engine as its user runs it: the binary, a real provider over TLS, counted at the provider.
#![expect(clippy::unwrap_used, reason = "all of it is test code: a failure here fails the test")]

use std::path::Path;
use std::time::Duration;

use bench::{Guarantee, Setup, Trial, Webhook, Workload};

const PATIENCE: Duration = Duration::from_mins(2);

fn start(directory: &Path, simulator_flags: &[&str]) -> Trial {
    Trial::start(Setup {
        binary: env!("CARGO_BIN_EXE_belfry").into(),
        directory: directory.to_owned(),
        engine_settings: Vec::new(),
        simulator_flags: simulator_flags.iter().map(|&flag| flag.to_owned()).collect(),
    })
    .unwrap()
}

#[test]
fn without_a_fault_nothing_is_lost_repeated_or_in_doubt() {
    let directory = tempfile::tempdir().unwrap();
    let trial = start(directory.path(), &[]);
    let webhook =
        |number| Webhook { path: format!("/hook/{number}"), payload: format!("[{number}]") };
    let workload = Workload { tokens: 6_000, webhooks: (0..50).map(webhook).collect() };
    trial.webhooks(&workload).unwrap();
    trial.broadcast(0..3_000, r#"{"aps":{}}"#, Guarantee::AtLeastOnce).unwrap();
    trial.broadcast(3_000..6_000, r#"{"aps":{}}"#, Guarantee::AtMostOnce).unwrap();
    trial.drain(PATIENCE, || Ok(())).unwrap();
    let finished = trial.finish(&workload).unwrap();
    let (audit, tally) = (finished.audit, finished.books.tally());
    assert!(audit.balanced, "{audit:?}");
    assert_eq!((audit.accepted, audit.delivered, audit.in_doubt), (6_050, 6_050, 0));
    assert_eq!((tally.accepted, tally.duplicates, tally.missing), (6_050, 0, 0));
    assert_eq!(tally.processed_max, 1);
}

#[test]
fn faults_of_the_provider_lose_nothing_and_double_nothing_that_must_not_be() {
    let directory = tempfile::tempdir().unwrap();
    let faults = [
        ["--goaway-every", "700"],
        ["--refuse-rate", "0.02"],
        ["--throttle-rate", "0.01"],
        ["--drop-rate", "0.01"],
        ["--dead-tokens", "0.02"],
    ];
    let mut trial = start(directory.path(), &faults.concat());
    // A provider that asks for a minute is taken at its word; the test does not have it.
    trial.set("BELFRY__CHANNELS__IOS__THROTTLE_DELAY", "1s");
    trial.kill().unwrap();
    trial.restart().unwrap();
    let workload = Workload { tokens: 6_000, webhooks: Vec::new() };
    let (least, most) = (0..3_000, 3_000..6_000);
    trial.broadcast(least.clone(), r#"{"aps":{}}"#, Guarantee::AtLeastOnce).unwrap();
    trial.broadcast(most.clone(), r#"{"aps":{}}"#, Guarantee::AtMostOnce).unwrap();
    trial.drain(PATIENCE, || Ok(())).unwrap();
    let finished = trial.finish(&workload).unwrap();
    let (audit, books) = (finished.audit, finished.books);
    assert!(audit.balanced, "{audit:?}");
    assert_eq!(audit.delivered + audit.refused + audit.in_doubt, 6_000, "{audit:?}");
    assert_eq!(books.tally_of(least).missing, 0);
    assert!(books.tally_of(most.clone()).processed_max <= 1);
    // What was dropped has arrived, and nobody can say so: it is in doubt, and in the books.
    assert!(audit.in_doubt > 0 && books.tally_of(most).missing <= audit.in_doubt, "{audit:?}");
}

#[test]
fn a_second_engine_on_the_same_directory_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let trial = start(directory.path(), &[]);
    let second = trial.engine().client().command("serve").output().unwrap();
    let said = String::from_utf8_lossy(&second.stderr);
    assert!(!second.status.success());
    assert!(said.contains("in use"), "{said}");
    assert_eq!(trial.pending().unwrap(), 0, "the first one goes on");
}

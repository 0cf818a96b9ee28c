//! Which notification repeated crashes are blamed on: the binary, killed by SIGKILL while a request is on the wire.
//!
//! A suspect is tried two seconds after each crash, so each of these takes about a minute.
#![expect(clippy::unwrap_used, reason = "all of it is test code: a failure here fails the test")]

use std::path::Path;
use std::time::Duration;

use bench::workload::token;
use bench::{Guarantee, Setup, Trial, Workload};
use notification::limits;

const PATIENCE: Duration = Duration::from_mins(2);
const CONTENT: &str = r#"{"aps":{}}"#;

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
fn an_innocent_notification_in_flight_at_twenty_kills_is_delivered() {
    const KILLS: usize = 20;
    let directory = tempfile::tempdir().unwrap();
    let recipient = token(0);
    let mut trial = start(directory.path(), &["--silent-to", &recipient]);
    trial.broadcast(0..1, CONTENT, Guarantee::AtLeastOnce).unwrap();
    for kill in 1..=KILLS {
        trial.wait_for_requests(&recipient, kill, PATIENCE).unwrap();
        trial.kill().unwrap();
        if kill == KILLS {
            trial.replace_simulator(&[]).unwrap();
        }
        trial.restart().unwrap();
        assert_eq!(trial.audit().unwrap().dead, 0, "after {kill} kills");
    }
    trial.drain(PATIENCE, || Ok(())).unwrap();
    let finished = trial.finish(&Workload { tokens: 1, webhooks: Vec::new() }).unwrap();
    let (audit, tally) = (finished.audit, finished.books.tally());
    assert!(audit.balanced, "{audit:?}");
    assert_eq!((audit.accepted, audit.delivered), (1, 1), "{audit:?}");
    assert_eq!(tally.processed_max as usize, KILLS + 1, "it was in flight at each kill");
}

#[test]
fn one_that_ends_the_process_whenever_it_is_sent_is_found_and_the_others_are_delivered() {
    const COUNT: u64 = 200;
    const POISON: u64 = 100;
    // Crashes until it is suspected; divisions of 200 until it is alone, each of which may be needed twice; and then those
    // that quarantine it.
    let most = limits::CRASHES_BEFORE_SUSPICION + 2 * 2 + limits::WEIGHT_BEFORE_QUARANTINE;
    let directory = tempfile::tempdir().unwrap();
    let poison = token(POISON);
    let mut trial = start(directory.path(), &["--silent-to", &poison]);
    trial.broadcast(0..COUNT, CONTENT, Guarantee::AtLeastOnce).unwrap();
    let mut kills = 0;
    while trial.audit().unwrap().dead == 0 {
        assert!(kills < most, "{kills} kills");
        trial.wait_for_requests(&poison, usize::from(kills) + 1, PATIENCE).unwrap();
        trial.kill().unwrap();
        kills += 1;
        trial.restart().unwrap();
    }
    trial.drain(PATIENCE, || Ok(())).unwrap();
    let audit = trial.audit().unwrap();
    assert_eq!((audit.delivered, audit.dead), (COUNT - 1, 1), "after {kills} kills: {audit:?}");

    // Its cause is gone.
    trial.kill().unwrap();
    trial.replace_simulator(&[]).unwrap();
    trial.restart().unwrap();
    let requeue = |reason| {
        let mut command = trial.engine().client().command("requeue");
        let output = command.args(["--all", "--reason", reason]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(requeue("another"), "0 of 0 dead notifications requeued\n");
    let words = "the process ended each time this was sent";
    assert_eq!(requeue(words), "1 of 1 dead notifications requeued\n");
    trial.drain(PATIENCE, || Ok(())).unwrap();
    let finished = trial.finish(&Workload { tokens: COUNT, webhooks: Vec::new() }).unwrap();
    let (audit, tally) = (finished.audit, finished.books.tally());
    assert!(audit.balanced, "{audit:?}");
    assert_eq!((audit.accepted, audit.delivered, audit.dead), (COUNT, COUNT, 0), "{audit:?}");
    assert_eq!(tally.missing, 0);
}

//! Rates that destinations keep to, learned from their refusals, and numbers that are changed while the engine runs: the binary, a
//! provider over TLS, counted in the provider's books.
#![expect(clippy::unwrap_used, reason = "all of it is test code: a failure here fails the test")]

use std::path::Path;
use std::time::Duration;

use bench::{Setup, Trial};
use provider_sim::journal::{JournalStatus, Reader};

const PATIENCE: Duration = Duration::from_mins(5);
const SECOND_US: u64 = 1_000_000;

fn start(directory: &Path, simulator_flags: &[&str]) -> Trial {
    Trial::start(Setup {
        binary: env!("CARGO_BIN_EXE_belfry").into(),
        directory: directory.to_owned(),
        engine_settings: Vec::new(),
        simulator_flags: simulator_flags.iter().map(|&flag| flag.to_owned()).collect(),
    })
    .unwrap()
}

/// Hands so many webhooks to the engine.
fn submit(trial: &Trial, count: usize) {
    let address = &trial.simulator().ready.webhook;
    let row = |number| {
        format!(r#"{{"channel":"hooks","to":"https://{address}/{number}","content":{{}}}}"#)
    };
    trial.submit((0..count).map(row)).unwrap();
}

/// When the provider got requests that it answered with `status`, microseconds, in order.
fn received(trial: &Trial, status: u16) -> Vec<u64> {
    let mut reader = Reader::open(&trial.simulator().ready.journal).unwrap();
    let mut received = Vec::new();
    while let Some(record) = reader.next_record().unwrap() {
        if record.status == JournalStatus::Answered(status) {
            received.push(record.received_us);
        }
    }
    received.sort_unstable();
    received
}

/// How many of `times` lie between two of them.
fn between(times: &[u64], from: u64, until: u64) -> usize {
    times.partition_point(|at| *at < until) - times.partition_point(|at| *at < from)
}

#[test]
fn a_rate_that_is_not_configured_is_learned_and_used() {
    const A_SECOND: usize = 100;
    const SECONDS: usize = 50;
    let directory = tempfile::tempdir().unwrap();
    let trial = start(directory.path(), &["--rate-limit", &A_SECOND.to_string()]);
    submit(&trial, A_SECOND * SECONDS);
    let mut shown = false;
    let look = || {
        shown |= trial.engine().client().status().unwrap().contains("/min ");
        Ok(())
    };
    trial.drain(PATIENCE, look).unwrap();
    assert_eq!(trial.audit().unwrap().delivered, (A_SECOND * SECONDS) as u64);
    let (accepted, refused) = (received(&trial, 200), received(&trial, 429));
    // From when it has learned, and until there is not enough left to keep the rate.
    let from = refused[0] + 15 * SECOND_US;
    let until = from + 25 * SECOND_US;
    let (used, over) = (between(&accepted, from, until), between(&refused, from, until));
    assert!(used * 100 >= 25 * A_SECOND * 90, "{used} of {}, {over} refused", 25 * A_SECOND);
    assert!(over * 100 <= (used + over) * 2, "{over} refused beside {used}");
    assert!(shown, "the board shows it");
}

//! Rates that destinations keep to, learned from their refusals, and numbers that are changed while the engine runs: the binary, a
//! provider over TLS, counted in the provider's books.
#![expect(clippy::unwrap_used, reason = "all of it is test code: a failure here fails the test")]

use std::path::Path;
use std::time::Duration;

use bench::{Setup, Trial};
use provider_sim::journal::{JournalStatus, Reader};
use rustix::process::Signal;

const PATIENCE: Duration = Duration::from_mins(5);
const SECOND_US: u64 = 1_000_000;

fn start(directory: &Path, simulator_flags: &[&str]) -> Trial {
    Trial::start(Setup::new(env!("CARGO_BIN_EXE_belfry"), directory, simulator_flags)).unwrap()
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

/// Has the engine go by another number of its webhooks; gives the time of the last request before that.
fn reload(trial: &Trial, configuration: &str, number: usize) -> u64 {
    let kind = "kind = \"webhook\"\n";
    let changed = format!("{kind}messages_per_minute = {number}\n");
    let client = trial.engine().client();
    std::fs::write(&client.config, configuration.replace(kind, &changed)).unwrap();
    let last = received(trial, 200).last().copied().unwrap_or(0);
    trial.engine().signal(Signal::HUP).unwrap();
    last
}

#[test]
fn a_number_that_is_changed_by_a_reload_holds_and_no_minute_has_more_than_the_greater() {
    const SOME: u64 = 2 * SECOND_US;
    const MINUTE: u64 = 60 * SECOND_US;
    let directory = tempfile::tempdir().unwrap();
    let mut trial = start(directory.path(), &[]);
    let configuration = std::fs::read_to_string(&trial.engine().client().config).unwrap();
    let log = directory.path().join("belfry.log");
    reload(&trial, &configuration, 1_200);
    while !std::fs::read_to_string(&log).unwrap().contains("changed=\"channels.hooks\"") {
        trial.engine().client().status().unwrap();
    }
    submit(&trial, 4_300);
    trial.wait_for_lines(400, PATIENCE, |_| {}).unwrap();
    let raised = reload(&trial, &configuration, 3_000);
    trial.wait_for_lines(400 + 3_250, PATIENCE, |_| {}).unwrap();
    let lowered = reload(&trial, &configuration, 600);
    trial.wait_for_lines(400 + 3_250 + 400, PATIENCE, |_| {}).unwrap();
    let freed = reload(&trial, &configuration, 0);
    trial.drain(PATIENCE, || Ok(())).unwrap();
    assert_eq!(trial.audit().unwrap().delivered, 4_300);
    let received = received(&trial, 200);
    let limited = &received[..received.partition_point(|at| *at < freed)];
    let most = limited.iter().map(|at| between(limited, *at, at + MINUTE)).max().unwrap();
    assert!(most <= 3_000, "{most} in a minute");
    let used = between(&received, raised + SOME, raised + SOME + MINUTE);
    assert!(used >= 2_800, "{used} of 3,000");
    // Places that were booked under the old number keep it, 5 s ahead.
    let from = lowered + 7 * SECOND_US;
    let after = between(&received, from, freed);
    let allowed = 600 * (freed - from) / MINUTE + 11;
    assert!(after as u64 <= allowed, "{after}, where {allowed} are allowed");
    let said = std::fs::read_to_string(&log).unwrap();
    assert_eq!(said.matches("changed=\"channels.hooks\"").count(), 4, "{said}");
}

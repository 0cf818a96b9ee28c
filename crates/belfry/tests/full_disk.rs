//! The binary on a real file system that other programs fill up: it refuses what comes in, in words, delivers what it has accepted, and
//! does so again after SIGKILL.
#![expect(clippy::unwrap_used, reason = "all of it is test code: a failure here fails the test")]

use std::time::Duration;

use bench::workload::token;
use bench::{LoadCaller, Setup, Trial, Workload, WorkloadGuarantee};
use testbed::disk::{DiskNamespace, PartEnd, SmallDisk};

const PATIENCE: Duration = Duration::from_mins(2);
/// Of the file system: the reserve, the low-space mark, and what is accepted.
const DISK_MIB: u64 = 320;
const NOTIFICATIONS: u64 = 4_000;

#[test]
fn a_full_disk_is_told_to_callers_and_stops_no_delivery_and_no_restart() {
    let parts = [("fill_it_and_kill_the_engine", PartEnd::Passed)];
    SmallDisk::new(DISK_MIB).run(&parts).unwrap();
}

#[test]
#[ignore = "runs on the disk that the other test makes"]
fn fill_it_and_kill_the_engine() {
    let place = DiskNamespace::of_this_part().unwrap();
    // A provider that takes its time, so that much is waiting and something in flight when the engine is killed.
    let flags = ["--latency", "500ms", "--max-streams", "100"];
    let setup = Setup::new(env!("CARGO_BIN_EXE_belfry"), place.directory(), &flags);
    let mut trial = Trial::start(setup).unwrap();
    trial.broadcast(0..NOTIFICATIONS, r#"{"aps":{}}"#, WorkloadGuarantee::AtLeastOnce).unwrap();
    place.fill().unwrap();
    post_is_refused(&trial);
    trial.wait_for_requests(&token(0), 1, PATIENCE).unwrap();
    trial.kill().unwrap();
    place.fill().unwrap();
    trial.restart().unwrap();
    post_is_refused(&trial);
    assert!(trial.pending().unwrap() > 0, "it was killed with work under way");
    trial.drain(PATIENCE, || Ok(())).unwrap();
    let audit = trial.audit().unwrap();
    assert!(audit.balanced, "{audit:?}");
    assert_eq!((audit.accepted, audit.delivered), (NOTIFICATIONS, NOTIFICATIONS), "{audit:?}");

    place.make_room().unwrap();
    let clock = flow::Clock::system();
    let started = clock.monotonic();
    // The disk is looked at now and then.
    while post(&trial).0 != 201 {
        assert!(started.elapsed() < PATIENCE);
    }
    trial.drain(PATIENCE, || Ok(())).unwrap();
    let workload = Workload { tokens: NOTIFICATIONS, webhooks: Vec::new() };
    let finished = trial.finish(&workload).unwrap();
    assert!(finished.audit.balanced, "{:?}", finished.audit);
    assert_eq!(finished.audit.delivered, NOTIFICATIONS + 1);
    assert_eq!(finished.books.tally().missing, 0);
}

fn post(trial: &Trial) -> (u16, String) {
    let to = token(0);
    let body = format!(r#"{{"channel":"ios","to":"{to}","content":{{"aps":{{}}}}}}"#);
    let mut caller = LoadCaller::connect(trial.engine().listen()).unwrap();
    caller.request("none", "POST /v1/notifications", &body).unwrap()
}

fn post_is_refused(trial: &Trial) {
    let (status, answer) = post(trial);
    assert_eq!(status, 507, "{answer}");
    assert!(answer.contains("disk") && answer.contains("free"), "{answer}");
}

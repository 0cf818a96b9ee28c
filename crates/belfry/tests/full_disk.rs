//! The binary on a real file system that others fill up: it refuses what comes in, in words, delivers what it has accepted, and
//! does so again after SIGKILL.
//!
//! The file system is a small one in memory, in a mount namespace that the test makes for itself; where the kernel does not let
//! this user do so, the test fails.
#![expect(clippy::unwrap_used, reason = "all of it is test code: a failure here fails the test")]

use std::fs::File;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::Duration;

use bench::workload::token;
use bench::{Caller, Guarantee, Setup, Trial, Workload};

const PATIENCE: Duration = Duration::from_mins(2);
/// Of the file system: the reserve, the low-space mark, and what is accepted.
const DISK_MIB: u64 = 320;
const NOTIFICATIONS: u64 = 4_000;
/// Where the part within the namespace finds its directory.
const PLACE: &str = "BELFRY_TEST_SMALL_DISK";

#[test]
fn a_full_disk_is_told_to_callers_and_stops_no_delivery_and_no_restart() {
    let place = tempfile::tempdir().unwrap();
    std::fs::create_dir(place.path().join("data")).unwrap();
    let own = std::env::current_exe().unwrap();
    let script = format!(
        "mount -t tmpfs -o size={DISK_MIB}m tmpfs \"${PLACE}/data\" || exit 99\n\
         exec \"$0\" --ignored --exact fill_it_and_kill_the_engine --nocapture"
    );
    let mut unshare = Command::new("unshare");
    unshare.args(["--map-root-user", "--mount", "sh", "-c", &script]).arg(own);
    let Output { status, stdout, stderr } = unshare.env(PLACE, place.path()).output().unwrap();
    assert_ne!(
        status.code(),
        Some(99),
        "this user may not mount a file system in a namespace of its own: run the test as root, or allow \
         unprivileged user namespaces (sysctl kernel.apparmor_restrict_unprivileged_userns=0)"
    );
    let told = [stdout, stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    assert!(status.success() && told.contains("1 passed"), "{status}: {told}");
}

#[test]
#[ignore = "runs in a namespace that the other test makes"]
fn fill_it_and_kill_the_engine() {
    // A provider that takes its time, so that much is waiting and something in flight when the engine is killed.
    let simulator_flags =
        ["--latency", "500ms", "--max-streams", "100"].map(str::to_owned).to_vec();
    let mut trial = Trial::start(Setup {
        binary: env!("CARGO_BIN_EXE_belfry").into(),
        directory: place(),
        engine_settings: Vec::new(),
        simulator_flags,
    })
    .unwrap();
    trial.broadcast(0..NOTIFICATIONS, r#"{"aps":{}}"#, Guarantee::AtLeastOnce).unwrap();
    fill();
    post_is_refused(&trial);
    trial.wait_for_requests(&token(0), 1, PATIENCE).unwrap();
    trial.kill().unwrap();
    fill();
    trial.restart().unwrap();
    post_is_refused(&trial);
    assert!(trial.pending().unwrap() > 0, "it was killed with work under way");
    trial.drain(PATIENCE, || Ok(())).unwrap();
    let audit = trial.audit().unwrap();
    assert!(audit.balanced, "{audit:?}");
    assert_eq!((audit.accepted, audit.delivered), (NOTIFICATIONS, NOTIFICATIONS), "{audit:?}");

    std::fs::remove_file(filler()).unwrap();
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
    let mut caller = Caller::connect(trial.engine().listen()).unwrap();
    caller.request("none", "POST /v1/notifications", &body).unwrap()
}

fn post_is_refused(trial: &Trial) {
    let (status, answer) = post(trial);
    assert_eq!(status, 507, "{answer}");
    assert!(answer.contains("disk") && answer.contains("free"), "{answer}");
}

fn place() -> PathBuf {
    std::env::var_os(PLACE).unwrap().into()
}

fn filler() -> PathBuf {
    place().join("data/filler")
}

/// Another process takes all that is left.
fn fill() {
    let mut filler = File::options().create(true).append(true).open(filler()).unwrap();
    let block = vec![b'f'; 64 * 1024];
    let error = loop {
        if let Err(error) = filler.write_all(&block) {
            break error;
        }
    };
    assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
}

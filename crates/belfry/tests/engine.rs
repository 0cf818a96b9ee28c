//! The engine as its user runs it: the binary, a real provider over TLS, counted at the provider.
#![expect(clippy::unwrap_used, reason = "all of it is test code: a failure here fails the test")]

use std::path::Path;
use std::time::Duration;

use bench::workload::token;
use bench::{Setup, Trial, WebhookPayload, Workload, WorkloadGuarantee};
use provider_sim::journal::Reader;

const PATIENCE: Duration = Duration::from_mins(2);

fn start(directory: &Path, simulator_flags: &[&str]) -> Trial {
    Trial::start(Setup::new(env!("CARGO_BIN_EXE_belfry"), directory, simulator_flags)).unwrap()
}

#[test]
fn without_a_fault_nothing_is_lost_repeated_or_in_doubt() {
    let directory = tempfile::tempdir().unwrap();
    let trial = start(directory.path(), &[]);
    let webhook =
        |number| WebhookPayload { path: format!("/hook/{number}"), payload: format!("[{number}]") };
    let workload = Workload { tokens: 6_000, webhooks: (0..50).map(webhook).collect() };
    trial.webhooks(&workload).unwrap();
    trial.broadcast(0..3_000, r#"{"aps":{}}"#, WorkloadGuarantee::AtLeastOnce).unwrap();
    trial.broadcast(3_000..6_000, r#"{"aps":{}}"#, WorkloadGuarantee::AtMostOnce).unwrap();
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
    trial.broadcast(least.clone(), r#"{"aps":{}}"#, WorkloadGuarantee::AtLeastOnce).unwrap();
    trial.broadcast(most.clone(), r#"{"aps":{}}"#, WorkloadGuarantee::AtMostOnce).unwrap();
    trial.drain(PATIENCE, || Ok(())).unwrap();
    let finished = trial.finish(&workload).unwrap();
    let (audit, books) = (finished.audit, finished.books);
    assert!(audit.balanced, "{audit:?}");
    assert_eq!(audit.delivered + audit.refused + audit.in_doubt, 6_000, "{audit:?}");
    assert_eq!(books.tally_of(least).missing, 0);
    assert!(books.tally_of(most.clone()).processed_max <= 1);
    // What was dropped has arrived, and no answer says so: it is in doubt, and in the account.
    assert!(audit.in_doubt > 0 && books.tally_of(most).missing <= audit.in_doubt, "{audit:?}");
}

/// Imports tokens `0..count`, each with a webhook to fall back to, whose endpoint is not dead at `dead`.
fn import_with_fallbacks(
    trial: &Trial,
    guarantee: WorkloadGuarantee,
    dead: f64,
    count: u64,
) -> Workload {
    let address = &trial.simulator().ready.webhook;
    let path = |number: u64| {
        let mut paths = (0..).map(|salt| format!("/instead/{number}/{salt}"));
        paths.find(|path| !provider_sim::is_dead(path, dead)).unwrap()
    };
    let webhook = |number| WebhookPayload { path: path(number), payload: number.to_string() };
    let workload = Workload { tokens: count, webhooks: (0..count).map(webhook).collect() };
    let rows = workload.webhooks.iter().zip(0..).map(|(WebhookPayload { path, payload }, number)| {
        let (to, guarantee) = (token(number), guarantee.as_str());
        format!(
            r#"{{"channel":"ios","to":"{to}","content":{{"aps":{{}}}},"guarantee":"{guarantee}","fallback":[{{"channel":"hooks","to":"https://{address}{path}","content":{payload}}}]}}"#
        )
    });
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&file, rows.collect::<Vec<_>>().join("\n")).unwrap();
    let output = trial.engine().client().command("import").arg(file.path()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    workload
}

#[test]
fn every_dead_token_falls_back_to_its_webhook_once() {
    let directory = tempfile::tempdir().unwrap();
    let trial = start(directory.path(), &["--dead-tokens", "0.3"]);
    let workload = import_with_fallbacks(&trial, WorkloadGuarantee::AtLeastOnce, 0.3, 1_000);
    trial.drain(PATIENCE, || Ok(())).unwrap();
    let finished = trial.finish(&workload).unwrap();
    let (audit, tally) = (finished.audit, finished.books.tally());
    let dead =
        (0..1_000).filter(|number| provider_sim::is_dead(&token(*number), 0.3)).count() as u64;
    assert!(audit.balanced && dead > 200, "{audit:?}");
    assert_eq!((audit.accepted, audit.refused, audit.delivered), (1_000 + dead, dead, 1_000));
    assert_eq!((tally.accepted, tally.refused, tally.missing), (1_000, dead, 1_000 - dead));
    assert_eq!((tally.duplicates, tally.processed_max), (0, 1));
}

#[test]
fn a_kill_makes_no_fallback_twice_and_none_of_what_is_in_doubt() {
    let directory = tempfile::tempdir().unwrap();
    let mut trial = start(directory.path(), &["--dead-tokens", "0.3"]);
    let workload = import_with_fallbacks(&trial, WorkloadGuarantee::AtMostOnce, 0.3, 2_000);
    trial.kill().unwrap();
    trial.restart().unwrap();
    trial.drain(PATIENCE, || Ok(())).unwrap();
    let finished = trial.finish(&workload).unwrap();
    let (audit, books) = (finished.audit, finished.books);
    let (all, tokens) = (books.tally(), books.tally_of(0..2_000));
    assert!(audit.balanced, "{audit:?}");
    assert!(all.processed_max <= 1, "{all:?}");
    assert_eq!(audit.accepted, 2_000 + audit.refused, "each refusal has its fallback");
    let arrived = all.accepted - tokens.accepted;
    assert!(arrived <= audit.refused && audit.refused - arrived <= audit.in_doubt, "{audit:?}");
    assert!(audit.refused <= tokens.refused, "nothing stands in for what is in doubt");
}

/// As many connections, each of one sender, one stream of which is open while no answer has shown that the credential is good.
const SENDERS: u64 = 2;

#[test]
fn a_kill_leaves_in_doubt_what_was_on_the_wire_and_two_slices() {
    let directory = tempfile::tempdir().unwrap();
    // A service that has just answered is sent as much as it takes; then it answers nothing more.
    let silent = ["--outage-after", "1", "--outage-for", "1h", "--outage-silent"];
    let mut trial = start(directory.path(), &[&silent[..], &["--max-streams", "100"]].concat());
    trial.set("BELFRY__DELIVERY__SENDERS", &SENDERS.to_string());
    trial.kill().unwrap();
    trial.restart().unwrap();
    trial.broadcast(2_000..2_001, r#"{"aps":{}}"#, WorkloadGuarantee::AtLeastOnce).unwrap();
    trial.drain(PATIENCE, || Ok(())).unwrap();
    trial.broadcast(0..2_000, r#"{"aps":{}}"#, WorkloadGuarantee::AtMostOnce).unwrap();
    let mut journal = trial.journal().unwrap();
    // Both chunks may go to the sender that has had no answer, which has one stream then.
    while journal.lines().unwrap() < 2 {
        // The engine has time to begin more than it should.
        assert_eq!(trial.audit().unwrap().in_doubt, 0);
    }
    for _ in 0..10 {
        assert_eq!(trial.pending().unwrap(), 2_000);
    }
    trial.kill().unwrap();
    let on_the_wire = journal.lines().unwrap() - 1;
    trial.restart().unwrap();
    let audit = trial.audit().unwrap();
    assert!(audit.balanced && audit.in_doubt >= on_the_wire, "{audit:?}");
    assert!(audit.in_doubt <= on_the_wire + 256, "{on_the_wire} on the wire: {audit:?}");
    let books = trial.books(&Workload { tokens: 2_001, webhooks: Vec::new() }).unwrap();
    assert!(books.tally().processed_max <= 1);
}

/// Requests that the provider has had, those for its access token not counted.
fn requests(trial: &Trial) -> u64 {
    let mut reader = Reader::open(&trial.simulator().ready.journal).unwrap();
    let mut requests = 0;
    while let Some(record) = reader.next_record().unwrap() {
        requests += u64::from(record.id != "access-token");
    }
    requests
}

#[test]
fn a_kill_with_100_silent_streams_leaves_in_doubt_what_was_on_the_wire_and_two_slices() {
    const COUNT: u64 = 2_000;
    const STREAMS: u64 = 100;
    let directory = tempfile::tempdir().unwrap();
    // A service that a credential need not prove itself to first grants all of its streams.
    let streams = STREAMS.to_string();
    let fcm = ["--fcm", "127.0.0.1:0"];
    let silent = [fcm, ["--silent-to", "device"], ["--max-streams", &streams]].concat();
    let mut trial = start(directory.path(), &silent);
    // One sender with one connection: when its streams are used up, nothing more goes out. A learned limit would end before them.
    trial.set("BELFRY__DELIVERY__SENDERS", "1");
    trial.set("BELFRY__CHANNELS__ANDROID__CONCURRENCY", "1000");
    trial.set("BELFRY__CHANNELS__ANDROID__CONNECTIONS_MAX", "1");
    trial.kill().unwrap();
    trial.restart().unwrap();
    let row = |to: &str, number| {
        format!(
            r#"{{"channel":"android","to":"{to}","content":{{"data":{{"n":"{number}"}}}},"guarantee":"at_most_once"}}"#
        )
    };
    // A service that has just answered is sent as much as it takes.
    trial.submit(std::iter::once(row("another", 0))).unwrap();
    trial.drain(PATIENCE, || Ok(())).unwrap();
    trial.submit((0..COUNT).map(|number| row("device", number))).unwrap();
    trial.wait_for_requests("device", usize::try_from(STREAMS).unwrap(), PATIENCE).unwrap();
    trial.kill().unwrap();
    let on_the_wire = requests(&trial) - 1;
    assert_eq!(on_the_wire, STREAMS);
    trial.replace_simulator(&fcm).unwrap();
    trial.restart().unwrap();
    trial.drain(PATIENCE, || Ok(())).unwrap();
    let audit = trial.audit().unwrap();
    assert!(
        audit.balanced && audit.in_doubt >= on_the_wire,
        "{on_the_wire} on the wire: {audit:?}"
    );
    assert!(audit.in_doubt <= on_the_wire + 256, "{on_the_wire} on the wire: {audit:?}");
    assert_eq!(audit.delivered + audit.in_doubt, COUNT + 1, "{audit:?}");
    assert_eq!(requests(&trial), on_the_wire + audit.delivered, "nothing was sent twice");
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

//! Recipients that are gone, as an application learns of them: the binary, a provider with dead tokens, a crash.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "all of it is test code: a failure here fails the test"
)]

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use bench::{Setup, Trial, WorkloadGuarantee};
use serde_json::Value;

const PATIENCE: Duration = Duration::from_mins(2);
const LOOK_EVERY: Duration = Duration::from_millis(100);

fn start(directory: &Path) -> Trial {
    let flags = ["--dead-tokens", "0.1"];
    Trial::start(Setup::new(env!("CARGO_BIN_EXE_belfry"), directory, &flags)).unwrap()
}

/// The lines that `belfry suppressions ARGUMENTS` prints.
fn suppressions(trial: &Trial, arguments: &[&str]) -> Vec<Value> {
    let mut command = trial.engine().client().command("suppressions");
    let output = command.args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines = String::from_utf8(output.stdout).unwrap();
    lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The answer of the engine.
fn get(trial: &Trial, path: &str) -> Value {
    let mut stream = TcpStream::connect(trial.engine().listen()).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    serde_json::from_str(body).unwrap()
}

/// The changes that notifications of the feed told, one by one.
fn told(trial: &Trial) -> Vec<(String, String)> {
    let list = get(trial, "/v1/notifications?channel=hooks&limit=100");
    let mut told = Vec::new();
    for item in list["items"].as_array().unwrap() {
        let whole = get(trial, &format!("/v1/notifications/{}", item["id"].as_str().unwrap()));
        for event in whole["content"]["events"].as_array().unwrap() {
            let text = |field: &str| event[field].as_str().unwrap().to_owned();
            told.push((text("to"), text("change")));
        }
    }
    told
}

fn wait_until_told(trial: &Trial, changes: usize) -> Vec<(String, String)> {
    let clock = flow::Clock::system();
    let started = clock.monotonic();
    loop {
        let told = told(trial);
        if told.len() >= changes {
            return told;
        }
        assert!(
            clock.monotonic().duration_since(started) < PATIENCE,
            "{} of {changes}",
            told.len()
        );
        std::thread::sleep(LOOK_EVERY);
    }
}

#[test]
fn an_application_is_told_of_every_dead_token_once_whatever_dies() {
    let directory = tempfile::tempdir().unwrap();
    let mut trial = start(directory.path());
    let to = format!("https://{}/suppressions", trial.simulator().ready.webhook);
    trial.set("BELFRY__SUPPRESSIONS__FEED__CHANNEL", "hooks");
    trial.set("BELFRY__SUPPRESSIONS__FEED__TO", &to);
    trial.kill().unwrap();
    trial.restart().unwrap();
    trial.broadcast(0..2_000, r#"{"aps":{}}"#, WorkloadGuarantee::AtLeastOnce).unwrap();
    trial.drain(PATIENCE, || Ok(())).unwrap();
    // Perhaps while a part is being handed on.
    trial.kill().unwrap();
    trial.restart().unwrap();

    let listed = suppressions(&trial, &["export", "--json"]);
    assert!(listed.len() > 100, "the dice should have left some dead: {}", listed.len());
    let is_dead = |line: &Value| line["status"] == 410 && line["reason"] == "Unregistered";
    assert!(listed.iter().all(is_dead), "{:?}", listed.first());
    let dead: BTreeSet<String> =
        listed.iter().map(|line| line["to"].as_str().unwrap().to_owned()).collect();
    let events = suppressions(&trial, &["feed", "--json"]);
    assert_eq!(events.len(), dead.len(), "each was suppressed once");
    let middle = events[9]["position"].as_str().unwrap();
    let mut rest = trial.engine().client().command("suppressions");
    let rest = rest.args(["feed", "--json", "--position", middle]).output().unwrap();
    assert_eq!(String::from_utf8(rest.stdout).unwrap().lines().count(), events.len() - 10);
    let (count, last) = (events.len() - 10, &events.last().unwrap()["position"]);
    let end =
        format!("belfry: {count} changes; go on with --position {}\n", last.as_str().unwrap());
    assert_eq!(String::from_utf8(rest.stderr).unwrap(), end, "and nothing else");

    let told = wait_until_told(&trial, dead.len());
    let told: Vec<String> = told.into_iter().map(|(to, _)| to).collect();
    assert_eq!(told.len(), dead.len(), "nobody is told twice");
    assert_eq!(told.into_iter().collect::<BTreeSet<_>>(), dead);

    // One comes back, and the next broadcast reaches for it and for none of the others.
    let back = dead.first().unwrap();
    let answered = suppressions(&trial, &["lift", "--channel", "ios", "--to", back, "--json"]);
    assert_eq!(answered, [serde_json::json!({"lifted": 1, "unchanged": 0})]);
    let changes = wait_until_told(&trial, dead.len() + 1);
    assert!(changes.contains(&(back.clone(), "lifted".to_owned())));
    trial.drain(PATIENCE, || Ok(())).unwrap();
    let before = trial.audit().unwrap();
    trial.broadcast(0..2_000, r#"{"aps":{}}"#, WorkloadGuarantee::AtLeastOnce).unwrap();
    trial.drain(PATIENCE, || Ok(())).unwrap();
    let after = trial.audit().unwrap();
    assert!(after.balanced, "{after:?}");
    assert_eq!(after.suppressed - before.suppressed, dead.len() as u64 - 1, "{after:?}");
}

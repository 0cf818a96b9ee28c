//! The command as a user runs it: its ends, and what it says of them.

use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use bytes::Bytes;
use stream::{Record, Source, StreamError, StreamMessage, Target};

use crate::systems::{Place, System};

/// So long after the last message a relay ends, and so long may it take to connect.
pub(crate) const UNTIL_EMPTY: &str = "--until-empty=5";

/// Any wait ends before.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

/// Without a store.
pub(crate) fn relay(from: &str, to: &str, more: &[&str]) -> Command {
    command(&["relay", "--direct", "--from", from, "--to", to], more)
}

pub(crate) fn command(arguments: &[&str], more: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_belfry"));
    command.args(arguments).args(more);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Ends it as a user would, and gives what it said.
pub(crate) fn terminate(child: Child) -> Output {
    let id = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(id, rustix::process::Signal::TERM).unwrap();
    child.wait_with_output().unwrap()
}

/// A record, whose identifier is its body.
pub(crate) fn record(key: &str, body: &str) -> Record {
    let bytes = |text: &str| Bytes::copy_from_slice(text.as_bytes());
    Record { key: Some(bytes(key)), body: bytes(body), id: body.to_owned() }
}

/// Puts all of `records`.
pub(crate) async fn put_all(target: &dyn Target, records: &[Record]) {
    let mut left = records;
    while !left.is_empty() {
        let (batch, rest) = left.split_at(target.limits().fitting(left));
        for answer in target.put(batch).await {
            answer.unwrap();
        }
        left = rest;
    }
    target.close().await;
}

/// Fetches, and acknowledges.
///
/// # Errors
/// When nothing can be read now: a server that is started again is to be waited for.
pub(crate) async fn take(
    source: &dyn Source,
    wait: Duration,
) -> Result<Vec<StreamMessage>, StreamError> {
    let messages = source.fetch(1_000, wait).await?;
    let receipts: Vec<_> = messages.iter().map(|message| message.receipt).collect();
    source.acknowledge(&receipts).await;
    Ok(messages)
}

/// The bodies of the first `count` that come.
pub(crate) async fn bodies(place: &Place, count: usize) -> Vec<String> {
    let source = place.source().await;
    let all = async {
        let mut bodies = Vec::new();
        while bodies.len() < count {
            let messages = take(&*source, PATIENCE).await.unwrap_or_default();
            bodies.extend(messages.into_iter().map(|message| {
                String::from_utf8(message.body.unwrap_or_default().to_vec()).unwrap()
            }));
        }
        bodies
    };
    let bodies = tokio::time::timeout(PATIENCE, all).await.unwrap();
    source.close().await;
    bodies
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_maps_buries_what_is_refused_and_ends_when_nothing_is_left() {
    let (from, to) = (System::RabbitMq.place(None).await, System::Kafka.place(None).await);
    let dead = System::Nats.place(None).await;
    let records = [
        record("k", r#"{"order": {"id": "1"}, "to": "a"}"#),
        record("k", "no json"),
        record("k", r#"{"order": {"id": "2"}, "to": "b"}"#),
    ];
    put_all(&*from.target(), &records).await;
    let folder = tempfile::tempdir().unwrap();
    let map = folder.path().join("map.json");
    std::fs::write(&map, r#"{"content": {"id": "{{ body.order.id }}"}, "key": "{{ body.to }}"}"#)
        .unwrap();
    let (map, file) = ("--map", map.to_str().unwrap());
    let more = [UNTIL_EMPTY, map, file, "--dead-letter", &dead.url, "--json"];
    let output = relay(&from.url, &to.url, &more).output().unwrap();
    let (out, error) =
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert_eq!(output.status.code(), Some(0), "{error}");
    let summary: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&summary["put"], &summary["dead"]), (&2.into(), &1.into()), "{out}");
    assert_eq!(summary["acknowledged"], 3, "{out}");
    let mut arrived = bodies(&to, 2).await;
    arrived.sort_unstable();
    assert_eq!(arrived, [r#"{"id": "1"}"#, r#"{"id": "2"}"#]);
    let letter = bodies(&dead, 1).await.remove(0);
    assert!(letter.contains("\"body\":\"no json\"") && letter.contains("JSON"), "{letter}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_refused_without_dead_letters_is_given_back_and_said() {
    let (from, to) = (System::RabbitMq.place(None).await, System::Sqs.place(None).await);
    // SQS takes no control characters.
    put_all(&*from.target(), &[record("k", "\u{1}")]).await;
    let output = relay(&from.url, &to.url, &[UNTIL_EMPTY]).output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(65), "{error}");
    assert!(error.contains("control characters") && error.contains("dead letters"), "{error}");
    assert_eq!(bodies(&from, 1).await, ["\u{1}"], "it is still there");
}

#[test]
fn what_cannot_work_is_said_at_once_without_a_secret() {
    let refused = |from: &str, to: &str, more: &[&str]| {
        let output = relay(from, to, more).output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(!error.contains("canary"), "{error}");
        (output.status.code(), error)
    };
    let (code, error) = refused("postgres://me:canary@host/x", "nats://host/x", &[]);
    assert_eq!(code, Some(2), "{error}");
    assert!(error.contains("--from") && error.contains("kinesis://"), "{error}");
    let (code, error) = refused("kinesis://k:canary@s?region=a", "nats://host/x", &[]);
    assert_eq!(code, Some(2), "{error}");
    assert!(error.contains("--positions"), "{error}");
    let (code, error) = refused("nats://h/x", "nats://h/y", &["--at-most-once"]);
    assert_eq!(code, Some(2), "{error}");
    assert!(error.contains("--dead-letter"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_that_is_not_there_is_said() {
    let (place, to) = (System::Sqs.place(None).await, System::Nats.place(None).await);
    let missing = place.url.replacen("sqs://k:s@", "sqs://k:canary@no-such-", 1);
    let output = relay(&missing, &to.url, &[]).output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(78), "{error}");
    assert!(error.contains("does not exist") && !error.contains("canary"), "{error}");
}

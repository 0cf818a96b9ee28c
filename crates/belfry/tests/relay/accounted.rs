//! With a store: each message is in its account, whatever is killed.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use crate::command::{UNTIL_EMPTY, bodies, command, put_all, record};
use crate::kill::{ALL, MESSAGES, RESTARTS, relay_with_kills, seeds, with_restarts};
use crate::systems::{Place, System};

/// Pairs that every test run passes with one seed.
const FEW: &[(System, System)] = &[(System::Sqs, System::Kafka), (System::Kafka, System::RabbitMq)];

fn relay(from: &Place, to: &Place, store: &Path, more: &[&str]) -> Command {
    let store = store.to_str().unwrap();
    let arguments = ["relay", "--from", &from.url, "--to", &to.url, "--store", store];
    command(&arguments, more)
}

/// The JSON on standard output of a command that must exit with `code`.
fn json(output: &Output, code: i32) -> Value {
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{error}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The account of the store, counted from the ground up.
fn audit(store: &Path) -> Value {
    let store = store.to_str().unwrap();
    json(&command(&["audit", "--store", store, "--json"], &[]).output().unwrap(), 0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_carries_bytes_and_keys_and_keeps_what_it_cannot_carry() {
    let (from, to) = (System::RabbitMq.place(None).await, System::Kafka.place(None).await);
    let text = r#"{"n": 18446744073709551617,  "a": "\u00e9"}"#;
    put_all(&*from.target(), &[record("", text), record("", "no json"), record("", "7")]).await;
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    let output = relay(&from, &to, &store, &[UNTIL_EMPTY, "--json"]).output().unwrap();
    let summary = json(&output, 0);
    let counts = ["read", "acknowledged", "dead_letters", "repeated"].map(|count| &summary[count]);
    assert_eq!(counts, [3, 3, 1, 0], "{summary}");
    let account = &summary["account"];
    assert_eq!([&account["accepted"], &account["delivered"]], [2, 2], "{summary}");
    let mut arrived = bodies(&to, 2).await;
    arrived.sort_unstable();
    assert_eq!(arrived, ["7", text], "byte for byte");
    let letters = std::fs::read_to_string(store.join("dead-letters.ndjson")).unwrap();
    assert!(letters.contains("\"body\":\"no json\"") && letters.contains("not JSON"), "{letters}");
    assert_eq!(audit(&store)["delivered"], 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_maps_and_says_which_messages_were_not_put() {
    let (from, to) = (System::Kafka.place(None).await, System::Sqs.place(None).await);
    // SQS takes no U+FFFE: its refusal is final.
    let records = [record("k", "{\"text\": \"\u{fffe}\"}"), record("k", r#"{"text": "good"}"#)];
    put_all(&*from.target(), &records).await;
    let folder = tempfile::tempdir().unwrap();
    let (store, map) = (folder.path().join("store"), folder.path().join("map.json"));
    std::fs::write(&map, r#"{"content": {"is": "{{ body.text }}"}}"#).unwrap();
    let more = [UNTIL_EMPTY, "--map", map.to_str().unwrap()];
    let output = relay(&from, &to, &store, &more).output().unwrap();
    let (out, error) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(65), "{out}{error}");
    assert!(out.contains("2 accepted and 1 delivered") && out.contains("; 1 refused"), "{out}");
    let store = store.to_str().unwrap();
    assert!(error.contains(&format!("`belfry log --store {store}`")), "{error}");
    let log = command(&["log", "--store", store], &[]).output().unwrap();
    let log = String::from_utf8_lossy(&log.stdout);
    assert!(log.contains("refused") && log.contains("control characters"), "{log}");
    assert_eq!(bodies(&to, 1).await, [r#"{"is": "good"}"#]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_at_any_moment_it_accounts_for_each_message() {
    let seeds = seeds();
    let (pairs, restarts) = if seeds > 1 { (ALL, RESTARTS) } else { (FEW, &[][..]) };
    for seed in 1..=seeds {
        for (from, to) in pairs {
            let (from, to) = (from.place(None).await, to.place(None).await);
            run(&from, &to, seed, &mut |_kill| {}).await;
        }
        for restarts in restarts {
            with_restarts(*restarts, async |from, to, between| {
                run(&from, &to, seed, between).await;
            })
            .await;
        }
    }
}

/// Relays with kills, `between` after each start; each message is accepted once, and delivered.
async fn run(from: &Place, to: &Place, seed: u64, between: &mut dyn FnMut(usize)) {
    let folder = tempfile::tempdir().unwrap();
    let start = || relay(from, to, folder.path(), &[]);
    relay_with_kills(from, to, seed, start, between).await;
    // What the killed ones held came again, and was known.
    let account = audit(folder.path());
    let counts = ["accepted", "delivered"].map(|count| account.get(count)?.as_u64());
    assert_eq!(counts, [Some(MESSAGES as u64); 2], "{from:?} to {to:?}, seed {seed}");
}

//! `belfry test`, `belfry channels` and `belfry get`: one message, from outside, by real providers, and what is told of it.

use bench::workload::token;
use bench::{Setup, Trial};
use provider_sim::is_dead;
use serde_json::{Value, json};

use crate::support::{Ended, Engine, Reply, Workspace};

const DEAD: f64 = 0.5;

/// The first of `candidates` that is gone, or is not.
fn recipient(candidates: impl Iterator<Item = String>, is_gone: bool) -> String {
    let mut candidates = candidates;
    candidates.find(|to| is_dead(to, DEAD) == is_gone).unwrap()
}

fn run(trial: &Trial, command: &str, arguments: &[&str]) -> Ended {
    let output = trial.engine().client().command(command).args(arguments).output().unwrap();
    Ended::new(&output)
}

#[test]
fn each_provider_takes_the_content_that_its_kind_of_channel_begins_with() {
    let directory = tempfile::tempdir().unwrap();
    let dead = DEAD.to_string();
    let flags = ["--fcm", "127.0.0.1:0", "--smtp", "127.0.0.1:0", "--dead-tokens", &dead];
    let trial =
        Trial::start(Setup::new(env!("CARGO_BIN_EXE_belfry"), directory.path(), &flags)).unwrap();
    let path = |number: u64| format!("/hook/{number}");
    let url = |path: &str| format!("https://{}{path}", trial.simulator().ready.webhook);
    let mail = |number: u64| format!("reader{number}@example.com");
    let device = |number: u64| format!("device:{number}");
    for (channel, to) in [
        ("ios", recipient((0..).map(token), false)),
        ("android", recipient((0..).map(device), false)),
        ("hooks", url(&recipient((0..).map(path), false))),
        ("mail", recipient((0..).map(mail), false)),
    ] {
        let ended = run(&trial, "test", &[channel, &to]);
        assert_eq!((ended.code, ended.err.len()), (0, 0), "{channel}: {ended:?}");
        let lines: Vec<&str> = ended.out.lines().collect();
        assert!(lines[0].contains(&format!(" delivered: {channel} to {to}, ")), "{ended:?}");
        assert!(lines[1].contains(" attempt 1 delivered 2"), "{ended:?}");
        let id = lines[0].split(' ').next().unwrap();
        let got = run(&trial, "get", &[id]);
        assert!(got.out.starts_with(&format!("{}\nurgent, at_least_once, ", lines[0])), "{got:?}");
    }
    let listed = run(&trial, "channels", &[]);
    assert!(listed.out.starts_with("android: fcm"), "{listed:?}");
    assert!(listed.out.contains("\nhooks: webhook\n"), "{listed:?}");
    let gone = run(&trial, "test", &["ios", &recipient((0..).map(token), true), "--json"]);
    assert_eq!(gone.code, 1, "{gone:?}");
    let told: Value = serde_json::from_str(&gone.out).unwrap();
    assert_eq!((&told["state"], &told["attempts"][0]["status"]), (&json!("refused"), &json!(410)));
    let wrong = run(&trial, "test", &["ios", &token(1), "--content", "[]"]);
    assert_eq!(wrong.code, 65, "{wrong:?}");
    assert!(wrong.err[0].contains("content"), "{wrong:?}");
}

#[test]
fn a_channel_that_is_not_there_is_told_with_those_that_are() {
    let item = |name: &str| json!({"name": name, "kind": "apns", "messages_per_minute": 60, "paused_since": "noon"});
    let items = json!({"items": [item("ios"), item("tv")]});
    let engine = Engine::start(move |_| Reply::Json(200, items.clone()));
    let workspace = Workspace::new();
    let ended = workspace.belfry(&["test", "web", "me", "--url", &engine.url]);
    let message = "belfry: the engine has no channel \"web\": it has ios, tv".to_owned();
    assert_eq!((ended.code, ended.err), (65, vec![message]));
    let listed = workspace.belfry(&["channels", "--url", &engine.url]);
    assert_eq!(
        listed.out.lines().next(),
        Some("ios: apns, 60 a minute at most, paused since noon")
    );
    let listed = workspace.belfry(&["channels", "--json", "--url", &engine.url]);
    let first: Value = serde_json::from_str(listed.out.lines().next().unwrap()).unwrap();
    assert_eq!(first, item("ios"));
}

#[test]
fn what_has_no_end_in_time_is_told_with_what_was_answered_so_far() {
    let engine = Engine::start(|request| {
        if request.target == "POST /v1/notifications" {
            return Reply::Json(201, json!({"id": "n1", "replayed": false}));
        }
        let attempt = json!({"at": "noon", "attempt": 1, "state": "pending", "status": 503, "detail": "busy"});
        let told = json!({
            "id": "n1", "channel": "hooks", "destination": "d", "to": "t", "state": "pending", "guarantee": "at_least_once",
            "priority": "urgent", "accepted_at": "noon", "due_at": "noon", "expires_at": null, "broadcast": null,
            "next_attempt_at": "later", "fallback_of": null, "fallback_id": null, "attempts": [attempt],
        });
        Reply::Json(200, told)
    });
    let test = ["test", "hooks", "t", "--content", "[1]", "--wait", "0s", "--url", &engine.url];
    let ended = Workspace::new().belfry(&test);
    let expect = "n1 pending: hooks to t, accepted noon\nnoon attempt 1 pending 503 busy\n";
    assert_eq!((ended.code, ended.out.as_str()), (1, expect));
    assert!(ended.err[0].contains("still tried: see `belfry get n1`"), "{ended:?}");
    let body = json!({"channel": "hooks", "to": "t", "content": [1], "priority": "urgent"});
    assert_eq!(engine.requests()[0].body, body);
}

#[test]
fn a_broadcast_and_a_notification_are_got_by_their_ids() {
    let engine =
        Engine::start(|_| Reply::Json(404, json!({"title": "Not Found", "detail": "no such one"})));
    let workspace = Workspace::new();
    let id = "01993c5a-2b7a-8a41-8000-000000010000";
    for id in [id, "bc_7"] {
        let ended = workspace.belfry(&["get", id, "--url", &engine.url]);
        assert_eq!((ended.code, ended.err), (65, vec!["belfry: no such one".to_owned()]));
    }
    let targets: Vec<String> = engine.requests().into_iter().map(|it| it.target).collect();
    let expect = [format!("GET /v1/notifications/{id}"), "GET /v1/broadcasts/bc_7".to_owned()];
    assert_eq!(targets, expect);
    assert_eq!(workspace.belfry(&["get", "seven"]).code, 65);
}

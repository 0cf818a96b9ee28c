//! Commands that read a store or ask an engine: both say the same.

use serde_json::Value;

use crate::served::Served;
use crate::support::{Ended, Engine, Reply, Workspace};

/// Runs a command by the store and by the engine, and holds that both end alike. Gives what both print.
fn both(workspace: &Workspace, engine: &Served, arguments: &[&str]) -> Ended {
    let by_store = workspace.belfry(arguments);
    let remote = ["--url", &engine.url, "--api-key-file", "belfry.key"];
    let by_engine = workspace.belfry(&[arguments, &remote].concat());
    assert_eq!((by_engine.code, &by_engine.err), (by_store.code, &by_store.err), "{arguments:?}");
    let lines = |ended: &Ended| -> Vec<String> { ended.out.lines().map(without_tenant).collect() };
    assert_eq!(lines(&by_engine), lines(&by_store), "{arguments:?}");
    by_engine
}

/// The tenant of a notification is not in an engine's answer: it is the key's.
fn without_tenant(line: &str) -> String {
    line.replacen("\"tenant\":\"default\",", "", 1)
}

#[test]
fn an_engine_says_the_same_as_its_store() {
    let workspace = Workspace::new();
    assert_eq!(workspace.belfry(&["init"]).code, 0);
    let engine = Served::start(workspace.command(&["serve"]));
    let remote = ["--url", &engine.url, "--api-key-file", "belfry.key"];
    let told = |arguments: &[&str]| workspace.belfry(&[arguments, &remote].concat());
    let mut ids = Vec::new();
    for to in ["one", "two", "three"] {
        let sent = told(&["test", "dry-run", to]);
        assert_eq!(sent.code, 0, "{sent:?}");
        ids.push(sent.out.split(' ').next().unwrap().to_owned());
    }
    let labelled = ["--external-id", "order 7", "--tag", "a b", "--metadata", "{\"a\":1}"];
    let send = ["send", "--channel", "dry-run", "--content", "{}"];
    // So that nothing changes between two looks.
    let paused = told(&["pause", "--channel", "dry-run"]);
    assert_eq!(paused.code, 0, "{paused:?}");
    let waits = told(&[&send[..], &["--to", "four"], &labelled].concat());
    workspace.write("to.txt", "five\nsix\n");
    let broadcast = told(&[&send[..], &["--to-file", "to.txt", "--tag", "many"]].concat());
    assert_eq!((waits.code, broadcast.code), (0, 0), "{waits:?} {broadcast:?}");
    for json in [&[][..], &["--json"]] {
        let run = |arguments: &[&str]| both(&workspace, &engine, &[arguments, json].concat());
        assert_eq!(run(&["list"]).out.lines().count(), 6);
        let page = run(&["list", "--limit", "2", "--oldest"]);
        assert_eq!((page.out.lines().count(), page.err.len()), (2, 1), "{page:?}");
        assert!(page.err[0].starts_with("belfry: go on with --after "), "{page:?}");
        let found = run(&["list", "--tag", "a b", "--external-id", "order 7", "--to", "four"]);
        assert_eq!(found.out.lines().count(), 1);
        assert_eq!(
            run(&["list", "--state", "delivered", "--since", "2020-01-01T00:00:00Z"])
                .out
                .lines()
                .count(),
            3
        );
        assert_eq!(run(&["broadcasts", "--tag", "many"]).out.lines().count(), 1);
        assert_eq!(run(&["broadcasts", "--tag", "none"]).out, "");
        assert_eq!(run(&["log"]).out.lines().count(), 3);
        assert!(run(&["log", "--id", &ids[1]]).out.contains("two"));
        assert!(run(&["log", "--id", waits.out.trim()]).out.contains("order 7"));
        let tenants = run(&["tenants"]);
        assert!(tenants.out.contains("default"), "{tenants:?}");
        run(&["audit"]);
    }
    for list in ["list", "broadcasts"] {
        let run = |tenant| both(&workspace, &engine, &[list, "--tenant", tenant]);
        assert_eq!(run("default").out, both(&workspace, &engine, &[list]).out);
        assert_eq!(run("shop").out, "");
    }
}

#[test]
fn a_store_that_is_named_goes_before_an_engine() {
    let engine = Engine::start(|_| Reply::Json(401, serde_json::json!({"detail": "no key"})));
    let workspace = Workspace::new();
    workspace.make_store();
    for command in ["list", "broadcasts", "log", "tenants", "audit"] {
        let asked = workspace.belfry(&[command, "--url", &engine.url]);
        assert_eq!((asked.code, asked.err), (1, vec!["belfry: no key".to_owned()]), "{command}");
        let read = workspace.belfry(&[command, "--url", &engine.url, "--store", "data"]);
        assert_eq!(read.code, 0, "{command}: {read:?}");
        let mut variable = workspace.command(&[command]);
        let output = variable.env("BELFRY_URL", &engine.url).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{command}");
    }
    assert_eq!(engine.requests().len(), 10);
}

#[test]
fn an_account_that_does_not_balance_is_told_by_an_engine_too() {
    let engine = Engine::start(|_| {
        let account = serde_json::json!({
            "accepted": 3, "delivered": 1, "refused": 0, "expired": 0, "cancelled": 0, "suppressed": 0, "in_doubt": 0,
            "dead": 0, "pending": 1, "balanced": false, "problem_count": 2, "problems": ["batch 7 is cut short"],
        });
        Reply::Json(200, account)
    });
    let workspace = Workspace::new();
    let ended = workspace.belfry(&["audit", "--url", &engine.url]);
    let end = "problem: batch 7 is cut short\nand 1 more problems\nTHE ACCOUNT DOES NOT BALANCE\n";
    assert_eq!(ended.code, 1);
    assert!(ended.out.ends_with(end), "{ended:?}");
    let json = workspace.belfry(&["audit", "--url", &engine.url, "--json"]).out;
    let json: Value = serde_json::from_str(&json).unwrap();
    assert!(json.get("problem_count").is_none() && json["balanced"] == false, "{json}");
}

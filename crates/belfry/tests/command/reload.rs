//! `belfry reload` against an engine.

use std::process::Stdio;

use serde_json::{Value, json};

use crate::served::Served;
use crate::support::{Ended, Workspace};

/// No provider has it, and nothing may show it.
const CANARY: &str = "whsec_Y2FuYXJ5IQ==";

/// An engine of the configuration that `init` makes, beside what is written into that later.
fn engine() -> (Workspace, Served, String) {
    let workspace = Workspace::new();
    assert_eq!(workspace.belfry(&["init"]).code, 0);
    let engine = Served::start(workspace.command(&["serve"]));
    let config = workspace.read("belfry.toml");
    (workspace, engine, config)
}

fn remote<'a>(engine: &'a Served, arguments: &[&'a str]) -> Vec<&'a str> {
    [arguments, &["--url", &engine.url, "--api-key-file", "belfry.key"]].concat()
}

/// The newest act, and the status and words of its end.
fn last_act(workspace: &Workspace, engine: &Served) -> (Value, Value) {
    let acts = workspace.belfry(&remote(engine, &["acts", "--json", "--limit", "1"]));
    let act: Value = serde_json::from_str(acts.out.lines().next().unwrap()).unwrap();
    (act["call"].clone(), act["status"].clone())
}

#[test]
fn it_is_told_what_changed_and_what_needs_a_restart() {
    let (workspace, engine, config) = engine();
    let reload = |more: &[&str]| workspace.belfry(&remote(&engine, &[&["reload"], more].concat()));
    let same = reload(&[]);
    assert_eq!((same.code, same.out.as_str()), (0, "reloaded: nothing has changed\n"), "{same:?}");
    let more = "[channels.more]\nkind = \"dry-run\"\n[log]\nlevel = \"warn\"\n";
    workspace.write("belfry.toml", format!("{config}\n{more}"));
    let json: Value = serde_json::from_str(&reload(&["--json"]).out).unwrap();
    let expect = json!({
        "changed": ["channels.more (new)"], "needs_restart": ["log"], "warnings": [],
    });
    assert_eq!(json, expect);
    // What needs a restart is named until there is one.
    let again = reload(&[]);
    assert_eq!(again.out, "reloaded: nothing has changed\nneeds a restart: log\n");
    let sent = workspace.belfry(&remote(&engine, &["test", "more", "anyone"]));
    assert_eq!(sent.code, 0, "{sent:?}");
    assert_eq!(last_act(&workspace, &engine), (json!("POST /v1/reload"), json!(200)));
}

#[test]
fn all_that_is_wrong_is_told_without_a_secret_and_the_engine_goes_on() {
    let (workspace, engine, config) = engine();
    let reload = || workspace.belfry(&remote(&engine, &["reload"]));
    let wrong = format!(
        "{config}\n[channels.hooks]\nkind = \"webhook\"\nsecrets = [\"{CANARY}\"]\ncolour = 1\n[channels.Three]\nkind = \"dry-run\"\n"
    );
    workspace.write("belfry.toml", wrong);
    let check = workspace.belfry(&["check-config"]);
    let told = reload();
    assert_eq!((check.code, told.code), (78, 78), "{told:?}");
    assert_eq!(told.err, check.err);
    assert!(told.err.len() >= 2, "{told:?}");
    assert!(told.err[0].starts_with("belfry: belfry.toml: channels."), "{told:?}");
    assert!(!format!("{told:?}").contains("Y2FuYXJ5"), "{told:?}");
    workspace.write("belfry.toml", format!("{config}\nno table"));
    let told = reload();
    let line = config.lines().count() + 2;
    let expect = format!("belfry: belfry.toml: line {line} is not TOML");
    assert!(told.code == 78 && told.err[0].starts_with(&expect), "{told:?}");
    assert_eq!(last_act(&workspace, &engine), (json!("POST /v1/reload"), json!(409)));
    let sent = workspace.belfry(&remote(&engine, &["test", "dry-run", "anyone"]));
    assert_eq!(sent.code, 0, "{sent:?}");
}

#[test]
fn several_at_once_are_all_answered() {
    let (workspace, engine, config) = engine();
    workspace.write("belfry.toml", format!("{config}\n[channels.more]\nkind = \"dry-run\"\n"));
    let begin = |_| {
        let mut command = workspace.command(&remote(&engine, &["reload"]));
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let children: Vec<_> = (0..4).map(begin).collect();
    let mut told: Vec<String> = children
        .into_iter()
        .map(|child| Ended::new(&child.wait_with_output().unwrap()).out)
        .collect();
    told.sort();
    // One after the other: the first finds the change, and the others nothing new.
    let mut expect = vec!["reloaded: nothing has changed\n"; 3];
    expect.insert(0, "reloaded: channels.more (new)\n");
    assert_eq!(told, expect);
}

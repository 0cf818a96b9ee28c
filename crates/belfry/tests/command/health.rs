//! `belfry health`: 0 or 1, by which containers and supervisors tell.

use serde_json::json;

use crate::served::Served;
use crate::support::{Engine, Reply, Workspace};

#[test]
fn an_engine_that_lives_and_works_is_healthy() {
    let workspace = Workspace::new();
    workspace.write("belfry.toml", "[channels.a]\nkind = \"dry-run\"\n");
    let served = Served::start(workspace.command(&["serve"]));
    // As in a container: by the configuration alone.
    let listen = served.url.trim_start_matches("http://");
    workspace.write("belfry.toml", format!("[server]\nlisten = \"{listen}\"\n"));
    for arguments in [&["health"][..], &["health", "--ready"]] {
        let ended = workspace.belfry(arguments);
        assert_eq!((ended.code, ended.err.len()), (0, 0), "{ended:?}");
    }
    assert_eq!(workspace.belfry(&["health", "--ready"]).out, "ready\n");
}

#[test]
fn one_that_waits_for_its_store_lives_and_is_not_ready() {
    let workspace = Workspace::new();
    let engine = Engine::start(|request| match request.target.as_str() {
        "GET /healthz" => Reply::Json(200, json!("ok")),
        _ => Reply::Json(503, json!({"detail": "not ready, waiting for: store"})),
    });
    assert_eq!(workspace.belfry(&["--url", &engine.url, "health"]).code, 0);
    let ended = workspace.belfry(&["--url", &engine.url, "health", "--ready"]);
    assert_eq!((ended.code, ended.out.as_str()), (1, ""));
    assert_eq!(ended.err, ["belfry: not ready, waiting for: store"]);
}

#[test]
fn whatever_is_wrong_ends_with_one() {
    let workspace = Workspace::new();
    let ended = workspace.belfry(&["--url", "http://127.0.0.1:1", "health"]);
    assert_eq!((ended.code, ended.err.len()), (1, 1), "{ended:?}");
    workspace.write("belfry.toml", "[server]\nlisen = 1\n");
    let ended = workspace.belfry(&["health"]);
    assert_eq!((ended.code, ended.err.len()), (1, 1), "{ended:?}");
    let hanging = Engine::start(|_| Reply::Hang);
    assert_eq!(workspace.belfry(&["--url", &hanging.url, "health"]).code, 1);
}

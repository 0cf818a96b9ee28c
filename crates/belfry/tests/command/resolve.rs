//! `belfry resolve`, from outside.

use serde_json::json;

use crate::support::{Engine, Reply, Workspace};

#[test]
fn resolving_says_what_was_found_out_and_goes_on_to_the_end() {
    let engine = Engine::start(|request| {
        let answer = match request.target.as_str() {
            target if target.contains("/v1/notifications/") => {
                json!({"matched": 1, "resolved": 1, "next": null})
            }
            target if target.contains("after=") => {
                json!({"matched": 3, "resolved": 3, "next": null})
            }
            _ => json!({"matched": 1000, "resolved": 998, "next": "place"}),
        };
        Reply::Json(200, answer)
    });
    let workspace = Workspace::new();
    let belfry = |arguments: &[&str]| {
        workspace.belfry(&[&["resolve", "--url", &engine.url], arguments].concat())
    };
    let id = "01993c5a-2b7a-8a41-8000-000000010000";
    let one = belfry(&[id, "--as", "delivered", "--note", "they have it"]);
    assert_eq!(one.out, "1 of 1 notifications in doubt resolved as delivered\n");
    let all = belfry(&["bc_7", "--as", "dead", "--reason", "503 & more"]);
    assert_eq!(all.out, "1001 of 1003 notifications in doubt resolved as dead\n");
    let counted = belfry(&["--all", "--as", "dead", "--dry-run", "--limit", "1000", "--json"]);
    let counted: serde_json::Value = serde_json::from_str(&counted.out).unwrap();
    assert_eq!(counted, json!({"matched": 1000, "resolved": 998}));
    let targets: Vec<String> =
        engine.requests().into_iter().map(|request| request.target).collect();
    assert_eq!(
        targets,
        [
            &format!("POST /v1/notifications/{id}/resolve?as=delivered&note=they%20have%20it"),
            "POST /v1/resolve?limit=1000&broadcast=bc_7&as=dead&reason=503%20%26%20more",
            "POST /v1/resolve?limit=1000&broadcast=bc_7&as=dead&reason=503%20%26%20more&after=place",
            "POST /v1/resolve?limit=1000&as=dead&dry_run=true",
        ]
    );
}

#[test]
fn resolving_must_name_what_is_meant_and_how_it_ended() {
    let workspace = Workspace::new();
    let ended = workspace.belfry(&["resolve", "--as", "dead"]);
    let message =
        "belfry: say what to resolve: an identifier, a filter such as --channel, or --all";
    assert_eq!((ended.code, ended.err), (2, vec![message.to_owned()]));
    let id = "01993c5a-2b7a-8a41-8000-000000010000";
    assert_eq!(workspace.belfry(&["resolve", id]).code, 2);
    assert_eq!(workspace.belfry(&["resolve", id, "--as", "refused"]).code, 2);
    let ended = workspace.belfry(&["resolve", id, "--as", "dead", "--dry-run"]);
    let message = format!(
        "belfry: one notification is resolved without other options; `belfry status {id}` shows it"
    );
    assert_eq!((ended.code, ended.err), (2, vec![message]));
}

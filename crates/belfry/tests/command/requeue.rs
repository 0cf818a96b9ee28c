//! `belfry requeue`, from outside.

use serde_json::json;

use crate::support::{Engine, Reply, Workspace};

#[test]
fn requeueing_names_what_is_meant_and_goes_on_to_the_end() {
    let engine = Engine::start(|request| {
        let answer = match request.target.as_str() {
            target if target.contains("/v1/notifications/") => json!({"requeued": 1}),
            target if target.contains("after=") => {
                json!({"matched": 3, "requeued": 3, "expired": 0, "next": null})
            }
            _ => json!({"matched": 1000, "requeued": 998, "expired": 2, "next": "place"}),
        };
        Reply::Json(200, answer)
    });
    let workspace = Workspace::new();
    let belfry = |arguments: &[&str]| {
        workspace.belfry(&[&["requeue", "--url", &engine.url], arguments].concat())
    };
    let ended = belfry(&["bc_7", "--reason", "503 & more"]);
    assert_eq!(
        ended.out,
        "1001 of 1003 dead notifications requeued; 2 expired and stay dead: send new ones\n"
    );
    let id = "01993c5a-2b7a-8a41-8000-000000010000";
    assert_eq!(belfry(&[id]).out, "1 of 1 dead notifications requeued\n");
    let cancelled = belfry(&[id, "--state", "dead,cancelled"]);
    assert_eq!(cancelled.out, "1 of 1 dead or cancelled notifications requeued\n");
    let counted = belfry(&["--all", "--dry-run", "--limit", "1000", "--json"]);
    let counted: serde_json::Value = serde_json::from_str(&counted.out).unwrap();
    assert_eq!(
        counted,
        json!({"matched": 1000, "requeued": 998, "expired": 2, "not_yet": 0, "content_removed": 0, "replaced": 0})
    );
    let requests = engine.requests();
    assert_eq!(requests[0].connection, requests[1].connection, "the pages of one command");
    let targets: Vec<String> = requests.into_iter().map(|request| request.target).collect();
    assert_eq!(
        targets,
        [
            "POST /v1/requeue?limit=1000&broadcast=bc_7&reason=503%20%26%20more",
            "POST /v1/requeue?limit=1000&broadcast=bc_7&reason=503%20%26%20more&after=place",
            &format!("POST /v1/notifications/{id}/requeue"),
            &format!("POST /v1/notifications/{id}/requeue?state=dead%2Ccancelled"),
            "POST /v1/requeue?limit=1000&dry_run=true",
        ]
    );
}

#[test]
fn requeueing_everything_must_be_said() {
    let workspace = Workspace::new();
    let ended = workspace.belfry(&["requeue"]);
    let message =
        "belfry: say what to requeue: an identifier, a filter such as --channel, or --all";
    assert_eq!((ended.code, ended.err), (2, vec![message.to_owned()]));
    let ended = workspace.belfry(&["requeue", "seven"]);
    let message = "belfry: \"seven\" is neither a notification (a UUID) nor a broadcast (bc_1)";
    assert_eq!((ended.code, ended.err), (65, vec![message.to_owned()]));
}

//! `belfry reschedule`, from outside.

use serde_json::json;

use crate::support::{Engine, Reply, Workspace};

#[test]
fn rescheduling_names_one_or_a_broadcast_and_the_time() {
    let answer = json!({"rescheduled": 5, "under_way": 1, "ended": 2});
    let engine = Engine::start(move |_| Reply::Json(200, answer.clone()));
    let workspace = Workspace::new();
    let belfry = |arguments: &[&str]| {
        workspace.belfry(&[&["reschedule", "--url", &engine.url], arguments].concat())
    };
    let id = "01993c5a-2b7a-8a41-8000-000000010000";
    let ended = belfry(&["bc_7", "--send-at", "2026-12-24T18:00:00+01:00"]);
    let told =
        "5 rescheduled to 2026-12-24T17:00:00.000Z; too late for 1 under way and 2 that ended\n";
    assert_eq!(ended.out, told);
    let ended = belfry(&[id, "--send-at", "2026-12-24T17:00:00Z", "--json"]);
    let told: serde_json::Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!(told, json!({"rescheduled": 5, "under_way": 1, "ended": 2}));
    let requests = engine.requests();
    let targets: Vec<&str> = requests.iter().map(|request| &*request.target).collect();
    let of_one = format!("POST /v1/notifications/{id}/reschedule");
    assert_eq!(targets, ["POST /v1/broadcasts/bc_7/reschedule", &of_one]);
    assert_eq!(requests[0].body, json!({"send_at": "2026-12-24T17:00:00.000Z"}));
    assert_eq!(belfry(&["bc_7"]).code, 2, "the time must be said");
    assert_eq!(belfry(&["--send-at", "2026-12-24T17:00:00Z"]).code, 2);
    assert_eq!(belfry(&["bc_7", "--send-at", "noon"]).code, 2);
    let ended = belfry(&["seven", "--send-at", "2026-12-24T17:00:00Z"]);
    let message = "belfry: \"seven\" is neither a notification (a UUID) nor a broadcast (bc_1)";
    assert_eq!((ended.code, ended.err), (65, vec![message.to_owned()]));
}

#[test]
fn what_came_too_late_is_a_failure_with_its_reason() {
    let refusal = json!({"title": "Conflict", "detail": "too late: 1 under way, 0 ended"});
    let engine = Engine::start(move |_| Reply::Json(409, refusal.clone()));
    let workspace = Workspace::new();
    let send_at = ["--send-at", "2026-12-24T17:00:00Z", "--url", &engine.url];
    let ended = workspace.belfry(&[&["reschedule", "bc_7"], &send_at[..]].concat());
    assert_ne!(ended.code, 0);
    assert_eq!(ended.err, ["belfry: too late: 1 under way, 0 ended"]);
}

//! Every route with every scope: nothing is reachable that is not granted.

use std::collections::BTreeSet;

use api::KeyScope::{self, Cancel, Metrics, Operate, Read, Send, Suppress};
use api::{ApiKey, Grants};
use axum::body::Body;
use axum::http::{Method, Request};
use notification::Priority;
use serde_json::json;

use crate::keys::{call, granted, key};
use crate::support::{
    Answer, Fixture, LINES, chunked_head, connect, fixture, notification, read_until, write_chunk,
};

/// A route with the scopes that it needs, the thing that its path names, and whether it changes something.
type Row = (&'static str, &'static str, &'static [KeyScope], Asked, IsAct);

type IsAct = bool;
const ACT: IsAct = true;
const NO_ACT: IsAct = false;

/// The thing that a path names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    Notification,
    Broadcast,
    Key,
    /// It names none.
    Nothing,
}

/// Every route of the API that needs a key, written down a second time: a new one needs a row.
const ROUTES: &[Row] = &[
    ("DELETE", "/v1/keys/{name}", &[Operate], Asked::Key, ACT),
    ("DELETE", "/v1/recipients", &[Suppress], Asked::Nothing, ACT),
    ("DELETE", "/v1/session", &[], Asked::Nothing, NO_ACT),
    ("DELETE", "/v1/suppressions", &[Suppress, Operate], Asked::Nothing, ACT),
    ("GET", "/metrics", &[Metrics], Asked::Nothing, NO_ACT),
    ("GET", "/v1/account", &[Read], Asked::Nothing, NO_ACT),
    ("GET", "/v1/acts", &[Read], Asked::Nothing, NO_ACT),
    ("GET", "/v1/audit", &[Read, Operate], Asked::Nothing, NO_ACT),
    ("GET", "/v1/broadcasts", &[Read], Asked::Nothing, NO_ACT),
    ("GET", "/v1/broadcasts/{id}", &[Read], Asked::Broadcast, NO_ACT),
    ("GET", "/v1/channels", &[Read], Asked::Nothing, NO_ACT),
    ("GET", "/v1/estimate", &[Read, Operate], Asked::Nothing, NO_ACT),
    ("GET", "/v1/events", &[Read], Asked::Nothing, NO_ACT),
    ("GET", "/v1/keys", &[Read, Operate], Asked::Nothing, NO_ACT),
    ("GET", "/v1/keys/self", &[], Asked::Nothing, NO_ACT),
    ("GET", "/v1/log", &[Read, Operate], Asked::Nothing, NO_ACT),
    ("GET", "/v1/notifications", &[Read], Asked::Nothing, NO_ACT),
    ("GET", "/v1/notifications/{id}", &[Read], Asked::Notification, NO_ACT),
    ("GET", "/v1/pauses", &[Read], Asked::Nothing, NO_ACT),
    ("GET", "/v1/session", &[Operate], Asked::Nothing, NO_ACT),
    ("GET", "/v1/status", &[Read, Operate], Asked::Nothing, NO_ACT),
    ("GET", "/v1/suppressions", &[Suppress, Operate], Asked::Nothing, NO_ACT),
    ("GET", "/v1/suppressions/events", &[Suppress, Operate], Asked::Nothing, NO_ACT),
    ("GET", "/v1/templates", &[Read], Asked::Nothing, NO_ACT),
    ("GET", "/v1/tenants", &[Read, Operate], Asked::Nothing, NO_ACT),
    ("POST", "/v1/broadcasts", &[Send], Asked::Nothing, NO_ACT),
    ("POST", "/v1/broadcasts/{id}/cancel", &[Cancel], Asked::Broadcast, ACT),
    ("POST", "/v1/broadcasts/{id}/reschedule", &[Cancel], Asked::Broadcast, ACT),
    ("POST", "/v1/cancel", &[Cancel], Asked::Nothing, ACT),
    ("POST", "/v1/keys", &[Operate], Asked::Nothing, ACT),
    ("POST", "/v1/keys/{name}/rotate", &[Operate], Asked::Key, ACT),
    ("POST", "/v1/notifications", &[Send], Asked::Nothing, NO_ACT),
    ("POST", "/v1/notifications/{id}/cancel", &[Cancel], Asked::Notification, ACT),
    ("POST", "/v1/notifications/{id}/requeue", &[Send], Asked::Notification, ACT),
    ("POST", "/v1/notifications/{id}/reschedule", &[Cancel], Asked::Notification, ACT),
    ("POST", "/v1/notifications/{id}/resolve", &[Cancel], Asked::Notification, ACT),
    ("POST", "/v1/pause", &[Cancel], Asked::Nothing, ACT),
    ("POST", "/v1/preview", &[Send], Asked::Nothing, NO_ACT),
    ("POST", "/v1/prune", &[Operate], Asked::Nothing, ACT),
    ("POST", "/v1/reload", &[Operate], Asked::Nothing, ACT),
    ("POST", "/v1/requeue", &[Send], Asked::Nothing, ACT),
    ("POST", "/v1/resolve", &[Cancel], Asked::Nothing, ACT),
    ("POST", "/v1/resume", &[Cancel], Asked::Nothing, ACT),
    ("POST", "/v1/session", &[Operate], Asked::Nothing, NO_ACT),
    ("POST", "/v1/suppressions", &[Suppress, Operate], Asked::Nothing, ACT),
    ("POST", "/v1/suppressions/lift", &[Suppress, Operate], Asked::Nothing, ACT),
];

/// Query and body with which a route is asked, so that nothing but the right is in question.
fn asked_with(path: &str) -> (&'static str, &'static str) {
    match path.rsplit('/').next() {
        Some("reschedule") => ("", r#"{"send_at":"2027-01-01T00:00:00Z"}"#),
        Some("resolve") => ("?as=delivered", ""),
        _ => ("", ""),
    }
}

fn all_but(scopes: &[KeyScope]) -> Grants {
    Grants::of(KeyScope::ALL.into_iter().filter(|scope| !scopes.contains(scope)))
}

/// The status of a call of `path` with the key `name`.
async fn status(fixture: &Fixture, name: &str, method: &str, path: &str) -> u16 {
    call(fixture, name, method.parse::<Method>().unwrap(), path, "").await.status.as_u16()
}

/// Posts lines with the key `news`.
pub(crate) async fn post_lines(fixture: &Fixture, path: &str, lines: String) -> Answer {
    let request = Request::post(path).header("content-type", LINES);
    let request = request.header("authorization", "Bearer bfy_news");
    fixture.send(request.body(Body::from(lines)).unwrap()).await
}

#[test]
fn every_route_has_a_row() {
    let mut routes: Vec<_> = api::routes()
        .into_iter()
        .map(|(method, path, rule)| (method.to_string(), path, rule.needs, rule.is_act))
        .collect();
    routes.sort();
    let rows: Vec<_> = ROUTES
        .iter()
        .map(|(method, path, needs, _, is_act)| ((*method).to_owned(), *path, *needs, *is_act))
        .collect();
    assert_eq!(routes, rows);
}

#[tokio::test(start_paused = true)]
async fn a_route_is_open_to_the_scopes_that_it_needs_and_to_no_others() {
    let mut keys: Vec<ApiKey> = Vec::new();
    for scope in KeyScope::ALL {
        keys.push(granted(&format!("without-{scope}"), "acme", all_but(&[scope])));
    }
    for (i, (_, _, needs, ..)) in ROUTES.iter().enumerate() {
        keys.push(granted(&format!("just-{i}"), "acme", Grants::of(needs.iter().copied())));
    }
    let fixture = fixture(keys);
    let nobody = "/v1/notifications/00000000-0000-7000-8000-000000000000";
    for (i, (method, path, needs, asked, _)) in ROUTES.iter().enumerate() {
        let path = match asked {
            Asked::Notification => path.replace("/v1/notifications/{id}", nobody),
            Asked::Broadcast => path.replace("{id}", "bc_77"),
            Asked::Key => path.replace("{name}", "nobodys"),
            Asked::Nothing => (*path).to_owned(),
        };
        for scope in KeyScope::ALL {
            let name = format!("without-{scope}");
            let method = method.parse::<Method>().unwrap();
            let answer = call(&fixture, &name, method, &path, "").await;
            if needs.contains(&scope) {
                let problem = answer.problem(403);
                let expect = format!(
                    "this needs the scope `{scope}`, which the API key \"{name}\" does not have"
                );
                assert_eq!(problem["detail"], expect, "{path}");
            } else {
                assert!(![401, 403].contains(&answer.status.as_u16()), "{path} {name}");
            }
        }
        let just = status(&fixture, &format!("just-{i}"), method, &path).await;
        assert!(![401, 403].contains(&just), "{method} {path}: {just}");
    }
    fixture.assert_nothing_is_stored().await;
}

#[tokio::test(start_paused = true)]
async fn what_belongs_to_another_tenant_is_as_unknown_as_what_nobody_has() {
    let keys = vec![key("acme", false), key("globex", false), key("ops", true)];
    let fixture = fixture(keys);
    let created =
        call(&fixture, "acme", Method::POST, "/v1/notifications", &notification("a1", "")).await;
    let own_notification = created.header("location").to_owned();
    let broadcast = r#"{"channel":"ios","content":{},"recipients":["a1"]}"#;
    let broadcast = call(&fixture, "acme", Method::POST, "/v1/broadcasts", broadcast).await;
    let own_broadcast = format!("/v1/broadcasts/{}", broadcast.json()["id"].as_str().unwrap());
    for (method, path, _, asked, _) in ROUTES {
        let (own, template) = match asked {
            Asked::Notification => (&own_notification, "/v1/notifications/{id}"),
            Asked::Broadcast => (&own_broadcast, "/v1/broadcasts/{id}"),
            // Keys are those of operators, whatever their tenants are.
            Asked::Key | Asked::Nothing => continue,
        };
        let (query, body) = asked_with(path);
        let path = path.replace(template, own) + query;
        // Even an operator's key reads and changes single things of its own tenant alone.
        for other in ["globex", "ops"] {
            let method = method.parse::<Method>().unwrap();
            call(&fixture, other, method, &path, body).await.problem(404);
        }
    }
    // All of it is still there for its owner.
    for own in [&own_notification, &own_broadcast] {
        assert_eq!(status(&fixture, "acme", "GET", own).await, 200);
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_sends_by_its_channels_and_with_its_priorities_alone() {
    let grants = Grants {
        channels: Some(BTreeSet::from(["ios".parse().unwrap()])),
        priorities: Some(BTreeSet::from([Priority::Normal])),
        ..Grants::of([Send])
    };
    let fixture = fixture(vec![granted("news", "acme", grants)]);
    let post =
        async |path: &str, body: &str| call(&fixture, "news", Method::POST, path, body).await;
    let refused = async |path: &str, body: &str, pointer: &str| {
        let problem = post(path, body).await.problem(403);
        assert_eq!(problem["errors"][0]["pointer"], pointer, "{problem}");
    };
    let hooks = notification("a1", "").replace("ios", "hooks");
    let urgent = notification("a1", r#","priority":"urgent""#);
    let fallback =
        notification("a1", r#","fallback":[{"channel":"hooks","to":"a1","content":{}}]"#);
    refused("/v1/notifications", &hooks, "/channel").await;
    refused("/v1/notifications", &urgent, "/priority").await;
    refused("/v1/notifications", &fallback, "/fallback/0/channel").await;
    refused("/v1/preview", &hooks, "/channel").await;
    let many = format!("[{},{hooks}]", notification("a1", ""));
    refused("/v1/notifications", &many, "/1/channel").await;
    let broadcast = r#"{"channel":"hooks","content":{},"recipients":["a1"]}"#;
    refused("/v1/broadcasts", broadcast, "/channel").await;
    for again in ["/v1/requeue", "/v1/notifications/00000000-0000-7000-8000-000000000000/requeue"] {
        let problem = post(again, "").await.problem(403);
        assert!(problem["detail"].as_str().unwrap().contains("some channels"), "{problem}");
    }
    fixture.assert_nothing_is_stored().await;
    assert!(post("/v1/notifications", &notification("a1", "")).await.status.is_success());
}

#[tokio::test(start_paused = true)]
async fn a_line_that_is_not_granted_is_refused_and_those_beside_it_are_taken() {
    let channels = Some(BTreeSet::from(["ios".parse().unwrap()]));
    let fixture = fixture(vec![granted("news", "acme", Grants { channels, ..Grants::of([Send]) })]);
    let good = notification("a1", "");
    let lines = format!("{good}\n{}\n{good}\n", good.replace("ios", "hooks"));
    let answer = post_lines(&fixture, "/v1/notifications", lines).await;
    let answers: Vec<serde_json::Value> =
        answer.text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let detail = r#""hooks" is not granted to this key: it has ios"#;
    assert_eq!(
        answers[1],
        json!({"line": 2, "error": {
            "status": 403, "pointer": "/channel", "detail": detail, "code": "not_granted",
        }})
    );
    assert_eq!(answers[3], json!({"accepted": 2, "replayed": 0, "refused": 1}));
    let broadcast = "{\"channel\":\"hooks\",\"content\":{}}\n\"a1\"\n".to_owned();
    let problem = post_lines(&fixture, "/v1/broadcasts", broadcast).await.problem(403);
    assert_eq!(problem["errors"][0]["line"], 1);
}

#[tokio::test(start_paused = true)]
async fn a_key_tells_its_holder_what_it_is_good_for() {
    let grants = Grants {
        channels: Some(BTreeSet::from(["ios".parse().unwrap()])),
        priorities: Some(BTreeSet::from([Priority::Normal, Priority::Bulk])),
        not_after: Some("2027-01-01T00:00:00Z".parse().unwrap()),
        requests_per_minute: std::num::NonZeroU32::new(600),
        ..Grants::of([Send])
    };
    let limited = fixture(vec![granted("news", "acme", grants)]);
    let told = call(&limited, "news", Method::GET, "/v1/keys/self", "").await.json();
    let expect = json!({
        "name": "news", "tenant": "acme", "scopes": ["send"], "channels": ["ios"],
        "priorities": ["normal", "bulk"], "from": null, "endpoints": null, "not_after": "2027-01-01T00:00:00.000Z",
        "requests_per_minute": 600,
    });
    assert_eq!(told, expect);
    let told = fixture(Vec::new()).get("/v1/keys/self").await.json();
    assert_eq!((&told["name"], &told["tenant"]), (&json!(null), &json!("default")));
    assert_eq!(told["scopes"].as_array().unwrap().len(), KeyScope::ALL.len());
}

#[tokio::test(start_paused = true)]
async fn a_key_is_good_up_to_its_last_instant() {
    let now = fixture(Vec::new()).now();
    let until = |last| Grants { not_after: Some(last), ..Grants::of(KeyScope::ALL) };
    let before = now.minus(std::time::Duration::from_millis(1));
    let fixture =
        fixture(vec![granted("now", "acme", until(now)), granted("old", "acme", until(before))]);
    assert_eq!(status(&fixture, "now", "GET", "/v1/channels").await, 200);
    let problem = call(&fixture, "old", Method::GET, "/v1/channels", "").await.problem(401);
    let detail = format!("the API key \"old\" was good until {before}: ask for a new one");
    assert_eq!(problem["detail"], detail);
}

/// A stream may last for days.
#[tokio::test]
async fn a_line_that_comes_behind_the_last_instant_of_its_key_is_refused() {
    let soon = fixture(Vec::new()).now().plus(std::time::Duration::from_secs(10));
    let grants = Grants { not_after: Some(soon), ..Grants::of([Send]) };
    let fixture = fixture(vec![granted("news", "acme", grants)]);
    let server = fixture.listen().await;
    let head = chunked_head("/v1/notifications", LINES);
    let head = head.replacen("\r\n", "\r\nauthorization: Bearer bfy_news\r\n", 1);
    let mut socket = connect(server.address, &head).await;
    let line = format!("{}\n", notification("a1", ""));
    write_chunk(&mut socket, line.as_bytes()).await;
    read_until(&mut socket, r#"{"line":1,"id":""#).await;
    tokio::time::pause();
    tokio::time::advance(std::time::Duration::from_secs(11)).await;
    tokio::time::resume();
    write_chunk(&mut socket, line.as_bytes()).await;
    let text = read_until(&mut socket, r#""line":2,"#).await;
    assert!(text.contains(r#"{"status":403,"detail":"the API key"#), "{text}");
    drop(socket);
    server.stop().await;
}

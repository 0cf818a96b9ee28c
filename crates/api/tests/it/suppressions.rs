//! The suppression list over HTTP.

use std::time::Duration;

use axum::body::Body;
use axum::http::{Method, Request, StatusCode};
use serde_json::{Value, json};
use store::{Operations as _, Suppression};

use crate::support::{JSON, LINES, fixture};

#[tokio::test(start_paused = true)]
async fn suppressions_are_added_listed_and_removed() {
    let fixture = fixture(Vec::new());
    let body = r#"{"channel":"ios","to":["a2","a1"],"reason":"asked to"}"#;
    let added = fixture.post("/v1/suppressions", JSON, body).await;
    assert_eq!((added.status, added.json()), (StatusCode::OK, json!({"suppressed": 2})));
    fixture.post("/v1/suppressions", JSON, r#"{"channel":"ios","to":"a3"}"#).await;
    let list = fixture.get("/v1/suppressions?channel=ios&limit=2").await.json();
    assert_eq!(list["next"], "a2");
    assert_eq!(list["items"][0]["to"], "a1");
    assert_eq!(list["items"][0]["reason"], "asked to");
    let rest = fixture.get("/v1/suppressions?channel=ios&limit=2&after=a2").await.json();
    assert_eq!((&rest["items"][0]["to"], &rest["next"]), (&json!("a3"), &json!(null)));

    let path = "/v1/suppressions?channel=ios&to=a1";
    let removed = fixture.call(Method::DELETE, path).await;
    assert_eq!(removed.status, StatusCode::NO_CONTENT);
    fixture.call(Method::DELETE, path).await.problem(404);
    for (body, pointer) in [
        (r#"{"channel":"ios","to":"zz"}"#, "/to"),
        (r#"{"channel":"ios","to":["a1","zz"]}"#, "/to/1"),
        (r#"{"channel":"ios","to":[1]}"#, "/to/0"),
        (r#"{"channel":"sms","to":"a1"}"#, "/channel"),
        (r#"{"to":"a1"}"#, "/channel"),
    ] {
        let problem = fixture.post("/v1/suppressions", JSON, body).await.problem(422);
        assert_eq!(problem["errors"][0]["pointer"], pointer);
    }
}

#[tokio::test(start_paused = true)]
async fn a_reason_is_cut_by_bytes_between_two_characters() {
    let fixture = fixture(Vec::new());
    let body =
        json!({"channel": "ios", "to": "a1", "reason": format!("-{}", "\u{fc}".repeat(200))});
    fixture.post("/v1/suppressions", JSON, body.to_string()).await;
    let list = fixture.get("/v1/suppressions?channel=ios").await.json();
    assert_eq!(list["items"][0]["reason"], format!("-{}", "\u{fc}".repeat(99)));
}

#[tokio::test(start_paused = true)]
async fn the_whole_list_is_exported_line_by_line() {
    let fixture = fixture(Vec::new());
    let digits: Vec<String> = (0..1_500).map(|number| format!("{number:x}")).collect();
    for channel in ["ios", "hooks"] {
        let body = json!({"channel": channel, "to": digits}).to_string();
        fixture.post("/v1/suppressions", JSON, body).await;
    }
    let export = async |query: &str| {
        let request = Request::get(format!("/v1/suppressions{query}")).header("accept", LINES);
        let lines = fixture.send(request.body(Body::empty()).unwrap()).await.lines();
        lines.iter().map(|line| format!("{} {}", line["channel"], line["to"])).collect::<Vec<_>>()
    };
    let all = export("").await;
    assert_eq!(all.len(), 3_000);
    assert!(all.is_sorted_by(|one, next| one < next), "each once, in order");
    let of_one = export("?channel=ios").await;
    assert_eq!(of_one.len(), 1_500);
    assert!(all.ends_with(&of_one));
    assert!(export("?channel=sms").await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn several_are_lifted_as_far_as_they_registered_anew() {
    let fixture = fixture(Vec::new());
    let gone = |channel: &str, to: &str, status| Suppression {
        channel: channel.parse().unwrap(),
        recipient: to.to_owned().into(),
        reason: String::new(),
        status,
        since: fixture.now(),
    };
    let listed = vec![gone("ios", "a1", 410), gone("ios", "a2", 0), gone("gone", "x y", 410)];
    fixture.store.suppress(listed, fixture.now()).await.unwrap();
    let lift =
        async |body: Value| fixture.post("/v1/suppressions/lift", JSON, body.to_string()).await;
    let before = json!({"channel": "ios", "to": "a1", "registered_at": "2020-01-01T00:00:00Z"});
    assert_eq!(lift(before).await.json(), json!({"lifted": 0, "unchanged": 1}));
    let now = fixture.now().to_string();
    let since = json!({"channel": "ios", "to": ["a1", "a2", "b1"], "registered_at": now});
    assert_eq!(lift(since).await.json(), json!({"lifted": 1, "unchanged": 2}));
    // A suppression on a channel that is no longer configured can be lifted; then the channel is unknown.
    let gone_channel = json!({"channel": "gone", "to": "x y"});
    assert_eq!(lift(gone_channel.clone()).await.json(), json!({"lifted": 1, "unchanged": 0}));
    let problem = lift(gone_channel).await.problem(422);
    let message = problem["errors"][0]["message"].as_str().unwrap();
    assert!(message.contains("the channels are") && message.contains("`ios`"), "{message}");
    for (body, pointer) in [
        (json!({"channel": "ios", "to": "a1", "registered_at": "soon"}), "/registered_at"),
        (
            json!({"channel": "ios", "to": "a1", "registered_at": "2999-01-01T00:00:00Z"}),
            "/registered_at",
        ),
        (json!({"channel": "Not a name", "to": "a1"}), "/channel"),
        (json!({"channel": "oss", "to": "a1"}), "/channel"),
        (json!({"channel": "ios", "to": ["a1", 1]}), "/to/1"),
    ] {
        assert_eq!(lift(body).await.problem(422)["errors"][0]["pointer"], pointer);
    }
}

#[tokio::test(start_paused = true)]
async fn changes_are_read_from_a_position_on() {
    let fixture = fixture(Vec::new());
    fixture.post("/v1/suppressions", JSON, r#"{"channel":"ios","to":"a1","reason":"asked"}"#).await;
    fixture.call(Method::DELETE, "/v1/suppressions?channel=ios&to=a1").await;
    let answer = fixture.get("/v1/suppressions/events?limit=1").await;
    let [line, end] = answer.lines().try_into().unwrap();
    let now = fixture.now().to_string();
    assert_eq!(
        line,
        json!({"position": "0-1", "at": now, "channel": "ios", "to": "a1", "change": "suppressed",
            "reason": "asked", "status": 0, "since": now})
    );
    assert_eq!(end, json!({"next": "0-1"}));
    let rest = fixture.get("/v1/suppressions/events?position=0-1").await.lines();
    assert_eq!(rest[0]["change"], "lifted");
    assert_eq!(rest[1], json!({"next": "0-2"}));
    fixture.get("/v1/suppressions/events?position=x").await.problem(400);
    fixture.get("/v1/suppressions/events?wait=26").await.problem(400);
}

#[tokio::test(start_paused = true)]
async fn who_waits_learns_of_a_change_as_soon_as_there_is_one() {
    let fixture = fixture(Vec::new());
    let start = fixture.now();
    let elapsed = || fixture.now().since(start).as_secs();
    let nothing = fixture.get("/v1/suppressions/events?wait=20").await.lines();
    assert_eq!((nothing, elapsed()), (vec![json!({"next": "0-0"})], 20));
    let change = async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        let body = r#"{"channel":"ios","to":"a1"}"#;
        fixture.post("/v1/suppressions", JSON, body).await;
    };
    let (lines, ()) = tokio::join!(fixture.get("/v1/suppressions/events?wait=20"), change);
    assert_eq!(lines.lines().len(), 2);
    assert!(elapsed() < 26);
}

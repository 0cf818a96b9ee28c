//! Fallbacks: each is checked when the notification is submitted.

use std::sync::Arc;

use notification::{Alternative, Fallback};
use serde_json::json;
use store::{Filter, ReadStore};

use crate::support::{Fixture, JSON, LINES, fixture, notification};

#[tokio::test(start_paused = true)]
async fn fallbacks_are_rendered_and_stored_with_their_notification() {
    let fixture = fixture(Vec::new());
    let more = r#","variables":{"name":"Ann"},"fallback":[
        {"channel":"hooks","to":"b1@x","content":{"dear": "{{ name }}"},"options":{"topic":"t"}},
        {"channel":"ios","to":"c1","template":"welcome"}]"#;
    let answer = fixture.post("/v1/notifications", JSON, notification("a1", more)).await;
    assert_eq!(answer.status, 201, "{}", answer.text);
    let stored = fixture.store.list(Filter::default(), None, 9).await.unwrap().items.remove(0);
    let next = vec![
        Alternative {
            channel: "hooks".parse().unwrap(),
            destination: "x".into(),
            recipient: "b1@x".into(),
            payload: r#"{"dear": "Ann"}"#.into(),
            options: r#"{"topic":"t"}"#.into(),
        },
        Alternative {
            channel: "ios".parse().unwrap(),
            destination: "h".into(),
            recipient: "c1".into(),
            payload: r#"{"hello":"Ann"}"#.into(),
            options: r#"{"topic":"t"}"#.into(),
        },
    ];
    assert_eq!(stored.content.unwrap().fallback, Some(Arc::new(Fallback { of: None, next })));
    let path = format!("/v1/notifications/{}", stored.id);
    let shown = fixture.get(&path).await.json();
    assert_eq!((&shown["fallback_of"], &shown["fallback_id"]), (&json!(null), &json!(null)));
}

#[tokio::test(start_paused = true)]
async fn a_fallback_that_cannot_be_is_told_by_its_pointer() {
    let check = async |fallback: &str, pointer: &str, part: &str| {
        let fixture = fixture(Vec::new());
        let body = notification("a1", &format!(r#","variables":{{}},"fallback":{fallback}"#));
        let problem = fixture.post("/v1/notifications", JSON, body).await.problem(422);
        let error = &problem["errors"][0];
        assert_eq!(error["pointer"], pointer, "{error}");
        assert!(error["message"].as_str().unwrap().contains(part), "{error}");
        fixture.assert_nothing_is_stored().await;
    };
    let good = r#"{"channel":"ios","to":"b1","content":{}}"#;
    let second = |bad: &str| format!("[{good},{bad}]");
    check("{}", "/fallback", "must be an array").await;
    check(
        &format!("[{good},{good},{good},{good}]"),
        "/fallback",
        "must have at most 3 items, has 4",
    )
    .await;
    check(&second("5"), "/fallback/1", "expected an object").await;
    check(&second(r#"{"to":"b1","content":{}}"#), "/fallback/1/channel", "is missing").await;
    check(&second(r#"{"channel":"ios","content":{}}"#), "/fallback/1/to", "is missing").await;
    check(&second(r#"{"channel":"ios","to":"b1"}"#), "/fallback/1/content", "is missing").await;
    check(
        &second(r#"{"channel":"sms","to":"b1","content":{}}"#),
        "/fallback/1/channel",
        "there is no channel",
    )
    .await;
    check(&second(r#"{"channel":"ios","to":"zz","content":{}}"#), "/fallback/1/to", "hexadecimal")
        .await;
    check(
        &second(r#"{"channel":"ios","to":"b1","content":{"bad":1}}"#),
        "/fallback/1/content/bad",
        "must not be there",
    )
    .await;
    check(
        &second(r#"{"channel":"ios","to":"b1","content":{},"priority":"bulk"}"#),
        "/fallback/1/priority",
        "is unknown",
    )
    .await;
    check(
        &second(r#"{"channel":"ios","to":"b1","content":{"x":"{{ y }}"}}"#),
        "/variables",
        "`y` is missing",
    )
    .await;
    check(
        &second(r#"{"channel":"ios","to":"b1","content":{"x":"{{ 1 2 }}"}}"#),
        "/fallback/1/content/x",
        "is no template",
    )
    .await;
    let large =
        format!(r#"{{"channel":"ios","to":"b1","content":{{"x":"{}"}}}}"#, "x".repeat(100_000));
    check(
        &format!("[{large},{large},{large}]"),
        "/fallback",
        "must have at most 262144 bytes together, has 3000",
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_key_stands_for_the_fallbacks_too() {
    let fixture = fixture(Vec::new());
    let post = async |to: &str| {
        let more = format!(
            r#","idempotency_key":"k","fallback":[{{"channel":"ios","to":"{to}","content":{{}}}}]"#
        );
        fixture.post("/v1/notifications", JSON, notification("a1", &more)).await
    };
    assert_eq!(post("b1").await.json()["replayed"], false);
    assert_eq!(post("b1").await.json()["replayed"], true);
    post("b2").await.problem(409);
}

/// The fallbacks of each notification, as channel, recipient and payload; in the order of recipients.
async fn stored(fixture: &Fixture) -> Vec<(String, Vec<(String, String, String)>)> {
    let page = fixture.store.list(Filter::default(), None, 100).await.unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let mut rows: Vec<_> = page
        .items
        .into_iter()
        .map(|history| {
            let next = history
                .content
                .iter()
                .flat_map(|it| &it.fallback)
                .flat_map(|fallback| &fallback.next);
            let next = next
                .map(|it| (it.channel.to_string(), it.recipient.to_string(), text(&it.payload)));
            (history.recipient.as_ref().unwrap().to_string(), next.collect())
        })
        .collect();
    rows.sort();
    rows
}

fn row(to: &str, next: &[(&str, &str, &str)]) -> (String, Vec<(String, String, String)>) {
    let next = next.iter().map(|(channel, to, payload)| {
        ((*channel).to_owned(), (*to).to_owned(), (*payload).to_owned())
    });
    (to.to_owned(), next.collect())
}

#[tokio::test(start_paused = true)]
async fn recipients_of_a_broadcast_say_where_its_fallbacks_reach_them() {
    let fixture = fixture(Vec::new());
    let head = r#"{"channel":"ios","content":{"a":1},"fallback":[{"channel":"hooks","content":{"b":1}},{"channel":"ios","template":"welcome"}],"variables":{"name":"you"}}"#;
    let lines = [
        head,
        r#""a1""#,
        r#"{"to":"a2","fallback":["b2@x"]}"#,
        r#"{"to":"a3","fallback":[null,"c3"],"variables":{"name":"Cy"}}"#,
        r#"{"to":"a4","fallback":["b4@x","c4"]}"#,
        r#"{"to":"a5","fallback":[]}"#,
    ];
    let answer = fixture.post("/v1/broadcasts", LINES, lines.join("\n")).await;
    assert_eq!((answer.status.as_u16(), &answer.json()["accepted"]), (201, &json!(5)));
    let whole = r#"{"channel":"ios","content":{},"fallback":[{"channel":"hooks","content":{"b":"{{ x }}"}}],"recipients":[{"to":"a6","fallback":["b6@x"]}]}"#;
    let answer = fixture.post("/v1/broadcasts", JSON, whole).await;
    assert_eq!(answer.status, 201, "{}", answer.text);
    let expect = [
        row("a1", &[]),
        row("a2", &[("hooks", "b2@x", r#"{"b":1}"#)]),
        row("a3", &[("ios", "c3", r#"{"hello":"Cy"}"#)]),
        row("a4", &[("hooks", "b4@x", r#"{"b":1}"#), ("ios", "c4", r#"{"hello":"you"}"#)]),
        row("a5", &[]),
        row("a6", &[("hooks", "b6@x", r#"{"b":"{{ x }}"}"#)]),
    ];
    assert_eq!(stored(&fixture).await, expect);
}

#[tokio::test(start_paused = true)]
async fn a_fallback_of_a_broadcast_that_cannot_be_is_told_by_its_place() {
    let check = async |fallback: &str, recipient: &str, line: u64, pointer: &str, part: &str| {
        let fixture = fixture(Vec::new());
        let head = format!(r#"{{"channel":"ios","content":{{}},"fallback":{fallback}}}"#);
        let body = format!("{head}\n\"a1\"\n{recipient}\n");
        let problem = fixture.post("/v1/broadcasts", LINES, body).await.problem(422);
        let error = &problem["errors"][0];
        assert_eq!((&error["pointer"], &error["line"]), (&json!(pointer), &json!(line)), "{error}");
        assert!(error["message"].as_str().unwrap().contains(part), "{error}");
        fixture.assert_nothing_is_stored().await;
    };
    let one = r#"[{"channel":"hooks","content":{}}]"#;
    let to = r#"[{"channel":"hooks","content":{},"to":"b@x"}]"#;
    check(to, "", 1, "/fallback/0/to", "is given by each recipient").await;
    check("{}", "", 1, "/fallback", "must be an array").await;
    check(r#"[{"channel":"sms","content":{}}]"#, "", 1, "/fallback/0/channel", "no channel").await;
    check(r#"[{"channel":"hooks","content":{"bad":1}}]"#, "", 1, "/fallback/0/content/bad", "")
        .await;
    check(r#"[{"channel":"hooks","template":"w"}]"#, "", 1, "/fallback/0/template", "no template")
        .await;
    check("[]", r#"{"to":"a2","fallback":["b@x"]}"#, 3, "/fallback", "has no `fallback`").await;
    check(one, r#"{"to":"a2","fallback":["b@x","c"]}"#, 3, "/fallback", "at most 1 addresses")
        .await;
    check(one, r#"{"to":"a2","fallback":[5]}"#, 3, "/fallback/0", "must be an address").await;
    check(one, r#"{"to":"a2","fallback":"b@x"}"#, 3, "/fallback", "must be an array").await;
    check(one, r#"{"to":"a2","fallback":["zz"]}"#, 3, "/fallback/0/to", "hexadecimal").await;
    check(one, r#"{"to":"a2","variables":{}}"#, 3, "/variables", "is no template").await;
    let named = r#"[{"channel":"hooks","template":"welcome"}]"#;
    check(named, r#"{"to":"a2","fallback":["b@x"]}"#, 3, "/variables", "`name` is missing").await;
}

//! Contents that are templates: rendered, checked and stored when they are submitted, or refused by line and pointer.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::{Grants, KeyScope};
use axum::http::Method;
use notification::{Bytes, Content};
use pipeline::Channels;
use pipeline::ingest::{TemplateSource, Templates};
use serde_json::{Value, json};
use store::{Filter, ReadStore};

use crate::keys::{call, granted, key};
use crate::support::{Fixture, JSON, LINES, fixture};

/// The stored contents, as `(recipient, payload, options)`, in the order of storing.
async fn stored(fixture: &Fixture) -> Vec<(String, String, String)> {
    let page = fixture.store.list(Filter::default(), None, 100).await.unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let items = page.items.into_iter().map(|history| {
        let content = history.content.unwrap();
        (history.recipient.unwrap().to_string(), text(&content.payload), text(&content.options))
    });
    items.collect()
}

fn row(to: &str, payload: &str, options: &str) -> (String, String, String) {
    (to.to_owned(), payload.to_owned(), options.to_owned())
}

#[tokio::test(start_paused = true)]
async fn a_notification_with_variables_is_stored_as_it_is_sent() {
    let fixture = fixture(Vec::new());
    let plain = r#"{"channel":"ios","to":"a0","content":{"hello":"{{ name }}"}}"#;
    let one = r#"{"channel":"ios","to":"a1","content":{"hello": "{{ name }}"},"options":{"topic":"{{ n }}"},"variables":{"name":"\"Ann\"","n":1}}"#;
    let named = r#"{"channel":"ios","to":"a2","template":"welcome","variables":{"name":"Bo"}}"#;
    for body in [plain, one, named] {
        let answer = fixture.post("/v1/notifications", JSON, body).await;
        assert_eq!(answer.status, 201, "{}", answer.text);
    }
    let expect = [
        row("a0", r#"{"hello":"{{ name }}"}"#, ""),
        row("a1", r#"{"hello": "\"Ann\""}"#, r#"{"topic":1}"#),
        row("a2", r#"{"hello":"Bo"}"#, r#"{"topic":"t"}"#),
    ];
    assert_eq!(stored(&fixture).await, expect);
}

#[tokio::test(start_paused = true)]
async fn recipients_of_a_broadcast_get_contents_of_their_own() {
    let fixture = fixture(Vec::new());
    let head = r#"{"channel":"ios","content":{"hello":"{{ name }}","shop":"{{ shop }}"},"variables":{"name":"you","shop":"S"}}"#;
    let lines = format!("{head}\n\"a1\"\n{{\"to\":\"a2\",\"variables\":{{\"name\":\"Bo\"}}}}\n");
    let answer = fixture.post("/v1/broadcasts", LINES, lines).await;
    assert_eq!((answer.status.as_u16(), &answer.json()["accepted"]), (201, &json!(2)));
    let whole = r#"{"channel":"ios","template":"welcome","variables":{},"recipients":[{"to":"a3","variables":{"name":"Cy"}}]}"#;
    let answer = fixture.post("/v1/broadcasts", JSON, whole).await;
    assert_eq!(answer.status, 201, "{}", answer.text);
    let constant = r#"{"channel":"ios","content":{"n":1},"variables":{},"recipients":[{"to":"a4","variables":{"x":1}}]}"#;
    let answer = fixture.post("/v1/broadcasts", JSON, constant).await;
    assert_eq!(answer.status, 201, "{}", answer.text);
    let expect = [
        row("a1", r#"{"hello":"you","shop":"S"}"#, ""),
        row("a2", r#"{"hello":"Bo","shop":"S"}"#, ""),
        row("a3", r#"{"hello":"Cy"}"#, r#"{"topic":"t"}"#),
        row("a4", r#"{"n":1}"#, ""),
    ];
    assert_eq!(stored(&fixture).await, expect);
}

#[tokio::test(start_paused = true)]
async fn a_broadcast_that_breaks_for_one_recipient_is_refused_whole() {
    let check = async |path: &str, kind: &str, body: String, error: Value| {
        let fixture = fixture(Vec::new());
        let problem = fixture.post(path, kind, body.clone()).await.problem(422);
        assert_eq!(problem["errors"], json!([error]), "{body}");
        fixture.assert_nothing_is_stored().await;
    };
    let lines = |head: &str, line: &str| {
        format!(
            "{{\"channel\":\"ios\",{head}}}\n{{\"to\":\"a1\",\"variables\":{{\"name\":\"x\"}}}}\n{line}\n"
        )
    };
    let template = r#""content":{"short":"{{ name }}"},"variables":{}"#;
    let missing = "`name` is missing: /content/short needs it";
    let body = lines(template, r#""a2""#);
    check(
        "/v1/broadcasts",
        LINES,
        body,
        json!({"pointer": "/variables", "line": 3, "message": missing}),
    )
    .await;
    let body = lines(template, r#"{"to":"a2","variables":{"name":"twenty-one characters"}}"#);
    let over = "with these, content: must have at most 30 bytes, has 33: 3 over";
    check(
        "/v1/broadcasts",
        LINES,
        body,
        json!({"pointer": "/variables", "line": 3, "message": over}),
    )
    .await;
    let body = lines(template, r#"{"to":"a2","variables":[]}"#);
    check(
        "/v1/broadcasts",
        LINES,
        body,
        json!({"pointer": "/variables", "line": 3, "message": "must be a JSON object"}),
    )
    .await;
    let no_template =
        "the broadcast's content is no template: give the broadcast `variables`, `{}` will do";
    let body = lines(r#""content":{}"#, r#""a2""#);
    check(
        "/v1/broadcasts",
        LINES,
        body,
        json!({"pointer": "/variables", "line": 2, "message": no_template}),
    )
    .await;
    let broken = lines(r#""content":{"x":"{% set y = 1 %}"},"variables":{}"#, "");
    let message =
        "`{% set %}` is not available: the statements are if, elif, else, endif, for, endfor";
    check(
        "/v1/broadcasts",
        LINES,
        broken,
        json!({"pointer": "/content/x", "line": 1, "message": message}),
    )
    .await;
    let whole = r#"{"channel":"ios","template":"welcome","recipients":["a1"]}"#.to_owned();
    let message = "`name` is missing: /content/hello needs it";
    check(
        "/v1/broadcasts",
        JSON,
        whole,
        json!({"pointer": "/recipients/0/variables", "message": message}),
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_template_that_cannot_be_is_told_by_its_pointer() {
    let check = async |fields: &str, pointer: &str, part: &str| {
        let fixture = fixture(Vec::new());
        let body = format!(r#"{{"channel":"ios","to":"a1",{fields}}}"#);
        let problem = fixture.post("/v1/notifications", JSON, body).await.problem(422);
        let error = &problem["errors"][0];
        assert_eq!(error["pointer"], pointer, "{error}");
        assert!(error["message"].as_str().unwrap().contains(part), "{error}");
        fixture.assert_nothing_is_stored().await;
    };
    check(r#""content":{},"template":"welcome""#, "/template", "give `content` or `template`")
        .await;
    check(
        r#""template":"welcom""#,
        "/template",
        "there is no template \"welcom\": the templates are `welcome`",
    )
    .await;
    check(r#""template":"welcome","options":{}"#, "/options", "are part of the template").await;
    check(r#""template":5"#, "/template", "must be a string").await;
    check(r#""content":{},"variables":5"#, "/variables", "must be a JSON object").await;
    check(r#""content":{"a":["x{{ 1 2 }}"]},"variables":{}"#, "/content/a/0", "is no template")
        .await;
    check(r#""content":{"bad":"{{ 1 }}"},"variables":{}"#, "/content/bad", "must not be there")
        .await;
    check(
        r#""content":{},"options":{"x":"{{ y }}"},"variables":{"y":1}"#,
        "/options/topic",
        "is missing",
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_key_stands_for_the_template_and_the_variables() {
    let fixture = fixture(Vec::new());
    let post = async |variables: &str| {
        let body = format!(
            r#"{{"channel":"ios","to":"a1","template":"welcome","variables":{variables},"idempotency_key":"k"}}"#
        );
        fixture.post("/v1/notifications", JSON, body).await
    };
    assert_eq!(post(r#"{"name":"Ann"}"#).await.json()["replayed"], false);
    assert_eq!(post(r#"{"name":"Ann"}"#).await.json()["replayed"], true);
    post(r#"{"name":"Bo"}"#).await.problem(409);
    assert_eq!(fixture.account().await.accepted, 1);
}

#[tokio::test(start_paused = true)]
async fn a_preview_shows_what_would_be_sent_and_stores_nothing() {
    let fixture = fixture(Vec::new());
    let body = r#"{"channel":"ios","to":"a1","template":"welcome","variables":{"name":"Ann"}}"#;
    let expect = json!({"content": {"hello": "Ann"}, "options": {"topic": "t"}, "bytes": 28, "accepted": true});
    assert_eq!(fixture.post("/v1/preview", JSON, body).await.json(), expect);
    let body = r#"{"channel":"ios","to":"a1","content":{"short":"{{ name }}"},"variables":{"name":"twenty-one characters"}}"#;
    let answer = fixture.post("/v1/preview", JSON, body).await;
    assert_eq!(answer.status, 200);
    let error =
        json!({"pointer": "/content", "message": "must have at most 30 bytes, has 33: 3 over"});
    let expect = json!({
        "content": {"short": "twenty-one characters"}, "options": null, "bytes": 33, "accepted": false, "error": error,
    });
    assert_eq!(answer.json(), expect);
    let body = r#"{"channel":"ios","to":"a1","template":"welcome"}"#;
    fixture.post("/v1/preview", JSON, body).await.problem(422);
    let body = r#"{"channel":"ios","to":"zz","content":{}}"#;
    fixture.post("/v1/preview", JSON, body).await.problem(422);
    fixture.assert_nothing_is_stored().await;
}

#[tokio::test(start_paused = true)]
async fn what_is_rendered_is_bounded_although_the_request_is_small() {
    let fixture = fixture(Vec::new());
    let variables = format!(r#"{{"x":"{}"}}"#, "x".repeat(60_000));
    let item = r#"{"channel":"ios","to":"a1","content":{"a":"{{ x }}{{ x }}{{ x }}{{ x }}"},"variables":VARIABLES}"#;
    let item = item.replace("VARIABLES", &variables);
    let body = format!("[{}]", vec![item; 80].join(","));
    let problem = fixture.post("/v1/notifications", JSON, body).await.problem(422);
    let detail = problem["detail"].as_str().unwrap();
    assert!(detail.starts_with("render to more than 16777216 bytes"), "{detail}");
    fixture.assert_nothing_is_stored().await;
}

/// Templates that are meant for channels, and one for any.
fn configured() -> Templates {
    let source = |content: &'static str, options: &'static str, channel: Option<&str>| {
        let (payload, options) = (Bytes::from_static(content.as_bytes()), options.into());
        let content = Content { payload, options, fallback: None };
        let channel = channel.map(|channel| channel.parse().unwrap());
        TemplateSource { content, channel, sample: None }
    };
    let mail = r#"{"subject":"For {{ user.name }}", "html":"{% for line in lines %}{{ loop.index }} {{ line }}{% endfor %}"}"#;
    let sources = [
        ("bye", source(r#"{"a":  1.0}"#, "", None)),
        ("invoice", source(mail, r#"{"topic":"{{ topic|default('t') }}"}"#, Some("mail"))),
        ("ping", source(r#"{"aps":"{{ user.name }}"}"#, "", Some("ios"))),
    ];
    let sources = sources.map(|(name, source)| (name.parse().unwrap(), source));
    Templates::compile(&BTreeMap::from(sources), &Channels::default()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn named_templates_are_listed_with_what_they_use() {
    let channels = Some(BTreeSet::from(["ios".parse().unwrap()]));
    let news = granted("news", "acme", Grants { channels, ..Grants::of([KeyScope::Read]) });
    let fixture = fixture(vec![news, key("acme", false)]);
    fixture.intake.replace(Arc::default(), configured());
    let list = async |name: &str, query: &str| {
        call(&fixture, name, Method::GET, &format!("/v1/templates{query}"), "").await
    };
    let all = list("acme", "").await;
    assert!(all.text.contains(r#""content":{"a":  1.0}"#), "{}", all.text);
    let all = all.json();
    assert_eq!((&all["items"][0]["name"], &all["next"]), (&json!("bye"), &Value::Null));
    assert_eq!(all["items"][0]["variables"], json!([]));
    let invoice = &all["items"][1];
    assert_eq!(invoice["variables"], json!(["lines", "topic", "user.name"]));
    assert_eq!(invoice["options"], json!({"topic": "{{ topic|default('t') }}"}));
    assert_eq!((&invoice["channel"], &all["items"][0]["channel"]), (&json!("mail"), &Value::Null));
    let names = async |name: &str, query: &str| -> Vec<Value> {
        let page = list(name, query).await.json();
        let items = page["items"].as_array().unwrap();
        items.iter().map(|item| item["name"].clone()).chain([page["next"].clone()]).collect()
    };
    assert_eq!(names("news", "").await, [json!("bye"), json!("ping"), Value::Null]);
    assert_eq!(names("acme", "?limit=1").await, ["bye", "bye"]);
    assert_eq!(
        names("acme", "?limit=2&after=bye").await,
        [json!("invoice"), json!("ping"), Value::Null]
    );
    list("acme", "?limit=101").await.problem(400);
}

#[tokio::test(start_paused = true)]
async fn a_page_of_templates_is_bounded_in_bytes() {
    let fixture = fixture(vec![key("acme", false)]);
    let sources = (0..300).map(|number| {
        let payload = format!(r#"{{"a":"{}"}}"#, "x".repeat(100_000));
        let content = Content { payload: payload.into(), ..Content::default() };
        let source = TemplateSource { content, ..TemplateSource::default() };
        (format!("t{number:03}").parse().unwrap(), source)
    });
    let templates = Templates::compile(&sources.collect(), &Channels::default()).unwrap();
    fixture.intake.replace(Arc::default(), templates);
    let (mut after, mut names) = (String::new(), Vec::new());
    loop {
        let path = format!("/v1/templates{after}");
        let answer = call(&fixture, "acme", Method::GET, &path, "").await;
        assert!(answer.text.len() < 400_000, "{} bytes", answer.text.len());
        let page = answer.json();
        names.extend(page["items"].as_array().unwrap().iter().map(|item| item["name"].clone()));
        let Some(next) = page["next"].as_str() else { break };
        after = format!("?after={next}");
    }
    names.dedup();
    assert_eq!(names.len(), 300);
}

//! Senders that a key is granted: addresses in `From` of mail, endpoints of webhooks.

use std::collections::BTreeSet;
use std::sync::Arc;

use api::{Grants, KeyScope, Keys};
use axum::http::Method;
use channel::Channel;
use channel::smtp::SmtpChannel;
use channel::webhook::WebhookChannel;
use pipeline::Channels;
use pipeline::ingest::{SenderGrants, Templates};
use serde_json::{Value, json};

use tokio::io::AsyncWriteExt;

use crate::grants::post_lines;
use crate::keys::{call, granted};
use crate::support::{Fixture, LINES, chunked_head, connect, fixture, read_until, write_chunk};

/// A fixture with the channel `mail`, whose own sender is `shop@example.com`, and `hooks`; the key `news` may send from `news@example.com`
/// and all of `news.example`, and to what lies below `https://a.example/team`.
fn limited() -> Fixture {
    let senders = SenderGrants {
        from: Some(["news@example.com", "@news.example"].map(|it| it.parse().unwrap()).into()),
        endpoints: Some(BTreeSet::from(["https://a.example/team".parse().unwrap()])),
    };
    let grants = Grants { senders: Arc::new(senders), ..Grants::of([KeyScope::Send]) };
    let fixture = fixture(vec![granted("news", "acme", grants)]);
    let settings = json!({ "relay": "smtp://127.0.0.1", "tls": "off", "from": "shop@example.com" });
    let mail = SmtpChannel::new(&serde_json::from_value(settings).unwrap()).unwrap();
    let settings = json!({ "secrets": ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"] });
    let hooks = WebhookChannel::new(&serde_json::from_value(settings).unwrap()).unwrap();
    let mut channels = Channels::default();
    let both: [(&str, Arc<dyn Channel>); 2] =
        [("mail", Arc::new(mail)), ("hooks", Arc::new(hooks))];
    for (name, channel) in both {
        channels.insert(name.parse().unwrap(), channel);
    }
    fixture.intake.replace(Arc::new(channels), Templates::default());
    fixture
}

fn mail(from: &Value) -> Value {
    let content = json!({ "from": from, "subject": "Hello", "text": "you" });
    json!({ "channel": "mail", "to": "ann@example.org", "content": content })
}

fn hook(to: &str) -> Value {
    json!({ "channel": "hooks", "to": to, "content": {} })
}

/// `own` with the members of `more`.
fn with(mut own: Value, more: Value) -> Value {
    let Value::Object(more) = more else { return own };
    own.as_object_mut().unwrap().extend(more);
    own
}

/// Pointer and message of what is refused of a POST, if it is.
async fn refused(fixture: &Fixture, path: &str, body: &Value) -> Option<(String, String)> {
    let answer = call(fixture, "news", Method::POST, path, &body.to_string()).await;
    if answer.status.is_success() {
        return None;
    }
    let problem = answer.problem(403);
    assert_eq!(problem["code"], "not_granted");
    let text = |field: &str| problem["errors"][0][field].as_str().unwrap().to_owned();
    Some((text("pointer"), text("message")))
}

#[tokio::test(start_paused = true)]
async fn a_mail_is_from_a_granted_address_after_it_is_rendered() {
    let fixture = limited();
    let check = async |body: Value, expect: &str| {
        for path in ["/v1/preview", "/v1/notifications"] {
            let refused = refused(&fixture, path, &body).await;
            assert_eq!(refused.map_or_else(String::new, |(pointer, _)| pointer), expect, "{body}");
        }
    };
    check(mail(&json!("news@example.com")), "").await;
    check(mail(&json!("The News <news@EXAMPLE.com>")), "").await;
    check(mail(&json!("any@news.example")), "").await;
    check(mail(&json!("boss@example.com")), "/content/from").await;
    check(mail(&json!("news@example.com <boss@example.com>")), "/content/from").await;
    check(mail(&json!("news@sub.news.example")), "/content/from").await;
    check(mail(&Value::Null), "/content/from").await;
    let templated =
        |who: &str| with(mail(&json!("{{ who }}")), json!({ "variables": { "who": who } }));
    check(templated("news@example.com"), "").await;
    check(templated("boss@example.com"), "/content/from").await;
    let fallback = |from: &str| {
        with(hook("https://a.example/team"), json!({ "fallback": [mail(&json!(from))] }))
    };
    check(fallback("news@example.com"), "").await;
    check(fallback("boss@example.com"), "/fallback/0/content/from").await;
    let (_, detail) = refused(&fixture, "/v1/preview", &mail(&Value::Null)).await.unwrap();
    assert_eq!(
        detail,
        r#""shop@example.com" is not granted to this key: it has @news.example, news@example.com"#
    );
}

#[tokio::test(start_paused = true)]
async fn a_webhook_goes_to_a_granted_endpoint() {
    let fixture = limited();
    for good in
        ["https://a.example/team", "https://A.example:443/team/x?y", "https://a.example/team?x"]
    {
        assert_eq!(refused(&fixture, "/v1/notifications", &hook(good)).await, None, "{good}");
    }
    for bad in [
        "https://a.example/",
        "https://a.example/teams",
        "https://a.example:8443/team",
        "https://b.example/team",
        "https://a.example/Team",
    ] {
        let (pointer, detail) = refused(&fixture, "/v1/notifications", &hook(bad)).await.unwrap();
        assert_eq!(pointer, "/to");
        assert!(detail.ends_with("it has https://a.example/team"), "{detail}");
    }
    // A path that leads out of the granted one is none at all.
    let escape = hook("https://a.example/team/%2e%2e/other").to_string();
    call(&fixture, "news", Method::POST, "/v1/notifications", &escape).await.problem(422);
}

#[tokio::test(start_paused = true)]
async fn a_broadcast_and_each_of_its_recipients_are_checked() {
    let fixture = limited();
    let whole = |content: Value, more: Value| with(content, more);
    let broadcast = async |body: Value| {
        let refused = refused(&fixture, "/v1/broadcasts", &body).await;
        refused.map_or_else(String::new, |(pointer, _)| pointer)
    };
    let without_to = |mut body: Value| {
        body.as_object_mut().unwrap().remove("to");
        body
    };
    let to = |recipients: &[&str]| json!({ "recipients": recipients });
    let mails = |from: &str| without_to(mail(&json!(from)));
    assert_eq!(
        broadcast(whole(mails("boss@example.com"), to(&["a@b.example"]))).await,
        "/content/from"
    );
    let hooks = || without_to(hook(""));
    let (good, bad) = ("https://a.example/team", "https://b.example/team");
    assert_eq!(broadcast(whole(hooks(), to(&[good, bad]))).await, "/recipients/1");
    let templated = with(mails("{{ who }}@example.com"), json!({ "variables": { "who": "news" } }));
    let boss = json!({ "to": "a@b.example", "variables": { "who": "boss" } });
    let own = with(templated.clone(), json!({ "recipients": ["c@b.example", boss] }));
    assert_eq!(broadcast(own).await, "/recipients/1/variables");
    let lines = format!("{templated}\n\"c@b.example\"\n{boss}\n");
    let problem = post_lines(&fixture, "/v1/broadcasts", lines).await.problem(403);
    let located = &problem["errors"][0];
    assert_eq!((&located["line"], &located["pointer"]), (&json!(3), &json!("/variables")));
    fixture.assert_nothing_is_stored().await;
    assert_eq!(broadcast(whole(hooks(), to(&[good]))).await, "");
    assert_eq!(broadcast(with(templated, to(&["c@b.example"]))).await, "");
}

#[tokio::test(start_paused = true)]
async fn a_line_of_a_stream_is_refused_and_those_beside_it_are_taken() {
    let fixture = limited();
    let (good, bad) = (mail(&json!("news@example.com")), mail(&json!("boss@example.com")));
    let several = json!([good, bad]);
    let whole = refused(&fixture, "/v1/notifications", &several).await.unwrap();
    assert_eq!(whole.0, "/1/content/from");
    fixture.assert_nothing_is_stored().await;
    let lines = post_lines(&fixture, "/v1/notifications", format!("{good}\n{bad}\n")).await.lines();
    assert_eq!(lines[1]["error"]["code"], "not_granted");
    assert_eq!(lines[1]["error"]["pointer"], "/content/from");
    assert_eq!(lines[2], json!({ "accepted": 1, "replayed": 0, "refused": 1 }));
    let again = call(&fixture, "news", Method::POST, "/v1/requeue", "").await.problem(403);
    assert!(again["detail"].as_str().unwrap().contains("senders alone"), "{again}");
}

/// The recipients of a broadcast may come for hours.
#[tokio::test]
async fn a_broadcast_is_not_created_by_a_key_that_was_narrowed_meanwhile() {
    let fixture = limited();
    let server = fixture.listen().await;
    let narrowed = |senders: SenderGrants| {
        let grants = Grants { senders: Arc::new(senders), ..Grants::of([KeyScope::Send]) };
        Keys::new(vec![granted("news", "acme", grants)])
    };
    let upload = async |keys: Keys, expect: &str| {
        let head = chunked_head("/v1/broadcasts", LINES);
        let head = head.replacen("\r\n", "\r\nauthorization: Bearer bfy_news\r\n", 1);
        let head = head.replacen("\r\n", "\r\nexpect: 100-continue\r\n", 1);
        let mut socket = connect(server.address, &head).await;
        // From then on its handler reads, with the key that it had.
        read_until(&mut socket, "100 Continue").await;
        let lines = format!("{}\n\"a@b.example\"\n", mail(&json!("news@example.com")));
        write_chunk(&mut socket, lines.replace(r#","to":"ann@example.org""#, "").as_bytes()).await;
        fixture.configured_keys.send_replace(keys);
        socket.write_all(b"0\r\n\r\n").await.unwrap();
        read_until(&mut socket, expect).await;
    };
    let from = |pattern: &str| Some(BTreeSet::from([pattern.parse().unwrap()]));
    upload(narrowed(SenderGrants::default()), "201 Created").await;
    let one = SenderGrants { from: from("news@example.com"), endpoints: None };
    upload(narrowed(one), "was narrowed while the recipients came").await;
    assert_eq!(fixture.account().await.accepted, 1);
    server.stop().await;
}

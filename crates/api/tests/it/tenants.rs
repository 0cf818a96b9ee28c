//! Operators name the tenant that a request is about.

use axum::http::Method;
use serde_json::{Value, json};

use crate::keys::{call, key};
use crate::support::{Answer, Fixture, fixture, notification};

/// A notification and a broadcast of `acme`, which wait, and the paths of both. `globex` has none.
async fn of_acme() -> (Fixture, String, String) {
    let fixture = fixture(vec![key("acme", false), key("globex", false), key("ops", true)]);
    let body = notification("a1", "");
    let made = call(&fixture, "acme", Method::POST, "/v1/notifications", &body).await;
    let one = made.header("location").to_owned();
    let body = r#"{"channel":"ios","content":{},"recipients":["a1"],"external_id":"news"}"#;
    let made = call(&fixture, "acme", Method::POST, "/v1/broadcasts", body).await;
    let broadcast = made.header("location").to_owned();
    (fixture, one, broadcast)
}

fn items(answer: &Answer) -> usize {
    answer.json()["items"].as_array().unwrap().len()
}

#[tokio::test(start_paused = true)]
async fn an_operator_reads_what_a_tenant_has() {
    let (fixture, one, broadcast) = of_acme().await;
    let get = async |name: &str, path: &str| call(&fixture, name, Method::GET, path, "").await;
    for path in [&one, &broadcast] {
        let named = format!("{path}?tenant=acme");
        assert_eq!(get("ops", &named).await.json(), get("acme", path).await.json());
        assert_eq!(get("acme", &named).await.json(), get("acme", path).await.json());
        get("ops", path).await.problem(404);
        get("ops", &format!("{path}?tenant=globex")).await.problem(404);
        get("globex", &named).await.problem(403);
        get("ops", &format!("{path}?tennant=acme")).await.problem(400);
    }
    let key = "/v1/notifications?to=a1&state=pending";
    for (list, count) in [("/v1/notifications?", 2), (key, 2), ("/v1/broadcasts?tag=x", 0)] {
        let named = format!("{list}&tenant=acme").replace("?&", "?");
        assert_eq!(items(&get("ops", &named).await), count, "{named}");
        assert_eq!(items(&get("ops", list).await), 0, "{list}");
        get("globex", &named).await.problem(403);
    }
    let listed = get("ops", "/v1/broadcasts?tenant=acme&external_id=news").await.json();
    assert_eq!(listed["items"][0]["accepted"], 1, "{listed}");
    assert_eq!(items(&get("ops", "/v1/broadcasts").await), 0);
}

#[tokio::test(start_paused = true)]
async fn an_operator_sees_what_is_paused_of_a_tenant() {
    let (fixture, _, broadcast) = of_acme().await;
    let id = broadcast.rsplit('/').next().unwrap();
    let call = async |name: &str, method, path: &str| call(&fixture, name, method, path, "").await;
    for scope in ["channel=ios", &format!("broadcast={id}")] {
        let path = format!("/v1/pause?{scope}&tenant=acme");
        assert!(call("ops", Method::POST, &path).await.status.is_success());
    }
    call("globex", Method::POST, "/v1/pause?channel=hooks").await.json();
    let now = [json!(fixture.now().to_string())];
    let get = async |name: &str, path: &str| call(name, Method::GET, path).await;
    let since = async |path: &str| -> Vec<Value> {
        let list = get("ops", path).await.json();
        let items = list["items"].as_array().unwrap();
        items.iter().map(|item| item["paused_since"].clone()).filter(|it| !it.is_null()).collect()
    };
    assert_eq!(since("/v1/channels?tenant=acme").await, now);
    assert_eq!(since("/v1/channels").await, [Value::Null; 0]);
    assert_eq!(since("/v1/broadcasts?tenant=acme").await, now);
    let read = get("ops", &format!("{broadcast}?tenant=acme")).await.json();
    assert_eq!(read["paused_since"], now[0]);
    get("globex", "/v1/channels?tenant=acme").await.problem(403);
    for (name, query, count) in
        [("ops", "", 3), ("ops", "?tenant=acme", 2), ("ops", "?tenant=ops", 0), ("acme", "", 2)]
    {
        assert_eq!(items(&get(name, &format!("/v1/pauses{query}")).await), count, "{name} {query}");
    }
    get("globex", "/v1/pauses?tenant=acme").await.problem(403);
    get("globex", "/v1/pauses?tennant=acme").await.problem(400);
}

#[tokio::test(start_paused = true)]
async fn an_operator_acts_for_a_tenant_and_the_trail_has_whom_it_concerns() {
    let (fixture, one, broadcast) = of_acme().await;
    let send_at = r#"{"send_at":"2027-01-01T00:00:00Z"}"#;
    // What a repetition comes to is of no interest here: one that is found is no 404.
    let acts = [
        (format!("{one}/resolve?as=dead"), "", 409),
        (format!("{one}/requeue?state=dead"), "", 409),
        (format!("{one}/reschedule?"), send_at, 200),
        (format!("{one}/cancel?"), "", 200),
        (format!("{broadcast}/reschedule?"), send_at, 200),
        (format!("{broadcast}/cancel?"), "", 200),
    ];
    for (path, body, status) in &acts {
        let path = path.trim_end_matches('?');
        let mark = if path.contains('?') { '&' } else { '?' };
        let post =
            async |name: &str, path: &str| call(&fixture, name, Method::POST, path, body).await;
        let named = format!("{path}{mark}tenant=acme");
        post("globex", &named).await.problem(403);
        post("ops", path).await.problem(404);
        let done = post("ops", &named).await;
        assert_eq!(done.status.as_u16(), *status, "{named}: {}", done.text);
        let trail = call(&fixture, "acme", Method::GET, "/v1/acts?limit=1", "").await.json();
        let act = &trail["items"][0];
        assert_eq!((&act["asked"], &act["status"]), (&json!(named), &json!(status)));
        assert_eq!((&act["caller"], &act["tenant"]), (&json!("ops"), &json!("acme")));
    }
    let account = call(&fixture, "acme", Method::GET, "/v1/account", "").await.json();
    assert_eq!(account["cancelled"], 2);
}

//! Labels: given with a notification or a broadcast, found and shown, and followed.

use axum::http::Method;
use notification::State;
use serde_json::{Value, json};

use crate::provider::{claim, create, end};
use crate::support::{Fixture, JSON, LINES, fixture, notification};

const ANN: &str = r#", "external_id": "user 42", "tags": ["order", "mail", "order"], "metadata": {"order": 7, "b": 1.10}"#;

/// Identifiers of what a list has.
async fn ids(fixture: &Fixture, query: &str) -> Vec<String> {
    let page = fixture.get(&format!("/v1/notifications?{query}")).await.json();
    assert_eq!(page["next"], Value::Null);
    let items = page["items"].as_array().unwrap();
    items.iter().map(|item| item["id"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_notification_is_shown_with_its_labels_and_found_by_each() {
    let fixture = fixture(Vec::new());
    let first = create(&fixture, "a1", ANN).await;
    let second = create(&fixture, "a1", r#", "tags": ["mail"], "idempotency_key": "k 1""#).await;
    let shown = fixture.get(&format!("/v1/notifications/{first}")).await;
    assert!(shown.text.contains(r#""metadata":{"order": 7, "b": 1.10}"#), "byte for byte");
    let shown = shown.json();
    assert_eq!(
        (&shown["external_id"], &shown["tags"]),
        (&json!("user 42"), &json!(["order", "mail"]))
    );
    let other = fixture.get(&format!("/v1/notifications/{second}")).await.json();
    assert_eq!((other.get("external_id"), other.get("metadata")), (None, None));

    assert_eq!(ids(&fixture, "external_id=user%2042").await, std::slice::from_ref(&first));
    assert_eq!(ids(&fixture, "tag=mail").await, [first.clone(), second.clone()]);
    assert_eq!(ids(&fixture, "tag=order").await, std::slice::from_ref(&first));
    assert_eq!(ids(&fixture, "tag=orde").await, [""; 0]);
    assert_eq!(ids(&fixture, "key=k%201").await, std::slice::from_ref(&second));
    assert_eq!(ids(&fixture, "key=k%201&tag=order").await, [""; 0]);
    assert_eq!(ids(&fixture, "key=k%202").await, [""; 0]);
    end(&fixture, claim(&fixture).await, State::Refused, "410 Unregistered").await;
    assert_eq!(ids(&fixture, "reason=Unregis&tag=order").await, [first]);
    assert_eq!(ids(&fixture, "reason=TooLarge").await, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn what_is_wrong_with_labels_is_said_and_they_are_part_of_what_a_key_stands_for() {
    let fixture = fixture(Vec::new());
    for (labels, pointer) in [
        (r#", "external_id": """#, "/external_id"),
        (r#", "external_id": 42"#, "/external_id"),
        (r#", "tags": "order""#, "/tags"),
        (r#", "tags": ["a", 7]"#, "/tags/1"),
        (r#", "tags": ["a", "b", "c", "d", "e", "f", "g", "h", "i"]"#, "/tags"),
        (r#", "metadata": [1]"#, "/metadata"),
    ] {
        let problem =
            fixture.post("/v1/notifications", JSON, notification("a1", labels)).await.problem(422);
        assert_eq!(problem["errors"][0]["pointer"], pointer, "{labels}");
    }
    let keyed = |labels: &str| notification("a1", &format!(r#", "idempotency_key": "k"{labels}"#));
    let post = async |labels: &str| fixture.post("/v1/notifications", JSON, keyed(labels)).await;
    assert_eq!(post(ANN).await.json()["replayed"], false);
    assert_eq!(post(ANN).await.json()["replayed"], true);
    for labels in ["", r#", "tags": ["order"]"#, &ANN.replace("42", "43"), &ANN.replace('7', "8")] {
        post(labels).await.problem(409);
    }
}

#[tokio::test(start_paused = true)]
async fn notifications_of_a_broadcast_have_its_tags_and_external_ids_of_their_own() {
    let fixture = fixture(Vec::new());
    let body = concat!(
        r#"{"channel":"ios","content":{},"external_id":"campaign","tags":["news"],"metadata":{"n":1}}"#,
        "\n\"a1\"\n",
        r#"{"to":"b2","external_id":"user 2"}"#,
        "\n"
    );
    let created = fixture.post("/v1/broadcasts", LINES, body).await.json();
    let id = created["id"].as_str().unwrap();
    let broadcast = fixture.get(&format!("/v1/broadcasts/{id}")).await.json();
    assert_eq!(broadcast["external_id"], "campaign");
    assert_eq!((&broadcast["tags"], &broadcast["metadata"]), (&json!(["news"]), &json!({"n": 1})));
    assert_eq!(ids(&fixture, "tag=news").await.len(), 2);
    assert_eq!(ids(&fixture, "external_id=user%202&tag=news").await.len(), 1);
    assert_eq!(ids(&fixture, "external_id=campaign").await, [""; 0]);

    for (query, found) in [("tag=news", 1), ("external_id=campaign&tag=news", 1), ("tag=other", 0)]
    {
        let page = fixture.get(&format!("/v1/broadcasts?{query}")).await.json();
        let items = page["items"].as_array().unwrap();
        assert_eq!(items.len(), found, "{query}");
        assert!(items.iter().all(|item| item["external_id"] == "campaign"));
    }

    let wrong = body.replace("user 2", "");
    let problem = fixture.post("/v1/broadcasts", LINES, wrong).await.problem(422);
    assert_eq!(problem["errors"][0]["pointer"], "/external_id");
}

#[tokio::test(start_paused = true)]
async fn a_broadcast_is_found_by_its_idempotency_key() {
    let fixture = fixture(Vec::new());
    for key in ["one", "two", "three"] {
        let head = json!({"channel": "ios", "content": {}, "idempotency_key": key});
        fixture.post("/v1/broadcasts", LINES, format!("{head}\n\"a1\"\n")).await.json();
    }
    let found = async |query: &str| {
        let page = fixture.get(&format!("/v1/broadcasts?{query}")).await.json();
        assert_eq!(page["next"], Value::Null);
        page["items"].as_array().unwrap().iter().map(|item| item["id"].clone()).collect::<Vec<_>>()
    };
    let all = found("").await;
    assert_eq!((all.len(), found("key=two").await), (3, all[1..2].to_vec()));
    assert_eq!(found("key=two&channel=hooks").await.len(), 0);
    assert_eq!(found("key=none").await.len(), 0);
    assert_eq!(ids(&fixture, "key=two").await, [""; 0], "no notification has it");
}

#[tokio::test(start_paused = true)]
async fn events_carry_labels_and_are_followed_by_tag() {
    let fixture = fixture(Vec::new());
    create(&fixture, "a1", ANN).await;
    create(&fixture, "b2", "").await;
    end(&fixture, claim(&fixture).await, State::Delivered, "").await;
    let lines = async |query: &str| {
        let answer = fixture.get(&format!("/v1/events?{query}")).await;
        let lines = answer.text.lines().map(|line| serde_json::from_str(line).unwrap());
        lines.collect::<Vec<Value>>()
    };
    let all = lines("").await;
    assert_eq!(all.len(), 3, "two events, and where they go on");
    assert_eq!(all[0]["external_id"], "user 42");
    assert_eq!(all[0]["metadata"], json!({"order": 7, "b": 1.1}));
    assert_eq!((all[1].get("tags"), all[1].get("external_id")), (None, None));
    let of_tag = lines("tag=mail").await;
    assert_eq!((of_tag.len(), &of_tag[0]["to"]), (2, &json!("a1")));
}

#[tokio::test(start_paused = true)]
async fn those_with_a_tag_are_requeued() {
    let fixture = fixture(Vec::new());
    let first = create(&fixture, "a1", ANN).await;
    create(&fixture, "b2", "").await;
    end(&fixture, claim(&fixture).await, State::Dead, "").await;
    let answer = fixture.call(Method::POST, "/v1/requeue?tag=order").await.json();
    assert_eq!((&answer["matched"], &answer["requeued"]), (&json!(1), &json!(1)));
    assert_eq!(ids(&fixture, "state=pending").await, [first]);
}

#[tokio::test(start_paused = true)]
async fn what_waits_with_a_label_or_for_a_recipient_is_cancelled() {
    let fixture = fixture(Vec::new());
    let sent = create(&fixture, "a1", ANN).await;
    end(&fixture, claim(&fixture).await, State::Delivered, "").await;
    create(&fixture, "a1", ANN).await;
    let under_way = claim(&fixture).await;
    for (to, more) in [("a1", ANN), ("b2", ANN), ("b2", ""), ("c3", r#", "tags": ["order"]"#)] {
        create(&fixture, to, more).await;
    }
    let cancel =
        async |query: &str| fixture.call(Method::POST, &format!("/v1/cancel?{query}")).await;
    let expect = |cancelled: u64, under_way: u64| {
        let at = fixture.now().to_string();
        json!({"tenant": "default", "scope": null, "at": at, "cancelled": cancelled, "under_way": under_way, "next": null})
    };
    for query in
        ["tag=order&all=true", "to=a1&priority=bulk", "tag=order&channel=ios&destination=h"]
    {
        cancel(query).await.problem(400);
    }
    assert_eq!(cancel("tag=order&dry_run=true").await.json(), expect(3, 1));
    assert_eq!(cancel("tag=order&channel=hooks").await.json(), expect(0, 0));
    assert_eq!(cancel("tag=order&external_id=user%2042").await.json(), expect(2, 1));
    assert_eq!(cancel("to=b2").await.json(), expect(1, 0));
    assert_eq!(ids(&fixture, "state=pending").await.len(), 1, "the one of c3");
    end(&fixture, under_way, State::Delivered, "").await;
    let sent = fixture.get(&format!("/v1/notifications/{sent}")).await.json();
    assert_eq!(sent["state"], "delivered");
}

#[tokio::test(start_paused = true)]
async fn everything_with_an_external_id_is_erased_and_its_addresses_are_forgotten() {
    let fixture = fixture(Vec::new());
    let list = r#"{"channel": "ios", "to": ["a1", "b2", "c3"], "reason": "asked to"}"#;
    let first = create(&fixture, "a1", ANN).await;
    let second = create(&fixture, "b2", r#", "external_id": "user 42""#).await;
    let other = create(&fixture, "c3", r#", "external_id": "user 4""#).await;
    end(&fixture, claim(&fixture).await, State::Delivered, "").await;
    let waits = create(&fixture, "d4", ANN).await;
    fixture.post("/v1/suppressions", JSON, list.to_owned()).await.json();
    let erase =
        async |query: &str| fixture.call(Method::DELETE, &format!("/v1/recipients?{query}")).await;
    erase("external_id=user%2042&to=a1").await.problem(400);
    erase("external_id=").await.problem(400);
    let answer = erase("external_id=user%2042").await.json();
    let expect =
        json!({"erased": 3, "cancelled": 1, "under_way": 0, "suppressions": 2, "next": null});
    assert_eq!(answer, expect);
    for id in [first, second, waits] {
        let shown = fixture.get(&format!("/v1/notifications/{id}")).await.json();
        assert_eq!((&shown["to"], shown.get("external_id")), (&Value::Null, None));
        assert_eq!((shown.get("tags"), shown.get("metadata")), (None, None));
    }
    assert_eq!(ids(&fixture, "external_id=user%204").await, [other]);
    let listed = fixture.get("/v1/suppressions?channel=ios").await.json();
    assert_eq!(listed["items"].as_array().unwrap().len(), 1);
    assert!(fixture.account().await.is_balanced());
}

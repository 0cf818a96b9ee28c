//! Another time for what waits, one by one or with its broadcast.

use axum::http::Method;
use notification::State;
use serde_json::{Value, json};
use std::time::Duration;

use crate::provider::{claim, create, end};
use crate::support::{Answer, Fixture, JSON, LINES, fixture};

async fn reschedule(fixture: &Fixture, path: &str, body: &Value) -> Answer {
    fixture.post(&format!("{path}/reschedule"), JSON, body.to_string()).await
}

#[tokio::test(start_paused = true)]
async fn one_goes_to_another_time_and_says_so() {
    let fixture = fixture(Vec::new());
    let (now, hour) = (fixture.now(), Duration::from_hours(1));
    let id = create(&fixture, "a1", "").await;
    let path = format!("/v1/notifications/{id}");
    let later = now.plus(hour);
    let one = json!({"rescheduled": 1, "under_way": 0, "ended": 0});
    for _ in 0..2 {
        let body = json!({"send_at": later.to_string()});
        assert_eq!(reschedule(&fixture, &path, &body).await.json(), one, "once, or twice");
    }
    let read = fixture.get(&path).await.json();
    assert_eq!((&read["state"], &read["attempts"]), (&json!("pending"), &json!([])));
    assert_eq!(read["next_attempt_at"], later.to_string());
    assert_eq!(claim(&fixture).await, []);
    // One that has passed means at once.
    let body = json!({"send_at": "2001-01-01T00:00:00Z"});
    assert_eq!(reschedule(&fixture, &path, &body).await.json(), one);
    assert_eq!(fixture.get(&path).await.json()["next_attempt_at"], now.to_string());
    let claimed = claim(&fixture).await;
    assert_eq!(claimed.len(), 1);
    let body = json!({"send_at": later.to_string()});
    let problem = reschedule(&fixture, &path, &body).await.problem(409);
    assert_eq!(problem["detail"], "too late: 1 under way, 0 ended");
    end(&fixture, claimed, State::Delivered, "").await;
    let problem = reschedule(&fixture, &path, &body).await.problem(409);
    assert_eq!(problem["detail"], "too late: 0 under way, 1 ended");
    assert_eq!(fixture.account().await.delivered, 1);
}

#[tokio::test(start_paused = true)]
async fn a_broadcast_goes_as_far_as_it_waits() {
    let fixture = fixture(Vec::new());
    let later = fixture.now().plus(Duration::from_hours(1));
    let body = "{\"channel\":\"ios\",\"content\":{\"n\":1}}\n\"a1\"\n\"a2\"\n\"a3\"\n";
    let created = fixture.post("/v1/broadcasts", LINES, body.to_owned()).await.json();
    let path = format!("/v1/broadcasts/{}", created["id"].as_str().unwrap());
    let body = json!({"send_at": later.to_string()});
    let answer = reschedule(&fixture, &path, &body).await.json();
    assert_eq!(answer, json!({"rescheduled": 3, "under_way": 0, "ended": 0}));
    let estimate = fixture.get(&path).await.json()["estimate"].clone();
    assert_eq!(
        (&estimate["state"], &estimate["earliest"]),
        (&json!("scheduled"), &body["send_at"])
    );
    let listed = fixture.get("/v1/broadcasts").await.json();
    assert_eq!(listed["items"][0]["due_at"], body["send_at"]);
    fixture.call(Method::POST, &format!("{path}/cancel")).await.json();
    let problem = reschedule(&fixture, &path, &body).await.problem(409);
    assert_eq!(problem["detail"], "too late: 0 under way, 3 ended");
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_done_is_refused_in_words() {
    let fixture = fixture(Vec::new());
    let soon = fixture.now().plus(Duration::from_mins(1));
    let id = create(&fixture, "a1", &format!(r#","expires_at":"{soon}""#)).await;
    let path = format!("/v1/notifications/{id}");
    for (body, pointer, words) in [
        (json!({}), "/send_at", "is missing"),
        (json!({"send_at": null}), "/send_at", "is missing"),
        (json!({"send_at": "tomorrow"}), "/send_at", ""),
        (json!({"send_at": 7}), "/send_at", "must be a string"),
        (json!({"send_at": "2099-01-01T00:00:00Z"}), "/send_at", "is too far ahead"),
        (json!({"send_at": soon.to_string()}), "/send_at", "name an earlier time"),
        (json!({"send_at": soon.to_string(), "expires_at": soon.to_string()}), "/expires_at", ""),
    ] {
        let problem = reschedule(&fixture, &path, &body).await.problem(422);
        assert_eq!(problem["errors"][0]["pointer"], pointer, "{body}: {problem}");
        assert!(problem["detail"].as_str().unwrap().contains(words), "{body}: {problem}");
    }
    let path_of_call = format!("{path}/reschedule");
    fixture.post(&path_of_call, JSON, "{".to_owned()).await.problem(400);
    fixture.post(&path_of_call, LINES, "{}".to_owned()).await.problem(415);
    let body = json!({"send_at": soon.to_string()});
    let unknown = "/v1/notifications/01993c5a-2b7a-8a41-8000-000000010000";
    reschedule(&fixture, unknown, &body).await.problem(404);
    let problem = reschedule(&fixture, "/v1/broadcasts/bc_7", &body).await.problem(404);
    assert_eq!(problem["detail"], "there is no broadcast bc_7");
    assert_eq!(claim(&fixture).await.len(), 1, "nothing has changed");
}

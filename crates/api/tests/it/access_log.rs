//! Lines of the log for requests, and their identifiers.

use std::io::{self, Write};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use api::AccessLog;
use axum::body::{Body, Bytes};
use axum::http::Request;
use serde_json::{Value, json};
use tokio::time::timeout;
use tracing_subscriber::fmt;

use crate::keys::key;
use crate::support::{Answer, Fixture, JSON, fixture, fixture_with_log, notification};

/// The log, as it was written.
#[derive(Debug, Clone, Default)]
pub(crate) struct LoggedText(Arc<Mutex<Vec<u8>>>);

impl Write for LoggedText {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl LoggedText {
    /// The log of this process. It is one for all threads: whether a line is written would otherwise depend on the other tests.
    pub(crate) fn of_process() -> &'static Self {
        static LOG: OnceLock<LoggedText> = OnceLock::new();
        LOG.get_or_init(|| {
            let log = Self::default();
            let writer = log.clone();
            let subscriber = fmt().json().flatten_event(true).with_target(false);
            let subscriber = subscriber.with_writer(move || writer.clone()).finish();
            tracing::subscriber::set_global_default(subscriber).unwrap();
            log
        })
    }

    /// The lines of requests whose identifier begins with `ours`, in order, without what differs from one run to another.
    pub(crate) fn lines(&self, ours: &str) -> Vec<Value> {
        let text = self.0.lock().unwrap();
        let lines = std::str::from_utf8(&text).unwrap().lines().map(serde_json::from_str);
        let mut lines: Vec<Value> = lines.map(Result::unwrap).collect();
        lines.retain(|line| line["id"].as_str().is_some_and(|id| id.starts_with(ours)));
        for line in &mut lines {
            for other in ["timestamp", "level", "message"] {
                line.as_object_mut().unwrap().remove(other);
            }
        }
        lines
    }
}

async fn post(fixture: &Fixture, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
    let mut request = Request::post(path).header("content-type", JSON);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    fixture.send(request.body(Body::from(body.to_owned())).unwrap()).await
}

#[tokio::test(start_paused = true)]
async fn a_line_says_whose_key_asked_for_what_and_how_it_ended_or_that_it_was_given_up() {
    let log = LoggedText::of_process();
    let fixture = fixture_with_log(vec![key("acme", false)], AccessLog::All);
    let ours = ("authorization", "Bearer bfy_acme");
    let id = |id| ("x-request-id", id);
    let body = notification("a1", "");
    let created = post(&fixture, "/v1/notifications", &[ours, id("line-1")], &body).await;
    let cancelled = post(&fixture, "/v1/cancel?all=true", &[ours, id("line-2")], "").await;
    let denied = post(&fixture, "/v1/prune", &[ours, id("line-3")], "").await;
    let unknown = post(&fixture, "/v1/cancel?all=true", &[id("line-4")], "").await;
    let nowhere = post(&fixture, "/nowhere", &[id("line-5")], "").await;
    let line = |id: &str, answer: &Answer| {
        let (status, bytes) = (answer.status.as_u16(), answer.text.len());
        json!({"id": id, "method": "POST", "status": status, "bytes": bytes, "ms": 0})
    };
    let of_acme = |id: &str, route: &str, answer: &Answer| {
        let mut line = line(id, answer);
        for (field, value) in [("key", "acme"), ("tenant", "acme"), ("route", route)] {
            line[field] = json!(value);
        }
        line
    };
    let given_up = Request::post("/v1/broadcasts/bc_1/reschedule")
        .header(ours.0, ours.1)
        .header("x-request-id", "line-6")
        .header("content-type", JSON)
        .body(Body::from_stream(futures_util::stream::pending::<io::Result<Bytes>>()));
    let given_up = timeout(Duration::from_secs(1), fixture.send(given_up.unwrap())).await;
    assert!(given_up.is_err(), "its body does not end");
    let mut of_nobody = line("line-4", &unknown);
    of_nobody["route"] = json!("/v1/cancel");
    let expect = [
        of_acme("line-1", "/v1/notifications", &created),
        of_acme("line-2", "/v1/cancel", &cancelled),
        of_acme("line-3", "/v1/prune", &denied),
        of_nobody,
        line("line-5", &nowhere),
        json!({
            "id": "line-6", "method": "POST", "route": "/v1/broadcasts/{id}/reschedule",
            "key": "acme", "tenant": "acme", "bytes": 0, "ms": 1000,
        }),
    ];
    assert_eq!(log.lines("line-"), expect);
    let statuses =
        [created, cancelled, denied, unknown, nowhere].map(|answer| answer.status.as_u16());
    assert_eq!(statuses, [201, 200, 403, 401, 404]);
}

/// As it comes: what changes something, and what a known key is not good for.
#[tokio::test(start_paused = true)]
async fn acts_and_refusals_of_known_keys_have_a_line_and_the_rest_has_none_unless_it_is_asked_for()
{
    // Before the first line: none is kept before.
    let log = LoggedText::of_process();
    let asked = async |access_log: AccessLog, ours: &str| {
        let fixture = fixture_with_log(vec![key("acme", false)], access_log);
        let (acme, unknown) =
            (("authorization", "Bearer bfy_acme"), ("authorization", "Bearer bfy_unknown"));
        let calls = [
            ("/v1/notifications", acme),
            ("/v1/pause?all=true", acme),
            ("/v1/prune", acme),
            ("/v1/pause?all=true", unknown),
            ("/nowhere", acme),
        ];
        let body = notification("a1", "");
        for (number, (path, authorization)) in calls.into_iter().enumerate() {
            let id = format!("{ours}{number}");
            post(&fixture, path, &[authorization, ("x-request-id", &id)], &body).await;
        }
        let lines = log.lines(ours);
        let place = |line: &Value| {
            let id = line["id"].as_str().unwrap();
            id.strip_prefix(ours).unwrap().parse().unwrap()
        };
        lines.iter().map(place).collect::<Vec<usize>>()
    };
    assert_eq!(asked(AccessLog::Acts, "acts-").await, [1, 2]);
    assert_eq!(asked(AccessLog::None, "none-").await, [0; 0]);
    assert_eq!(asked(AccessLog::All, "all-").await, [0, 1, 2, 3, 4]);
}

#[tokio::test(start_paused = true)]
async fn an_answer_has_the_identifier_that_its_request_was_given_or_one_of_its_own() {
    let fixture = fixture(Vec::new());
    let id = async |given: &str| {
        let answer = post(&fixture, "/v1/pause?all=true", &[("x-request-id", given)], "").await;
        answer.header("x-request-id").to_owned()
    };
    assert_eq!(id("7f-abc:9").await, "7f-abc:9");
    let long = "x".repeat(129);
    let made = [id("").await, id("two words").await, id(&long).await];
    for (i, own) in made.iter().enumerate() {
        assert!(own.len() > 16 && own.is_ascii() && !own.contains(' '), "{own}");
        assert!(!made[..i].contains(own), "{own}");
    }
    assert!(!fixture.get("/healthz").await.header("x-request-id").is_empty());
}

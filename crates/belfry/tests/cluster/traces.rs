//! Traces, as the receiver of the OpenTelemetry Collector gets them: from the request of a caller through a broker to each attempt, and on
//! to the application that was sent to.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use testbed::OtlpReceiver;

use crate::receiver::{Answer, Receiver};
use crate::support::{Cluster, Process, eventually};

/// The trace of a caller, and its span in that.
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const CALLER: &str = "00f067aa0ba902b7";

/// A span as it was received.
#[derive(Debug)]
struct ReceivedSpan {
    trace: String,
    id: String,
    parent: String,
    name: String,
    /// Server 2, client 3.
    kind: u64,
    /// The process that it is of.
    instance: String,
    attributes: BTreeMap<String, String>,
    is_error: bool,
    nanoseconds: u64,
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Attributes by name; a number is a text in OTLP's JSON, too.
fn attributes(of: &Value) -> BTreeMap<String, String> {
    let all = of["attributes"].as_array().into_iter().flatten();
    let value = |it: &Value| text(&it["value"]["stringValue"]) + &text(&it["value"]["intValue"]);
    all.map(|it| (text(&it["key"]), value(it))).collect()
}

/// All spans that `receiver` has, in the order of their beginning.
fn spans(receiver: &OtlpReceiver) -> Vec<ReceivedSpan> {
    let mut spans = Vec::new();
    for line in receiver.received().unwrap() {
        let request: Value = serde_json::from_str(&line).unwrap();
        for resource in request["resourceSpans"].as_array().unwrap() {
            let common = attributes(&resource["resource"]);
            assert_eq!(common["service.name"], "belfry");
            let scopes = resource["scopeSpans"].as_array().unwrap().iter();
            spans.extend(scopes.flat_map(|scope| scope["spans"].as_array().unwrap()).map(|span| {
                let at = |field: &str| span[field].as_str().unwrap().parse::<u64>().unwrap();
                let (began, ended) = (at("startTimeUnixNano"), at("endTimeUnixNano"));
                let span = ReceivedSpan {
                    trace: text(&span["traceId"]),
                    id: text(&span["spanId"]),
                    parent: text(&span["parentSpanId"]),
                    name: text(&span["name"]),
                    kind: span["kind"].as_u64().unwrap(),
                    instance: common["service.instance.id"].clone(),
                    attributes: attributes(span),
                    is_error: span["status"]["code"] == 2,
                    nanoseconds: ended.checked_sub(began).unwrap(),
                };
                (began, span)
            }));
        }
    }
    spans.sort_by_key(|(began, _)| *began);
    spans.into_iter().map(|(_, span)| span).collect()
}

fn traceparent(flags: &str) -> String {
    format!("traceparent: 00-{TRACE}-{CALLER}-{flags}\r\n")
}

/// Posts a notification for `receiver`, and gives its number.
fn notify(by: &Process, receiver: &Receiver, headers: &str) -> String {
    let body = json!({ "channel": "hooks", "to": receiver.url(), "content": {} });
    let created: Value =
        serde_json::from_str(&by.post("/v1/notifications", headers, &body)).unwrap();
    text(&created["id"])
}

#[test]
fn a_trace_goes_from_the_request_through_a_broker_to_each_attempt_and_on() {
    let (collector, hooks) = (OtlpReceiver::start().unwrap(), Receiver::start());
    let database = testbed::postgres::shared().unwrap().create().unwrap();
    let cluster = Cluster::new(database.url(), 0, &[])
        .with_queue(&testbed::rabbitmq::shared_url().unwrap())
        .with("BELFRY__TRACES__URL", collector.url())
        .with("BELFRY__TRACES__RATIO", "0");
    let (producer, consumer) =
        (cluster.start("produce", "producer"), cluster.start("consume", "consumer"));
    let names = [producer.name(), consumer.name()];

    // Tried twice, since the application is busy the first time.
    hooks.answer(Answer::Status(503));
    let id = notify(&producer, &hooks, &traceparent("01"));
    hooks.until("it was tried", |requests| requests.count(Answer::Status(503)) == 1);
    hooks.answer(Answer::Status(200));
    hooks.until("it was taken", |requests| requests.taken().count() == 1);
    // Neither is recorded: its caller records nothing, or gives no context that is one.
    for headers in [traceparent("00"), traceparent("01").repeat(2), String::new()] {
        notify(&producer, &hooks, &headers);
    }
    hooks.until("all were taken", |requests| requests.taken().count() == 4);
    cluster.drained(&producer, 4);
    // What waits is sent before they end.
    producer.stop();
    consumer.stop();

    let spans = spans(&collector);
    let [request, first, second] = &spans[..] else { panic!("{spans:?}") };
    assert!(spans.iter().all(|span| span.trace == TRACE), "{spans:?}");
    assert_eq!((&*request.parent, request.kind, &request.instance), (CALLER, 2, &names[0]));
    assert_eq!(request.name, "POST /v1/notifications");
    assert_eq!(request.attributes["http.response.status_code"], "201");
    assert!(!request.is_error && request.nanoseconds > 0);
    for (number, attempt) in [("1", first), ("2", second)] {
        assert_eq!((&attempt.parent, attempt.kind), (&request.id, 3), "{attempt:?}");
        assert_eq!((&*attempt.name, &attempt.instance), ("attempt hooks", &names[1]));
        let attributes = &attempt.attributes;
        assert_eq!(
            (&attributes["belfry.notification.id"], &*attributes["belfry.attempt"]),
            (&id, number)
        );
        assert_eq!(attributes["belfry.channel"], "hooks");
        assert!(attempt.nanoseconds > 0);
    }
    let told = |span: &ReceivedSpan| {
        [&span.attributes["belfry.verdict"], &span.attributes["belfry.code"]].map(String::clone)
    };
    assert_eq!((told(first), first.is_error), (["deferred".into(), "503".into()], true));
    assert_eq!((told(second), second.is_error), (["accepted".into(), "200".into()], false));
    assert_ne!(first.id, second.id);
    // The application goes on with the attempt that it got.
    let handed_on = |span: &ReceivedSpan| format!("00-{TRACE}-{}-01", span.id);
    let requests = hooks.requests();
    let none = String::new;
    let expected = [handed_on(first), handed_on(second), none(), none(), none()];
    assert_eq!(requests.traceparents(), expected);
}

#[test]
fn a_broadcast_is_one_trace_with_few_of_its_recipients() {
    let collector = OtlpReceiver::start().unwrap();
    let cluster = Cluster::on_disk(2_500, &[])
        .with("BELFRY__TRACES__URL", collector.url())
        .with("BELFRY__TRACES__RATIO", "1");
    let engine = cluster.start("serve", "engine");
    let recipients: Vec<String> = (0..2_500).map(bench::workload::token).collect();
    // At most once, which goes behind a fence.
    let body = json!({
        "channel": "ios", "content": { "aps": {} }, "recipients": recipients, "guarantee": "at_most_once",
    });
    engine.post("/v1/broadcasts", "", &body);
    cluster.drained(&engine, 2_500);
    engine.stop();

    let spans = spans(&collector);
    let request = spans.iter().find(|span| span.name == "POST /v1/broadcasts").unwrap();
    assert_eq!(request.parent, "", "it begins the trace");
    let attempts: Vec<_> = spans.iter().filter(|span| span.name == "attempt ios").collect();
    assert_eq!(attempts.len(), 3, "{attempts:?}");
    for attempt in attempts {
        assert_eq!((&attempt.trace, &attempt.parent), (&request.trace, &request.id));
        assert!(attempt.attributes.contains_key("belfry.broadcast.id"));
    }
    // Requests of the command that looked at the status are traced as well, each by itself.
    let looks = spans.iter().filter(|span| span.name == "GET /v1/status");
    assert!(looks.clone().count() > 0);
    assert!(looks.into_iter().all(|look| look.trace != request.trace));
}

#[test]
fn a_receiver_that_is_away_costs_spans_alone() {
    // Nothing listens at port 1.
    let (hooks, nowhere) = (Receiver::start(), "http://127.0.0.1:1/v1/traces");
    let cluster = Cluster::on_disk(0, &[])
        .with("BELFRY__TRACES__URL", nowhere)
        .with("BELFRY__TRACES__RATIO", "1");
    let engine = cluster.start("serve", "engine");
    notify(&engine, &hooks, "");
    cluster.drained(&engine, 1);
    let failed = || {
        let metrics = engine.fetch("/metrics").unwrap();
        let line =
            metrics.lines().find_map(|it| it.strip_prefix(r#"belfry_spans_total{fate="failed"} "#));
        line.and_then(|count| count.parse::<u64>().ok()).unwrap_or_default()
    };
    eventually("they are lost", || failed() >= 2);
    let said = engine.said();
    assert!(said.contains("spans of traces are lost"), "{said}");
    assert!(said.contains("Connection refused"), "{said}");
    engine.stop();
}

//! Traces of requests: which are recorded, what is told of them, and that what they hand in is part of them.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use api::RequestTraces;
use axum::body::Body;
use axum::http::{Method, Request};
use notification::{Chunk, TraceContext, TraceParent};
use pipeline::spans::{SpanKind, SpanSink, SpanValue, TraceSpan};
use serde_json::{Value, json};

use crate::access_log::LoggedText;
use crate::estimate::claim_all;
use crate::keys::key;
use crate::support::{Fixture, JSON, LINES, NOW, fixture_with_traces, notification};

const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// Keeps spans.
#[derive(Debug, Default)]
struct KeptSpans(Mutex<Vec<TraceSpan>>);

impl SpanSink for KeptSpans {
    fn record(&self, span: TraceSpan) {
        self.0.lock().unwrap().push(span);
    }
}

impl KeptSpans {
    fn take(&self) -> Vec<TraceSpan> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

fn traced(ratio: f64, follows_callers: bool) -> (Fixture, Arc<KeptSpans>) {
    let sink = Arc::new(KeptSpans::default());
    let traces = RequestTraces::new(Arc::clone(&sink) as _, ratio, follows_callers, [1, 2, 3]);
    (fixture_with_traces(traces, Vec::new()), sink)
}

/// Asks with these headers.
async fn asked(fixture: &Fixture, (method, path): (Method, &str), headers: &[(&str, &str)]) -> u16 {
    let mut request = Request::builder().method(method).uri(path).header("content-type", JSON);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let body = Body::from(notification("a1", ""));
    fixture.send(request.body(body).unwrap()).await.status.as_u16()
}

/// The trace of each notification that was handed in since the last call.
async fn stored(fixture: &Fixture) -> Vec<Option<TraceContext>> {
    let traces = |chunk: &Chunk| -> Vec<_> {
        chunk.deliveries.iter().map(|delivery| chunk.trace(delivery.index)).collect()
    };
    claim_all(fixture).await.iter().flat_map(traces).collect()
}

const POST: (Method, &str) = (Method::POST, "/v1/notifications");

#[tokio::test(start_paused = true)]
async fn a_caller_decides_whether_its_request_is_traced() {
    let (fixture, sink) = traced(0.0, true);
    let unsampled = PARENT.replace("-01", "-00");
    let none: [&[(&str, &str)]; 4] = [
        &[],
        &[("traceparent", &unsampled)],
        &[("traceparent", "nonsense")],
        &[("traceparent", PARENT), ("traceparent", PARENT)],
    ];
    for headers in none {
        assert_eq!(asked(&fixture, POST, headers).await, 201);
    }
    assert_eq!((stored(&fixture).await, sink.take()), (vec![None; 4], vec![]));
    let sampled = [("traceparent", PARENT), ("x-request-id", "mine")];
    assert_eq!(asked(&fixture, POST, &sampled).await, 201);
    let [span] = &sink.take()[..] else { panic!("one request was traced") };
    let parent = TraceParent::parse(PARENT.as_bytes()).unwrap().context;
    assert_eq!(stored(&fixture).await, [Some(span.context)]);
    assert_eq!((span.context.trace, span.parent), (parent.trace, Some(parent.span)));
    assert_ne!(span.context.span, parent.span);
    assert_eq!((span.kind, &*span.name), (SpanKind::Server, "POST /v1/notifications"));
    assert_eq!((span.began_at, &span.error), (NOW, &None));
    for (name, value) in [
        ("http.request.method", SpanValue::from("POST")),
        ("http.route", "/v1/notifications".into()),
        ("http.response.status_code", SpanValue::Number(201)),
        ("belfry.request.id", "mine".into()),
        ("belfry.tenant", "default".into()),
    ] {
        assert!(span.attributes.contains(&(name, value)), "{name}: {span:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn of_a_list_and_of_a_stream_each_thousandth_is_traced() {
    let one = notification("a1", "");
    let list = format!("[{}]", vec![one.as_str(); 1_500].join(","));
    let lines = format!("{one}\n").repeat(2_001);
    for (content_type, body, traced_ones) in
        [(JSON, list, [0, 1_000].as_slice()), (LINES, lines, &[0, 1_000, 2_000])]
    {
        let (fixture, sink) = traced(0.0, true);
        let request = Request::post("/v1/notifications").header("content-type", content_type);
        let request = request.header("traceparent", PARENT).body(Body::from(body));
        fixture.send(request.unwrap()).await;
        let traces = stored(&fixture).await;
        let places = traces.iter().enumerate().filter_map(|(place, trace)| trace.map(|_| place));
        let places: Vec<_> = places.collect();
        assert_eq!((&places[..], sink.take().len()), (traced_ones, 1), "{content_type}");
    }
}

#[tokio::test(start_paused = true)]
async fn callers_without_a_known_key_are_not_traced() {
    let sink = Arc::new(KeptSpans::default());
    let traces = RequestTraces::new(Arc::clone(&sink) as _, 1.0, true, [1, 2, 3]);
    let fixture = fixture_with_traces(traces, vec![key("acme", false)]);
    for (authorization, count) in [("Bearer bfy_wrong", 0), ("Bearer bfy_acme", 1)] {
        let headers = [("traceparent", PARENT), ("authorization", authorization)];
        asked(&fixture, POST, &headers).await;
        assert_eq!(sink.take().len(), count, "{authorization}");
    }
}

#[tokio::test(start_paused = true)]
async fn of_the_rest_a_part_is_traced() {
    let (fixture, sink) = traced(0.25, true);
    for _ in 0..400 {
        asked(&fixture, (Method::GET, "/v1/channels"), &[]).await;
    }
    let spans = sink.take();
    assert!((60..140).contains(&spans.len()), "{}", spans.len());
    assert!(spans.iter().all(|span| span.parent.is_none()), "they begin traces");
    let traces: HashSet<_> = spans.iter().map(|span| span.context.trace).collect();
    assert_eq!(traces.len(), spans.len());
    // Callers that trace everything are not followed, and those that are traced stay in their trace.
    let (fixture, sink) = traced(0.25, false);
    for _ in 0..400 {
        asked(&fixture, (Method::GET, "/v1/channels"), &[("traceparent", PARENT)]).await;
    }
    let spans = sink.take();
    assert!((60..140).contains(&spans.len()), "{}", spans.len());
    let parent = TraceParent::parse(PARENT.as_bytes()).unwrap().context;
    assert!(
        spans
            .iter()
            .all(|span| (span.context.trace, span.parent) == (parent.trace, Some(parent.span)))
    );
}

#[tokio::test(start_paused = true)]
async fn probes_and_paths_that_are_none_are_not_traced_and_refusals_are_no_errors() {
    let (fixture, sink) = traced(1.0, true);
    for path in ["/healthz", "/readyz", "/metrics", "/dashboard", "/nowhere"] {
        asked(&fixture, (Method::GET, path), &[("traceparent", PARENT)]).await;
    }
    assert_eq!(sink.take(), []);
    assert_eq!(asked(&fixture, (Method::GET, "/v1/broadcasts/nonsense"), &[]).await, 404);
    let [span] = &sink.take()[..] else { panic!("one request was traced") };
    assert_eq!((&*span.name, &span.error), ("GET /v1/broadcasts/{id}", &None));
}

#[tokio::test(start_paused = true)]
async fn the_log_names_the_trace_of_a_request() {
    let log = LoggedText::of_process();
    let (fixture, _sink) = traced(0.0, true);
    let headers = [("traceparent", PARENT), ("x-request-id", "traced-1")];
    asked(&fixture, POST, &headers).await;
    asked(&fixture, POST, &[("x-request-id", "traced-2")]).await;
    let traces: Vec<Value> =
        log.lines("traced-").into_iter().map(|line| line["trace"].clone()).collect();
    assert_eq!(traces, [json!("4bf92f3577b34da6a3ce929d0e0e4736"), Value::Null]);
}

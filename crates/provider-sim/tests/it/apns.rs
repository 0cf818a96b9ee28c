//! The APNs provider as a client sees it.

use std::time::Duration;

use crate::support::{
    PAYLOAD, Sim, answer, device, id, now_s, public_key_pem, push, signed_token, signing_key,
    unsigned_token,
};
use bytes::Bytes;
use h2::Reason;
use http::{HeaderValue, Method, Request, StatusCode, Uri};
use provider_sim::journal::JournalStatus;

/// A good request with one thing changed.
fn with(change: impl FnOnce(&mut Request<()>)) -> Request<()> {
    let mut request = push(&id(1), &device(1));
    change(&mut request);
    request
}

fn header(name: &'static str, value: &str) -> Request<()> {
    with(|request| {
        request.headers_mut().insert(name, HeaderValue::from_str(value).unwrap());
    })
}

fn without(name: &str) -> Request<()> {
    with(|request| drop(request.headers_mut().remove(name)))
}

fn path(path: &str) -> Request<()> {
    let uri = Uri::try_from(format!("https://localhost{path}")).unwrap();
    with(|request| *request.uri_mut() = uri)
}

fn payload(bytes: usize) -> Bytes {
    format!("{{{}}}", " ".repeat(bytes - 2)).into()
}

/// Sends every request on one connection and compares the reasons.
async fn check(cases: Vec<(Request<()>, Bytes, u16, &str)>) {
    let sim = Sim::start(|_| {});
    let mut client = sim.apns().await;
    let count = cases.len();
    for (request, body, status, reason) in cases {
        let answer = client.ask(request, body).await.unwrap();
        assert_eq!((answer.status.as_u16(), answer.body), (status, reason_body(reason)));
    }
    assert_eq!(sim.summary().accepted(), 0);
    assert_eq!(sim.journal().len(), count);
}

#[tokio::test]
async fn a_wrong_address_or_token_has_its_documented_reason() {
    let good = || Bytes::from(PAYLOAD);
    let get = with(|request| *request.method_mut() = Method::GET);
    let not_hex = path(&format!("/3/device/{}", "xy".repeat(32)));
    let long_hex = path(&format!("/3/device/{}", "ab".repeat(101)));
    let old = header("authorization", &signed_token(&signing_key(), "TEAM", now_s() - 3700));
    check(vec![
        (get, good(), 405, "MethodNotAllowed"),
        (path("/3/devices/00"), good(), 404, "BadPath"),
        (path("/3/device/"), good(), 400, "MissingDeviceToken"),
        (path("/3/device/abcd"), good(), 400, "BadDeviceToken"),
        (not_hex, good(), 400, "BadDeviceToken"),
        (long_hex, good(), 400, "BadDeviceToken"),
        (without("apns-topic"), good(), 400, "MissingTopic"),
        (without("authorization"), good(), 403, "MissingProviderToken"),
        (header("authorization", "basic abc"), good(), 403, "MissingProviderToken"),
        (header("authorization", "bearer nonsense"), good(), 403, "InvalidProviderToken"),
        (old, good(), 403, "ExpiredProviderToken"),
    ])
    .await;
}

#[tokio::test]
async fn a_wrong_header_or_payload_has_its_documented_reason() {
    let good = || Bytes::from(PAYLOAD);
    let twice = with(|request| {
        request.headers_mut().append("apns-topic", HeaderValue::from_static("org.example.other"));
    });
    let voip = || header("apns-push-type", "voip");
    check(vec![
        (twice, good(), 400, "DuplicateHeaders"),
        (with(|_| {}), Bytes::new(), 400, "PayloadEmpty"),
        (with(|_| {}), "[1]".into(), 400, "PayloadEmpty"),
        (with(|_| {}), payload(4097), 413, "PayloadTooLarge"),
        (voip(), payload(5121), 413, "PayloadTooLarge"),
        (voip(), payload(100_000), 413, "PayloadTooLarge"),
        (header("apns-id", "not-a-uuid"), good(), 400, "BadMessageId"),
        (header("apns-priority", "7"), good(), 400, "BadPriority"),
        (header("apns-expiration", "tomorrow"), good(), 400, "BadExpirationDate"),
        (header("apns-push-type", "pigeon"), good(), 400, "InvalidPushType"),
        (header("apns-collapse-id", &"x".repeat(65)), good(), 400, "BadCollapseId"),
    ])
    .await;
}

fn reason_body(reason: &str) -> String {
    format!(r#"{{"reason":"{reason}"}}"#)
}

#[tokio::test]
async fn limits_are_inclusive() {
    let sim = Sim::start(|_| {});
    let mut client = sim.apns().await;
    let cases = [
        (with(|_| {}), payload(4096)),
        (header("apns-push-type", "voip"), payload(5120)),
        (header("apns-collapse-id", &"x".repeat(64)), PAYLOAD.into()),
        (path(&format!("/3/device/{}", "ab".repeat(100))), PAYLOAD.into()),
        (header("apns-expiration", "0"), PAYLOAD.into()),
        (without("apns-push-type"), PAYLOAD.into()),
    ];
    for (request, body) in cases {
        let answer = client.ask(request, body).await.unwrap();
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.body);
    }
}

#[tokio::test]
async fn answers_echo_the_id_or_make_one_up() {
    let sim = Sim::start(|_| {});
    let mut client = sim.apns().await;
    let given = client.ask(push(&id(7), &device(7)), PAYLOAD).await.unwrap();
    assert_eq!(given.headers["apns-id"], id(7).as_str());
    let made_up = client.ask(without("apns-id"), PAYLOAD).await.unwrap();
    let made_up = made_up.headers["apns-id"].to_str().unwrap().to_owned();
    assert_eq!(made_up.len(), 36);
    assert_eq!(sim.journal()[1].id, made_up);
}

#[tokio::test]
async fn a_record_is_there_when_its_answer_is() {
    let sim = Sim::start(|_| {});
    let mut client = sim.apns().await;
    let mut under_way = Vec::new();
    for number in 0..300 {
        let response = client.begin(push(&id(number), &device(number)), PAYLOAD).await.unwrap();
        under_way.push((number, response));
    }
    for (number, response) in under_way {
        assert_eq!(answer(response).await.unwrap().status, StatusCode::OK);
        let line = sim.journal().into_iter().find(|line| line.id == id(number)).unwrap();
        assert_eq!((line.status, line.recipient), (JournalStatus::Answered(200), device(number)));
    }
    let summary = sim.summary();
    assert_eq!((summary.records, summary.ids.accepted), (300, 300));
    assert_eq!((summary.ids.accepted_twice, summary.recipients.arrived_twice), (0, 0));
}

#[tokio::test]
async fn a_body_may_come_in_pieces() {
    let sim = Sim::start(|_| {});
    let mut client = sim.apns().await;
    let mut ready = client.send.clone().ready().await.unwrap();
    let (response, mut stream) = ready.send_request(push(&id(1), &device(1)), false).unwrap();
    // Another request in between shows that the first pieces alone were not enough.
    let (first, rest) = PAYLOAD.split_at(5);
    let (second, third) = rest.split_at(5);
    stream.send_data(Bytes::from(first), false).unwrap();
    client.push(&id(2), &device(2)).await.unwrap();
    stream.send_data(Bytes::from(second), false).unwrap();
    client.push(&id(3), &device(3)).await.unwrap();
    stream.send_data(Bytes::from(third), true).unwrap();
    assert_eq!(answer(response).await.unwrap().status, StatusCode::OK);
    let ids: Vec<String> = sim.journal().into_iter().map(|line| line.id).collect();
    assert_eq!(ids, [id(2), id(3), id(1)]);
}

#[tokio::test]
async fn a_request_reset_by_the_client_is_not_recorded() {
    let sim = Sim::start(|_| {});
    let mut client = sim.apns().await;
    let mut ready = client.send.clone().ready().await.unwrap();
    let (_response, mut stream) = ready.send_request(push(&id(1), &device(1)), false).unwrap();
    stream.send_data(Bytes::from(PAYLOAD), false).unwrap();
    client.push(&id(2), &device(2)).await.unwrap();
    stream.send_reset(Reason::CANCEL);
    client.push(&id(3), &device(3)).await.unwrap();
    let ids: Vec<String> = sim.journal().into_iter().map(|line| line.id).collect();
    assert_eq!(ids, [id(2), id(3)]);
}

#[tokio::test]
async fn signatures_are_verified_when_a_key_is_given() {
    let (key, other) = (signing_key(), signing_key());
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("key.pem");
    std::fs::write(&file, public_key_pem(&key)).unwrap();
    let sim = Sim::start(|options| options.apns_public_key = Some(file));
    let mut client = sim.apns().await;
    let now = now_s();
    let cases = [
        (signed_token(&key, "TEAM", now), 200),
        (signed_token(&key, "TEAM", now - 3500), 200),
        (signed_token(&other, "TEAM", now), 403),
        (signed_token(&key, "TEAM", now - 3700), 403),
        (signed_token(&key, "TEAM", now + 900), 403),
        (unsigned_token(), 403),
    ];
    for (authorization, status) in cases {
        let answer = client.ask(header("authorization", &authorization), PAYLOAD).await.unwrap();
        assert_eq!(answer.status.as_u16(), status, "{}", answer.body);
    }
}

#[tokio::test]
async fn a_team_that_renews_its_token_too_often_is_throttled() {
    let sim = Sim::start(|options| options.apns_token_interval = Duration::from_mins(20));
    let mut client = sim.apns().await;
    let key = signing_key();
    let first = signed_token(&key, "TEAM", now_s() - 10);
    let second = signed_token(&key, "TEAM", now_s());
    let of_other_team = signed_token(&key, "OTHER", now_s());
    for (authorization, status) in
        [(&first, 200), (&second, 429), (&of_other_team, 200), (&first, 200)]
    {
        let answer = client.ask(header("authorization", authorization), PAYLOAD).await.unwrap();
        assert_eq!(answer.status.as_u16(), status, "{}", answer.body);
    }
}

#[tokio::test]
async fn one_stream_is_allowed_until_a_valid_token_came() {
    let sim = Sim::start(|options| options.apns_single_stream = true);
    let mut client = sim.apns().await;
    let rejected = client.ask(header("authorization", "bearer bad"), PAYLOAD).await.unwrap();
    assert_eq!(rejected.status, StatusCode::FORBIDDEN);
    assert_eq!(client.send.current_max_send_streams(), 1);
    assert_eq!(client.push(&id(1), &device(1)).await.unwrap(), StatusCode::OK);
    // The higher limit leaves with the answer, and is there before the next one.
    assert_eq!(client.push(&id(2), &device(2)).await.unwrap(), StatusCode::OK);
    assert_eq!(client.send.current_max_send_streams(), 1000);
    for number in 3..50 {
        assert_eq!(client.push(&id(number), &device(number)).await.unwrap(), StatusCode::OK);
    }
}

#[tokio::test]
async fn a_stream_above_what_is_granted_is_refused_once_that_is_recorded() {
    let sim = Sim::start(|options| options.apns_single_stream = true);
    let mut client = sim.apns().await;
    // Both begin before the client reads what is granted, and the first is open as long as its body is not sent.
    let mut ready = client.send.clone().ready().await.unwrap();
    let (first, mut body) = ready.send_request(push(&id(1), &device(1)), false).unwrap();
    let second = client.begin(push(&id(2), &device(2)), PAYLOAD).await.unwrap();
    let error = answer(second).await.unwrap_err();
    assert_eq!(error.reason(), Some(Reason::REFUSED_STREAM));
    let lines = || sim.journal().into_iter().map(|line| (line.status, line.id)).collect::<Vec<_>>();
    let refused = (JournalStatus::Refuse, id(2));
    assert_eq!(lines(), std::slice::from_ref(&refused));
    body.send_data(PAYLOAD.into(), true).unwrap();
    assert_eq!(answer(first).await.unwrap().status, StatusCode::OK);
    assert_eq!(lines(), [refused, (JournalStatus::Answered(200), id(1))]);
}

#[tokio::test]
async fn the_stream_limit_is_announced() {
    let sim = Sim::start(|options| options.max_streams = 17.try_into().unwrap());
    let mut client = sim.apns().await;
    client.push(&id(1), &device(1)).await.unwrap();
    assert_eq!(client.send.current_max_send_streams(), 17);
}

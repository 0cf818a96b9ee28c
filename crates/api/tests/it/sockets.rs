//! Over real sockets: streams both ways, slow callers, callers that hang up.
//!
//! Time is paused: whenever everybody waits for the network, it jumps to the next timeout.

use axum::http::StatusCode;
use notification::limits;
use serde_json::Value;
use tokio::io::AsyncWriteExt;

use crate::support::{
    JSON, LINES, chunked_head, connect, fixture, notification, read_to_end, read_until, write_chunk,
};

#[tokio::test]
async fn a_line_is_answered_before_the_next_one_is_sent() {
    let fixture = fixture(Vec::new());
    let server = fixture.listen().await;
    let mut socket = connect(server.address, &chunked_head("/v1/notifications", LINES)).await;
    for line in 1..=3 {
        write_chunk(&mut socket, format!("{}\n", notification("a1", "")).as_bytes()).await;
        let text = read_until(&mut socket, &format!(r#"{{"line":{line},"id":""#)).await;
        assert!(!text.contains("refused"), "{text}");
        assert_eq!(fixture.account().await.accepted, line);
    }
    drop(socket);
    server.stop().await;
    assert_eq!(fixture.account().await.accepted, 3, "what was answered stays");
}

#[tokio::test]
async fn a_line_of_100_mb_is_refused_by_number_and_the_stream_goes_on() {
    let fixture = fixture(Vec::new());
    let server = fixture.listen().await;
    let mut socket = connect(server.address, &chunked_head("/v1/notifications", LINES)).await;
    let piece = vec![b'x'; 1024 * 1024];
    write_chunk(&mut socket, format!("{}\n", notification("a1", "")).as_bytes()).await;
    for _ in 0..100 {
        write_chunk(&mut socket, &piece).await;
    }
    write_chunk(&mut socket, format!("\n{}", notification("a2", "")).as_bytes()).await;
    socket.write_all(b"0\r\n\r\n").await.unwrap();
    let text = read_until(&mut socket, "\"refused\"").await;
    assert!(text.contains(r#"{"line":2,"error":{"status":413,"#), "{text}");
    assert!(text.contains(r#"{"line":3,"id":""#), "{text}");
    assert!(text.contains(r#"{"accepted":2,"replayed":0,"refused":1}"#), "{text}");
    drop(socket);
    server.stop().await;
}

#[tokio::test]
async fn a_refused_upload_is_answered_although_its_sender_is_still_writing() {
    let fixture = fixture(Vec::new());
    let server = fixture.listen().await;
    let mut socket = connect(server.address, &chunked_head("/v1/broadcasts", LINES)).await;
    write_chunk(&mut socket, b"{\"channel\":\"sms\",\"content\":{}}\n").await;
    let piece = "\"a1\"\n".repeat(100_000);
    for _ in 0..40 {
        write_chunk(&mut socket, piece.as_bytes()).await;
    }
    socket.write_all(b"0\r\n\r\n").await.unwrap();
    let text = read_until(&mut socket, "]}").await;
    assert!(text.starts_with("HTTP/1.1 422 "), "{text}");
    let (_, body) = text.split_once("\r\n\r\n").unwrap();
    let problem: Value = serde_json::from_str(body).unwrap();
    assert_eq!(problem["errors"][0]["pointer"], "/channel");
    drop(socket);
    server.stop().await;
    fixture.assert_nothing_is_stored().await;
}

#[tokio::test]
async fn a_broadcast_whose_caller_hangs_up_is_abandoned() {
    let fixture = fixture(Vec::new());
    let server = fixture.listen().await;
    let mut socket = connect(server.address, &chunked_head("/v1/broadcasts", LINES)).await;
    let head = r#"{"channel":"ios","content":{},"idempotency_key":"k"}"#;
    let piece = format!("{head}\n{}", "\"a1\"\n".repeat(20_000));
    write_chunk(&mut socket, piece.as_bytes()).await;
    drop(socket);
    server.stop().await;
    fixture.assert_nothing_is_stored().await;
    let body = format!("{head}\n\"a1\"");
    let again = fixture.post("/v1/broadcasts", LINES, body).await.json();
    assert_eq!((&again["accepted"], &again["replayed"]), (&1.into(), &false.into()));
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_is_too_slow_is_let_go() {
    let fixture = fixture(Vec::new());
    let server = fixture.listen().await;
    for head in ["", "GET /healthz HTTP/1.1\r\nhost"] {
        let mut socket = connect(server.address, head).await;
        assert_eq!(read_to_end(&mut socket).await, "");
    }
    let head = "POST /v1/notifications HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
                content-length: 100\r\n\r\n{\"channel\":";
    let mut socket = connect(server.address, head).await;
    let text = read_to_end(&mut socket).await;
    assert!(text.starts_with("HTTP/1.1 408 "), "{text}");

    let mut socket = connect(server.address, &chunked_head("/v1/notifications", LINES)).await;
    write_chunk(&mut socket, format!("{}\n{{", notification("a1", "")).as_bytes()).await;
    let text = read_to_end(&mut socket).await;
    assert!(text.contains(r#"{"line":1,"id":""#), "{text}");
    assert!(text.contains(r#"{"error":{"status":408,"#), "{text}");
    assert!(!text.contains("accepted"), "{text}");
    server.stop().await;
    assert_eq!(fixture.account().await.accepted, 1);
}

/// Five seconds for the first head; a connection that has asked once may be silent for longer, as those that are kept for the next call.
#[tokio::test(start_paused = true)]
async fn a_connection_that_asks_for_nothing_is_closed_soon_and_one_that_is_kept_later() {
    let fixture = fixture(Vec::new());
    let server = fixture.listen().await;
    let clock = flow::Clock::system();
    let began = clock.monotonic();
    let mut silent = connect(server.address, "GET /healthz HTTP/1.1\r\nho").await;
    assert_eq!(read_to_end(&mut silent).await, "");
    let waited = clock.monotonic().duration_since(began);
    assert!((5..6).contains(&waited.as_secs()), "{waited:?}");
    let mut kept = connect(server.address, "GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n").await;
    read_until(&mut kept, "\r\n\r\n").await;
    tokio::time::advance(std::time::Duration::from_secs(20)).await;
    kept.write_all(b"GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    assert!(read_until(&mut kept, "\r\n\r\n").await.starts_with("HTTP/1.1 200 "));
    drop(kept);
    server.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_does_not_read_its_answers_is_let_go() {
    let fixture = fixture(Vec::new());
    let server = fixture.listen().await;
    let mut socket = connect(server.address, &chunked_head("/v1/notifications", LINES)).await;
    let piece = format!("{:x}\r\n{}\r\n", 2 * 50_000, "x\n".repeat(50_000));
    let mut written = 0;
    while socket.write_all(piece.as_bytes()).await.is_ok() {
        written += 1;
        assert!(written < 1_000, "a caller that reads nothing is read from without end");
    }
    drop(socket);
    server.stop().await;
}

#[tokio::test]
async fn streams_that_wait_for_their_next_line_hold_no_memory() {
    let fixture = fixture(Vec::new());
    let server = fixture.listen().await;
    let mut idle = Vec::new();
    // As many at a time as would hold all memory ten times over, if each kept what it may use.
    for number in 1..=limits::INGEST_BYTES / limits::STREAM_BYTES * 10 {
        let mut socket = connect(server.address, &chunked_head("/v1/notifications", LINES)).await;
        write_chunk(&mut socket, format!("{}\n\n", notification("a1", "")).as_bytes()).await;
        read_until(&mut socket, r#"{"line":1,"id":""#).await;
        assert_eq!(fixture.account().await.accepted, number as u64);
        idle.push(socket);
    }
    let answer = fixture.post("/v1/notifications", JSON, notification("a2", "")).await;
    assert_eq!(answer.status, StatusCode::CREATED, "{}", answer.text);
    drop(idle);
    server.stop().await;
}

#[tokio::test]
async fn a_server_that_stops_finishes_what_it_was_asked() {
    let fixture = fixture(Vec::new());
    let server = fixture.listen().await;
    let body = notification("a1", "");
    let head = format!(
        "POST /v1/notifications HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         content-length: {}\r\nexpect: 100-continue\r\n\r\n",
        body.len()
    );
    let mut socket = connect(server.address, &head).await;
    read_until(&mut socket, "100 Continue\r\n\r\n").await;
    let stopped = server.stop();
    tokio::pin!(stopped);
    assert!(futures_util::poll!(&mut stopped).is_pending());
    socket.write_all(body.as_bytes()).await.unwrap();
    let text = read_to_end(&mut socket).await;
    assert!(text.starts_with("HTTP/1.1 201 "), "{text}");
    stopped.await;
    assert_eq!(fixture.account().await.accepted, 1);
}

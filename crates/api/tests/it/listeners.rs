//! Unix sockets, TLS handshakes, and the site that is left where operators have an address of their own.

use std::sync::Arc;

use api::{ApiListener, KeyScope, UnixSocket};
use axum::body::Body;
use axum::http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;
use tower::ServiceExt as _;

use crate::http2::TlsServer;
use crate::support::{connect, fixture, read_to_end};

#[tokio::test]
async fn a_unix_socket_has_as_many_connections_without_a_key_as_there_are_and_goes_with_the_server()
{
    let fixture = fixture(Vec::new());
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("api.sock");
    let socket = UnixSocket::bind(&path, 0o600).unwrap();
    let (mut tasks, stop) = fixture.serve(ApiListener::unix(socket));
    // More than an address of TCP may have. None has asked for anything, and none is closed.
    let mut silent = Vec::new();
    for _ in 0..api::limits::CONNECTIONS / api::limits::UNAUTHENTICATED_SHARE + 8 {
        silent.push(UnixStream::connect(&path).await.unwrap());
    }
    let mut caller = UnixStream::connect(&path).await.unwrap();
    caller
        .write_all(b"GET /healthz HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
        .await
        .unwrap();
    let mut text = String::new();
    caller.read_to_string(&mut text).await.unwrap();
    assert!(text.starts_with("HTTP/1.1 200 "), "{text}");
    drop(silent);
    stop.send(()).unwrap();
    tasks.drain().await;
    assert!(!path.exists(), "the file goes with the server");
}

/// The handshake and the first head share five seconds, whichever of them is missing.
#[tokio::test(start_paused = true)]
async fn a_connection_that_does_not_ask_in_time_is_closed_before_and_behind_the_handshake() {
    let fixture = fixture(Vec::new());
    let server = TlsServer::start(&fixture).await;
    let clock = flow::Clock::system();
    for protocol in ["", "http/1.1", "h2"] {
        let began = clock.monotonic();
        let mut socket = TcpStream::connect(server.address).await.unwrap();
        if protocol.is_empty() {
            assert_eq!(read_to_end(&mut socket).await, "");
        } else {
            let connector = TlsConnector::from(Arc::clone(&server.client(&[protocol])));
            let name = "localhost".try_into().unwrap();
            let mut stream = connector.connect(name, socket).await.unwrap();
            assert_eq!(stream.get_ref().1.alpn_protocol(), Some(protocol.as_bytes()));
            let mut bytes = Vec::new();
            // The server may leave without the farewell of TLS: it has not been asked for anything.
            stream.read_to_end(&mut bytes).await.ok();
        }
        let waited = clock.monotonic().duration_since(began);
        assert!((5..6).contains(&waited.as_secs()), "{protocol}: {waited:?}");
    }
    server.stop().await;
}

#[tokio::test]
async fn plain_http_at_a_port_with_tls_is_no_request() {
    let fixture = fixture(Vec::new());
    let server = TlsServer::start(&fixture).await;
    let mut socket = connect(server.address, "GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n").await;
    let mut bytes = Vec::new();
    socket.read_to_end(&mut bytes).await.ok();
    assert!(!String::from_utf8_lossy(&bytes).contains("HTTP/1.1"), "{bytes:?}");
    server.stop().await;
}

#[tokio::test]
async fn where_operators_have_an_address_the_other_one_answers_nothing_that_is_theirs() {
    let fixture = fixture(Vec::new());
    let mut theirs = 0;
    for (method, path, rule) in api::routes() {
        let is_theirs = rule.needs.contains(&KeyScope::Operate);
        theirs += usize::from(is_theirs);
        let request = || {
            let path = path.replace("{id}", "bc_1");
            Request::builder().method(method.clone()).uri(path).body(Body::empty()).unwrap()
        };
        let answer = fixture.public.router().clone().oneshot(request()).await.unwrap();
        let status = answer.status();
        let text = answer.into_body().collect().await.unwrap().to_bytes();
        let text = String::from_utf8_lossy(&text);
        let is_elsewhere = text.contains("at the operator's address alone");
        assert_eq!(is_elsewhere, is_theirs, "{method} {path}: {text}");
        assert!(!is_theirs || status == StatusCode::NOT_FOUND, "{method} {path}: {status}");
        let answer = fixture.operators.router().clone().oneshot(request()).await.unwrap();
        let text = answer.into_body().collect().await.unwrap().to_bytes();
        let text = String::from_utf8_lossy(&text);
        assert!(!text.contains("operator's address"), "{method} {path}: {text}");
    }
    assert!(theirs > 5, "{theirs}");
    for path in ["/healthz", "/readyz"] {
        let request = Request::get(path).body(Body::empty()).unwrap();
        let answer = fixture.public.router().clone().oneshot(request).await.unwrap();
        assert_ne!(answer.status(), StatusCode::NOT_FOUND, "{path}");
    }
}

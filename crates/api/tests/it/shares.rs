//! Shares of tenants, a hundred times exhausted by one: another one is answered, and the answers name the share.

use api::limits::{
    CONNECTIONS, OPERATOR_CONNECTIONS, STREAMS, TENANT_EVENT_STREAMS, TENANT_SHARE, TENANT_STREAMS,
};
use api::{ApiListener, UnixSocket};
use axum::body::Body;
use axum::http::{HeaderMap, Method, Request, StatusCode};
use bytes::Bytes;
use flow::Tasks;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use h2::client::{ResponseFuture, SendRequest};
use notification::limits::INGEST_TENANT_BYTES;
use pipeline::ingest::Reservation;
use store::Patience;
use tokio::net::{TcpStream, UnixStream};
use tower::ServiceExt as _;

use crate::keys::{call, granted, key};
use crate::support::{TenantAsked, connect, fixture, notification, read_to_end, read_until};

const CHANNELS: &str = "/v1/channels";

/// Asks for the channels with the key `name` by HTTP/1.1, and gives the head and the body of the answer.
async fn ask(socket: &mut TcpStream, name: &str) -> String {
    use tokio::io::AsyncWriteExt as _;
    let head =
        format!("GET {CHANNELS} HTTP/1.1\r\nhost: a\r\nauthorization: Bearer bfy_{name}\r\n\r\n");
    socket.write_all(head.as_bytes()).await.unwrap();
    read_until(socket, "}").await
}

/// Begins a request with the key `name` by HTTP/2.
async fn begin(requests: &SendRequest<Bytes>, name: &str, path: &str) -> ResponseFuture {
    let request = Request::get(format!("http://localhost{path}"))
        .header("authorization", format!("Bearer bfy_{name}"));
    let mut requests = requests.clone().ready().await.unwrap();
    requests.send_request(request.body(()).unwrap(), true).unwrap().0
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers.get(name).map_or("", |value| value.to_str().unwrap())
}

#[tokio::test]
async fn a_tenant_with_every_connection_it_may_have_is_told_so_and_others_are_served() {
    let fixture = fixture(vec![key("greedy", false), key("modest", false)]);
    let server = fixture.listen().await;
    let share = CONNECTIONS / TENANT_SHARE;
    let mut held = Vec::new();
    for _ in 0..2 * CONNECTIONS {
        let mut socket = connect(server.address, "").await;
        let text = ask(&mut socket, "greedy").await;
        if text.starts_with("HTTP/1.1 200 ") {
            held.push(socket);
            continue;
        }
        assert!(text.starts_with("HTTP/1.1 429 "), "{text}");
        assert!(text.contains("\"code\":\"tenant_connections\""), "{text}");
        for head in [
            "connection: close\r\n".to_owned(),
            "retry-after: 1\r\n".to_owned(),
            format!("ratelimit-policy: \"connections\";q={share};qu=\"concurrent-requests\"\r\n"),
            "ratelimit: \"connections\";r=0;t=1\r\n".to_owned(),
        ] {
            assert!(text.contains(&head), "{head}{text}");
        }
        assert_eq!(read_to_end(&mut socket).await, "", "it is closed");
    }
    // All but the part that is left for others, and the place that is set aside for the next caller.
    assert!((CONNECTIONS - share - 1..=CONNECTIONS - share).contains(&held.len()));
    let mut modest = Vec::new();
    for _ in 0..share {
        let mut socket = connect(server.address, "").await;
        assert!(ask(&mut socket, "modest").await.starts_with("HTTP/1.1 200 "));
        modest.push(socket);
    }
    // Of those that the greedy one has, its share is good. The others are wanted now.
    assert!(ask(&mut held[0], "greedy").await.starts_with("HTTP/1.1 200 "));
    let last = held.last_mut().unwrap();
    assert!(ask(last, "greedy").await.starts_with("HTTP/1.1 429 "));
    assert_eq!(read_to_end(last).await, "");
    drop((held, modest));
    server.stop().await;
}

#[tokio::test]
async fn a_connection_of_a_proxy_counts_for_the_tenant_that_came_last() {
    let tenants: Vec<String> = (0..10_000).map(|number| format!("t{number}")).collect();
    let fixture = fixture(tenants.iter().map(|name| key(name, false)).collect());
    let server = fixture.listen().await;
    // Many more tenants than there are connections.
    let mut proxy = Vec::new();
    for _ in 0..8 {
        proxy.push(connect(server.address, "").await);
    }
    for (number, name) in tenants.iter().enumerate() {
        let text = ask(&mut proxy[number % 8], name).await;
        assert!(text.starts_with("HTTP/1.1 200 "), "{name}: {text}");
    }
    drop(proxy);
    server.stop().await;
}

/// A server of operators on a Unix socket, and callers by HTTP/2.
struct UnixServer {
    directory: tempfile::TempDir,
    tasks: Tasks,
    stop: tokio::sync::oneshot::Sender<()>,
}

// === impl UnixServer ===

impl UnixServer {
    fn start(fixture: &crate::support::Fixture) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let socket = UnixSocket::bind(&directory.path().join("api.sock"), 0o600).unwrap();
        let (tasks, stop) = fixture.serve(ApiListener::unix(socket).for_operators());
        Self { directory, tasks, stop }
    }

    /// A connection, and the task that ends with it.
    async fn call(&self) -> (SendRequest<Bytes>, Tasks) {
        let socket = UnixStream::connect(self.directory.path().join("api.sock")).await.unwrap();
        let (requests, connection) = h2::client::handshake(socket).await.unwrap();
        let mut driver = Tasks::default();
        driver.spawn("connection", async { connection.await.unwrap_or_default() });
        (requests, driver)
    }

    async fn stop(mut self) {
        self.stop.send(()).unwrap();
        self.tasks.drain().await;
    }
}

#[tokio::test]
async fn a_connection_of_http2_beyond_the_share_is_told_to_go() {
    let fixture = fixture(vec![key("greedy", false), key("modest", false)]);
    let server = UnixServer::start(&fixture);
    let mut held = Vec::new();
    let (answer, requests, mut driver) = loop {
        let (requests, driver) = server.call().await;
        let answer = begin(&requests, "greedy", CHANNELS).await.await.unwrap();
        if answer.status() != 200 {
            break (answer, requests, driver);
        }
        held.push((requests, driver));
    };
    let most = OPERATOR_CONNECTIONS - OPERATOR_CONNECTIONS / TENANT_SHARE;
    assert!((most - 1..=most).contains(&held.len()));
    assert_eq!(
        (answer.status(), header(answer.headers(), "connection")),
        (StatusCode::TOO_MANY_REQUESTS, "")
    );
    drop((answer, requests));
    assert_eq!(driver.next().await, Some(Ok("connection")));
    let (requests, _driver) = server.call().await;
    assert_eq!(begin(&requests, "modest", CHANNELS).await.await.unwrap().status(), 200);
    drop((held, requests));
    server.stop().await;
}

#[tokio::test]
async fn requests_of_a_tenant_over_http2_are_bounded_and_another_is_answered_by_the_same_connections()
 {
    let fixture = fixture(vec![key("greedy", false), key("modest", false)]);
    let server = UnixServer::start(&fixture);
    let (beyond, streams) = (6, STREAMS as usize);
    let mut connections = Vec::new();
    let mut waiting = FuturesUnordered::new();
    for _ in 0..(TENANT_STREAMS + beyond).div_ceil(streams - 1) {
        connections.push(server.call().await);
    }
    for number in 0..TENANT_STREAMS + beyond {
        let (requests, _) = &connections[number / (streams - 1)];
        waiting.push(begin(requests, "greedy", "/v1/events?wait=25").await);
    }
    // The others wait for events.
    let refused: Vec<_> = waiting.by_ref().take(beyond).collect().await;
    for answer in refused {
        let answer = answer.unwrap();
        assert_eq!(answer.status(), StatusCode::TOO_MANY_REQUESTS);
        let policy = header(answer.headers(), "ratelimit-policy");
        assert_eq!(policy, r#""requests";q=1024;qu="concurrent-requests""#);
    }
    for (requests, _) in &connections {
        assert_eq!(begin(requests, "modest", CHANNELS).await.await.unwrap().status(), 200);
    }
    drop((waiting, connections));
    server.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_tenant_has_so_many_streams_of_events_and_another_finds_room() {
    let fixture = fixture(vec![key("greedy", false), key("modest", false)]);
    let open = async |name: &str| {
        let request = Request::get("/v1/events").header("accept", "text/event-stream");
        let request = request.header("authorization", format!("Bearer bfy_{name}"));
        fixture.site.router().clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap()
    };
    let mut held = Vec::new();
    for _ in 0..TENANT_EVENT_STREAMS {
        held.push(open("greedy").await);
    }
    assert!(held.iter().all(|answer| answer.status() == 200));
    let refused = open("greedy").await;
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    let policy = header(refused.headers(), "ratelimit-policy");
    assert_eq!(policy, r#""event-streams";q=16;qu="concurrent-requests""#);
    assert_eq!(open("modest").await.status(), 200);
    held.pop();
    assert_eq!(open("greedy").await.status(), 200);
}

#[tokio::test(start_paused = true)]
async fn an_exhausted_share_is_told_beside_the_rate_of_the_key() {
    let mut grants = api::Grants::of(api::KeyScope::ALL);
    grants.requests_per_minute = std::num::NonZeroU32::new(60);
    let fixture = fixture(vec![granted("greedy", "greedy", grants), key("modest", false)]);
    let mut held = Reservation::default();
    let tenant = "greedy".parse().unwrap();
    fixture.intake.reserve(&tenant, INGEST_TENANT_BYTES, &mut held).unwrap();
    let body = notification("a1", "");
    let refused = call(&fixture, "greedy", Method::POST, "/v1/notifications", &body).await;
    assert_eq!(refused.problem(429)["code"], "tenant_overloaded");
    let all = |name| {
        let values = refused.headers.get_all(name).iter();
        values.map(|value| value.to_str().unwrap()).collect::<Vec<_>>()
    };
    let bytes = r#""ingest-bytes";q=33554432;qu="content-bytes""#;
    assert_eq!(all("ratelimit-policy"), [bytes, r#""key";q=10;w=10"#]);
    assert_eq!(all("ratelimit"), [r#""ingest-bytes";r=0;t=1"#, r#""key";r=9;t=1"#]);
    assert_eq!(refused.header("retry-after"), "1");
    let created = call(&fixture, "modest", Method::POST, "/v1/notifications", &body).await;
    assert_eq!(created.status, StatusCode::CREATED);
    assert_eq!(created.header("ratelimit-policy"), "", "nothing is told where nothing is short");
}

/// A route that reads the store without asking for a reader of its caller's tenant would let it take all of them.
#[tokio::test(start_paused = true)]
async fn every_route_that_reads_the_store_asks_as_its_callers_tenant() {
    // They read nothing, or have turns of their own.
    const OTHERS: [&str; 5] =
        ["/metrics", "/v1/status", "/v1/keys/self", "/v1/keys", "/v1/templates"];
    let fixture = fixture(vec![key("ops", true)]);
    let post = async |path: &str, body: &str| call(&fixture, "ops", Method::POST, path, body).await;
    let made = post("/v1/notifications", &notification("a1", "")).await.json();
    let (notification, broadcast) = (made["id"].as_str().unwrap().to_owned(), {
        let body = r#"{"channel":"ios","content":{},"recipients":["a1"]}"#;
        post("/v1/broadcasts", body).await.json()["id"].as_str().unwrap().to_owned()
    });
    let mut asked = 0;
    for (_, path, _) in api::routes().into_iter().filter(|(method, ..)| method == Method::GET) {
        let id = if path.contains("broadcasts") { &broadcast } else { &notification };
        let query = match path {
            "/v1/suppressions" => "?channel=ios",
            "/v1/estimate" => "?channel=ios&recipients=1",
            _ => "",
        };
        fixture.asked.take();
        let found = path.replace("{id}", id) + query;
        let answer = call(&fixture, "ops", Method::GET, &found, "").await;
        assert_eq!(answer.status, StatusCode::OK, "{path}: {}", answer.text);
        let expect = TenantAsked { tenant: "ops".parse().unwrap(), patience: Patience::Bounded };
        let as_whom = fixture.asked.take();
        assert!(as_whom.iter().all(|asked| *asked == expect), "{path}: {as_whom:?}");
        let is_shared = !as_whom.is_empty();
        assert_eq!(is_shared, !OTHERS.contains(&path), "{path}");
        asked += usize::from(is_shared);
    }
    assert!(asked >= 12, "{asked}");
    // What changes something is never refused half-way.
    for path in ["/v1/requeue?dry_run=true", "/v1/cancel?tag=none&channel=ios"] {
        fixture.asked.take();
        post(path, "").await;
        let asked = fixture.asked.take();
        assert!(!asked.is_empty(), "{path}");
        assert!(asked.iter().all(|asked| asked.patience == Patience::Unbounded), "{path}");
    }
}

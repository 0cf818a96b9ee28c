//! HTTP/2 over TLS, by the client of another library: streams both ways, slow callers, callers that hang up.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use api::ApiListener;
use async_trait::async_trait;
use axum::http::{Method, Request, Response, StatusCode};
use bytes::Bytes;
use flow::Tasks;
use h2::client::SendRequest;
use h2::{Reason, RecvStream, SendStream};
use notification::{BroadcastId, Draft, Timestamp};
use store::{
    Admission, BroadcastDraft, BroadcastOpened, Ingest, Memory, RecipientGroup, StoreError,
};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{oneshot, watch};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig};

use crate::support::{Fixture, LINES, fixture, fixture_over, notification};

/// A fixture that listens with TLS.
pub(crate) struct TlsServer {
    pub(crate) address: SocketAddr,
    roots: RootCertStore,
    tasks: Tasks,
    stop: oneshot::Sender<()>,
    _settings: watch::Sender<Arc<ServerConfig>>,
}

/// A connection to it.
struct H2Caller {
    requests: SendRequest<Bytes>,
    /// Ends with the connection.
    driver: Tasks,
}

// === impl TlsServer ===

impl TlsServer {
    pub(crate) async fn start(fixture: &Fixture) -> Self {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let certificate = made.cert.der().clone();
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
        let mut config = ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.clone()], key)
            .unwrap();
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let (settings, tls) = watch::channel(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (tasks, stop) = fixture.serve(ApiListener::tls(listener, tls).unwrap());
        let mut roots = RootCertStore::empty();
        roots.add(certificate).unwrap();
        Self { address, roots, tasks, stop, _settings: settings }
    }

    /// A client that trusts it and offers these protocols.
    pub(crate) fn client(&self, protocols: &[&str]) -> Arc<ClientConfig> {
        let builder = ClientConfig::builder().with_root_certificates(self.roots.clone());
        let mut config = builder.with_no_client_auth();
        config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        Arc::new(config)
    }

    pub(crate) async fn stop(mut self) {
        self.stop.send(()).unwrap();
        self.tasks.drain().await;
    }

    async fn call(&self) -> H2Caller {
        let socket = TcpStream::connect(self.address).await.unwrap();
        let connector = TlsConnector::from(self.client(&["h2"]));
        let stream = connector.connect("localhost".try_into().unwrap(), socket).await.unwrap();
        let mut builder = h2::client::Builder::new();
        // A stream that is not read must not shut the window of all of them.
        builder.initial_connection_window_size(1024 * 1024);
        let (requests, connection) = builder.handshake(stream).await.unwrap();
        let mut driver = Tasks::default();
        driver.spawn("connection", async { connection.await.unwrap_or_default() });
        H2Caller { requests, driver }
    }
}

// === impl H2Caller ===

impl H2Caller {
    /// Sends a head; the body follows if there is one.
    async fn begin(
        &mut self,
        (method, path): (Method, &str),
        host: &str,
        has_body: bool,
    ) -> (h2::client::ResponseFuture, SendStream<Bytes>) {
        let uri = format!("https://{host}{path}");
        let request = Request::builder().method(method).uri(uri).header("content-type", LINES);
        let request = request.body(()).unwrap();
        let mut requests = self.requests.clone().ready().await.unwrap();
        requests.send_request(request, !has_body).unwrap()
    }

    async fn post(&mut self, path: &str) -> (h2::client::ResponseFuture, SendStream<Bytes>) {
        self.begin((Method::POST, path), "localhost", true).await
    }

    async fn get(&mut self, path: &str, host: &str) -> Response<RecvStream> {
        let (answer, _) = self.begin((Method::GET, path), host, false).await;
        answer.await.unwrap()
    }
}

/// The next piece of a body, as text, for which room is made for another one.
async fn piece(body: &mut RecvStream) -> Option<String> {
    let bytes = body.data().await?.unwrap();
    body.flow_control().release_capacity(bytes.len()).unwrap();
    Some(String::from_utf8(bytes.to_vec()).unwrap())
}

async fn rest(body: &mut RecvStream) -> String {
    let mut text = String::new();
    while let Some(piece) = piece(body).await {
        text.push_str(&piece);
    }
    text
}

#[tokio::test]
async fn lines_of_streams_side_by_side_are_answered_before_the_next_ones_are_sent() {
    let fixture = fixture(Vec::new());
    let server = TlsServer::start(&fixture).await;
    let mut caller = server.call().await;
    let mut streams = Vec::new();
    for _ in 0..3 {
        let (answer, body) = caller.post("/v1/notifications").await;
        streams.push((answer.await.unwrap().into_body(), body));
    }
    for line in 1..=3 {
        for (answers, lines) in &mut streams {
            let text = format!("{}\n", notification("a1", ""));
            lines.send_data(text.into(), false).unwrap();
            let text = piece(answers).await.unwrap();
            assert!(text.starts_with(&format!(r#"{{"line":{line},"id":""#)), "{text}");
        }
        assert_eq!(fixture.account().await.accepted, line * 3);
    }
    for (mut answers, mut lines) in streams {
        lines.send_data(Bytes::new(), true).unwrap();
        let text = rest(&mut answers).await;
        assert_eq!(text, "{\"accepted\":3,\"replayed\":0,\"refused\":0}\n");
    }
    drop(caller);
    server.stop().await;
}

/// A page in a browser, whose name was made to lead to this machine, is no program on it.
#[tokio::test]
async fn without_a_key_a_host_of_another_name_is_refused() {
    let fixture = fixture(Vec::new());
    let server = TlsServer::start(&fixture).await;
    let mut caller = server.call().await;
    let answer = caller.get("/v1/channels", "localhost").await;
    assert_eq!(answer.status(), StatusCode::OK);
    let answer = caller.get("/v1/channels", "evil.example.com").await;
    assert_eq!(answer.status(), StatusCode::FORBIDDEN);
    drop(caller);
    server.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_connection_without_a_request_is_closed_after_a_while_and_not_while_there_is_one() {
    let fixture = fixture(Vec::new());
    let server = TlsServer::start(&fixture).await;
    let clock = flow::Clock::system();
    let mut caller = server.call().await;
    let answer = caller.get("/healthz", "localhost").await;
    assert_eq!(rest(&mut answer.into_body()).await, "ok\n");
    let (answer, mut lines) = caller.post("/v1/notifications").await;
    let mut answers = answer.await.unwrap().into_body();
    for _ in 0..4 {
        tokio::time::advance(Duration::from_secs(20)).await;
        lines.send_data(format!("{}\n", notification("a1", "")).into(), false).unwrap();
        assert!(piece(&mut answers).await.is_some());
    }
    lines.send_data(Bytes::new(), true).unwrap();
    rest(&mut answers).await;
    let began = clock.monotonic();
    caller.driver.drain().await;
    let waited = clock.monotonic().duration_since(began);
    assert!((25..34).contains(&waited.as_secs()), "{waited:?}");
    server.stop().await;
}

/// The window of its stream stays shut, while the connection is alive and answers pings.
#[tokio::test(start_paused = true)]
async fn a_caller_that_does_not_take_one_answer_loses_that_and_no_other() {
    let fixture = fixture(Vec::new());
    let server = TlsServer::start(&fixture).await;
    let mut caller = server.call().await;
    let (answer, mut lines) = caller.post("/v1/notifications").await;
    let mut untaken = answer.await.unwrap().into_body();
    // Lines that are refused have answers that are longer than they.
    let text = "x\n".repeat(5_000);
    lines.send_data(text.into(), false).unwrap();
    let clock = flow::Clock::system();
    let began = clock.monotonic();
    let reset = async {
        loop {
            match untaken.data().await {
                Some(Ok(_without_room_for_another)) => {}
                Some(Err(error)) => break error,
                None => panic!("the answer ended"),
            }
        }
    };
    let error = timeout(Duration::from_mins(5), reset).await.unwrap();
    assert_eq!(error.reason(), Some(Reason::CANCEL), "{error}");
    let waited = clock.monotonic().duration_since(began);
    assert!((30..=40).contains(&waited.as_secs()), "{waited:?}");
    let answer = caller.get("/healthz", "localhost").await;
    assert_eq!(rest(&mut answer.into_body()).await, "ok\n", "the connection goes on");
    drop(caller);
    server.stop().await;
}

/// A store that notes which uploads were abandoned.
#[derive(Debug)]
struct NotesAbandoned(Arc<Memory>, watch::Sender<u64>);

#[async_trait]
impl Ingest for NotesAbandoned {
    async fn ingest(
        &self,
        drafts: Vec<Draft>,
        now: Timestamp,
    ) -> Result<Vec<Admission>, StoreError> {
        self.0.ingest(drafts, now).await
    }

    async fn open_broadcast(
        &self,
        draft: BroadcastDraft,
        now: Timestamp,
    ) -> Result<BroadcastOpened, StoreError> {
        self.0.open_broadcast(draft, now).await
    }

    async fn add_recipients(
        &self,
        broadcast: BroadcastId,
        groups: Vec<RecipientGroup>,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        self.0.add_recipients(broadcast, groups, now).await
    }

    async fn seal_broadcast(
        &self,
        broadcast: BroadcastId,
        now: Timestamp,
    ) -> Result<u64, StoreError> {
        self.0.seal_broadcast(broadcast, now).await
    }

    async fn abandon_broadcast(&self, broadcast: BroadcastId) -> Result<(), StoreError> {
        self.1.send_modify(|count| *count += 1);
        self.0.abandon_broadcast(broadcast).await
    }
}

#[tokio::test]
async fn an_upload_that_is_reset_is_abandoned_while_its_connection_goes_on() {
    let store = Arc::new(Memory::new());
    let (abandoned, mut count) = watch::channel(0);
    let ingest = Arc::new(NotesAbandoned(Arc::clone(&store), abandoned));
    let fixture = fixture_over(ingest, store, Vec::new());
    let server = TlsServer::start(&fixture).await;
    let mut caller = server.call().await;
    let (_answer, mut lines) = caller.post("/v1/broadcasts").await;
    let head = r#"{"channel":"ios","content":{},"idempotency_key":"k"}"#;
    let piece = format!("{head}\n{}", "\"a1\"\n".repeat(20_000));
    lines.send_data(piece.into(), false).unwrap();
    // Another request goes by behind it, so the pieces are there.
    rest(&mut caller.get("/healthz", "localhost").await.into_body()).await;
    lines.send_reset(Reason::CANCEL);
    // Before the connection would end for want of a request.
    let seen = timeout(Duration::from_secs(20), count.wait_for(|count| *count == 1));
    assert!(seen.await.is_ok());
    let again = format!("{head}\n\"a1\"");
    let (answer, mut lines) = caller.post("/v1/broadcasts").await;
    lines.send_data(again.into(), true).unwrap();
    let text = rest(&mut answer.await.unwrap().into_body()).await;
    assert!(text.contains(r#""accepted":1,"replayed":false"#), "{text}");
    drop(caller);
    server.stop().await;
}

#[tokio::test]
async fn a_server_that_stops_finishes_the_requests_of_a_connection_and_takes_no_more() {
    let fixture = fixture(Vec::new());
    let server = TlsServer::start(&fixture).await;
    let mut caller = server.call().await;
    let (answer, mut lines) = caller.post("/v1/notifications").await;
    let mut answers = answer.await.unwrap().into_body();
    lines.send_data(format!("{}\n", notification("a1", "")).into(), false).unwrap();
    assert!(piece(&mut answers).await.is_some());
    let stopped = server.stop();
    tokio::pin!(stopped);
    assert!(futures_util::poll!(&mut stopped).is_pending());
    lines.send_data(format!("{}\n", notification("a2", "")).into(), true).unwrap();
    let text = rest(&mut answers).await;
    assert!(text.contains(r#"{"accepted":2,"replayed":0,"refused":0}"#), "{text}");
    // The connection ends with its last request, although the caller does not close it.
    stopped.await;
    caller.driver.drain().await;
    assert_eq!(fixture.account().await.accepted, 2);
}

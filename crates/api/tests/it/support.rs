//! An API over an in-memory store, and a channel that is easy to please.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use api::{
    AccessLog, ApiKey, ApiListener, ChannelCredential, ConfiguredChannel, Keys, Readiness,
    RequestTraces, Site,
};
use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, Method, Request, StatusCode};
use channel::{
    Channel, ChannelError, Concurrency, Invalid, LearnedBounds, SendBounds, Sender, Tools,
};
use flow::{Clock, Tasks, WorkerDeadline};
use http_body_util::BodyExt;
use notification::{Account, Chunk, Content, Name, Timestamp};
use pipeline::ingest::{TemplateSource, Templates};
use pipeline::{Channels, Intake};
use prometheus_client::registry::Registry;
use serde_json::Value;
use store::{Claims, Ingest, Memory, Operations, Patience, ReadStore, Retention, TenantReads};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{oneshot, watch};
use tower::ServiceExt;

use crate::described;

pub(crate) const JSON: &str = "application/json";
pub(crate) const LINES: &str = "application/x-ndjson";

/// 2026-11-21T08:30:00Z and a bit.
pub(crate) const NOW: Duration = Duration::from_millis(1_795_249_800_250);

/// An API and what is behind it.
pub(crate) struct Fixture {
    pub(crate) site: Site,
    /// The sites in its place where operators have an address of their own: this one is that of the others.
    pub(crate) public: Site,
    /// That of operators.
    pub(crate) operators: Site,
    pub(crate) store: Arc<Memory>,
    pub(crate) intake: Arc<Intake>,
    pub(crate) ready: watch::Sender<bool>,
    /// The keys of its configuration, which a reload replaces.
    pub(crate) configured_keys: watch::Sender<Keys>,
    /// Those for whom readers of the store were asked for.
    pub(crate) asked: AskedBy,
}

/// The tenants for whom readers were asked for, in order.
#[derive(Debug, Clone, Default)]
pub(crate) struct AskedBy(Arc<Mutex<Vec<TenantAsked>>>);

/// A tenant for whom a reader was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TenantAsked {
    pub(crate) tenant: Name,
    pub(crate) patience: Patience,
}

/// Readers of tenants, noted.
#[derive(Debug)]
struct NotedReads {
    store: Arc<Memory>,
    asked: AskedBy,
}

/// An answer that was read to its end.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

/// A fixture that listens.
pub(crate) struct Listening {
    pub(crate) address: SocketAddr,
    pub(crate) tasks: Tasks,
    pub(crate) stop: oneshot::Sender<()>,
}

/// Takes tokens of hexadecimal digits for host `h`, or `digits@host`; objects as content; `{"topic":..}` as
/// options. An object that begins with `short` has at most 30 bytes.
#[derive(Debug)]
struct TestChannel;

pub(crate) fn fixture(keys: Vec<ApiKey>) -> Fixture {
    fixture_with_log(keys, AccessLog::default())
}

/// A fixture whose log has these requests.
pub(crate) fn fixture_with_log(keys: Vec<ApiKey>, access_log: AccessLog) -> Fixture {
    let store = Arc::new(Memory::new());
    build(Arc::clone(&store) as Arc<dyn Ingest>, store, keys, (access_log, None))
}

/// A fixture whose requests are traced so, and all of which have a line in the log.
pub(crate) fn fixture_with_traces(traces: RequestTraces, keys: Vec<ApiKey>) -> Fixture {
    let store = Arc::new(Memory::new());
    let logged = (AccessLog::All, Some(Arc::new(traces)));
    build(Arc::clone(&store) as Arc<dyn Ingest>, store, keys, logged)
}

/// A fixture whose way in is `ingest`.
pub(crate) fn fixture_over(
    ingest: Arc<dyn Ingest>,
    store: Arc<Memory>,
    keys: Vec<ApiKey>,
) -> Fixture {
    build(ingest, store, keys, (AccessLog::default(), None))
}

fn configured_channels() -> BTreeMap<Name, ConfiguredChannel> {
    let credential = ChannelCredential {
        what: "client certificate",
        expires_at: Timestamp::from_millis(1_900_000_000_000),
    };
    let per_minute = std::num::NonZeroU32::new(600);
    let configured =
        [("ios", "apns", None, Vec::new()), ("hooks", "webhook", per_minute, vec![credential])];
    let configured = configured.map(|(name, kind, messages_per_minute, credentials)| {
        (name.parse().unwrap(), ConfiguredChannel { kind, messages_per_minute, credentials })
    });
    BTreeMap::from(configured)
}

fn build(
    ingest: Arc<dyn Ingest>,
    store: Arc<Memory>,
    keys: Vec<ApiKey>,
    (access_log, traces): (AccessLog, Option<Arc<RequestTraces>>),
) -> Fixture {
    let (clock, deadline) = (Clock::starting_at(NOW), WorkerDeadline::unlimited());
    let mut channels = Channels::default();
    for name in ["hooks", "ios"] {
        channels.insert(name.parse().unwrap(), Arc::new(TestChannel));
    }
    let welcome = Content {
        payload: Bytes::from_static(br#"{"hello":"{{ name }}"}"#),
        options: Bytes::from_static(br#"{"topic":"{{ topic|default('t') }}"}"#),
        fallback: None,
    };
    let welcome = TemplateSource { content: welcome, ..TemplateSource::default() };
    let welcome = BTreeMap::from([("welcome".parse().unwrap(), welcome)]);
    let templates = Templates::compile(&welcome, &channels).unwrap();
    let intake = Intake::new(ingest, Arc::new(channels), clock).with_templates(templates);
    let intake = Arc::new(intake);
    let configured = configured_channels();
    let (ready, is_ready) = watch::channel(false);
    let configured_keys = watch::Sender::new(Keys::new(keys));
    let asked = AskedBy::default();
    let state = Arc::new(api::ApiState {
        intake: Arc::clone(&intake),
        reads: Arc::clone(&store) as Arc<dyn ReadStore>,
        tenant_reads: Arc::new(NotedReads { store: Arc::clone(&store), asked: asked.clone() }),
        reloads: Some(reloading()),
        operations: api::Locked::new(Arc::clone(&store) as Arc<dyn Operations>),
        trail: Arc::clone(&store) as _,
        growth: Arc::default(),
        pruning: api::Pruning {
            store: Arc::clone(&store) as _,
            retention: Arc::new(Retention::for_ever()),
        },
        changes: Claims::<Chunk>::changes(&*store),
        keys: Arc::new(api::KeyRing::new(
            configured_keys.subscribe(),
            Arc::clone(&store) as _,
            (deadline, clock),
        )),
        default_tenant: "default".parse().unwrap(),
        registry: Arc::new(Registry::default()),
        readiness: Readiness::default().and("start", is_ready),
        worker: Some("here".to_owned()),
        policies: watch::channel(BTreeMap::new()).1,
        channels: watch::channel(configured).1,
        sources: vec![("orders".parse().unwrap(), Arc::default())],
        feeds: feed_plans(),
        shares: api::ApiShares::default(),
        live: api::LiveStatus::default(),
        request_times: api::RequestTimes::default(),
        access_log,
        traces,
        takes_in: true,
        started_at: pipeline::timestamp(clock),
    });
    let (public, operators) = api::sites(&state);
    Fixture {
        site: api::site(&state),
        public,
        operators,
        store,
        intake,
        ready,
        configured_keys,
        asked,
    }
}

/// One of the suppression list, and one of deliveries.
fn feed_plans() -> Vec<feed::FeedPlan> {
    let filter = store::DeliveryFilter::ends_of("default".parse().unwrap());
    let outcomes = feed::FeedSource::Deliveries { filter, from_start: true };
    let plans = [("feed", feed::FeedSource::Suppressions), ("outcomes", outcomes)];
    plans.map(|(name, source)| feed::FeedPlan { name: name.parse().unwrap(), source }).into()
}

/// The way to a loop that always finds the same changes.
fn reloading() -> tokio::sync::mpsc::Sender<api::ReloadCall> {
    let (reloads, mut calls) = api::reload_calls();
    // It ends with the fixture, which has the sender.
    std::thread::spawn(move || {
        while let Some(call) = calls.blocking_recv() {
            let changed = vec!["channels.ios".to_owned()];
            call.answer(Ok(api::Reloaded { changed, ..api::Reloaded::default() }));
        }
    });
    reloads
}

/// A notification to `to`, with `more` fields, such as `,"priority":"bulk"`.
pub(crate) fn notification(to: &str, more: &str) -> String {
    format!(r#"{{"channel":"ios","to":"{to}","content":{{"n":1}}{more}}}"#)
}

/// Connects, writes `head`, and leaves the rest to the caller.
pub(crate) async fn connect(address: SocketAddr, head: &str) -> TcpStream {
    let mut socket = TcpStream::connect(address).await.unwrap();
    socket.write_all(head.as_bytes()).await.unwrap();
    socket
}

/// The head of a POST whose body is sent in chunks.
pub(crate) fn chunked_head(path: &str, content_type: &str) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: {content_type}\r\n\
         transfer-encoding: chunked\r\n\r\n"
    )
}

pub(crate) async fn write_chunk(socket: &mut TcpStream, bytes: &[u8]) {
    let size = format!("{:x}\r\n", bytes.len());
    socket.write_all(size.as_bytes()).await.unwrap();
    socket.write_all(bytes).await.unwrap();
    socket.write_all(b"\r\n").await.unwrap();
}

/// Reads until `end` has come, and gives everything so far.
pub(crate) async fn read_until(socket: &mut TcpStream, end: &str) -> String {
    let mut text = Vec::new();
    while !String::from_utf8_lossy(&text).contains(end) {
        let read = socket.read_buf(&mut text).await.unwrap();
        assert!(read > 0, "closed before {end:?}: {}", String::from_utf8_lossy(&text));
    }
    String::from_utf8(text).unwrap()
}

/// Reads until the server closes. A reset counts as closing.
pub(crate) async fn read_to_end(socket: &mut TcpStream) -> String {
    let mut text = Vec::new();
    while let Ok(1..) = socket.read_buf(&mut text).await {}
    String::from_utf8(text).unwrap()
}

// === impl Fixture ===

impl Fixture {
    pub(crate) async fn send(&self, request: Request<Body>) -> Answer {
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        let response = self.site.router().clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let text = String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap();
        let answer = Answer { status: parts.status, headers: parts.headers, text };
        described::check(&method, &path, &answer);
        answer
    }

    pub(crate) async fn post(
        &self,
        path: &str,
        content_type: &str,
        body: impl Into<Bytes>,
    ) -> Answer {
        let request = Request::post(path).header("content-type", content_type);
        self.send(request.body(Body::from(body.into())).unwrap()).await
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.call(Method::GET, path).await
    }

    pub(crate) async fn call(&self, method: Method, path: &str) -> Answer {
        let request = Request::builder().method(method).uri(path).body(Body::empty()).unwrap();
        self.send(request).await
    }

    pub(crate) async fn account(&self) -> Account {
        self.store.totals().await.unwrap()
    }

    /// Nothing accepted, and no broadcast half-way.
    pub(crate) async fn assert_nothing_is_stored(&self) {
        self.intake.sweep().await;
        assert_eq!(self.account().await, Account::default());
        let audit = self.store.audit().await.unwrap();
        assert_eq!((audit.account, audit.problem_count), (Account::default(), 0));
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.intake.now()
    }

    pub(crate) fn set_ready(&self, ready: bool) {
        self.ready.send_replace(ready);
    }

    pub(crate) async fn listen(&self) -> Listening {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (tasks, stop) = self.serve(ApiListener::tcp(listener).unwrap());
        Listening { address, tasks, stop }
    }

    /// Serves on `listener` until the sender is used or gone.
    pub(crate) fn serve(&self, listener: ApiListener) -> (Tasks, oneshot::Sender<()>) {
        let (stop, stopped) = oneshot::channel::<()>();
        let (_, site) = watch::channel(self.site.clone());
        let mut tasks = Tasks::default();
        tasks.spawn("server", async move {
            let shutdown = async { drop(stopped.await) };
            api::serve(listener, site, shutdown).await.unwrap();
        });
        (tasks, stop)
    }
}

// === impl AskedBy ===

impl AskedBy {
    /// Those since the last call.
    pub(crate) fn take(&self) -> Vec<TenantAsked> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

// === impl NotedReads ===

impl TenantReads for NotedReads {
    fn of_tenant(&self, tenant: &Name, patience: Patience) -> Arc<dyn ReadStore> {
        self.asked.0.lock().unwrap().push(TenantAsked { tenant: tenant.clone(), patience });
        self.store.of_tenant(tenant, patience)
    }
}

// === impl Answer ===

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    pub(crate) fn lines(&self) -> Vec<Value> {
        self.text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// A problem of this status; gives it back for a closer look.
    pub(crate) fn problem(&self, status: u16) -> Value {
        assert_eq!(self.status.as_u16(), status, "{}", self.text);
        assert_eq!(self.header("content-type"), "application/problem+json");
        let problem = self.json();
        assert_eq!(problem["status"], status);
        problem
    }
}

// === impl Listening ===

impl Listening {
    pub(crate) async fn stop(mut self) {
        drop(self.stop);
        assert_eq!(self.tasks.next().await, Some(Ok("server")));
    }
}

// === impl TestChannel ===

impl Channel for TestChannel {
    fn destination(&self, recipient: &str) -> Result<Arc<str>, Invalid> {
        let (token, host) = recipient.split_once('@').unwrap_or((recipient, "h"));
        if token.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Ok(host.into());
        }
        Err(Invalid::new("must be hexadecimal digits"))
    }

    fn check_content(&self, payload: &[u8], options: &[u8]) -> Result<(), Invalid> {
        if !payload.starts_with(b"{") {
            return Err(Invalid::new("must be an object"));
        }
        if payload.starts_with(b"{\"bad\"") {
            return Err(Invalid::at("/bad", "must not be there"));
        }
        if let Some(over) = payload.len().checked_sub(30).filter(|over| *over > 0)
            && payload.starts_with(b"{\"short\"")
        {
            let message = format!("must have at most 30 bytes, has {}: {over} over", payload.len());
            return Err(Invalid::new(message));
        }
        if !options.is_empty() && !options.starts_with(b"{\"topic\"") {
            return Err(Invalid::at("/topic", "is missing"));
        }
        Ok(())
    }

    fn bounds(&self) -> SendBounds {
        SendBounds::new(Concurrency::Fixed(1), LearnedBounds::SMALL, 0)
    }

    fn open(&self, _: Tools) -> Result<Box<dyn Sender>, ChannelError> {
        Err(ChannelError::setting("kind", "the API sends nothing"))
    }
}

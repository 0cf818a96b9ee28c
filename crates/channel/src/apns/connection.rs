//! One HTTP/2 connection: how it is made, kept alive and ended.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use h2::client::{ResponseFuture, SendRequest};
use h2::{Ping, PingPong, Reason, RecvStream};
use http::Request;
use notification::limits;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::config::Endpoint;
use crate::tcp;

/// How long TCP, TLS and the HTTP/2 preface may take together.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How often a connection is looked at; one that had no answer since the last look is asked for a sign of
/// life, so after 30 to 60 s of quiet.
const LOOK_EVERY: Duration = Duration::from_secs(30);
/// How long it may think about that.
const PONG_WITHIN: Duration = Duration::from_secs(10);
/// How long a connection may be without work before it is closed.
const IDLE_MAX: Duration = Duration::from_mins(10);
/// How long the body of an answer may take once its head has come: the head says nearly all.
const BODY_WITHIN: Duration = Duration::from_secs(5);
/// How long a connection without work may take to say goodbye.
const FAREWELL_WITHIN: Duration = Duration::from_secs(2);

/// Where connections are made to.
#[derive(Debug)]
pub(super) struct Dial {
    pub(super) endpoint: Endpoint,
    pub(super) tls: Arc<rustls::ClientConfig>,
}

/// The sending side of a connection.
#[derive(Debug)]
pub(super) struct Connection {
    requests: RefCell<SendRequest<Bytes>>,
    load: Rc<Load>,
    /// Whether an answer has shown that APNs accepts our token here; before, one stream is all it grants.
    proven: Cell<bool>,
}

/// The receiving side, to be run as a task; it ends when the sending side is dropped or the peer ends it.
#[derive(Debug)]
pub(super) struct Wire {
    connection: h2::client::Connection<Unvectored, Bytes>,
    pings: PingPong,
    load: Rc<Load>,
}

/// What both sides know of a connection's work.
#[derive(Debug, Default)]
struct Load {
    in_flight: Cell<usize>,
    answers: Cell<u64>,
}

/// An answer.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) status: u16,
    /// At most [`limits::ANSWER_BYTES`]; empty for an acceptance.
    pub(super) body: Vec<u8>,
}

/// Why there is no answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// APNs certainly did not process the request; `leave` says that the connection takes no more.
    NotProcessed {
        /// Whether the connection is of no more use.
        leave: bool,
    },
    /// It may have processed it.
    Lost(String),
}

/// How a connection came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    /// It is over: the peer ended it, or we did.
    Over,
    /// Nobody needed it any more; it is still open.
    Idle,
}

/// Why a connection could not be made.
#[derive(Debug, Clone, thiserror::Error)]
pub(super) enum ConnectError {
    #[error("{host} cannot be resolved: {message}")]
    Resolve { host: String, message: String },
    #[error("cannot connect to {authority}: {message}")]
    Connect { authority: String, message: String },
    #[error("{authority} does not speak HTTP/2")]
    NotHttp2 { authority: String },
    #[error("{authority} did not complete a connection within 10 s")]
    TimedOut { authority: String },
}

/// A stream that denies knowing vectored writes, so that `h2` copies bodies up to 1 KiB behind their headers
/// and writes many requests at once; it would flush after each body over 256 bytes otherwise.
#[derive(Debug)]
struct Unvectored(TlsStream<TcpStream>);

// === impl Dial ===

impl Dial {
    /// Makes a connection.
    pub(super) async fn connect(&self) -> Result<(Connection, Wire), ConnectError> {
        tokio::time::timeout(CONNECT_TIMEOUT, self.connect_unhurried())
            .await
            .unwrap_or_else(|_| Err(ConnectError::TimedOut { authority: self.authority() }))
    }

    async fn connect_unhurried(&self) -> Result<(Connection, Wire), ConnectError> {
        let refuse =
            |message: String| ConnectError::Connect { authority: self.authority(), message };
        let Endpoint { host, port, .. } = &self.endpoint;
        let addresses = tokio::net::lookup_host((host.as_str(), *port)).await.map_err(|error| {
            ConnectError::Resolve { host: host.clone(), message: error.to_string() }
        })?;
        let stream = tcp::connect(addresses).await.map_err(|error| refuse(error.to_string()))?;
        let name = ServerName::try_from(host.clone()).map_err(|error| refuse(error.to_string()))?;
        let stream = TlsConnector::from(Arc::clone(&self.tls))
            .connect(name, stream)
            .await
            .map_err(|error| refuse(error.to_string()))?;
        if stream.get_ref().1.alpn_protocol() != Some(b"h2") {
            return Err(ConnectError::NotHttp2 { authority: self.authority() });
        }
        let (requests, mut connection) = h2::client::Builder::new()
            .enable_push(false)
            .initial_max_send_streams(1)
            .max_header_list_size(16 * 1024)
            .handshake(Unvectored(stream))
            .await
            .map_err(|error| refuse(error.to_string()))?;
        let pings = connection.ping_pong().ok_or_else(|| refuse("cannot ping".to_owned()))?;
        let load = Rc::new(Load::default());
        let wire = Wire { connection, pings, load: Rc::clone(&load) };
        let requests = RefCell::new(requests);
        Ok((Connection { requests, load, proven: Cell::new(false) }, wire))
    }

    fn authority(&self) -> String {
        self.endpoint.authority.to_string()
    }
}

// === impl Connection ===

impl Connection {
    /// Streams that may be opened now.
    pub(super) fn free_streams(&self) -> usize {
        let granted = self.requests.borrow().current_max_send_streams();
        let usable = if self.proven.get() { granted } else { granted.min(1) };
        usable.saturating_sub(self.load.in_flight.get())
    }

    /// Whether APNs has accepted a request here.
    pub(super) fn is_proven(&self) -> bool {
        self.proven.get()
    }

    /// Takes one of the free streams.
    pub(super) fn take_stream(&self) {
        self.load.in_flight.set(self.load.in_flight.get() + 1);
    }

    /// Gives it back.
    pub(super) fn give_stream_back(&self) {
        self.load.in_flight.set(self.load.in_flight.get().saturating_sub(1));
    }

    /// Sends a request over a stream that was taken, and waits for the answer.
    pub(super) async fn exchange(
        &self,
        request: Request<()>,
        payload: Bytes,
    ) -> Result<Reply, Failure> {
        // A connection that is going away says so here, before anything is written.
        let response =
            self.start(request, payload).map_err(|_| Failure::NotProcessed { leave: true })?;
        let (head, body) = response.await.map_err(|error| failure(&error))?.into_parts();
        self.load.answers.set(self.load.answers.get().wrapping_add(1));
        let status = head.status.as_u16();
        if status != 403 {
            self.proven.set(true);
        }
        Ok(Reply { status, body: read_body(status, body).await })
    }

    fn start(&self, request: Request<()>, payload: Bytes) -> Result<ResponseFuture, h2::Error> {
        let (response, mut body) = self.requests.borrow_mut().send_request(request, false)?;
        // The stream may end between the two calls; then the response says how.
        if let Err(error) = body.send_data(payload, true) {
            tracing::debug!(%error, "a request ended before its body");
        }
        Ok(response)
    }
}

// === impl Wire ===

impl Wire {
    /// Runs the connection until it is over or idle. `progressed` is called whenever it has moved on.
    pub(super) async fn run(&mut self, progressed: impl Fn()) -> Ending {
        let Self { connection, pings, load } = self;
        let moving = poll_fn(|context| {
            let ended = connection.poll_unpin(context);
            progressed();
            ended
        });
        tokio::select! {
            biased;
            ended = moving => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "APNs connection ended");
                }
                Ending::Over
            }
            ending = watch(pings, load) => ending,
        }
    }

    /// Says goodbye; call it when the sending side is gone.
    pub(super) async fn close(self) {
        match tokio::time::timeout(FAREWELL_WITHIN, self.connection).await {
            Ok(Ok(())) | Err(_) => {}
            Ok(Err(error)) => tracing::debug!(%error, "APNs connection ended"),
        }
    }
}

/// Returns when the connection has been idle for long, or does not answer a ping.
async fn watch(pings: &mut PingPong, load: &Load) -> Ending {
    let mut seen = load.answers.get();
    let mut quiet = Duration::ZERO;
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        if std::mem::replace(&mut seen, load.answers.get()) != load.answers.get() {
            quiet = Duration::ZERO;
            continue;
        }
        quiet += LOOK_EVERY;
        if quiet >= IDLE_MAX && load.in_flight.get() == 0 {
            return Ending::Idle;
        }
        let asking = pings.ping(Ping::opaque());
        if !matches!(tokio::time::timeout(PONG_WITHIN, asking).await, Ok(Ok(_pong))) {
            tracing::warn!("an APNs connection fell silent");
            return Ending::Over;
        }
    }
}

/// What is worth knowing of the body: nothing of an acceptance, the reason of anything else. A body that
/// drips, breaks off or never ends costs at most its reason.
async fn read_body(status: u16, mut stream: RecvStream) -> Vec<u8> {
    let mut body = Vec::new();
    let accepted = (200..300).contains(&status);
    let reading = async {
        while body.len() < limits::ANSWER_BYTES
            && let Some(Ok(data)) = stream.data().await
        {
            let room = limits::ANSWER_BYTES - body.len();
            body.extend_from_slice(data.get(..room).unwrap_or(&data));
            if stream.flow_control().release_capacity(data.len()).is_err() {
                break;
            }
        }
    };
    if accepted {
        // Whatever there is has usually come with the head; if not, the stream is reset.
        let _complete: Option<()> = reading.now_or_never();
    } else {
        // Boxed: few answers have a body, and every attempt would carry the room for reading one.
        let _complete: Result<(), _> = tokio::time::timeout(BODY_WITHIN, Box::pin(reading)).await;
    }
    body
}

/// What an error of a stream says about its request.
///
/// `h2` ends streams above a GOAWAY's last stream with that GOAWAY, and those below it, if the connection
/// breaks before their answers, with what broke it.
fn failure(error: &h2::Error) -> Failure {
    let by_peer = error.is_remote();
    if by_peer && error.is_go_away() {
        return Failure::NotProcessed { leave: true };
    }
    if by_peer && error.is_reset() && error.reason() == Some(Reason::REFUSED_STREAM) {
        return Failure::NotProcessed { leave: false };
    }
    let mut detail = format!("no answer: {error}");
    detail.truncate(detail.floor_char_boundary(limits::DETAIL_BYTES));
    Failure::Lost(detail)
}

// === impl Unvectored ===

impl AsyncRead for Unvectored {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl AsyncWrite for Unvectored {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

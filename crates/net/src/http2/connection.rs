//! One HTTP/2 connection: how it is made, kept alive and ended.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::ops::ControlFlow;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use flow::Timing;
use futures_util::FutureExt as _;
use futures_util::future::LocalBoxFuture;
use h2::client::{ResponseFuture, SendRequest};
use h2::{Ping, PingPong, Reason, RecvStream};
use http::{Request, Response, StatusCode};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use crate::endpoint::Origin;
use crate::exchange::Reply;
use crate::guard::Forbidden;
use crate::tcp::{self, Reach};
use crate::{ANSWER_BYTES, tls, words};

/// How long TCP, TLS and the HTTP/2 preface may take together.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How often a connection is checked; one without an answer since the last check is sent a ping, so after 30 to 60 s of quiet.
const CHECK_EVERY: Duration = Duration::from_secs(30);
/// How long the answer to a ping may take.
const PONG_WITHIN: Duration = Duration::from_secs(10);
/// How long a connection may be without work before it is closed.
const IDLE_MAX: Duration = Duration::from_mins(10);
/// Requests given up in a row, without an answer to any other, after which a connection counts as unresponsive. One may be the
/// server's trouble with that request; a peer that does not answer two answers pings only.
const GIVEN_UP_MAX: u32 = 2;
/// Bytes of answers that may be under way on a connection: none waits for a window to open.
const ANSWERS_WINDOW_BYTES: u32 = 1 << 20;
/// How long the body of an answer may take once its head has come: the status decides nearly all, so little is waited for.
const BODY_WITHIN: Duration = Duration::from_secs(5);
/// How long a connection without work may take to close gracefully.
const CLOSE_WITHIN: Duration = Duration::from_secs(2);

/// How connections are made.
#[derive(Debug, Clone)]
pub struct Dial {
    /// The name of the service, for the log.
    pub provider: &'static str,
    /// The server. It is always spoken to over TLS.
    pub origin: Origin,
    /// The TLS configuration, which has to offer `h2` by ALPN.
    pub tls: Arc<rustls::ClientConfig>,
    /// Which addresses may be connected to.
    pub reach: Arc<dyn Reach>,
    /// How many streams a new connection takes before its first answer.
    pub priming: Priming,
}

/// How many streams a new connection takes before its first answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Priming {
    /// One, until an answer has shown that the peer accepts our credential, whatever it granted: so APNs wants it.
    OneStream,
    /// As many as the peer has granted.
    Unprimed,
}

/// The sending side of a connection.
#[derive(Debug)]
pub(super) struct Connection {
    requests: RefCell<SendRequest<Bytes>>,
    load: Rc<Load>,
    priming: Priming,
    /// Whether an answer has shown that the peer accepts our credential here.
    proven: Cell<bool>,
}

/// The receiving side, to be run as a task; it ends when the sending side is dropped or the peer ends it.
#[derive(Debug)]
pub(super) struct Wire {
    provider: &'static str,
    connection: h2::client::Connection<Unvectored, Bytes>,
    pings: PingPong,
    load: Rc<Load>,
}

/// The work of a connection, as both sides know it.
#[derive(Debug, Default)]
struct Load {
    in_flight: Cell<usize>,
    answers: Cell<u64>,
    /// Requests given up since the last answer.
    given_up: Cell<u32>,
}

/// A request that waits for its answer. One that is dropped was given up.
#[derive(Debug)]
struct Awaited<'a> {
    load: &'a Load,
    is_answered: bool,
}

/// Why a try over one stream has no answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NoReply {
    /// The server certainly did not process the request; `leave` says that the connection takes no more.
    NotProcessed {
        /// Whether the connection is of no more use.
        leave: bool,
    },
    /// The server wants it over HTTP/1.1, and did not process it (RFC 9113, section 7).
    Http11Required,
    /// It may have processed it.
    Lost(String),
}

/// How a connection came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConnectionEnding {
    /// It is over: the peer ended it, or we did.
    Over,
    /// It had no work for long; it is still open.
    Idle,
}

/// Why a connection could not be made.
#[derive(Debug, thiserror::Error)]
pub(super) enum Http2ConnectError {
    #[error(transparent)]
    Forbidden(Forbidden),
    #[error("cannot connect to {origin}: {message}")]
    Failed { origin: String, message: String },
    #[error("{origin} does not speak HTTP/2")]
    NotHttp2 { origin: String },
    #[error("{origin} did not complete a connection within 10 s")]
    TimedOut { origin: String },
}

/// The part of an answer's body that has been read.
#[derive(Debug)]
struct ReplyBody {
    bytes: usize,
    kept: Vec<u8>,
    is_kept: bool,
}

/// A stream that denies knowing vectored writes, so that `h2` copies bodies up to 1 KiB behind their headers
/// and writes many requests at once; it would flush after each body over 256 bytes otherwise.
#[derive(Debug)]
struct Unvectored(TlsStream<TcpStream>);

// === impl Dial ===

impl Dial {
    /// Makes a connection.
    pub(super) async fn connect(&self) -> Result<(Connection, Wire), Http2ConnectError> {
        tokio::time::timeout(CONNECT_TIMEOUT, self.connect_unhurried()).await.unwrap_or_else(|_| {
            Err(Http2ConnectError::TimedOut { origin: self.origin.to_string() })
        })
    }

    async fn connect_unhurried(&self) -> Result<(Connection, Wire), Http2ConnectError> {
        let Origin { host, port, .. } = &self.origin;
        let stream = match tcp::connect(host, *port, &*self.reach, tcp::UNACKNOWLEDGED_MAX).await {
            Ok(stream) => stream,
            Err(tcp::ConnectError::Forbidden(forbidden)) => {
                return Err(Http2ConnectError::Forbidden(forbidden));
            }
            Err(tcp::ConnectError::Failed(message)) => return Err(self.failed(&message)),
        };
        let shaken = tls::shake_hands(&self.tls, host, stream).await;
        let stream = shaken.map_err(|error| self.failed(&tls::explain(&error)))?;
        if stream.get_ref().1.alpn_protocol() != Some(b"h2") {
            return Err(Http2ConnectError::NotHttp2 { origin: self.origin.to_string() });
        }
        let (requests, mut connection) = h2::client::Builder::new()
            .enable_push(false)
            // Until the peer's SETTINGS say how many.
            .initial_max_send_streams(1)
            .initial_connection_window_size(ANSWERS_WINDOW_BYTES)
            .max_header_list_size(16 * 1024)
            .handshake(Unvectored(stream))
            .await
            .map_err(|error| self.failed(&error))?;
        let mut pings = connection.ping_pong().ok_or_else(|| self.failed(&"cannot ping"))?;
        // With TLS 1.3 a peer that refuses our certificate, and a proxy without a server, say so only now. A request would be
        // in doubt then.
        tokio::select! {
            biased;
            ended = &mut connection => {
                let why = ended.err().map(|error| error.to_string()).unwrap_or_default();
                return Err(self.failed(&format!("it was closed at once: {why}")));
            }
            pong = pings.ping(Ping::opaque()) => {
                pong.map_err(|error| self.failed(&error))?;
            }
        }
        // The pong has come behind SETTINGS, a peer's first frame (RFC 9113, section 3.4): what it grants is known now.
        let load = Rc::new(Load::default());
        let (provider, priming) = (self.provider, self.priming);
        let wire = Wire { provider, connection, pings, load: Rc::clone(&load) };
        let (requests, proven) = (RefCell::new(requests), Cell::new(false));
        Ok((Connection { requests, load, priming, proven }, wire))
    }

    fn failed(&self, error: &dyn std::fmt::Display) -> Http2ConnectError {
        Http2ConnectError::Failed { origin: self.origin.to_string(), message: error.to_string() }
    }
}

// === impl Connection ===

impl Connection {
    /// Streams that may be opened now.
    pub(super) fn free_streams(&self) -> usize {
        let granted = self.requests.borrow().current_max_send_streams();
        let usable = if self.is_settled() { granted } else { granted.min(1) };
        usable.saturating_sub(self.load.in_flight.get())
    }

    /// Whether it takes as much as it ever will: the peer has granted its streams before the first request.
    pub(super) fn is_settled(&self) -> bool {
        self.proven.get() || self.priming == Priming::Unprimed
    }

    /// Whether the peer answers no requests, even if it answers pings.
    pub(super) fn is_unresponsive(&self) -> bool {
        self.load.given_up.get() >= GIVEN_UP_MAX
    }

    /// Takes one of the free streams.
    pub(super) fn take_stream(&self) {
        self.load.in_flight.set(self.load.in_flight.get() + 1);
    }

    /// Gives it back.
    pub(super) fn give_stream_back(&self) {
        self.load.in_flight.set(self.load.in_flight.get().saturating_sub(1));
    }

    /// Sends a request over a stream that was taken; the future waits for the answer. It does not hold the request: thousands
    /// of these futures wait at a time, and each has to be small.
    pub(super) fn exchange(
        &self,
        request: Request<()>,
        payload: Bytes,
    ) -> impl Future<Output = Result<Reply, NoReply>> + use<'_> {
        // A connection that is going away says so here, before anything is written.
        let started = self.start(request, payload);
        async move {
            let response = started.map_err(|_| NoReply::NotProcessed { leave: true })?;
            let awaited = Awaited { load: &self.load, is_answered: false };
            let answer = response.await;
            // A reset counts as well: a peer that resets a stream is responsive.
            awaited.end();
            let answer = answer.map_err(|error| no_reply(&error))?;
            self.load.answers.set(self.load.answers.get().wrapping_add(1));
            // 403 is how APNs refuses a token or a certificate.
            if answer.status() != StatusCode::FORBIDDEN {
                self.proven.set(true);
            }
            match read(answer) {
                Ok(reply) => Ok(reply),
                Err(slow) => Ok(slow.await),
            }
        }
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

// === impl Awaited ===

impl Awaited<'_> {
    fn end(mut self) {
        self.is_answered = true;
    }
}

impl Drop for Awaited<'_> {
    fn drop(&mut self) {
        let given_up = if self.is_answered { 0 } else { self.load.given_up.get() + 1 };
        self.load.given_up.set(given_up);
    }
}

// === impl Wire ===

impl Wire {
    /// Runs the connection until it is over or idle. `progressed` is called whenever it has moved on.
    pub(super) async fn run(&mut self, progressed: impl Fn()) -> ConnectionEnding {
        let Self { provider, connection, pings, load } = self;
        let moving = poll_fn(|context| {
            let ended = connection.poll_unpin(context);
            progressed();
            ended
        });
        tokio::select! {
            biased;
            ended = moving => {
                if let Err(error) = ended {
                    tracing::debug!(provider, %error, "connection ended");
                }
                ConnectionEnding::Over
            }
            ending = watch(provider, pings, load) => ending,
        }
    }

    /// Closes gracefully. To be called when the sending side was dropped.
    pub(super) async fn close(self) {
        match tokio::time::timeout(CLOSE_WITHIN, self.connection).await {
            // No request is under way any more, so a peer that takes its time is not waited for.
            Ok(Ok(())) | Err(_) => {}
            Ok(Err(error)) => tracing::debug!(provider = self.provider, %error, "connection ended"),
        }
    }
}

/// Returns when the connection has been idle for long, or does not answer a ping.
async fn watch(provider: &str, pings: &mut PingPong, load: &Load) -> ConnectionEnding {
    let mut seen = load.answers.get();
    let mut quiet = Duration::ZERO;
    loop {
        tokio::time::sleep(CHECK_EVERY).await;
        if std::mem::replace(&mut seen, load.answers.get()) != load.answers.get() {
            quiet = Duration::ZERO;
            continue;
        }
        quiet += CHECK_EVERY;
        if quiet >= IDLE_MAX && load.in_flight.get() == 0 {
            return ConnectionEnding::Idle;
        }
        let asking = pings.ping(Ping::opaque());
        if !matches!(tokio::time::timeout(PONG_WITHIN, asking).await, Ok(Ok(_pong))) {
            tracing::warn!(provider, "a connection fell silent: it is replaced");
            return ConnectionEnding::Over;
        }
    }
}

/// Reads an answer to its end, so that its stream need not be reset, and keeps the body unless it is an acceptance. When not all
/// of it is there, which is rare, the future reads the rest.
fn read(answer: Response<RecvStream>) -> Result<Reply, LocalBoxFuture<'static, Reply>> {
    let (head, mut stream) = answer.into_parts();
    let is_kept = !head.status.is_success();
    let mut body = ReplyBody { bytes: 0, kept: Vec::new(), is_kept };
    let mut reply = Reply {
        status: head.status.as_u16(),
        headers: head.headers,
        body: Vec::new(),
        timing: Timing::default(),
    };
    // What there is has nearly always come with the head.
    while let Some(piece) = stream.data().now_or_never() {
        if body.take(&mut stream, piece).is_break() {
            reply.body = body.kept;
            return Ok(reply);
        }
    }
    Err(Box::pin(async move {
        reply.body = read_slowly(stream, body).await;
        reply
    }))
}

/// Reads the rest of a body. One that drips, breaks off or never ends costs at most its words.
async fn read_slowly(mut stream: RecvStream, mut body: ReplyBody) -> Vec<u8> {
    let rest = async {
        loop {
            let piece = stream.data().await;
            if body.take(&mut stream, piece).is_break() {
                return;
            }
        }
    };
    let _complete: Result<(), _> = tokio::time::timeout(BODY_WITHIN, rest).await;
    body.kept
}

/// The meaning of a stream's error for its request.
///
/// `h2` ends streams above a GOAWAY's last stream with that GOAWAY, and those below it, if the connection
/// breaks before their answers, with what broke it.
fn no_reply(error: &h2::Error) -> NoReply {
    let by_peer = error.is_remote();
    if by_peer && error.reason() == Some(Reason::HTTP_1_1_REQUIRED) {
        return NoReply::Http11Required;
    }
    if by_peer && error.is_go_away() {
        return NoReply::NotProcessed { leave: true };
    }
    if by_peer && error.is_reset() && error.reason() == Some(Reason::REFUSED_STREAM) {
        return NoReply::NotProcessed { leave: false };
    }
    NoReply::Lost(words::short(format!("no answer: {error}")))
}

// === impl ReplyBody ===

impl ReplyBody {
    fn take(
        &mut self,
        stream: &mut RecvStream,
        piece: Option<Result<Bytes, h2::Error>>,
    ) -> ControlFlow<()> {
        let Some(Ok(piece)) = piece else { return ControlFlow::Break(()) };
        let room = ANSWER_BYTES.saturating_sub(self.bytes);
        self.bytes += piece.len();
        if self.is_kept {
            self.kept.extend_from_slice(piece.get(..room).unwrap_or(&piece));
        }
        let is_over = self.bytes >= ANSWER_BYTES
            || stream.is_end_stream()
            || stream.flow_control().release_capacity(piece.len()).is_err();
        if is_over { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
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

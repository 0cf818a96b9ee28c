//! HTTP/1.1: the connections of one thread, to any number of origins. They are kept for a while after use.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use flow::{Clock, Timing};
use futures_util::FutureExt as _;
use http::Request;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use notification::limits;
use rustls::ClientConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;

use crate::connect::{self, ConnectFailure};
use crate::connection_counts::{ConnectFault, ConnectionCounts};
use crate::endpoint::Origin;
use crate::exchange::{Failure, Permit, Reply, Unsent};
use crate::idle::{Idle, Reusable};
use crate::redact::CredentialHeaders;
use crate::tasks::LocalTasks;
use crate::tcp::{self, Reach};
use crate::{ANSWER_BYTES, tls, words};

/// How long a connection without work is kept; as this is checked as often, up to twice as long.
const IDLE_MAX: Duration = Duration::from_mins(1);
/// Connections without work kept per sender thread; beyond it the one that is idle longest goes.
const IDLE_CONNECTIONS_MAX: usize = 256;
/// How long a kept connection may take to be ready for its next request.
const READY_WITHIN: Duration = Duration::from_secs(1);
/// How long the body of an answer may take before its connection is given up. The status decides, so an attempt does not wait
/// longer for a connection to be of use to the next.
const BODY_WITHIN: Duration = Duration::from_secs(1);

/// Header fields of an answer: more than any server is known to send, 64 bytes of memory each while it is read.
const HEADERS_MAX: usize = 400;

/// The other end of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpTarget {
    /// The server.
    pub origin: Origin,
    /// The index of the pool's TLS configuration to use: with which certificate the client shows itself.
    pub tls: usize,
}

/// Connections to servers.
#[derive(Debug)]
pub struct Http1Pool {
    reach: Arc<dyn Reach>,
    tls: Vec<Arc<ClientConfig>>,
    idle: Idle<HttpTarget, Requests>,
    clock: Clock,
    /// Move the connections.
    tasks: LocalTasks,
    counts: Arc<ConnectionCounts>,
}

/// Why a try has no answer.
#[derive(Debug)]
struct FailedTry {
    /// The request, if nothing of it was sent.
    unsent: Option<Request<Full<Bytes>>>,
    /// The server refused the handshake, and so has not read the request. Of a connection that carried nothing before.
    is_refused: bool,
    message: String,
}

type Requests = SendRequest<Full<Bytes>>;

// === impl Http1Pool ===

impl Http1Pool {
    /// A pool without connections, to the addresses that `reach` admits, with the configurations `tls`.
    pub fn new(reach: Arc<dyn Reach>, tls: Vec<Arc<ClientConfig>>, clock: Clock) -> Self {
        let idle = Idle::new(clock, IDLE_MAX, IDLE_CONNECTIONS_MAX);
        Self { reach, tls, idle, clock, tasks: LocalTasks::default(), counts: Arc::default() }
    }

    /// This pool, which counts its connections in `counts`.
    #[must_use]
    pub fn counted(self, counts: Arc<ConnectionCounts>) -> Self {
        Self { counts, ..self }
    }

    /// Sends `request` to `target` and waits for the answer. A kept connection that turns out
    /// to be closed before anything was written costs nothing but a look at the next.
    ///
    /// # Errors
    /// Why there is no answer.
    pub async fn exchange<P: Permit>(
        &self,
        permit: P,
        target: &HttpTarget,
        mut request: Request<Full<Bytes>>,
    ) -> Result<Reply, Failure<P::Refusal>> {
        let waiting_since = self.clock.monotonic();
        // A server may end an idle connection at the very moment a request leaves for it. Then it is unknown whether it was read,
        // and a request that must be sent at most once cannot be repeated: so it gets a connection of its own.
        while !permit.is_at_most_once()
            && let Some(mut kept) = self.idle.take(target)
        {
            if !matches!(tokio::time::timeout(READY_WITHIN, kept.ready()).await, Ok(Ok(()))) {
                continue;
            }
            if let Err(refusal) = permit.begin().await {
                // Nothing was written to it: it is as good for the next request as before.
                self.idle.put(target.clone(), kept);
                return Err(Unsent::Withheld(refusal).into());
            }
            match self.try_over(Some(target), kept, request, waiting_since).await {
                Ok(reply) => return Ok(reply),
                // Nothing of it has left, so the next connection may have it.
                Err(FailedTry { unsent: Some(unsent), .. }) => request = unsent,
                Err(FailedTry { message, .. }) => return Err(Failure::Lost(message)),
            }
        }
        let connecting = connect::in_time(&target.origin, self.connect(target));
        let fresh = Box::pin(connecting).await.map_err(|failure| {
            self.counts.fail(failure.fault());
            Unsent::from(failure)
        })?;
        // With the connection in hand: what cannot be connected is not marked.
        permit.begin().await.map_err(Unsent::Withheld)?;
        let next = (!permit.is_at_most_once()).then_some(target);
        self.try_over(next, fresh, request, waiting_since).await.map_err(|no_reply| {
            let FailedTry { unsent, is_refused, message } = no_reply;
            // Only of a new connection: one that was kept has its handshake behind it.
            if unsent.is_some() || is_refused {
                Failure::Unsent(Unsent::Unreachable(message))
            } else {
                Failure::Lost(message)
            }
        })
    }

    /// One try over one connection, which is kept for the next request to a target if there is one; gives the request back if
    /// nothing of it was sent. It has waited for its connection since `waiting_since`.
    async fn try_over(
        &self,
        next: Option<&HttpTarget>,
        mut requests: Requests,
        request: Request<Full<Bytes>>,
        waiting_since: Instant,
    ) -> Result<Reply, FailedTry> {
        // Before the request is given away: an answer may repeat what it carries.
        let credentials = CredentialHeaders::of(request.headers());
        let sent_at = self.clock.monotonic();
        match requests.try_send_request(request).await {
            Ok(response) => {
                let (head, body) = response.into_parts();
                // The words of an acceptance are of no use, and those of a redirect are
                // meant for clients that follow it.
                let is_kept = !head.status.is_success() && !head.status.is_redirection();
                let mut body = self.keep(next, requests, body, is_kept).await;
                credentials.remove_from(&mut body);
                let on_wire = self.clock.monotonic() - sent_at;
                let timing = Timing { waited: sent_at - waiting_since, on_wire };
                Ok(Reply { status: head.status.as_u16(), headers: head.headers, body, timing })
            }
            Err(mut error) => {
                // The library gives the request back only if it wrote nothing of it.
                let unsent = error.take_message();
                let error = error.into_error();
                let refusal = tls::refusal(&error).map(tls::explain);
                let is_refused = refusal.is_some();
                let cause = refusal.unwrap_or_else(|| error.to_string());
                let message = words::short(format!("no answer: {cause}"));
                Err(FailedTry { unsent, is_refused, message })
            }
        }
    }

    /// Keeps the connection for the `next` request once the rest of the answer has come. Gives the beginning of the body, as far
    /// as it came, if `is_kept`.
    async fn keep(
        &self,
        next: Option<&HttpTarget>,
        requests: Requests,
        body: Incoming,
        is_kept: bool,
    ) -> Vec<u8> {
        let mut beginning = Vec::new();
        let room = if is_kept { limits::DETAIL_BYTES } else { 0 };
        let draining = drain(body, &mut beginning, room);
        if matches!(tokio::time::timeout(BODY_WITHIN, draining).await, Ok(true))
            && let Some(target) = next
        {
            self.idle.put(target.clone(), requests);
        }
        beginning
    }

    async fn connect(&self, target: &HttpTarget) -> Result<Requests, ConnectFailure> {
        let origin = &target.origin;
        let refuse = |error: String| ConnectFailure::of(origin, ConnectFault::Protocol, &error);
        let stream = connect::over_tcp(origin, &*self.reach).await?;
        if !origin.is_https {
            return self.shake_hands(stream).await.map_err(refuse);
        }
        let config = self.tls.get(target.tls).ok_or_else(|| refuse("no TLS for it".to_owned()))?;
        let stream = connect::over_tls(origin, config, stream).await?;
        self.shake_hands(stream).await.map_err(refuse)
    }

    async fn shake_hands(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + 'static,
    ) -> Result<Requests, String> {
        let (requests, connection) =
            // The connection reads and writes only while it is polled: its requests wait for that.
            builder().handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
        let open = self.counts.open();
        self.tasks.spawn(async move {
            let _open = open;
            if let Err(error) = connection.await {
                tracing::debug!(%error, "HTTP/1.1 connection ended");
            }
        });
        Ok(requests)
    }

    /// Closes what is idle.
    pub async fn close(&self) {
        self.idle.close().await;
        self.tasks.abort().await;
    }
}

/// Sends `request` to `origin` over a connection of its own, with TLS if that is given, and waits for the answer with its whole body, at
/// most [`ANSWER_BYTES`]; it is not timed. The caller bounds the time, and redacts what it keeps.
///
/// # Errors
/// Why there is no answer, in words.
pub async fn exchange_once(
    origin: &Origin,
    tls: Option<&Arc<ClientConfig>>,
    reach: &dyn Reach,
    request: Request<Full<Bytes>>,
) -> Result<Reply, String> {
    let stream = tcp::connect(&origin.host, origin.port, reach, tcp::UNACKNOWLEDGED_MAX)
        .await
        .map_err(|error| error.to_string())?;
    let Some(config) = tls else { return exchange_over(stream, request).await };
    let stream = tls::shake_hands(config, &origin.host, stream)
        .await
        .map_err(|error| tls::explain(&error))?;
    exchange_over(stream, request).await
}

/// Sends the only request of `stream`, and waits for the answer.
async fn exchange_over<S>(stream: S, request: Request<Full<Bytes>>) -> Result<Reply, String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut requests, connection) =
        builder().handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
    let asking = async {
        let answer = requests.send_request(request).await.map_err(|error| error.to_string())?;
        let (head, body) = answer.into_parts();
        let body = Limited::new(body, ANSWER_BYTES).collect().await;
        let body = body.map_err(|error| error.to_string())?.to_bytes().to_vec();
        let timing = Timing::default();
        Ok(Reply { status: head.status.as_u16(), headers: head.headers, body, timing })
    };
    // The connection moves while the answer is waited for, and ends with it. Its own end is no answer: the request says what came of it.
    let moving = connection.then(|_ended| std::future::pending::<Infallible>());
    tokio::select! {
        // The answer is looked at first: it may have come with the end of the connection.
        biased;
        answer = asking => answer,
        never = moving => match never {},
    }
}

/// Reads what servers really send, within bounds: folded header fields, as which a recipient replaces each fold by spaces (RFC 9112,
/// section 5.2), and many of them.
fn builder() -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        .max_buf_size(ANSWER_BYTES)
        .max_headers(HEADERS_MAX)
        .allow_obsolete_multiline_headers_in_responses(true);
    builder
}

/// Reads a body to its end, with up to `room` bytes of how it begins; `false` when it is too long or breaks off.
async fn drain(mut body: Incoming, beginning: &mut Vec<u8>, room: usize) -> bool {
    let mut bytes = 0;
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else { return false };
        let data = frame.data_ref().map_or(&[] as &[u8], |data| data);
        let kept = data.len().min(room.saturating_sub(beginning.len()));
        beginning.extend_from_slice(data.get(..kept).unwrap_or_default());
        bytes += data.len();
        // To read on would let a server hold the connection for as long as it likes to send.
        if bytes > ANSWER_BYTES {
            return false;
        }
    }
    true
}

// === impl Requests ===

impl Reusable for Requests {
    fn is_usable(&mut self) -> bool {
        !self.is_closed()
    }

    /// Dropped, it ends its connection.
    async fn end(self) {}
}

#[cfg(test)]
#[path = "http1_tests.rs"]
mod tests;

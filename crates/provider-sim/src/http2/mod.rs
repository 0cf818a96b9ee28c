//! HTTP/2: one task drives a connection and all its streams.
//!
//! A request costs no task, no channel and no wake-up of its own. One turn of the connection reads
//! every frame that is there, judges the requests that became complete, waits until their records
//! are written (all of one turn in one write), and sends their answers in one flush.

mod single_stream;
mod wire;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::future::poll_fn;
use std::num::NonZeroU64;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use h2::server::SendResponse;
use h2::{Reason, RecvStream};
use http::request::Parts;
use tokio::time::Sleep;

use crate::clock;
use crate::exchange::{Request, SimContent, SimReply};
use crate::provider::Provider;
use crate::tls::TlsStream;
use wire::SharedWire;

/// Window of a connection: large, so that no request waits for a window update.
const CONNECTION_WINDOW_BYTES: u32 = 1 << 24;
const HEADER_BYTES_MAX: u32 = 1 << 16;
/// How long a client may take to close after an abrupt GOAWAY.
const LINGER: Duration = Duration::from_secs(1);

/// Serves one connection until either side closes it.
pub(crate) async fn serve(tls: TlsStream, provider: Rc<Provider>) -> Result<(), h2::Error> {
    let max_streams = provider.options.max_streams.get();
    let single_stream = provider.is_apns() && provider.options.apns_single_stream;
    let wire = SharedWire::new(tls, single_stream);
    let h2 = h2::server::Builder::new()
        .max_concurrent_streams(max_streams)
        // A client may give up everything it has under way, which is no attack here.
        .max_pending_accept_reset_streams(usize::try_from(max_streams).unwrap_or(usize::MAX))
        .max_header_list_size(HEADER_BYTES_MAX)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .handshake(wire.clone())
        .await?;
    let mut connection = SimConnection {
        goaway_after: provider.options.faults.goaway_every.map(NonZeroU64::get),
        wire,
        h2,
        provider,
        accepted: 0,
        uploads: Vec::new(),
        recording: VecDeque::new(),
        delayed: BinaryHeap::new(),
        timer: None,
        ending: SimEnding::Never,
        abandoned: Vec::new(),
    };
    let end = poll_fn(|context| connection.poll(context)).await?;
    if let ConnectionEnd::Abrupt { last_stream } = end {
        let wire = connection.wire.clone();
        // With it goes h2, which shares the wire that the goodbye needs alone.
        drop(connection);
        // However the goodbye ends, the connection is closed by then.
        drop(tokio::time::timeout(LINGER, wire.goodbye(last_stream)).await);
    }
    Ok(())
}

struct SimConnection {
    wire: SharedWire,
    h2: h2::server::Connection<SharedWire, Bytes>,
    provider: Rc<Provider>,
    /// Requests accepted so far, and after how many of them the connection ends.
    accepted: u64,
    goaway_after: Option<u64>,
    /// Requests whose body is not complete.
    uploads: Vec<RequestUpload>,
    /// Replies that wait for their record to be written, in the order of the journal.
    recording: VecDeque<(u64, Outgoing)>,
    /// Replies that wait for their time, the earliest on top.
    delayed: BinaryHeap<Reverse<Outgoing>>,
    timer: Option<(u64, Pin<Box<Sleep>>)>,
    ending: SimEnding,
    /// Streams above the last one of an abrupt GOAWAY: held open, so that nothing is sent on them.
    abandoned: Vec<SendResponse<Bytes>>,
}

/// How the connection is to end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SimEnding {
    Never,
    /// Streams up to this one are served.
    Abrupt {
        last_stream: u32,
    },
    Disconnect,
}

/// How it ended.
enum ConnectionEnd {
    Closed,
    Abrupt { last_stream: u32 },
}

struct RequestUpload {
    parts: Parts,
    stream: RecvStream,
    respond: SendResponse<Bytes>,
    received: Received,
}

/// The received part of a body; most come in one piece, which is not copied.
enum Received {
    Piece(Bytes),
    Pieces(BytesMut),
}

/// How a body came to its end.
enum Complete {
    Whole,
    TooLong,
    /// The client reset the stream.
    Lost,
}

/// A reply and when it is due, in microseconds since the Unix epoch.
struct Outgoing {
    due_us: u64,
    reply: SimReply,
    respond: SendResponse<Bytes>,
}

// === impl SimConnection ===

impl SimConnection {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<ConnectionEnd, h2::Error>> {
        loop {
            if self.poll_requests(context)?.is_ready() {
                return Poll::Ready(Ok(ConnectionEnd::Closed));
            }
            self.continue_uploads();
            let sent = self.send_recorded(context) + self.send_delayed(context);
            if self.ending == SimEnding::Disconnect {
                return Poll::Ready(Ok(ConnectionEnd::Closed));
            }
            if sent > 0 {
                // What was sent leaves with the next turn.
                continue;
            }
            return match self.ending {
                SimEnding::Abrupt { last_stream } if self.is_idle() && self.wire.is_flushed() => {
                    Poll::Ready(Ok(ConnectionEnd::Abrupt { last_stream }))
                }
                SimEnding::Never | SimEnding::Disconnect | SimEnding::Abrupt { .. } => {
                    Poll::Pending
                }
            };
        }
    }

    /// Takes every request that is there. Ready when the connection is closed.
    fn poll_requests(&mut self, context: &mut Context<'_>) -> Poll<Result<(), h2::Error>> {
        loop {
            let next = ready!(pin!(self.h2.accept()).poll(context));
            let Some(accepted) = next else {
                return Poll::Ready(Ok(()));
            };
            let (request, respond) = accepted?;
            let (parts, stream) = request.into_parts();
            self.accept(RequestUpload {
                parts,
                stream,
                respond,
                received: Received::Piece(Bytes::new()),
            });
        }
    }

    fn accept(&mut self, mut upload: RequestUpload) {
        if matches!(self.ending, SimEnding::Abrupt { .. }) {
            self.provider.refuse(&upload.request(SimContent::TooLong));
            self.abandoned.push(upload.respond);
            return;
        }
        if self.wire.is_single_stream() && !self.is_idle() {
            let record = self.provider.refuse(&upload.request(SimContent::TooLong));
            let outgoing = Outgoing { due_us: 0, reply: SimReply::Refuse, respond: upload.respond };
            self.recording.push_back((record, outgoing));
            return;
        }
        self.accepted += 1;
        if self.goaway_after == Some(self.accepted) {
            if self.provider.options.faults.goaway_abrupt {
                let last_stream = upload.respond.stream_id().as_u32();
                self.ending = SimEnding::Abrupt { last_stream };
            } else {
                self.h2.graceful_shutdown();
            }
        }
        match upload.progress(self.provider.content_bytes_max()) {
            None => self.uploads.push(upload),
            Some(complete) => self.judge(upload, &complete),
        }
    }

    fn continue_uploads(&mut self) {
        let bytes_max = self.provider.content_bytes_max();
        let mut i = 0;
        while let Some(upload) = self.uploads.get_mut(i) {
            match upload.progress(bytes_max) {
                None => i += 1,
                Some(complete) => {
                    let upload = self.uploads.swap_remove(i);
                    self.judge(upload, &complete);
                }
            }
        }
    }

    fn judge(&mut self, upload: RequestUpload, complete: &Complete) {
        let content = match complete {
            Complete::Lost => return,
            Complete::Whole => SimContent::Whole(upload.received.bytes()),
            Complete::TooLong => SimContent::TooLong,
        };
        let verdict = self.provider.receive(&upload.request(content));
        if verdict.authenticated {
            self.wire.allow_streams(self.provider.options.max_streams.get());
        }
        let outgoing =
            Outgoing { due_us: verdict.due_us, reply: verdict.reply, respond: upload.respond };
        self.recording.push_back((verdict.record, outgoing));
    }

    /// Replies to what is written and due at once; returns how many.
    fn send_recorded(&mut self, context: &mut Context<'_>) -> usize {
        let mut sent = 0;
        while let Some((record, _)) = self.recording.front() {
            let written = self.provider.journal.poll_written(*record, context);
            // What stands behind it in the journal is not written either.
            if written.is_pending() {
                break;
            }
            let Some((_, outgoing)) = self.recording.pop_front() else {
                break;
            };
            if outgoing.due_us > 0 {
                self.delayed.push(Reverse(outgoing));
            } else {
                self.send(outgoing);
                sent += 1;
            }
        }
        sent
    }

    /// Replies to what has become due, and sets the timer for the next; returns how many.
    fn send_delayed(&mut self, context: &mut Context<'_>) -> usize {
        let mut sent = 0;
        while let Some(Reverse(next)) = self.delayed.peek() {
            let (next_us, now_us) = (next.due_us, clock::unix_us());
            if next_us <= now_us {
                let Some(Reverse(outgoing)) = self.delayed.pop() else {
                    break;
                };
                self.send(outgoing);
                sent += 1;
                continue;
            }
            if self.timer.as_ref().is_none_or(|(timer_us, _)| *timer_us != next_us) {
                let wait = Duration::from_micros(next_us - now_us);
                self.timer = Some((next_us, Box::pin(tokio::time::sleep(wait))));
            }
            // A new timer wakes this task only once it was polled.
            match self.timer.as_mut().map(|(_, timer)| timer.as_mut().poll(context)) {
                Some(Poll::Ready(())) => self.timer = None,
                Some(Poll::Pending) | None => break,
            }
        }
        sent
    }

    fn send(&mut self, outgoing: Outgoing) {
        let Outgoing { reply, mut respond, .. } = outgoing;
        // A client that reset the stream gets no answer: nothing to do about an error.
        match reply {
            SimReply::Answer(answer) => {
                let body = answer.body.clone();
                let response = answer.into_response(drop);
                if let Ok(mut stream) = respond.send_response(response, body.is_empty())
                    && !body.is_empty()
                {
                    drop(stream.send_data(body, true));
                }
            }
            SimReply::Silence => respond.send_reset(Reason::CANCEL),
            SimReply::Refuse => respond.send_reset(Reason::REFUSED_STREAM),
            SimReply::Disconnect => self.ending = SimEnding::Disconnect,
        }
    }

    fn is_idle(&self) -> bool {
        self.uploads.is_empty() && self.recording.is_empty() && self.delayed.is_empty()
    }
}

// === impl RequestUpload ===

impl RequestUpload {
    fn request<'a>(&'a self, content: SimContent<'a>) -> Request<'a> {
        let Parts { method, uri, headers, .. } = &self.parts;
        let authority = uri.authority().map_or("", |authority| authority.as_str());
        Request { method, authority, path: uri.path(), headers, content }
    }

    /// Takes what has arrived of the body; `None` when there is more to come.
    ///
    /// The connection's own task reads the frames and looks here afterwards: no wake-up is needed.
    fn progress(&mut self, bytes_max: usize) -> Option<Complete> {
        let mut context = Context::from_waker(Waker::noop());
        loop {
            if self.stream.is_end_stream() {
                return Some(Complete::Whole);
            }
            let piece = match self.stream.poll_data(&mut context) {
                Poll::Pending => return None,
                Poll::Ready(None) => return Some(Complete::Whole),
                Poll::Ready(Some(Err(_))) => return Some(Complete::Lost),
                Poll::Ready(Some(Ok(piece))) => piece,
            };
            let piece_bytes = piece.len();
            self.received.push(piece);
            if self.received.bytes().len() > bytes_max {
                return Some(Complete::TooLong);
            }
            if !self.stream.is_end_stream()
                && self.stream.flow_control().release_capacity(piece_bytes).is_err()
            {
                return Some(Complete::Lost);
            }
        }
    }
}

// === impl Received ===

impl Received {
    fn push(&mut self, piece: Bytes) {
        match self {
            Self::Piece(first) if first.is_empty() => *first = piece,
            Self::Piece(first) => {
                let mut pieces = BytesMut::from(first.as_ref());
                pieces.extend_from_slice(&piece);
                *self = Self::Pieces(pieces);
            }
            Self::Pieces(pieces) => pieces.extend_from_slice(&piece),
        }
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Self::Piece(piece) => piece,
            Self::Pieces(pieces) => pieces,
        }
    }
}

// === impl Outgoing ===

impl PartialEq for Outgoing {
    fn eq(&self, other: &Self) -> bool {
        self.due_us == other.due_us
    }
}

impl Eq for Outgoing {}

impl PartialOrd for Outgoing {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Outgoing {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.due_us.cmp(&other.due_us)
    }
}

//! HTTP/2: one task drives a connection and all its streams.
//!
//! A request costs no task, no channel and no wake-up of its own. One turn of the connection reads every frame that is there, judges
//! the requests that became complete, waits until their records are written (all of one turn in one write), and sends their
//! answers in one write. [`session`] has the protocol; it shares no code with the client that is tried against it, and its table
//! of header fields is a library's.

mod frames;
mod session;
mod streams;
mod upload;

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::num::NonZeroU64;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead as _, AsyncReadExt as _, AsyncWrite as _, AsyncWriteExt as _, ReadBuf};
use tokio::time::Sleep;

use crate::clock;
use crate::exchange::{NEVER_US, SimContent, SimReply};
use crate::provider::Provider;
use crate::tls::TlsStream;
use frames::{Code, PING};
use session::{Breach, RequestEvent, ServerSession};
use upload::IncomingRequest;

/// How long a client may take to close after the last GOAWAY.
const LINGER: Duration = Duration::from_secs(1);
/// The words of an abrupt GOAWAY, as APNs has them.
const GOAWAY_REASON: &[u8] = br#"{"reason":"Shutdown"}"#;
/// Bytes that are read at a time: a full record of TLS.
const READ_BYTES: usize = 16 * 1024;
/// Bytes that may wait to be written while more is read.
const OUT_BYTES_MAX: usize = 1 << 20;
/// The highest number that a stream can have.
const STREAM_MAX: u32 = 0x7fff_ffff;

/// Serves one connection until either side closes it.
pub(crate) async fn serve(tls: TlsStream, provider: Rc<Provider>) -> io::Result<()> {
    let max_streams = provider.options.max_streams.get();
    let is_single_stream = provider.is_apns() && provider.options.apns_single_stream;
    let granted = if is_single_stream { 1 } else { max_streams };
    let mut connection = SimConnection {
        session: ServerSession::new(granted, provider.content_bytes_max()),
        goaway_after: provider.options.faults.goaway_every.map(NonZeroU64::get),
        tls,
        written: 0,
        input: vec![0; READ_BYTES].into_boxed_slice(),
        is_single_stream,
        provider,
        accepted: 0,
        last_stream: 0,
        recording: VecDeque::new(),
        delayed: VecDeque::new(),
        timer: None,
        ending: SimEnding::Never,
    };
    let end = poll_fn(|context| connection.poll(context)).await?;
    if let ConnectionEnd::Goodbye = end {
        // However the goodbye ends, the connection is closed by then.
        drop(tokio::time::timeout(LINGER, connection.goodbye()).await);
    }
    Ok(())
}

struct SimConnection {
    tls: TlsStream,
    session: ServerSession,
    /// How much of what the session wrote has left.
    written: usize,
    input: Box<[u8]>,
    /// The client is held to one stream until a valid token has come.
    is_single_stream: bool,
    provider: Rc<Provider>,
    /// Requests accepted so far, and after how many of them the connection ends.
    accepted: u64,
    goaway_after: Option<u64>,
    /// The last stream that was accepted.
    last_stream: u32,
    /// Replies that wait for their record to be written, in the order of the journal.
    recording: VecDeque<(u64, Outgoing)>,
    /// Replies that wait for their time, the earliest first.
    delayed: VecDeque<Outgoing>,
    timer: Option<(u64, Pin<Box<Sleep>>)>,
    ending: SimEnding,
}

/// How the connection is to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SimEnding {
    Never,
    /// Streams up to the last one are served, and those above held open, so that nothing is sent on them.
    Abrupt,
    /// The first GOAWAY is out: the client may have more under way, until it has answered a ping.
    Graceful,
    /// The last GOAWAY is out.
    Draining,
    Disconnect,
}

/// How it ended.
#[derive(Debug)]
enum ConnectionEnd {
    Closed,
    /// The last bytes of the session are written, and the connection is closed in order.
    Goodbye,
}

/// A reply and when it is due, in microseconds since the Unix epoch.
#[derive(Debug)]
struct Outgoing {
    due_us: u64,
    reply: SimReply,
    stream: u32,
}

// === impl SimConnection ===

impl SimConnection {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<io::Result<ConnectionEnd>> {
        loop {
            if let Poll::Ready(end) = self.poll_requests(context)? {
                return Poll::Ready(Ok(end));
            }
            let was_congested = self.is_congested();
            let sent = self.send_recorded(context) + self.send_delayed(context);
            // Without a write: what waits is lost with the connection, as the fault wants it.
            if self.ending == SimEnding::Disconnect {
                return Poll::Ready(Ok(ConnectionEnd::Closed));
            }
            let is_written = self.poll_write(context)?.is_ready();
            if is_written && self.is_done() {
                // Said last: until then the client goes on opening streams, which are not processed.
                if self.ending == SimEnding::Abrupt {
                    let out = &mut self.session.out;
                    frames::put_go_away(out, self.last_stream, Code::NO_ERROR, GOAWAY_REASON);
                }
                return Poll::Ready(Ok(ConnectionEnd::Goodbye));
            }
            // What was not read for lack of room is read now.
            let reads_on = is_written && was_congested;
            if sent == 0 && !reads_on {
                return Poll::Pending;
            }
        }
    }

    /// Takes every request that is there. Ready when the client has closed the connection, or broken the protocol.
    fn poll_requests(&mut self, context: &mut Context<'_>) -> Poll<io::Result<ConnectionEnd>> {
        while !self.is_congested() {
            let mut buffer = ReadBuf::new(&mut self.input);
            ready!(Pin::new(&mut self.tls).poll_read(context, &mut buffer))?;
            if buffer.filled().is_empty() {
                return Poll::Ready(Ok(ConnectionEnd::Closed));
            }
            self.session.receive(buffer.filled());
            if let Err(Breach(code, words)) = self.take_events() {
                tracing::warn!(words, "a client broke the protocol");
                frames::put_go_away(
                    &mut self.session.out,
                    self.last_stream,
                    code,
                    words.as_bytes(),
                );
                return Poll::Ready(Ok(ConnectionEnd::Goodbye));
            }
        }
        Poll::Pending
    }

    fn take_events(&mut self) -> Result<(), Breach> {
        while let Some(event) = self.session.next_event()? {
            match event {
                RequestEvent::Begun(stream) => {
                    self.accept(stream);
                    // Behind the acceptance, which counts requests and may have begun to end the connection.
                    if let Some(RequestEvent::Complete(upload, is_too_long)) =
                        self.session.take_whole()
                    {
                        self.judge(upload, is_too_long);
                    }
                }
                RequestEvent::Refused(upload) => self.refuse(upload),
                RequestEvent::Complete(upload, is_too_long) => self.judge(upload, is_too_long),
            }
        }
        if self.ending == SimEnding::Graceful && self.session.pongs > 0 {
            self.ending = SimEnding::Draining;
            frames::put_go_away(&mut self.session.out, self.last_stream, Code::NO_ERROR, b"");
        }
        Ok(())
    }

    fn accept(&mut self, stream: u32) {
        // Above the last stream: it is in the books as not processed, and the client hears of it by the GOAWAY alone.
        if matches!(self.ending, SimEnding::Abrupt | SimEnding::Draining) {
            if let Some(upload) = self.session.begun() {
                // Its record is not waited for: there is no answer that could leave before it.
                self.provider.refuse(&upload.request(SimContent::TooLong));
            }
            self.session.abandon();
            return;
        }
        self.accepted += 1;
        self.last_stream = stream;
        if self.goaway_after == Some(self.accepted) {
            if self.provider.options.faults.goaway_abrupt {
                self.ending = SimEnding::Abrupt;
            } else {
                self.ending = SimEnding::Graceful;
                frames::put_go_away(&mut self.session.out, STREAM_MAX, Code::NO_ERROR, b"");
                // Its answer shows that the client has read the GOAWAY: what it has opened until then is served (RFC
                // 9113, section 6.8).
                frames::put(&mut self.session.out, PING, 0, 0, b"goodbye!");
            }
        }
    }

    fn refuse(&mut self, upload: Box<IncomingRequest>) {
        let record = self.provider.refuse(&upload.request(SimContent::TooLong));
        let refusal = Outgoing { due_us: 0, reply: SimReply::Refuse, stream: upload.stream };
        self.recording.push_back((record, refusal));
        self.session.recycle(upload);
    }

    fn judge(&mut self, upload: Box<IncomingRequest>, is_too_long: bool) {
        let content =
            if is_too_long { SimContent::TooLong } else { SimContent::Whole(&upload.body) };
        let verdict = self.provider.receive(&upload.request(content));
        if verdict.authenticated && self.is_single_stream {
            self.is_single_stream = false;
            self.session.grant_streams(self.provider.options.max_streams.get());
        }
        let (due_us, reply, stream) = (verdict.due_us, verdict.reply, upload.stream);
        self.recording.push_back((verdict.record, Outgoing { due_us, reply, stream }));
        self.session.recycle(upload);
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
            match outgoing.due_us {
                0 => {
                    self.send(outgoing);
                    sent += 1;
                }
                // Its stream stays open until the client resets it.
                NEVER_US => {}
                _ => self.delay(outgoing),
            }
        }
        sent
    }

    /// Replies to what has become due, and sets the timer for the next; returns how many.
    fn send_delayed(&mut self, context: &mut Context<'_>) -> usize {
        let mut sent = 0;
        while let Some(next) = self.delayed.front() {
            let (next_us, now_us) = (next.due_us, clock::unix_us());
            if next_us <= now_us {
                while let Some(due) = self.delayed.pop_front_if(|next| next.due_us <= now_us) {
                    self.send(due);
                    sent += 1;
                }
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

    /// Has a reply wait for its time. Where all take as long it comes last, and costs no search.
    fn delay(&mut self, reply: Outgoing) {
        if self.delayed.back().is_none_or(|last| last.due_us <= reply.due_us) {
            self.delayed.push_back(reply);
        } else {
            let place = self.delayed.partition_point(|other| other.due_us <= reply.due_us);
            self.delayed.insert(place, reply);
        }
    }

    fn send(&mut self, outgoing: Outgoing) {
        let Outgoing { reply, stream, .. } = outgoing;
        match reply {
            SimReply::Answer(answer) => self.session.answer(stream, *answer),
            SimReply::Silence => self.session.reset(stream, Code::CANCEL),
            SimReply::Refuse => self.session.reset(stream, Code::REFUSED_STREAM),
            SimReply::Disconnect => self.ending = SimEnding::Disconnect,
        }
    }

    /// Writes what the session has written. Ready when all of it has left.
    fn poll_write(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let Some(rest) = self.session.out.get(self.written..)
            && !rest.is_empty()
        {
            let wrote = ready!(Pin::new(&mut self.tls).poll_write(context, rest))?;
            if wrote == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.written += wrote;
        }
        self.session.out.clear();
        self.written = 0;
        Pin::new(&mut self.tls).poll_flush(context)
    }

    /// True if the client is to take answers before more is read.
    fn is_congested(&self) -> bool {
        self.session.out.len() - self.written >= OUT_BYTES_MAX
    }

    /// True if the connection ends, and nothing of it is left to do.
    fn is_done(&self) -> bool {
        let is_ending = matches!(self.ending, SimEnding::Abrupt | SimEnding::Draining);
        let is_idle = !self.session.has_uploads()
            && self.session.bodies.is_empty()
            && self.recording.is_empty()
            && self.delayed.is_empty();
        is_ending && is_idle
    }

    /// Writes what is left and waits until the client closes: closing a socket with unread bytes makes the kernel throw away what
    /// the client has not read, and the GOAWAY with it.
    async fn goodbye(mut self) -> io::Result<()> {
        self.tls.write_all(self.session.out.get(self.written..).unwrap_or_default()).await?;
        self.tls.shutdown().await?;
        while self.tls.read(&mut self.input).await? > 0 {}
        Ok(())
    }
}

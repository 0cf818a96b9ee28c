//! The state of one connection: requests in, bytes out, and time. [`inbound`](super::inbound) has what comes in. It has no socket,
//! no clock and no task, so a test can put it into any state.
//!
//! A request without an answer was *not processed* if the peer said so (`REFUSED_STREAM`, a GOAWAY below its stream), or if no
//! byte of it was offered to the connection. In every other case it may have been, and is *lost*.

use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderName;
use tokio::time::Instant;

use super::answer::{HEADER_LIST_BYTES_MAX, NoReply};
use super::frames::{self, Allowed, ErrorCode, PAYLOAD_BYTES_MAX, Violation};
use super::hpack::{HpackDecoder, HpackEncoder};
use super::outcomes::{RequestOutcome, RequestOutcomes};
use super::streams::Streams;
use super::write_buffer::WriteBuffer;
use crate::request_head::RequestHead;
use crate::words;

/// How often a connection is checked; one without an answer since the last check is sent a ping, so after 30 to 60 s of quiet.
const CHECK_EVERY: Duration = Duration::from_secs(30);
/// How long the answer to a ping may take.
const PONG_WITHIN: Duration = Duration::from_secs(10);
/// Checks without an answer after which a connection without work is closed: 10 minutes.
const QUIET_CHECKS_MAX: u32 = 20;
/// How long the body of an answer may take once its head has come: the status decides nearly all, so little is waited for.
pub(super) const BODY_WITHIN: Duration = Duration::from_secs(5);
/// Bytes of answers that may be under way on a connection: none waits for a window to open.
pub(super) const ANSWERS_WINDOW_BYTES: u32 = 1 << 20;
/// Why a connection has ended whose peer does not answer a ping: an operator may want to know.
pub(super) const SILENT: &str = "it fell silent";
/// Initial size of every window, bytes (RFC 9113, section 6.9.2). An answer is cut long before, so no stream's window is widened.
const WINDOW_BYTES: u32 = 65_535;
/// Bytes that may wait to be written while requests are still taken.
const OUT_BYTES_MAX: usize = 1 << 20;
/// Frames between two checks that bring no request on. A peer has no reason for as many, and each costs time or memory.
const IDLE_FRAMES_MAX: usize = 10_000;
/// How many such frames each frame of a request allows beside: the windows that it takes are given back in small pieces.
const IDLE_FRAMES_PER_FRAME: usize = 4;

/// One connection, as its client knows it.
#[derive(Debug, Default)]
pub(super) struct Http2Session {
    pub(super) out: WriteBuffer,
    pub(super) streams: Streams,
    pub(super) decoder: HpackDecoder,
    /// The beginning of a frame whose rest has not come.
    pub(super) partial: Vec<u8>,
    /// The beginning of a header block whose rest has not come: its stream, and whether the stream ends with it.
    pub(super) block: Option<(u32, bool, Vec<u8>)>,
    /// Bytes of answers that have come since the window was widened.
    pub(super) received: u32,
    pub(super) peer: Peer,
    /// The header fields of answers that are kept.
    pub(super) read_fields: &'static [HeaderName],
    pub(super) encoder: HpackEncoder,
    /// Window of the connection, bytes: payload that may still be sent over it.
    pub(super) window: i64,
    /// Streams whose bodies wait for that window, the first to come first.
    waiting: VecDeque<u32>,
    /// Streams whose heads have come, with the time until which their bodies are waited for.
    pub(super) bodies: VecDeque<(Instant, u32)>,
    /// Frames that may still come before the next check and bring no request on.
    idle_frames: usize,
    check_at: Option<Instant>,
    /// Checks since the last answer.
    pub(super) quiet_checks: u32,
    /// The number of the last ping, and until when its answer is waited for.
    pub(super) pings: u64,
    pub(super) pong_by: Option<Instant>,
    /// No request is begun any more, and the connection ends with the last one.
    is_finishing: bool,
    /// How it came to its end, in words for the log.
    ending: Option<String>,
}

/// The peer's settings, and whether it goes away.
#[derive(Debug, Default)]
pub(super) struct Peer {
    /// How many streams may be open at a time; `None`, which is taken for one, until its first frame, SETTINGS, has come.
    pub(super) streams_max: Option<usize>,
    /// Initial window of each stream, bytes.
    pub(super) initial_window: i64,
    /// The last stream that it will process, and why, once it has said GOAWAY.
    pub(super) goes_away: Option<(u32, ErrorCode)>,
}

// === impl Http2Session ===

impl Http2Session {
    /// A connection that begins at `now`, of whose answers the header fields `read_fields` are kept. Its first bytes wait to be
    /// written, a ping among them.
    pub(super) fn new(read_fields: &'static [HeaderName], now: Instant) -> Self {
        let window = i64::from(WINDOW_BYTES);
        let mut session = Self {
            peer: Peer { initial_window: window, ..Peer::default() },
            read_fields,
            window,
            idle_frames: IDLE_FRAMES_MAX,
            check_at: Some(now + CHECK_EVERY),
            // As if one had come before: the first is followed by a ping.
            quiet_checks: 1,
            ..Self::default()
        };
        session.out.buffer().extend_from_slice(frames::PREFACE);
        let [list_high, list_low] = HEADER_LIST_BYTES_MAX.to_be_bytes();
        // No push, and how large a list of header fields may be: the number of each, and its value.
        let settings = [0, 2, 0, 0, 0, 0, 0, 6, 0, 0, list_high, list_low];
        session.out.put(frames::SETTINGS, 0, 0, &settings);
        // SETTINGS cannot widen the connection's own window (section 6.9.2).
        let widened = ANSWERS_WINDOW_BYTES - WINDOW_BYTES;
        session.out.put(frames::WINDOW_UPDATE, 0, 0, &widened.to_be_bytes());
        // The answer shows that the peer has read what stands in front of it, and that TLS has stood on both sides.
        session.ping(now);
        session
    }

    /// True if the peer has answered our first bytes: what it grants is known, as its first frame is SETTINGS.
    pub(super) const fn is_ready(&self) -> bool {
        self.pong_by.is_none()
    }

    /// True if another request may ever be sent.
    pub(super) fn takes_requests(&self) -> bool {
        let is_left = self.is_finishing || self.ending.is_some() || self.peer.goes_away.is_some();
        !is_left && self.streams.next().is_some()
    }

    /// How many streams may be open at a time, as of now. None while bytes do not leave, or bodies wait for the window that all
    /// share: a request would wait here, and may find another connection.
    pub(super) fn streams_max(&self) -> usize {
        let is_congested = !self.waiting.is_empty() || self.out.waiting() > OUT_BYTES_MAX;
        if is_congested || !self.takes_requests() { 0 } else { self.peer.streams_max.unwrap_or(1) }
    }

    /// Begins a request whose outcome goes where `to` says, under its key, and gives the number of its stream.
    ///
    /// # Errors
    /// When the request cannot be begun here: nothing of it is written.
    pub(super) fn send(
        &mut self,
        head: &impl RequestHead,
        body: Bytes,
        to: (&Rc<RequestOutcomes>, u16),
    ) -> Result<u32, NoReply> {
        if !self.takes_requests() || self.streams.open() >= self.peer.streams_max.unwrap_or(1) {
            // The peer has taken streams back since this one was given out, or takes no more.
            return Err(NoReply::NotProcessed);
        }
        // Of its first byte: if that was never offered, nothing of the request was.
        let stream = self.streams.insert(self.out.position(), to).ok_or(NoReply::NotProcessed)?;
        // From here on nothing may fail: a block that was encoded and is not written would leave the peer's table
        // behind ours.
        let encode = |block: &mut Vec<u8>| self.encoder.encode(head, block);
        frames::put_headers(self.out.buffer(), stream, body.is_empty(), encode);
        self.allow_frames(1);
        // Bodies that wait for the connection's window are in front: none overtakes them.
        self.write_body(stream, body, self.waiting.is_empty());
        Ok(stream)
    }

    /// Gives a request up.
    pub(super) fn cancel(&mut self, stream: u32) {
        if self.streams.remove(stream).is_some() && self.ending.is_none() {
            // Its head stays in the write buffer even if it has not left: later heads build on the fields that it puts
            // into the table.
            self.out.put_reset(stream, ErrorCode::CANCEL);
        }
    }

    /// Begins no more requests, and ends the connection with the last one.
    pub(super) const fn finish(&mut self) {
        self.is_finishing = true;
    }

    /// The bytes to be written next; from now on they may have left. [`WriteBuffer::took`] is to be told how many did.
    pub(super) fn offer(&mut self) -> &[u8] {
        while let Some(&stream) = self.waiting.front() {
            // One that has ended waits no more, whatever the window is: others may be begun then.
            let slot = self.streams.get_mut(stream);
            if slot.is_some() && (self.window <= 0 || self.out.waiting() > OUT_BYTES_MAX) {
                break;
            }
            self.waiting.pop_front();
            if let Some(slot) = slot {
                slot.is_queued = false;
                let rest = slot.rest.take().map(|rest| *rest);
                self.write_body(stream, rest.unwrap_or_default(), true);
            }
        }
        if self.is_finishing && self.streams.open() == 0 && self.ending.is_none() {
            self.end_in_words("it was closed", ErrorCode::NO_ERROR, "");
        }
        self.out.offer()
    }

    /// How the connection came to its end. What waits to be written then is its last words.
    pub(super) fn ending(&self) -> Option<&str> {
        self.ending.as_deref()
    }

    /// Ends the connection, unless it has ended, and every request on it. What was never offered is not written any more.
    pub(super) fn end(&mut self, why: &str) {
        if self.ending.is_some() {
            return;
        }
        let words = match self.peer.goes_away {
            Some((_, code)) => format!("no answer: {why}, after GOAWAY ({code})"),
            None => format!("no answer: {why}"),
        };
        let lost = NoReply::Lost(words::short(words));
        self.end_streams_above(0, &NoReply::NotProcessed, &lost);
        self.ending = Some(why.to_owned());
    }

    /// Ends the connection since the peer broke a rule, and tells it so.
    pub(super) fn fail(&mut self, Violation(code, why): Violation) {
        let words = format!("the server broke the protocol: {why} ({code})");
        self.end_in_words(&words, code, why);
    }

    /// Ends the connection, unless it has ended, and tells the peer so with `code` and `words`.
    fn end_in_words(&mut self, why: &str, code: ErrorCode, words: &str) {
        if self.ending.is_none() {
            // Ended first: that takes what was never offered out of the write buffer, so GOAWAY is the last that the
            // peer reads.
            self.end(why);
            // No stream of the peer's was processed: it may open none.
            let payload = [&[0; 4], &code.0.to_be_bytes()[..], words.as_bytes()].concat();
            self.out.put(frames::GOAWAY, 0, 0, &payload);
        }
    }

    /// Ends the streams above `last_stream`: those without the head of an answer for the reason `unsent` where no byte of the
    /// request was offered, else for `why`. What was never offered is not written any more: their callers will send it elsewhere.
    pub(super) fn end_streams_above(&mut self, last_stream: u32, unsent: &NoReply, why: &NoReply) {
        let mut first_unsent = None;
        for stream in self.streams.numbers().into_iter().filter(|stream| *stream > last_stream) {
            let begins_at = self.streams.get_mut(stream).map_or(0, |slot| slot.begins_at);
            let mut why = why;
            if !self.out.may_have_left(begins_at) {
                first_unsent.get_or_insert(begins_at);
                why = unsent;
            }
            self.streams.end(stream, why.clone());
        }
        if let Some(position) = first_unsent {
            let bytes = self.out.withhold(position, |stream| stream > last_stream);
            // The peer never sees them, and will not give their window back.
            self.window += i64::try_from(bytes).unwrap_or(0);
        }
    }

    /// When [`Self::on_time`] is to be called next.
    pub(super) fn wake_at(&mut self) -> Option<Instant> {
        while let Some((_, stream)) = self.bodies.front()
            && self.streams.get_mut(*stream).is_none()
        {
            self.bodies.pop_front();
        }
        let body = self.bodies.front().map(|(until, _)| *until);
        [body, self.pong_by, self.check_at].into_iter().flatten().min()
    }

    /// Does what is due; `is_in_use` while someone has a stream, or may take one soon.
    pub(super) fn on_time(&mut self, now: Instant, is_in_use: bool) {
        while let Some((until, stream)) = self.bodies.front().copied()
            && until <= now
        {
            self.bodies.pop_front();
            // The status has come, and decides: a server that holds back the rest does not hold the delivery.
            self.complete(stream, Some(ErrorCode::CANCEL));
        }
        if self.pong_by.is_some_and(|until| until <= now) {
            self.end(SILENT);
        }
        if self.check_at.is_some_and(|at| at > now) || self.ending.is_some() {
            return;
        }
        self.check_at = Some(now + CHECK_EVERY);
        self.out.free_unused();
        // At least: what requests have earned beyond is still to be used.
        self.idle_frames = self.idle_frames.max(IDLE_FRAMES_MAX);
        self.quiet_checks += 1;
        match self.quiet_checks {
            // An answer has come since the last one.
            1 => {}
            checks if checks > QUIET_CHECKS_MAX && !is_in_use => self.finish(),
            _ => self.ping(now),
        }
    }

    /// Counts a frame that brings no request on.
    pub(super) fn count_idle_frame(&mut self) -> Allowed {
        let left = self.idle_frames.checked_sub(1);
        let code = ErrorCode::ENHANCE_YOUR_CALM;
        self.idle_frames = left.ok_or(Violation(code, "too many frames to no purpose"))?;
        Ok(())
    }

    /// Ends a stream whose head has come; with `reset`, or when the request was not sent to its end, tells the peer.
    pub(super) fn complete(&mut self, stream: u32, reset: Option<ErrorCode>) {
        let Some(slot) = self.streams.get_mut(stream) else { return };
        let Some(answer) = slot.answer.take() else { return };
        let reset = reset.or_else(|| slot.rest.is_some().then_some(ErrorCode::CANCEL));
        self.streams.conclude(stream, RequestOutcome(Ok(answer)));
        if let Some(code) = reset {
            self.out.put_reset(stream, code);
        }
    }

    /// Has the body of a request written when the connection's window lets it.
    pub(super) fn queue_body(&mut self, stream: u32) {
        let initial = self.peer.initial_window;
        if let Some(slot) = self.streams.get_mut(stream)
            && !slot.is_queued
            && slot.rest.is_some()
            && initial + slot.window > 0
        {
            slot.is_queued = true;
            self.waiting.push_back(stream);
        }
    }

    /// Writes as much of a request's body as windows let it, if it may leave yet, and keeps the rest.
    fn write_body(&mut self, stream: u32, mut rest: Bytes, may_leave: bool) {
        let Some(slot) = self.streams.get_mut(stream) else { return };
        let mut frames_written = 0;
        while may_leave && !rest.is_empty() {
            // Either window may be negative: the peer can take back what it has granted (section 6.9.2).
            let window = self.window.min(self.peer.initial_window + slot.window);
            let bytes = usize::try_from(window).unwrap_or(0).min(rest.len()).min(PAYLOAD_BYTES_MAX);
            if bytes == 0 {
                break;
            }
            let piece = rest.split_to(bytes);
            let flags = if rest.is_empty() { frames::END_STREAM } else { 0 };
            self.out.put(frames::DATA, flags, stream, &piece);
            let bytes = i64::try_from(bytes).unwrap_or(0);
            slot.window -= bytes;
            self.window -= bytes;
            frames_written += 1;
        }
        if !rest.is_empty() {
            slot.rest = Some(Box::new(rest));
            self.queue_body(stream);
        }
        self.allow_frames(frames_written);
    }

    /// Notes that `frames` of requests were written.
    fn allow_frames(&mut self, frames: usize) {
        // However much is sent, a flood stays bounded.
        let most = (self.streams.open() * IDLE_FRAMES_PER_FRAME).max(10 * IDLE_FRAMES_MAX);
        self.idle_frames = most.min(self.idle_frames + frames * IDLE_FRAMES_PER_FRAME);
    }

    fn ping(&mut self, now: Instant) {
        self.pings += 1;
        self.pong_by = Some(now + PONG_WITHIN);
        self.out.put(frames::PING, 0, 0, &self.pings.to_be_bytes());
    }
}

#[cfg(test)]
#[path = "session_tests.rs"]
mod tests;

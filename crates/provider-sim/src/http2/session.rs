//! The protocol of one connection, without I/O: bytes in, requests out; answers in, bytes out. It shares nothing with the client
//! that it serves, and is strict: whatever a client must not do ends the connection with the code of the standard (RFC 9113).

use std::collections::HashMap;

use loona_hpack::Decoder;

use super::frames::{
    self, ACK, CONTINUATION, Code, DATA, END_HEADERS, END_STREAM, FrameHead, GOAWAY, HEAD_BYTES,
    HEADERS, INITIAL_WINDOW_SIZE, MAX_CONCURRENT_STREAMS, MAX_FRAME_SIZE, MAX_HEADER_LIST_SIZE,
    PAYLOAD_BYTES_MAX, PING, PREFACE, PRIORITY, PUSH_PROMISE, RST_STREAM, SETTINGS, WINDOW_UPDATE,
};
use super::streams::{BlockedBodies, OpenStreams};
use super::upload::IncomingRequest;
use crate::exchange::SimAnswer;

/// Window of a connection: large, so that no request waits for a window update.
const CONNECTION_WINDOW_BYTES: usize = 1 << 24;
/// Initial size of every window, bytes (section 6.9.2).
const WINDOW_BYTES: usize = 65_535;
const HEADER_BYTES_MAX: usize = 1 << 16;
/// The most that our side's table of header fields has: what it begins with (RFC 7541, section 4.2).
const TABLE_BYTES: usize = 4096;

/// One connection, as its server knows it.
pub(super) struct ServerSession {
    /// Bytes that have come.
    input: Vec<u8>,
    /// Bytes of them that were read.
    read: usize,
    /// Bytes to be written.
    pub(super) out: Vec<u8>,
    decoder: Decoder<'static>,
    stage: Stage,
    streams_max: usize,
    pub(super) streams: OpenStreams,
    /// The beginning of a header block.
    block: Option<(FrameHead, Vec<u8>)>,
    /// Requests whose body is not complete, but for the last one that began.
    uploads: HashMap<u32, Box<IncomingRequest>>,
    last_upload: Option<Box<IncomingRequest>>,
    content_bytes_max: usize,
    /// Window of the connection: bytes that the client may still send over it.
    receive_window: usize,
    pub(super) bodies: BlockedBodies,
    /// Answers to our pings.
    pub(super) pongs: u32,
    /// Requests whose memory is used again.
    #[expect(
        clippy::vec_box,
        reason = "requests are moved about, and their boxes are used again as well"
    )]
    spare: Vec<Box<IncomingRequest>>,
}

/// A step of a request that has come in.
#[derive(Debug)]
pub(super) enum RequestEvent {
    /// A request has begun; its body may not be complete.
    Begun(u32),
    /// A request has begun on a stream above those that are granted: it is to be refused, and the rest of it is passed over.
    Refused(Box<IncomingRequest>),
    /// A request is complete: it, and whether its body is longer than what is read.
    Complete(Box<IncomingRequest>, bool),
}

/// A rule that the client broke.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Breach(pub(super) Code, pub(super) &'static str);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Preface,
    FirstSettings,
    Open,
}

// === impl ServerSession ===

impl ServerSession {
    /// A connection that grants `streams_max` streams, and reads bodies of up to `content_bytes_max` bytes.
    pub(super) fn new(streams_max: u32, content_bytes_max: usize) -> Self {
        let mut decoder = Decoder::new();
        decoder.set_max_allowed_table_size(TABLE_BYTES);
        let mut out = Vec::new();
        let list_bytes = u32::try_from(HEADER_BYTES_MAX).unwrap_or(u32::MAX);
        let settings = [(MAX_CONCURRENT_STREAMS, streams_max), (MAX_HEADER_LIST_SIZE, list_bytes)];
        frames::put_settings(&mut out, &settings);
        // SETTINGS cannot widen the connection's own window (section 6.9.2).
        frames::put_window_update(&mut out, 0, CONNECTION_WINDOW_BYTES - WINDOW_BYTES);
        Self {
            input: Vec::new(),
            read: 0,
            out,
            decoder,
            stage: Stage::Preface,
            streams_max: usize::try_from(streams_max).unwrap_or(usize::MAX),
            streams: OpenStreams::default(),
            block: None,
            uploads: HashMap::new(),
            last_upload: None,
            content_bytes_max,
            receive_window: CONNECTION_WINDOW_BYTES,
            bodies: BlockedBodies::new(),
            pongs: 0,
            spare: Vec::new(),
        }
    }

    /// Grants another number of streams.
    pub(super) fn grant_streams(&mut self, streams_max: u32) {
        self.streams_max = usize::try_from(streams_max).unwrap_or(usize::MAX);
        frames::put_settings(&mut self.out, &[(MAX_CONCURRENT_STREAMS, streams_max)]);
    }

    /// Takes what has come.
    pub(super) fn receive(&mut self, bytes: &[u8]) {
        // What is left is the beginning of a frame.
        self.input.drain(..self.read);
        self.read = 0;
        self.input.extend_from_slice(bytes);
    }

    /// Reads on until something has come of it; `None` when more bytes are needed.
    pub(super) fn next_event(&mut self) -> Result<Option<RequestEvent>, Breach> {
        // Taken out, so that frames can be read where they are.
        let input = std::mem::take(&mut self.input);
        let event = loop {
            let rest = input.get(self.read..).unwrap_or_default();
            if self.stage == Stage::Preface {
                // As far as it has come: a client of another protocol may send less than a preface, and wait.
                let known = PREFACE.len().min(rest.len());
                if rest.get(..known) != PREFACE.get(..known) {
                    break Err(Breach(Code::PROTOCOL_ERROR, "no preface of HTTP/2"));
                }
                if known < PREFACE.len() {
                    break Ok(None);
                }
                self.read += known;
                self.stage = Stage::FirstSettings;
                continue;
            }
            let Some(head) = FrameHead::read(rest) else { break Ok(None) };
            if head.length > PAYLOAD_BYTES_MAX {
                break Err(Breach(Code::FRAME_SIZE_ERROR, "a frame is too long"));
            }
            let Some(payload) = rest.get(HEAD_BYTES..HEAD_BYTES + head.length) else {
                break Ok(None);
            };
            self.read += HEAD_BYTES + head.length;
            match self.on_frame(head, payload) {
                Ok(None) => {}
                event => break event,
            }
        };
        self.input = input;
        event
    }

    /// The request that has begun last.
    pub(super) fn begun(&self) -> Option<&IncomingRequest> {
        self.last_upload.as_deref()
    }

    /// Leaves the request that has begun last: the rest of it is passed over, and nothing is said about it.
    pub(super) fn abandon(&mut self) {
        if let Some(upload) = self.last_upload.take() {
            self.recycle(upload);
        }
    }

    /// Gives the memory of a request back.
    pub(super) fn recycle(&mut self, mut upload: Box<IncomingRequest>) {
        upload.clear();
        self.spare.push(upload);
    }

    pub(super) fn has_uploads(&self) -> bool {
        self.last_upload.is_some() || !self.uploads.is_empty()
    }

    /// Answers a request, unless the client has reset it.
    pub(super) fn answer(&mut self, stream: u32, answer: SimAnswer) {
        let Some((window, is_sent)) = self.streams.close(stream) else { return };
        frames::put_answer(&mut self.out, stream, &answer);
        if !answer.body.is_empty() {
            self.bodies.put(&mut self.out, stream, window, answer.body);
        }
        // The client need not send what is not read.
        if !is_sent {
            frames::put_reset(&mut self.out, stream, Code::NO_ERROR);
        }
    }

    /// Resets a request, unless the client did.
    pub(super) fn reset(&mut self, stream: u32, code: Code) {
        if self.streams.close(stream).is_some() {
            frames::put_reset(&mut self.out, stream, code);
        }
    }

    fn on_frame(
        &mut self,
        head: FrameHead,
        payload: &[u8],
    ) -> Result<Option<RequestEvent>, Breach> {
        if self.stage == Stage::FirstSettings {
            // The client's own settings come first, and an acknowledgement is none (section 3.4).
            if head.kind != SETTINGS || head.has(ACK) {
                return Err(Breach(Code::PROTOCOL_ERROR, "the first frame is not SETTINGS"));
            }
            self.stage = Stage::Open;
        }
        // A block's frames come one behind the other, also without those of other streams between them (section 4.3).
        if self.block.is_some() && head.kind != CONTINUATION {
            return Err(Breach(Code::PROTOCOL_ERROR, "a header block is interrupted"));
        }
        match head.kind {
            DATA => return self.on_data(head, payload),
            HEADERS => return self.on_headers(head, payload),
            CONTINUATION => return self.on_continuation(head, payload),
            RST_STREAM => self.on_reset(head, payload)?,
            SETTINGS => self.on_settings(head, payload)?,
            PING => self.on_ping(head, payload)?,
            WINDOW_UPDATE => self.on_window_update(head, payload)?,
            PUSH_PROMISE => {
                return Err(Breach(Code::PROTOCOL_ERROR, "a client promises no push"));
            }
            GOAWAY => check(head.stream == 0, payload.len() >= 8, "a malformed GOAWAY")?,
            PRIORITY => check(head.stream != 0, payload.len() == 5, "a malformed PRIORITY")?,
            // A well-formed GOAWAY or PRIORITY asks for nothing here, and frames of unknown kinds are ignored (section 5.5).
            _ => {}
        }
        Ok(None)
    }

    fn on_headers(
        &mut self,
        head: FrameHead,
        payload: &[u8],
    ) -> Result<Option<RequestEvent>, Breach> {
        let content = head.content(payload);
        let block = content.ok_or(Breach(Code::PROTOCOL_ERROR, "a header block is padding"))?;
        if head.has(END_HEADERS) {
            return self.on_block(head, block);
        }
        self.block = Some((head, block.to_vec()));
        Ok(None)
    }

    fn on_continuation(
        &mut self,
        head: FrameHead,
        payload: &[u8],
    ) -> Result<Option<RequestEvent>, Breach> {
        let earlier = self.block.take().filter(|(first, _)| first.stream == head.stream);
        let out_of_place = Breach(Code::PROTOCOL_ERROR, "a CONTINUATION is out of place");
        let (first, mut block) = earlier.ok_or(out_of_place)?;
        block.extend_from_slice(payload);
        if block.len() > HEADER_BYTES_MAX {
            return Err(Breach(Code::PROTOCOL_ERROR, "a header block is too long"));
        }
        if head.has(END_HEADERS) {
            return self.on_block(first, &block);
        }
        self.block = Some((first, block));
        Ok(None)
    }

    /// Takes a whole header block: the head of a request, or what follows its body.
    fn on_block(&mut self, head: FrameHead, block: &[u8]) -> Result<Option<RequestEvent>, Breach> {
        let stream = head.stream;
        let mut upload = self.spare.pop().unwrap_or_default();
        (upload.stream, upload.window, upload.is_whole) =
            (stream, WINDOW_BYTES, head.has(END_STREAM));
        let mut fault = None;
        // Read in any case: later blocks build on its table, whatever becomes of this request.
        let read = self.decoder.decode_with_cb(block, |name, value| {
            if fault.is_none() {
                fault = upload.add_field(&name, &value).err();
            }
        });
        read.map_err(|_| Breach(Code::COMPRESSION_ERROR, "a header block cannot be read"))?;
        if self.streams.was_opened(stream) {
            self.recycle(upload);
            return self.on_trailers(head);
        }
        if stream.is_multiple_of(2) {
            return Err(Breach(Code::PROTOCOL_ERROR, "a client's streams have odd numbers"));
        }
        if !self.streams.open(stream) {
            return Err(Breach(Code::PROTOCOL_ERROR, "too many numbers of streams are left out"));
        }
        fault = fault.or_else(|| upload.check(HEADER_BYTES_MAX).err());
        if let Some(words) = fault {
            tracing::warn!(words, "a malformed request");
            // An error of this stream alone (section 8.1.1).
            self.recycle(upload);
            self.reset(stream, Code::PROTOCOL_ERROR);
            return Ok(None);
        }
        if upload.is_whole {
            self.streams.sent(stream);
        }
        // Section 5.1.2: such a stream is refused, and the connection goes on.
        if self.streams.count() > self.streams_max {
            return Ok(Some(RequestEvent::Refused(upload)));
        }
        // Mostly a body follows its head at once, so the map is for the others.
        if let Some(last) = self.last_upload.replace(upload) {
            self.uploads.insert(last.stream, last);
        }
        Ok(Some(RequestEvent::Begun(stream)))
    }

    fn on_trailers(&mut self, head: FrameHead) -> Result<Option<RequestEvent>, Breach> {
        if !head.has(END_STREAM) {
            return Err(Breach(Code::PROTOCOL_ERROR, "trailers do not end their stream"));
        }
        match self.take_upload(head.stream) {
            Some(upload) => Ok(self.complete(upload)),
            None => self.pass_over(head),
        }
    }

    /// Passes over what comes on a stream without a request. The server has left it, unless the client had ended it itself, or has
    /// never opened it.
    fn pass_over(&mut self, head: FrameHead) -> Result<Option<RequestEvent>, Breach> {
        if !self.streams.is_sending(head.stream) {
            return Err(Breach(Code::STREAM_CLOSED, "a frame of a request that is over"));
        }
        if head.has(END_STREAM) {
            self.streams.sent(head.stream);
        }
        Ok(None)
    }

    /// The request on `stream`, if its body is not complete.
    fn take_upload(&mut self, stream: u32) -> Option<Box<IncomingRequest>> {
        if self.last_upload.as_ref().is_some_and(|last| last.stream == stream) {
            return self.last_upload.take();
        }
        self.uploads.remove(&stream)
    }

    /// Ends the request that has begun last, if it has no body: to be asked after [`RequestEvent::Begun`].
    pub(super) fn take_whole(&mut self) -> Option<RequestEvent> {
        let upload = self.last_upload.take_if(|last| last.is_whole)?;
        Some(RequestEvent::Complete(upload, false))
    }

    /// Ends a request whose body is complete.
    fn complete(&mut self, upload: Box<IncomingRequest>) -> Option<RequestEvent> {
        let (stream, bytes) = (upload.stream, upload.body.len());
        self.streams.sent(stream);
        let is_too_long = bytes > self.content_bytes_max;
        if !is_too_long && upload.content_length.is_some_and(|length| length != bytes) {
            tracing::warn!("a body is not as long as its content-length says");
            self.recycle(upload);
            self.reset(stream, Code::PROTOCOL_ERROR);
            return None;
        }
        Some(RequestEvent::Complete(upload, is_too_long))
    }

    fn on_data(&mut self, head: FrameHead, payload: &[u8]) -> Result<Option<RequestEvent>, Breach> {
        if !self.streams.was_opened(head.stream) {
            return Err(Breach(Code::PROTOCOL_ERROR, "DATA on a stream that was not opened"));
        }
        let left = self.receive_window.checked_sub(payload.len());
        let overrun = Breach(Code::FLOW_CONTROL_ERROR, "DATA beyond the connection's window");
        // Padding counts, and so does what comes on streams that are over (section 6.9).
        self.receive_window = left.ok_or(overrun)?;
        if self.receive_window < CONNECTION_WINDOW_BYTES / 2 {
            let taken = CONNECTION_WINDOW_BYTES - self.receive_window;
            frames::put_window_update(&mut self.out, 0, taken);
            self.receive_window = CONNECTION_WINDOW_BYTES;
        }
        let content = head.content(payload);
        let content = content.ok_or(Breach(Code::PROTOCOL_ERROR, "DATA is all padding"))?;
        let Some(mut upload) = self.take_upload(head.stream) else {
            return self.pass_over(head);
        };
        let left = upload.window.checked_sub(payload.len());
        upload.window =
            left.ok_or(Breach(Code::FLOW_CONTROL_ERROR, "DATA beyond a stream's window"))?;
        upload.body.extend_from_slice(content);
        if head.has(END_STREAM) {
            return Ok(self.complete(upload));
        }
        // Judged now: the rest is passed over, and need not be kept.
        if upload.body.len() > self.content_bytes_max {
            return Ok(Some(RequestEvent::Complete(upload, true)));
        }
        if upload.window < WINDOW_BYTES / 2 {
            frames::put_window_update(&mut self.out, head.stream, WINDOW_BYTES - upload.window);
            upload.window = WINDOW_BYTES;
        }
        self.uploads.insert(head.stream, upload);
        Ok(None)
    }

    fn on_reset(&mut self, head: FrameHead, payload: &[u8]) -> Result<(), Breach> {
        if payload.len() != 4 {
            return Err(Breach(Code::FRAME_SIZE_ERROR, "a malformed RST_STREAM"));
        }
        if !self.streams.was_opened(head.stream) {
            let words = "RST_STREAM on a stream that was not opened";
            return Err(Breach(Code::PROTOCOL_ERROR, words));
        }
        if let Some(upload) = self.take_upload(head.stream) {
            self.recycle(upload);
        }
        // Before the close, which remembers a stream that the client may still send on: this one it has reset.
        self.streams.sent(head.stream);
        self.streams.close(head.stream);
        self.bodies.forget(head.stream);
        Ok(())
    }

    fn on_settings(&mut self, head: FrameHead, payload: &[u8]) -> Result<(), Breach> {
        if head.stream != 0 {
            return Err(Breach(Code::PROTOCOL_ERROR, "SETTINGS on a stream"));
        }
        if head.has(ACK) && payload.is_empty() {
            return Ok(());
        }
        let (settings, rest) = payload.as_chunks::<6>();
        if head.has(ACK) || !rest.is_empty() {
            return Err(Breach(Code::FRAME_SIZE_ERROR, "malformed SETTINGS"));
        }
        for [high, low, value @ ..] in settings {
            let value = u32::from_be_bytes(*value);
            match u16::from_be_bytes([*high, *low]) {
                INITIAL_WINDOW_SIZE if value > 0x7fff_ffff => {
                    let words = "an initial window is too large";
                    return Err(Breach(Code::FLOW_CONTROL_ERROR, words));
                }
                // Every stream's window is kept as its distance from this one, so all of them follow (section 6.9.2).
                INITIAL_WINDOW_SIZE => self.bodies.initial_window = i64::from(value),
                MAX_FRAME_SIZE if !(0x4000..=0xff_ffff).contains(&value) => {
                    let words = "a frame size that is none";
                    return Err(Breach(Code::PROTOCOL_ERROR, words));
                }
                frames::ENABLE_PUSH if value > 1 => {
                    let words = "pushes are allowed or not";
                    return Err(Breach(Code::PROTOCOL_ERROR, words));
                }
                // We keep no table for what we send, push nothing, and send no long frames.
                _ => {}
            }
        }
        frames::put(&mut self.out, SETTINGS, ACK, 0, &[]);
        self.bodies.put_more(&mut self.out);
        Ok(())
    }

    fn on_ping(&mut self, head: FrameHead, payload: &[u8]) -> Result<(), Breach> {
        check(head.stream == 0, payload.len() == 8, "a malformed PING")?;
        if head.has(ACK) {
            self.pongs += 1;
        } else {
            frames::put(&mut self.out, PING, ACK, 0, payload);
        }
        Ok(())
    }

    fn on_window_update(&mut self, head: FrameHead, payload: &[u8]) -> Result<(), Breach> {
        let bytes = <[u8; 4]>::try_from(payload).map(u32::from_be_bytes);
        let bytes = bytes.map_err(|_| Breach(Code::FRAME_SIZE_ERROR, "a malformed window"))?;
        let bytes = i64::from(bytes & 0x7fff_ffff);
        if bytes == 0 {
            return Err(Breach(Code::PROTOCOL_ERROR, "a window is widened by nothing"));
        }
        if head.stream == 0 {
            self.bodies.window += bytes;
        } else if !self.streams.was_opened(head.stream) {
            let words = "a window of a stream that was not opened";
            return Err(Breach(Code::PROTOCOL_ERROR, words));
        // The body that waits has its stream's window with it; a stream that is not answered keeps its own.
        } else if !self.bodies.widen(head.stream, bytes) {
            self.streams.widen(head.stream, bytes);
        }
        if self.bodies.window > 0x7fff_ffff {
            return Err(Breach(Code::FLOW_CONTROL_ERROR, "a window is too large"));
        }
        self.bodies.put_more(&mut self.out);
        Ok(())
    }
}

/// Refuses a frame of a wrong stream, or of a wrong length (sections 6.3, 6.7 and 6.8).
fn check(is_of_stream: bool, is_of_length: bool, words: &'static str) -> Result<(), Breach> {
    let code = if is_of_stream { Code::FRAME_SIZE_ERROR } else { Code::PROTOCOL_ERROR };
    if is_of_stream && is_of_length { Ok(()) } else { Err(Breach(code, words)) }
}

#[cfg(test)]
#[path = "session_tests.rs"]
mod tests;

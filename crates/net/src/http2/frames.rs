//! The frames of HTTP/2 (RFC 9113, sections 4 and 6): bytes to values, and values to bytes. They know no connection.

use std::fmt;

/// First bytes of a client's connection (RFC 9113, section 3.4).
pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The largest payload of a frame here, bytes, both ways: what every peer takes, and what none may exceed unless it is allowed to.
pub(super) const PAYLOAD_BYTES_MAX: usize = 16_384;
/// The largest window (section 6.9.1).
pub(super) const WINDOW_MAX: i64 = 0x7fff_ffff;
/// Bytes in front of a payload.
pub(super) const HEAD_BYTES: usize = 9;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const PRIORITY: u8 = 2;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PUSH_PROMISE: u8 = 5;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;

const END_STREAM: u8 = 0x1;
const ACK: u8 = 0x1;
const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;
const HAS_PRIORITY: u8 = 0x20;

/// Settings that this client has (section 6.5.2), by their numbers.
pub(super) const ENABLE_PUSH: u16 = 2;
pub(super) const MAX_HEADER_LIST_SIZE: u16 = 6;

/// Why a stream or a connection ends, by its number (section 7).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ErrorCode(pub(super) u32);

/// The peer broke a rule of the protocol, and the connection ends: with which code, and in words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ProtocolViolation(pub(super) ErrorCode, pub(super) &'static str);

/// A frame that came in. Where it is about a stream, that is not 0.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Frame<'a> {
    Data {
        stream: u32,
        data: &'a [u8],
        /// Bytes that it uses up of the windows: padding counts.
        window: usize,
        is_last: bool,
    },
    Headers {
        stream: u32,
        block: &'a [u8],
        /// True if the block ends here.
        is_whole: bool,
        is_last: bool,
    },
    Continuation {
        stream: u32,
        block: &'a [u8],
        is_whole: bool,
    },
    Reset {
        stream: u32,
        code: ErrorCode,
    },
    /// Of six bytes each.
    Settings(&'a [u8]),
    SettingsAcknowledged,
    PushPromise,
    Ping([u8; 8]),
    Pong([u8; 8]),
    GoAway {
        last_stream: u32,
        code: ErrorCode,
    },
    /// Of the connection where the stream is 0.
    WindowUpdate {
        stream: u32,
        increment: u32,
    },
    /// Nothing here is about it.
    Other,
}

/// A setting (section 6.5.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Http2Setting {
    HeaderTableSize(u32),
    EnablePush(u32),
    MaxConcurrentStreams(u32),
    InitialWindowSize(u32),
    MaxFrameSize(u32),
    Other,
}

/// The head of a frame.
#[derive(Debug, Clone, Copy)]
struct FrameHeader {
    kind: u8,
    flags: u8,
    stream: u32,
}

// === impl ErrorCode ===

impl ErrorCode {
    pub(super) const NO_ERROR: Self = Self(0);
    pub(super) const PROTOCOL_ERROR: Self = Self(1);
    pub(super) const FLOW_CONTROL_ERROR: Self = Self(3);
    pub(super) const SETTINGS_TIMEOUT: Self = Self(4);
    pub(super) const FRAME_SIZE_ERROR: Self = Self(6);
    pub(super) const REFUSED_STREAM: Self = Self(7);
    pub(super) const CANCEL: Self = Self(8);
    pub(super) const COMPRESSION_ERROR: Self = Self(9);
    pub(super) const ENHANCE_YOUR_CALM: Self = Self(11);
    pub(super) const HTTP_1_1_REQUIRED: Self = Self(13);

    const NAMES: [&'static str; 14] = [
        "NO_ERROR",
        "PROTOCOL_ERROR",
        "INTERNAL_ERROR",
        "FLOW_CONTROL_ERROR",
        "SETTINGS_TIMEOUT",
        "STREAM_CLOSED",
        "FRAME_SIZE_ERROR",
        "REFUSED_STREAM",
        "CANCEL",
        "COMPRESSION_ERROR",
        "CONNECT_ERROR",
        "ENHANCE_YOUR_CALM",
        "INADEQUATE_SECURITY",
        "HTTP_1_1_REQUIRED",
    ];
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match usize::try_from(self.0).ok().and_then(|number| Self::NAMES.get(number)) {
            Some(name) => formatter.write_str(name),
            None => write!(formatter, "error code {}", self.0),
        }
    }
}

// === impl Frame ===

impl<'a> Frame<'a> {
    /// How many bytes the frame has that begins `bytes`, its head included; `None` when they do not say yet.
    pub(super) fn length(bytes: &[u8]) -> Result<Option<usize>, ProtocolViolation> {
        // The size is judged before the payload comes, so none that is refused takes memory.
        let [one, two, three, ..] = *bytes else { return Ok(None) };
        let length = u32::from_be_bytes([0, one, two, three]);
        match usize::try_from(length) {
            Ok(length) if length <= PAYLOAD_BYTES_MAX => Ok(Some(HEAD_BYTES + length)),
            _ => Err(ProtocolViolation(ErrorCode::FRAME_SIZE_ERROR, "a frame is too large")),
        }
    }

    /// Reads a whole frame.
    pub(super) fn read(bytes: &'a [u8]) -> Result<Self, ProtocolViolation> {
        let Some(([_, _, _, kind, flags, stream @ ..], payload)) =
            bytes.split_first_chunk::<HEAD_BYTES>()
        else {
            return Err(WRONG_SIZE);
        };
        // The first bit is reserved, and ignored (section 4.1).
        let stream = u32::from_be_bytes(*stream) & 0x7fff_ffff;
        let head = FrameHeader { kind: *kind, flags: *flags, stream };
        let is_of_stream = match *kind {
            DATA | HEADERS | PRIORITY | RST_STREAM | PUSH_PROMISE | CONTINUATION => Some(true),
            SETTINGS | PING | GOAWAY => Some(false),
            _ => None,
        };
        if is_of_stream.is_some_and(|expected| expected != (stream != 0)) {
            return Err(ProtocolViolation(
                ErrorCode::PROTOCOL_ERROR,
                "a frame is on the wrong kind of stream",
            ));
        }
        match *kind {
            DATA | HEADERS => head.read_padded(payload),
            CONTINUATION => {
                Ok(Self::Continuation { stream, block: payload, is_whole: head.has(END_HEADERS) })
            }
            RST_STREAM => Ok(Self::Reset { stream, code: ErrorCode(number(payload)?) }),
            SETTINGS if head.has(ACK) && payload.is_empty() => Ok(Self::SettingsAcknowledged),
            SETTINGS if !head.has(ACK) && payload.len().is_multiple_of(6) => {
                Ok(Self::Settings(payload))
            }
            SETTINGS => Err(WRONG_SIZE),
            PUSH_PROMISE => Ok(Self::PushPromise),
            PING => {
                let opaque = payload.try_into().map_err(|_| WRONG_SIZE)?;
                Ok(if head.has(ACK) { Self::Pong(opaque) } else { Self::Ping(opaque) })
            }
            GOAWAY => {
                // Words may follow. They may repeat a request, so they are not read.
                let (numbers, _words) = payload.split_at_checked(8).ok_or(WRONG_SIZE)?;
                let (last_stream, code) = numbers.split_at_checked(4).ok_or(WRONG_SIZE)?;
                let last_stream = number(last_stream)? & 0x7fff_ffff;
                Ok(Self::GoAway { last_stream, code: ErrorCode(number(code)?) })
            }
            WINDOW_UPDATE => {
                Ok(Self::WindowUpdate { stream, increment: number(payload)? & 0x7fff_ffff })
            }
            // Priorities are for servers, and unknown kinds are ignored (section 4.1).
            _ => Ok(Self::Other),
        }
    }
}

const WRONG_SIZE: ProtocolViolation =
    ProtocolViolation(ErrorCode::FRAME_SIZE_ERROR, "a frame has a wrong size");

fn number(bytes: &[u8]) -> Result<u32, ProtocolViolation> {
    bytes.try_into().map(u32::from_be_bytes).map_err(|_| WRONG_SIZE)
}

// === impl FrameHeader ===

impl FrameHeader {
    const fn has(self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Reads DATA and HEADERS, which may be padded.
    fn read_padded(self, payload: &[u8]) -> Result<Frame<'_>, ProtocolViolation> {
        const TOO_SHORT: ProtocolViolation =
            ProtocolViolation(ErrorCode::PROTOCOL_ERROR, "a frame is shorter than its padding");
        let (stream, is_last) = (self.stream, self.has(END_STREAM));
        let mut content = payload;
        if self.has(PADDED) {
            // Padding that is longer than the frame would have a reader look behind it (section 6.1).
            let (padding, rest) = payload.split_first().ok_or(TOO_SHORT)?;
            let bytes = rest.len().checked_sub(usize::from(*padding)).ok_or(TOO_SHORT)?;
            content = rest.get(..bytes).unwrap_or_default();
        }
        if self.kind == DATA {
            return Ok(Frame::Data { stream, data: content, window: payload.len(), is_last });
        }
        // Priorities are out of use, and peers may send them still (section 5.3.2).
        if self.has(HAS_PRIORITY) {
            content = content.get(5..).ok_or(TOO_SHORT)?;
        }
        Ok(Frame::Headers { stream, block: content, is_whole: self.has(END_HEADERS), is_last })
    }
}

// === impl Http2Setting ===

impl Http2Setting {
    /// The settings of a payload.
    pub(super) fn read_all(payload: &[u8]) -> impl Iterator<Item = Self> {
        // What is left of fewer bytes was refused with the frame.
        payload.as_chunks::<6>().0.iter().map(|[one, two, value @ ..]| {
            let value = u32::from_be_bytes(*value);
            match u16::from_be_bytes([*one, *two]) {
                1 => Self::HeaderTableSize(value),
                ENABLE_PUSH => Self::EnablePush(value),
                3 => Self::MaxConcurrentStreams(value),
                4 => Self::InitialWindowSize(value),
                5 => Self::MaxFrameSize(value),
                _ => Self::Other,
            }
        })
    }
}

/// Appends a frame.
fn put(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    put_head(out, kind, flags, stream, payload.len());
    out.extend_from_slice(payload);
}

fn put_head(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, length: usize) {
    // No caller has 16 MiB.
    let [.., one, two, three] = length.to_be_bytes();
    out.extend_from_slice(&[one, two, three, kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
}

pub(super) fn put_data(out: &mut Vec<u8>, stream: u32, data: &[u8], is_last: bool) {
    put(out, DATA, if is_last { END_STREAM } else { 0 }, stream, data);
}

/// Appends HEADERS with the block that `encode` appends, and as many CONTINUATION as it takes.
pub(super) fn put_headers(
    out: &mut Vec<u8>,
    stream: u32,
    is_last: bool,
    encode: impl FnOnce(&mut Vec<u8>),
) {
    let begin = out.len();
    // Its length is filled in behind the block, which is encoded in place: no buffer in between.
    put_head(out, HEADERS, 0, stream, 0);
    encode(out);
    let flags = if is_last { END_STREAM } else { 0 };
    let length = out.len() - begin - HEAD_BYTES;
    if length <= PAYLOAD_BYTES_MAX {
        let [.., one, two, three] = length.to_be_bytes();
        if let Some(head) = out.get_mut(begin..begin + 5) {
            head.copy_from_slice(&[one, two, three, HEADERS, flags | END_HEADERS]);
        }
        return;
    }
    let block = out.split_off(begin + HEAD_BYTES);
    out.truncate(begin);
    let mut pieces = block.chunks(PAYLOAD_BYTES_MAX).peekable();
    let (mut kind, mut flags) = (HEADERS, flags);
    while let Some(piece) = pieces.next() {
        let end = if pieces.peek().is_none() { END_HEADERS } else { 0 };
        put(out, kind, flags | end, stream, piece);
        // `END_STREAM` is a flag of HEADERS, and not of what continues them (section 6.10).
        (kind, flags) = (CONTINUATION, 0);
    }
}

pub(super) fn put_reset(out: &mut Vec<u8>, stream: u32, code: ErrorCode) {
    put(out, RST_STREAM, 0, stream, &code.0.to_be_bytes());
}

/// Appends SETTINGS; each is a number and its value.
pub(super) fn put_settings(out: &mut Vec<u8>, settings: &[(u16, u32)]) {
    put_head(out, SETTINGS, 0, 0, 6 * settings.len());
    for (number, value) in settings {
        out.extend_from_slice(&number.to_be_bytes());
        out.extend_from_slice(&value.to_be_bytes());
    }
}

pub(super) fn put_settings_acknowledged(out: &mut Vec<u8>) {
    put(out, SETTINGS, ACK, 0, &[]);
}

pub(super) fn put_ping(out: &mut Vec<u8>, opaque: [u8; 8]) {
    put(out, PING, 0, 0, &opaque);
}

pub(super) fn put_pong(out: &mut Vec<u8>, opaque: [u8; 8]) {
    put(out, PING, ACK, 0, &opaque);
}

pub(super) fn put_go_away(out: &mut Vec<u8>, code: ErrorCode, words: &str) {
    put_head(out, GOAWAY, 0, 0, 8 + words.len());
    // No stream of the peer's was processed: it may open none.
    out.extend_from_slice(&0_u32.to_be_bytes());
    out.extend_from_slice(&code.0.to_be_bytes());
    out.extend_from_slice(words.as_bytes());
}

pub(super) fn put_window_update(out: &mut Vec<u8>, stream: u32, increment: u32) {
    put(out, WINDOW_UPDATE, 0, stream, &increment.to_be_bytes());
}

/// True if the frame that begins `bytes` has a part of a body.
pub(super) fn is_data(bytes: &[u8]) -> bool {
    bytes.get(3) == Some(&DATA)
}

/// The stream of the frame that begins `bytes`.
pub(super) fn stream_of(bytes: &[u8]) -> Option<u32> {
    let stream = bytes.get(5..HEAD_BYTES)?.try_into().ok()?;
    Some(u32::from_be_bytes(stream))
}

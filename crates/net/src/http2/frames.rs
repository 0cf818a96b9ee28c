//! The frames of HTTP/2 (RFC 9113, sections 4 and 6): how they are cut out of bytes, checked and written. They know no connection.

use std::fmt;

/// First bytes of a client's connection (RFC 9113, section 3.4).
pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The largest payload of a frame here, bytes, both ways: what every peer takes, and what none may exceed unless it is allowed to.
pub(super) const PAYLOAD_BYTES_MAX: usize = 16_384;
/// The largest window (section 6.9.1).
pub(super) const WINDOW_MAX: i64 = 0x7fff_ffff;
/// Bytes in front of a payload.
pub(super) const HEAD_BYTES: usize = 9;

/// Kinds of frames.
pub(super) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
pub(super) const RST_STREAM: u8 = 3;
pub(super) const SETTINGS: u8 = 4;
pub(super) const PUSH_PROMISE: u8 = 5;
pub(super) const PING: u8 = 6;
pub(super) const GOAWAY: u8 = 7;
pub(super) const WINDOW_UPDATE: u8 = 8;
pub(super) const CONTINUATION: u8 = 9;

/// Flags of frames.
pub(super) const END_STREAM: u8 = 0x1;
pub(super) const ACK: u8 = 0x1;
pub(super) const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;
const HAS_PRIORITY: u8 = 0x20;

/// Settings (section 6.5.2), by their numbers.
pub(super) const HEADER_TABLE_SIZE: u16 = 1;
pub(super) const ENABLE_PUSH: u16 = 2;
pub(super) const MAX_CONCURRENT_STREAMS: u16 = 3;
pub(super) const INITIAL_WINDOW_SIZE: u16 = 4;
pub(super) const MAX_FRAME_SIZE: u16 = 5;

/// Why a stream or a connection ends, by its number (section 7).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ErrorCode(pub(super) u32);

/// The peer broke a rule of the protocol, and the connection ends: with which code, and in words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Violation(pub(super) ErrorCode, pub(super) &'static str);

/// A result of reading what the peer sent: an error where it broke a rule.
pub(super) type Allowed<T = ()> = Result<T, Violation>;

pub(super) const WRONG_SIZE: Violation =
    Violation(ErrorCode::FRAME_SIZE_ERROR, "a frame has a wrong size");

/// A whole frame.
#[derive(Debug, Clone, Copy)]
pub(super) struct Frame<'a> {
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) stream: u32,
    pub(super) payload: &'a [u8],
}

// === impl ErrorCode ===

impl ErrorCode {
    pub(super) const NO_ERROR: Self = Self(0);
    pub(super) const PROTOCOL_ERROR: Self = Self(1);
    pub(super) const FLOW_CONTROL_ERROR: Self = Self(3);
    pub(super) const FRAME_SIZE_ERROR: Self = Self(6);
    pub(super) const REFUSED_STREAM: Self = Self(7);
    pub(super) const CANCEL: Self = Self(8);
    pub(super) const COMPRESSION_ERROR: Self = Self(9);
    pub(super) const ENHANCE_YOUR_CALM: Self = Self(11);
    pub(super) const HTTP_1_1_REQUIRED: Self = Self(13);

    /// The names of all, from 0 on.
    const NAMES: &str = "NO_ERROR PROTOCOL_ERROR INTERNAL_ERROR FLOW_CONTROL_ERROR SETTINGS_TIMEOUT \
                         STREAM_CLOSED FRAME_SIZE_ERROR REFUSED_STREAM CANCEL COMPRESSION_ERROR \
                         CONNECT_ERROR ENHANCE_YOUR_CALM INADEQUATE_SECURITY HTTP_1_1_REQUIRED";
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = usize::try_from(self.0).unwrap_or(usize::MAX);
        match Self::NAMES.split(' ').nth(number) {
            Some(name) => formatter.write_str(name),
            None => write!(formatter, "error code {}", self.0),
        }
    }
}

// === impl Violation ===

impl Violation {
    /// A rule without a code of its own.
    pub(super) const fn of(rule: &'static str) -> Self {
        Self(ErrorCode::PROTOCOL_ERROR, rule)
    }
}

/// Checks a rule that has no code of its own; `words` say how it is broken.
pub(super) fn ensure(holds: bool, words: &'static str) -> Allowed {
    if holds { Ok(()) } else { Err(Violation::of(words)) }
}

// === impl Frame ===

impl<'a> Frame<'a> {
    /// Takes the first frame off `bytes`; `None` when it is not whole.
    pub(super) fn split_off(bytes: &mut &'a [u8]) -> Allowed<Option<Self>> {
        // The size is judged before the payload comes, so none that is refused takes memory.
        let [one, two, three, ..] = **bytes else { return Ok(None) };
        let length = u32::from_be_bytes([0, one, two, three]);
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        if length > PAYLOAD_BYTES_MAX {
            return Err(Violation(ErrorCode::FRAME_SIZE_ERROR, "a frame is too large"));
        }
        let Some((head, rest)) = bytes.split_first_chunk::<HEAD_BYTES>() else { return Ok(None) };
        let [_, _, _, kind, flags, stream @ ..] = head;
        let Some((payload, behind)) = rest.split_at_checked(length) else { return Ok(None) };
        *bytes = behind;
        // The first bit is reserved, and ignored (section 4.1).
        let stream = u32::from_be_bytes(*stream) & 0x7fff_ffff;
        Ok(Some(Self { kind: *kind, flags: *flags, stream, payload }))
    }

    pub(super) const fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Checks that it is about a stream, or about the connection, as its kind is.
    pub(super) fn check_stream(&self) -> Allowed {
        let is_wrong = match self.kind {
            SETTINGS | PING | GOAWAY => self.stream != 0,
            // Either, or unknown.
            WINDOW_UPDATE | 10.. => false,
            _ => self.stream == 0,
        };
        ensure(!is_wrong, "a frame is on the wrong kind of stream")
    }

    /// The content of DATA or HEADERS, which may be padded.
    pub(super) fn content(&self) -> Allowed<&'a [u8]> {
        const TOO_SHORT: Violation = Violation::of("a frame is shorter than its padding");
        let mut content = self.payload;
        if self.has(PADDED) {
            // Padding that is longer than the frame would have a reader look behind it (section 6.1).
            let (padding, rest) = content.split_first().ok_or(TOO_SHORT)?;
            let bytes = rest.len().checked_sub(usize::from(*padding)).ok_or(TOO_SHORT)?;
            content = rest.get(..bytes).unwrap_or_default();
        }
        // Priorities are out of use, and peers may send them still (section 5.3.2).
        if self.kind == HEADERS && self.has(HAS_PRIORITY) {
            content = content.get(5..).ok_or(TOO_SHORT)?;
        }
        Ok(content)
    }

    /// The payload, where that is one number.
    pub(super) fn number(&self) -> Allowed<u32> {
        self.payload.try_into().map(u32::from_be_bytes).map_err(|_| WRONG_SIZE)
    }

    /// The settings of SETTINGS: the number and the value of each.
    pub(super) fn settings(&self) -> Allowed<impl Iterator<Item = (u16, u32)>> {
        let (settings, []) = self.payload.as_chunks::<6>() else { return Err(WRONG_SIZE) };
        Ok(settings.iter().map(|[one, two, value @ ..]| {
            (u16::from_be_bytes([*one, *two]), u32::from_be_bytes(*value))
        }))
    }
}

/// Appends a frame.
pub(super) fn put(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    out.extend_from_slice(&head_of(kind, flags, stream, payload.len()));
    out.extend_from_slice(payload);
}

/// The head of a frame with a payload of `length` bytes, less than 16 MiB.
const fn head_of(kind: u8, flags: u8, stream: u32, length: usize) -> [u8; HEAD_BYTES] {
    let [.., one, two, three] = length.to_be_bytes();
    let [first, second, third, fourth] = stream.to_be_bytes();
    [one, two, three, kind, flags, first, second, third, fourth]
}

/// Appends HEADERS with the block that `encode` appends, and as many CONTINUATION as it takes.
pub(super) fn put_headers(
    out: &mut Vec<u8>,
    stream: u32,
    is_last: bool,
    encode: impl FnOnce(&mut Vec<u8>),
) {
    let mut begin = out.len();
    // Heads are filled in behind the block, which is encoded in place: no buffer in between.
    out.extend_from_slice(&[0; HEAD_BYTES]);
    encode(out);
    let (mut kind, mut flags) = (HEADERS, if is_last { END_STREAM } else { 0 });
    loop {
        let rest = out.len() - begin - HEAD_BYTES;
        let length = rest.min(PAYLOAD_BYTES_MAX);
        let end = if length == rest { END_HEADERS } else { 0 };
        let head = head_of(kind, flags | end, stream, length);
        out.splice(begin..begin + HEAD_BYTES, head);
        if length == rest {
            return;
        }
        begin += HEAD_BYTES + length;
        out.splice(begin..begin, [0; HEAD_BYTES]);
        // `END_STREAM` is a flag of HEADERS, and not of what continues them (section 6.10).
        (kind, flags) = (CONTINUATION, 0);
    }
}

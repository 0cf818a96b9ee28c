//! Frames (RFC 9113, sections 4 and 6), and the header blocks of answers (RFC 7541).

use http::StatusCode;

use crate::exchange::SimAnswer;

pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
pub(super) const HEAD_BYTES: usize = 9;
/// The longest payload that either side may send: neither asks for more here.
pub(super) const PAYLOAD_BYTES_MAX: usize = 16_384;

pub(super) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
pub(super) const PRIORITY: u8 = 2;
pub(super) const RST_STREAM: u8 = 3;
pub(super) const SETTINGS: u8 = 4;
pub(super) const PUSH_PROMISE: u8 = 5;
pub(super) const PING: u8 = 6;
pub(super) const GOAWAY: u8 = 7;
pub(super) const WINDOW_UPDATE: u8 = 8;
pub(super) const CONTINUATION: u8 = 9;

pub(super) const ACK: u8 = 0x1;
pub(super) const END_STREAM: u8 = 0x1;
pub(super) const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;
const WITH_PRIORITY: u8 = 0x20;

pub(super) const ENABLE_PUSH: u16 = 2;
pub(super) const MAX_CONCURRENT_STREAMS: u16 = 3;
pub(super) const INITIAL_WINDOW_SIZE: u16 = 4;
pub(super) const MAX_FRAME_SIZE: u16 = 5;
pub(super) const MAX_HEADER_LIST_SIZE: u16 = 6;

/// An error code (RFC 9113, section 7).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Code(pub(super) u32);

/// The first bytes of a frame.
#[derive(Debug, Clone, Copy)]
pub(super) struct FrameHead {
    pub(super) length: usize,
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) stream: u32,
}

// === impl Code ===

impl Code {
    pub(super) const NO_ERROR: Self = Self(0);
    pub(super) const PROTOCOL_ERROR: Self = Self(1);
    pub(super) const FLOW_CONTROL_ERROR: Self = Self(3);
    pub(super) const STREAM_CLOSED: Self = Self(5);
    pub(super) const FRAME_SIZE_ERROR: Self = Self(6);
    pub(super) const REFUSED_STREAM: Self = Self(7);
    pub(super) const CANCEL: Self = Self(8);
    pub(super) const COMPRESSION_ERROR: Self = Self(9);
}

// === impl FrameHead ===

impl FrameHead {
    /// The head that `bytes` begin with, once it is whole.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let ([high, middle, low, kind, flags, stream @ ..], _) =
            bytes.split_first_chunk::<HEAD_BYTES>()?;
        let length = u32::from_be_bytes([0, *high, *middle, *low]);
        Some(Self {
            length: usize::try_from(length).ok()?,
            kind: *kind,
            flags: *flags,
            // The first bit is reserved, and ignored when it is received (RFC 9113, section 4.1).
            stream: u32::from_be_bytes(*stream) & 0x7fff_ffff,
        })
    }

    pub(super) const fn has(self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Payload without its padding and, in front of a header block, the priority of its stream; `None` when
    /// these are longer than the payload.
    pub(super) fn content(self, mut payload: &[u8]) -> Option<&[u8]> {
        let padding = if self.has(PADDED) { usize::from(*payload.split_off_first()?) } else { 0 };
        if self.kind == HEADERS && self.has(WITH_PRIORITY) {
            // Another stream's number and a weight (RFC 9113, section 6.2): priorities have no effect here.
            payload = payload.get(5..)?;
        }
        payload.get(..payload.len().checked_sub(padding)?)
    }
}

/// Appends a frame.
pub(super) fn put(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    let [_, length @ ..] = u32::try_from(payload.len()).unwrap_or(u32::MAX).to_be_bytes();
    out.extend_from_slice(&length);
    out.extend_from_slice(&[kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(payload);
}

/// Appends a frame of settings.
pub(super) fn put_settings(out: &mut Vec<u8>, settings: &[(u16, u32)]) {
    let mut payload = Vec::new();
    for (name, value) in settings {
        payload.extend_from_slice(&name.to_be_bytes());
        payload.extend_from_slice(&value.to_be_bytes());
    }
    put(out, SETTINGS, 0, 0, &payload);
}

pub(super) fn put_reset(out: &mut Vec<u8>, stream: u32, code: Code) {
    put(out, RST_STREAM, 0, stream, &code.0.to_be_bytes());
}

pub(super) fn put_window_update(out: &mut Vec<u8>, stream: u32, bytes: usize) {
    let bytes = u32::try_from(bytes).unwrap_or(0);
    put(out, WINDOW_UPDATE, 0, stream, &bytes.to_be_bytes());
}

pub(super) fn put_go_away(out: &mut Vec<u8>, last_stream: u32, code: Code, words: &[u8]) {
    let payload = [&last_stream.to_be_bytes(), &code.0.to_be_bytes(), words].concat();
    put(out, GOAWAY, 0, 0, &payload);
}

/// Appends the head of an answer. Nothing of it comes into a table: what it says differs, or is short.
pub(super) fn put_answer(out: &mut Vec<u8>, stream: u32, answer: &SimAnswer) {
    let begin = out.len();
    let flags = if answer.body.is_empty() { END_HEADERS | END_STREAM } else { END_HEADERS };
    put(out, HEADERS, flags, stream, &[]);
    if answer.status == StatusCode::OK {
        // Number 8 of the static table, `:status: 200` (RFC 7541, appendix A).
        out.push(0x88);
    } else {
        put_field(out, 8, b"", answer.status.as_str().as_bytes());
    }
    if let Some(apns_id) = &answer.apns_id {
        put_field(out, 0, b"apns-id", apns_id.as_bytes());
    }
    if let Some(seconds) = answer.retry_after_seconds {
        // `retry-after` is number 53 of the static table, and `location` below is 46.
        put_field(out, 53, b"", seconds.to_string().as_bytes());
    }
    if let Some(location) = &answer.location {
        put_field(out, 46, b"", location.as_bytes());
    }
    // Known only behind the block, which is written in place.
    let [_, length @ ..] = u32::try_from(out.len() - begin - HEAD_BYTES).unwrap_or(0).to_be_bytes();
    if let Some(place) = out.get_mut(begin..begin + length.len()) {
        place.copy_from_slice(&length);
    }
}

/// Appends a field whose value comes into no table. Its name is number `index` of the static table, or `name` where that is 0.
fn put_field(out: &mut Vec<u8>, index: u8, name: &[u8], value: &[u8]) {
    match index {
        0 => {
            out.push(0);
            put_length(out, name.len());
            out.extend_from_slice(name);
        }
        // Up to 14 it fits into the first byte (RFC 7541, section 6.2.2).
        1..15 => out.push(index),
        // From 15 on the rest follows (section 5.1); it is one byte, as the static table ends at 61.
        _ => out.extend_from_slice(&[0x0f, index - 15]),
    }
    put_length(out, value.len());
    out.extend_from_slice(value);
}

/// Appends the length of a text (RFC 7541, section 5.1).
fn put_length(out: &mut Vec<u8>, length: usize) {
    let Some(mut rest) = length.checked_sub(0x7f) else {
        out.push(length.to_le_bytes()[0]);
        return;
    };
    out.push(0x7f);
    while rest >= 0x80 {
        out.push(rest.to_le_bytes()[0] | 0x80);
        rest >>= 7;
    }
    out.push(rest.to_le_bytes()[0]);
}

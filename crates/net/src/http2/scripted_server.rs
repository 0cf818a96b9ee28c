//! A server that does whatever the standard lets it, as chance decides, and keeps account of what it processed. It has no socket:
//! tests move its bytes, and hold its account against the client's verdicts.

use std::collections::BTreeMap;

use fastrand::Rng;

use super::frames::PREFACE;
use super::hpack::HpackDecoder;
use super::testing::{
    ACK, CONTINUATION, DATA, END_HEADERS, END_STREAM, FrameParts, GOAWAY, HEADERS, PING, REFUSED,
    RESET, SETTINGS, WINDOW_UPDATE, frame, go_away, parts, setting, status,
};

const STATUSES: [u16; 4] = [200, 400, 410, 503];
const HTTP_1_1_REQUIRED: u32 = 13;

/// The client's account of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ClientVerdict {
    /// With this status.
    Answered(u16),
    /// The server did not process it: it may be sent again.
    NotProcessed,
    /// It was lost, or given up.
    Unknown,
}

/// The server's account of a request.
#[derive(Debug, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fact of its own: any of them may be true beside any other"
)]
pub(super) struct Served {
    pub(super) path: String,
    /// The request has come to its end.
    is_whole: bool,
    /// The server has acted on it, so it must not be sent again.
    is_processed: bool,
    /// The server has said that it will not act on it.
    is_disowned: bool,
    status: Option<u16>,
    is_over: bool,
    received: i64,
    granted: i64,
}

#[derive(Debug)]
pub(super) struct ScriptedServer {
    random: Rng,
    decoder: HpackDecoder,
    pub(super) streams: BTreeMap<u32, Served>,
    last_stream: u32,
    received: i64,
    /// Window of the connection that is left to the client, bytes.
    pub(super) granted: i64,
    /// The widest initial window that it ever granted.
    initial: i64,
    /// Bytes that have come, and were not read.
    pub(super) input: Vec<u8>,
    /// Bytes that it has said, and that have not left.
    pub(super) output: Vec<u8>,
}

// === impl ClientVerdict ===

impl ClientVerdict {
    /// Holds it against what the server knows of the request, on each stream over which it came.
    pub(super) fn check(self, request: &str, served: &[&Served]) {
        let processed = served.iter().filter(|served| served.is_processed).count();
        assert!(processed <= 1, "{request} was processed {processed} times: {served:?}");
        match self {
            Self::Answered(status) => {
                let is_it = |served: &&Served| served.status == Some(status);
                assert!(served.iter().any(is_it), "{request}: {status}: {served:?}");
            }
            Self::NotProcessed => {
                assert_eq!(processed, 0, "{request} would be processed twice: {served:?}");
            }
            Self::Unknown => {}
        }
    }
}

// === impl ScriptedServer ===

impl ScriptedServer {
    pub(super) fn new(random: Rng) -> Self {
        let (streams, input, output) = Default::default();
        Self {
            random,
            decoder: HpackDecoder::default(),
            streams,
            last_stream: u32::MAX,
            received: 0,
            granted: 65_535,
            initial: 65_535,
            input,
            output,
        }
    }

    /// Reads what has come, to the last whole frame, and answers what must be answered.
    pub(super) fn read(&mut self) {
        if self.input.starts_with(PREFACE) {
            self.input.drain(..PREFACE.len());
        }
        let mut end = 0;
        // The beginning of a preface says that a frame of 5 MB begins.
        while let Some([one, two, three, ..]) = self.input.get(end..)
            && let length = u32::from_be_bytes([0, *one, *two, *three]) as usize
            && self.input.len() >= end + 9 + length
        {
            end += 9 + length;
        }
        let whole: Vec<u8> = self.input.drain(..end).collect();
        for frame in parts(&whole) {
            self.read_frame(frame);
        }
    }

    fn read_frame(&mut self, (kind, flags, stream, payload): FrameParts) {
        match kind {
            HEADERS => {
                let mut path = String::new();
                let read = self.decoder.decode(&payload, |name, value, _| {
                    if name == b":path" {
                        path = String::from_utf8(value.to_vec()).unwrap();
                    }
                    false
                });
                read.expect("a block that can be read");
                assert_eq!(flags & END_HEADERS, END_HEADERS);
                assert!(self.streams.keys().all(|other| *other < stream), "numbers rise");
                let served = self.streams.entry(stream).or_default();
                served.path = path;
                served.is_whole = flags & END_STREAM != 0;
                served.is_disowned = stream > self.last_stream;
            }
            DATA => {
                let bytes = i64::try_from(payload.len()).unwrap();
                self.received += bytes;
                assert!(self.received <= self.granted, "more than the connection's window");
                let served = self.streams.get_mut(&stream).expect("a stream that is open");
                assert!(!served.is_whole, "a body behind its end");
                served.received += bytes;
                assert!(
                    served.received <= self.initial + served.granted,
                    "more than the stream's window"
                );
                served.is_whole = flags & END_STREAM != 0;
            }
            RESET => {
                let served = self.streams.get_mut(&stream).expect("a stream that is open");
                served.is_over = true;
            }
            PING if flags & ACK == 0 => self.output.extend(frame(PING, ACK, 0, &payload)),
            SETTINGS if flags & ACK == 0 => self.output.extend(frame(SETTINGS, ACK, 0, &[])),
            SETTINGS | PING | WINDOW_UPDATE | GOAWAY => {}
            other => panic!("a frame of kind {other}"),
        }
    }

    /// Acts on all that it has read and has not disowned: as it may at any time, even when the client is gone.
    pub(super) fn process_all(&mut self) {
        for served in self.streams.values_mut() {
            served.is_processed |= served.is_whole && !served.is_disowned && !served.is_over;
        }
    }

    /// Does something on its own.
    pub(super) fn act(&mut self) {
        let bytes = match self.random.u8(..12) {
            0..5 => self.answer(),
            5 | 6 => self.reset(),
            7 => {
                let bytes = self.random.choice([0, 1, 100, 70_000]).unwrap();
                self.initial = self.initial.max(i64::from(bytes));
                frame(SETTINGS, 0, 0, &setting(4, bytes))
            }
            8 => frame(SETTINGS, 0, 0, &setting(3, self.random.u32(..20))),
            9 => frame(
                SETTINGS,
                0,
                0,
                &setting(1, self.random.choice([0, 40, 200, 4096, 100_000]).unwrap()),
            ),
            10 => self.widen(),
            _ if self.random.u8(..4) == 0 => self.go_away(),
            _ => frame(PING, 0, 0, &[1; 8]),
        };
        self.output.extend(bytes);
    }

    /// A stream on which it may still say something.
    fn any_stream(&mut self) -> Option<u32> {
        let open = self.streams.iter().filter(|(_, served)| !served.is_over && !served.is_disowned);
        let open: Vec<u32> = open.map(|(stream, _)| *stream).collect();
        self.random.choice(open)
    }

    fn answer(&mut self) -> Vec<u8> {
        let Some(stream) = self.any_stream() else { return Vec::new() };
        let served = self.streams.get_mut(&stream).unwrap();
        served.is_processed = true;
        if served.status.is_some() {
            served.is_over = self.random.bool();
            let flags = if served.is_over { END_STREAM } else { 0 };
            return if served.is_over && self.random.bool() {
                frame(HEADERS, END_STREAM | END_HEADERS, stream, &[0x00, 1, b'a', 1, b'b'])
            } else {
                frame(DATA, flags, stream, b"{\"reason\":\"x\"}")
            };
        }
        if self.random.u8(..4) == 0 {
            return frame(HEADERS, END_HEADERS, stream, &status(103));
        }
        let code = self.random.choice(STATUSES).unwrap();
        served.status = Some(code);
        served.is_over = self.random.bool();
        let flags = if served.is_over { END_STREAM } else { 0 };
        let block =
            [status(code), vec![0x40, 1, b'k', 1, self.random.alphanumeric() as u8]].concat();
        if self.random.bool() {
            return frame(HEADERS, flags | END_HEADERS, stream, &block);
        }
        let (begin, end) = block.split_at(self.random.usize(..block.len()));
        [frame(HEADERS, flags, stream, begin), frame(CONTINUATION, END_HEADERS, stream, end)]
            .concat()
    }

    fn reset(&mut self) -> Vec<u8> {
        let Some(stream) = self.any_stream() else { return Vec::new() };
        let served = self.streams.get_mut(&stream).unwrap();
        // It refuses only what it has not acted on.
        let codes = if served.is_processed { [2, 8, 0] } else { [2, REFUSED, HTTP_1_1_REQUIRED] };
        let code = self.random.choice(codes).unwrap();
        served.is_over = true;
        served.is_disowned = [REFUSED, HTTP_1_1_REQUIRED].contains(&code);
        served.is_processed |= !served.is_disowned;
        frame(RESET, 0, stream, &code.to_be_bytes())
    }

    fn widen(&mut self) -> Vec<u8> {
        let bytes = self.random.choice([1, 50, 5_000]).unwrap();
        let update = |stream| frame(WINDOW_UPDATE, 0, stream, &u32::to_be_bytes(bytes));
        if let Some(stream) = self.any_stream()
            && self.random.bool()
        {
            self.streams.get_mut(&stream).unwrap().granted += i64::from(bytes);
            return update(stream);
        }
        self.granted += i64::from(bytes);
        update(0)
    }

    /// Says which it will process: all that it has acted on, and any of the others.
    pub(super) fn go_away(&mut self) -> Vec<u8> {
        let processed = self.streams.iter().rev().find(|(_, served)| served.is_processed);
        let lowest = processed.map_or(0, |(stream, _)| *stream);
        let highest = self.last_stream.min(lowest + 12);
        let last = if self.random.bool() {
            self.last_stream.min(0x7fff_ffff)
        } else {
            self.random.u32(lowest..=highest)
        };
        self.last_stream = last;
        for (_, served) in self.streams.range_mut(last + 1..) {
            served.is_disowned = true;
        }
        go_away(last, self.random.choice([0, 0, 2, 11]).unwrap())
    }
}

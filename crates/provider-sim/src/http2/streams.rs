//! The streams of a connection: which are open, and the bodies of answers that wait for a window.

use std::collections::{BTreeSet, VecDeque};

use bytes::Bytes;

use super::frames::{self, DATA, END_STREAM, PAYLOAD_BYTES_MAX};

/// The streams that are not answered yet, in the order of their numbers.
#[derive(Debug, Default)]
pub(super) struct OpenStreams {
    /// The number of the first in the ring; those below are closed.
    first: u32,
    ring: VecDeque<SimStream>,
    count: usize,
    /// Streams that the server closed while the client was still sending: what is under way on them is passed over.
    cut_short: BTreeSet<u32>,
}

#[derive(Debug, Clone, Copy, Default)]
struct SimStream {
    is_open: bool,
    /// The client sends nothing more on it: its request is there to the end, or was reset.
    is_sent: bool,
    /// Bytes that the client has widened its window by.
    window: i64,
}

/// Bodies of answers, and what may be sent of them.
#[derive(Debug)]
pub(super) struct BlockedBodies {
    /// Window of the connection, bytes: payload that may still be sent over it.
    pub(super) window: i64,
    /// Initial window of each stream, bytes.
    pub(super) initial_window: i64,
    waiting: VecDeque<BlockedBody>,
}

#[derive(Debug)]
struct BlockedBody {
    stream: u32,
    /// Window beyond the initial one, bytes; negative where some of the initial one is used.
    window: i64,
    rest: Bytes,
}

/// Numbers that a client may leave out between two of its streams.
const LEFT_OUT_MAX: u32 = 10_000;
/// Streams cut short that are remembered. What comes on older ones was not under way when they were closed (RFC 9113, section 5.1).
const CUT_SHORT_MAX: usize = 10_000;
/// Initial size of every window, bytes (RFC 9113, section 6.9.2).
const WINDOW_BYTES: i64 = 65_535;

// === impl OpenStreams ===

impl OpenStreams {
    /// Opens a stream whose number is higher than those of all before. Says whether it could: not where too many numbers are left out.
    pub(super) fn open(&mut self, stream: u32) -> bool {
        if self.ring.is_empty() {
            self.first = stream;
        }
        let behind = self.behind();
        if stream - behind > 2 * LEFT_OUT_MAX {
            return false;
        }
        // Those that are left out are closed by it (RFC 9113, section 5.1.1).
        for _ in 0..(stream - behind) / 2 {
            self.ring.push_back(SimStream::default());
        }
        self.ring.push_back(SimStream { is_open: true, ..SimStream::default() });
        self.count += 1;
        true
    }

    /// True if a stream of this number, or of a higher one, was opened.
    pub(super) fn was_opened(&self, stream: u32) -> bool {
        !stream.is_multiple_of(2) && stream < self.behind()
    }

    /// How many are open.
    pub(super) const fn count(&self) -> usize {
        self.count
    }

    /// Notes that the client has sent its request to the end, or has reset it.
    pub(super) fn sent(&mut self, stream: u32) {
        match self.get_mut(stream) {
            Some(open) => open.is_sent = true,
            None => drop(self.cut_short.remove(&stream)),
        }
    }

    /// True if the client may send more of a request.
    pub(super) fn is_sending(&mut self, stream: u32) -> bool {
        match self.get_mut(stream) {
            Some(open) => !open.is_sent,
            None => self.cut_short.contains(&stream),
        }
    }

    /// Widens the window of a stream.
    pub(super) fn widen(&mut self, stream: u32, bytes: i64) {
        if let Some(open) = self.get_mut(stream) {
            open.window += bytes;
        }
    }

    /// Closes a stream, if it is open: by how much its window was widened, and whether its request was sent to the end.
    pub(super) fn close(&mut self, stream: u32) -> Option<(i64, bool)> {
        let open = self.get_mut(stream)?;
        let closed = (open.window, open.is_sent);
        open.is_open = false;
        self.count -= 1;
        if !closed.1 {
            self.cut_short.insert(stream);
            if self.cut_short.len() > CUT_SHORT_MAX {
                self.cut_short.pop_first();
            }
        }
        // One is kept: the number behind the last that was opened is counted from it.
        while self.ring.len() > 1 && self.ring.front().is_some_and(|first| !first.is_open) {
            self.ring.pop_front();
            self.first += 2;
        }
        Some(closed)
    }

    /// The number behind the last one that was opened.
    fn behind(&self) -> u32 {
        let opened = u32::try_from(self.ring.len()).unwrap_or(u32::MAX);
        self.first.saturating_add(opened.saturating_mul(2))
    }

    fn get_mut(&mut self, stream: u32) -> Option<&mut SimStream> {
        let distance = stream.checked_sub(self.first).filter(|distance| distance % 2 == 0)?;
        let open = self.ring.get_mut(usize::try_from(distance / 2).ok()?)?;
        open.is_open.then_some(open)
    }
}

// === impl BlockedBodies ===

impl BlockedBodies {
    pub(super) const fn new() -> Self {
        Self { window: WINDOW_BYTES, initial_window: WINDOW_BYTES, waiting: VecDeque::new() }
    }

    /// Writes a body, or has it wait; its stream's window was widened by `window` bytes.
    pub(super) fn put(&mut self, out: &mut Vec<u8>, stream: u32, window: i64, body: Bytes) {
        let mut body = BlockedBody { stream, window, rest: body };
        self.put_some(out, &mut body);
        if !body.rest.is_empty() {
            self.waiting.push_back(body);
        }
    }

    /// Writes what windows let through of those that wait.
    pub(super) fn put_more(&mut self, out: &mut Vec<u8>) {
        for _ in 0..self.waiting.len() {
            let Some(BlockedBody { stream, window, rest }) = self.waiting.pop_front() else {
                break;
            };
            self.put(out, stream, window, rest);
        }
    }

    /// Widens the window of a stream whose body waits. Says whether one does.
    pub(super) fn widen(&mut self, stream: u32, bytes: i64) -> bool {
        let body = self.waiting.iter_mut().find(|body| body.stream == stream);
        body.map(|body| body.window += bytes).is_some()
    }

    pub(super) fn forget(&mut self, stream: u32) {
        self.waiting.retain(|body| body.stream != stream);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    fn put_some(&mut self, out: &mut Vec<u8>, body: &mut BlockedBody) {
        while !body.rest.is_empty() {
            // Either may be negative: a client can take back what it granted (RFC 9113, section 6.9.2).
            let window = self.window.min(self.initial_window + body.window);
            let room = usize::try_from(window).unwrap_or(0).min(PAYLOAD_BYTES_MAX);
            if room == 0 {
                return;
            }
            let piece = body.rest.split_to(room.min(body.rest.len()));
            let flags = if body.rest.is_empty() { END_STREAM } else { 0 };
            frames::put(out, DATA, flags, body.stream, &piece);
            let bytes = i64::try_from(piece.len()).unwrap_or(0);
            self.window -= bytes;
            body.window -= bytes;
        }
    }
}

//! Bytes that wait to be written, and which of them may have left.
//!
//! Bytes that were offered to a writer may have left even if the writer then fails and says that it took nothing: TLS takes bytes,
//! encrypts them and writes a part before it meets the error. Only what was never offered has certainly not left.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use super::frames::{self, DATA, ErrorCode, Frame, RST_STREAM};

/// The most that is offered at a time, bytes: four full records of TLS, the most that its library takes at once.
const OFFER_BYTES_MAX: usize = 64 * 1024;
/// Bytes that have left are removed once there are as many.
const COMPACT_BYTES: usize = 512 * 1024;
/// Bytes of memory that the connections of a pool keep for what they will write next.
const SPARE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Whole frames, in the order in which they leave.
#[derive(Debug, Default)]
pub(super) struct WriteBuffer {
    bytes: Vec<u8>,
    /// How many of them a writer has taken.
    taken: usize,
    /// How many of them a writer was offered.
    offered: usize,
    /// How many were removed in front of them.
    removed: u64,
    /// Where memory is taken from, and where it goes once nothing waits.
    spares: Rc<SpareBuffers>,
}

/// The memory of write buffers in which nothing waits, for those in which something does. Connections are hundreds, and few have
/// something to write at a time; and memory that is made anew for each turn of a thread is pages that the kernel clears each time.
#[derive(Debug, Default)]
pub(super) struct SpareBuffers {
    kept: RefCell<Vec<Vec<u8>>>,
    /// True if one was asked for since [`SpareBuffers::free_unused`] looked last.
    is_in_use: Cell<bool>,
}

// === impl SpareBuffers ===

impl SpareBuffers {
    /// The one that was given last, which is the likeliest to be in the processor's cache; a new one where there is none.
    fn take(&self) -> Vec<u8> {
        self.is_in_use.set(true);
        // As much as is offered at once: to grow by and by is to copy.
        self.kept.borrow_mut().pop().unwrap_or_else(|| Vec::with_capacity(OFFER_BYTES_MAX))
    }

    /// Keeps `buffer`, unless it is small or the kept ones are as large as they may be.
    fn give(&self, mut buffer: Vec<u8>) {
        buffer.clear();
        let mut kept = self.kept.borrow_mut();
        let bytes = kept.iter().map(Vec::capacity).fold(buffer.capacity(), usize::saturating_add);
        if buffer.capacity() >= OFFER_BYTES_MAX && bytes <= SPARE_BYTES_MAX {
            kept.push(buffer);
        }
    }

    /// Frees them unless one was asked for since the last call.
    pub(super) fn free_unused(&self) {
        if !self.is_in_use.replace(false) {
            self.clear();
        }
    }

    /// Frees them.
    pub(super) fn clear(&self) {
        self.kept.take();
    }
}

// === impl WriteBuffer ===

impl WriteBuffer {
    /// Shares the memory of those that have these `spares`.
    pub(super) fn share(&mut self, spares: &Rc<SpareBuffers>) {
        self.spares = Rc::clone(spares);
    }

    /// [`SpareBuffers::free_unused`].
    pub(super) fn free_unused(&self) {
        self.spares.free_unused();
    }

    /// Where the frames of a request are to be appended.
    pub(super) fn buffer(&mut self) -> &mut Vec<u8> {
        if self.bytes.capacity() < OFFER_BYTES_MAX {
            let few = std::mem::replace(&mut self.bytes, self.spares.take());
            self.bytes.extend_from_slice(&few);
        }
        &mut self.bytes
    }

    /// Appends a frame. One alone, such as a ping, takes as much memory as it needs.
    pub(super) fn put(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        frames::put(&mut self.bytes, kind, flags, stream, payload);
    }

    /// Appends the end of a stream.
    pub(super) fn put_reset(&mut self, stream: u32, code: ErrorCode) {
        self.put(RST_STREAM, 0, stream, &code.0.to_be_bytes());
    }

    /// Where the next frame will begin, in bytes since the connection's first.
    pub(super) fn position(&self) -> u64 {
        self.position_of(self.bytes.len())
    }

    /// Bytes that wait.
    pub(super) const fn waiting(&self) -> usize {
        self.bytes.len() - self.taken
    }

    /// Bytes to be written next. From now on they may have left.
    pub(super) fn offer(&mut self) -> &[u8] {
        let end = self.bytes.len().min(self.taken + OFFER_BYTES_MAX);
        // Never less again: what a writer has seen once may have left, even if it took nothing.
        self.offered = self.offered.max(end);
        self.bytes.get(self.taken..end).unwrap_or_default()
    }

    /// Says that the first `bytes` of what was offered are written.
    pub(super) fn took(&mut self, bytes: usize) {
        self.taken = self.offered.min(self.taken + bytes);
        // Seldom, since what is behind is moved each time.
        if self.taken == self.bytes.len() || self.taken >= COMPACT_BYTES {
            self.removed = self.position_of(self.taken);
            self.bytes.drain(..self.taken);
            if self.bytes.is_empty() {
                self.spares.give(std::mem::take(&mut self.bytes));
            }
            self.offered -= self.taken;
            self.taken = 0;
        }
    }

    /// True if a byte at `position` may have left.
    pub(super) fn may_have_left(&self, position: u64) -> bool {
        position < self.position_of(self.offered)
    }

    /// Removes the frames whose streams are `withheld`, from the one on that begins at `position`; none where that may have
    /// left, as it may be half of a frame that has. Gives the bytes of bodies that were removed.
    pub(super) fn withhold(&mut self, position: u64, withheld: impl Fn(u32) -> bool) -> usize {
        let begin = usize::try_from(position.saturating_sub(self.removed)).unwrap_or(usize::MAX);
        if self.may_have_left(position) || begin > self.bytes.len() {
            return 0;
        }
        let mut of_bodies = 0;
        let tail = self.bytes.split_off(begin);
        let mut rest = tail.as_slice();
        while let Ok(Some(frame)) = Frame::split_off(&mut rest) {
            if !withheld(frame.stream) {
                self.put(frame.kind, frame.flags, frame.stream, frame.payload);
            } else if frame.kind == DATA {
                of_bodies += frame.payload.len();
            }
        }
        of_bodies
    }

    fn position_of(&self, index: usize) -> u64 {
        self.removed + u64::try_from(index).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http2::frames::{END_STREAM, PING, put};

    fn put_data(out: &mut Vec<u8>, stream: u32, data: &[u8], is_last: bool) {
        put(out, DATA, if is_last { END_STREAM } else { 0 }, stream, data);
    }

    fn put_pong(out: &mut Vec<u8>, opaque: [u8; 8]) {
        put(out, PING, 1, 0, &opaque);
    }

    #[test]
    fn what_was_offered_may_have_left_even_if_nothing_was_taken() {
        let mut out = WriteBuffer::default();
        put_data(out.buffer(), 1, b"one", true);
        let second = out.position();
        assert!(!out.may_have_left(0));
        assert_eq!(out.offer().len(), 12);
        assert!(out.may_have_left(0) && !out.may_have_left(second));
        put_data(out.buffer(), 3, b"two", true);
        assert!(!out.may_have_left(second), "it came behind what was offered");
        out.took(5);
        assert_eq!((out.waiting(), out.position()), (19, 24));
        assert_eq!(out.offer().len(), 19);
        assert!(out.may_have_left(second));
        out.took(19);
        assert_eq!((out.waiting(), out.position()), (0, 24));
        assert!(out.may_have_left(23) && !out.may_have_left(24));
    }

    #[test]
    fn a_long_queue_is_offered_in_pieces_and_forgotten_when_it_has_left() {
        let mut out = WriteBuffer::default();
        let mut expected = Vec::new();
        for number in 0..100 {
            put_data(out.buffer(), 1, &vec![number; 16_000], false);
            put_data(&mut expected, 1, &vec![number; 16_000], false);
        }
        let mut left = Vec::new();
        while out.waiting() > 0 {
            let piece = out.offer();
            assert!(piece.len() <= OFFER_BYTES_MAX);
            let some = piece.len().min(50_000);
            left.extend_from_slice(&piece[..some]);
            out.took(some);
            assert!(out.bytes.len() - out.waiting() < COMPACT_BYTES);
            let position = left.len() as u64;
            assert!(out.may_have_left(position - 1));
        }
        assert_eq!(left, expected);
        assert_eq!(out.position(), expected.len() as u64);
    }

    /// Writes `bytes`, and gives the address of the memory that they were in.
    fn write(out: &mut WriteBuffer, bytes: usize) -> *const u8 {
        put_data(out.buffer(), 1, &vec![0; bytes], true);
        let memory = out.bytes.as_ptr();
        while out.waiting() > 0 {
            let piece = out.offer().len();
            out.took(piece);
        }
        memory
    }

    #[test]
    fn memory_goes_from_one_connection_to_the_next_and_is_bounded() {
        let spares = Rc::new(SpareBuffers::default());
        let mut outs: Vec<WriteBuffer> = (0..100).map(|_| WriteBuffer::default()).collect();
        for out in &mut outs {
            out.share(&spares);
        }
        let kept = || spares.kept.borrow().iter().map(Vec::capacity).sum::<usize>();
        // As large as the largest turn needed, for the next one, whichever it is.
        let memory = write(&mut outs[0], 300_000);
        assert_eq!(write(&mut outs[1], 300_000), memory);
        assert!((300_000..600_000).contains(&kept()), "{}", kept());
        // All at once.
        for out in &mut outs {
            put_data(out.buffer(), 1, &vec![0; 100_000], true);
        }
        for out in &mut outs {
            write(out, 0);
            assert_eq!(
                out.bytes.capacity(),
                0,
                "one in which nothing waits has no memory of its own"
            );
        }
        assert!((SPARE_BYTES_MAX / 2..=SPARE_BYTES_MAX).contains(&kept()), "{}", kept());
        // A ping asks for none, and a request is written behind it.
        outs[0].free_unused();
        outs[0].put(PING, 0, 0, &[7; 8]);
        assert!(outs[0].bytes.capacity() < OFFER_BYTES_MAX);
        assert!(kept() > 0, "in use since the last look");
        put_data(outs[0].buffer(), 1, b"one", true);
        assert_eq!(outs[0].waiting(), 17 + 12);
        outs[0].free_unused();
        assert!(kept() > 0);
        outs[0].free_unused();
        assert_eq!(kept(), 0);
    }

    #[test]
    fn frames_that_nobody_was_offered_can_be_withheld() {
        let mut out = WriteBuffer::default();
        put_data(out.buffer(), 1, b"one", true);
        out.offer();
        out.took(4);
        let begin = out.position();
        put_data(out.buffer(), 3, b"two", true);
        put_pong(out.buffer(), [7; 8]);
        put_data(out.buffer(), 5, b"three", true);
        assert_eq!(out.withhold(begin, |stream| stream >= 3), 8, "two and three");
        let mut expected = Vec::new();
        put_data(&mut expected, 1, b"one", true);
        put_pong(&mut expected, [7; 8]);
        assert_eq!(out.offer(), &expected[4..]);
        assert_eq!(out.withhold(begin - 1, |_| true), 0);
        assert_eq!(out.offer(), &expected[4..], "what was offered stays as it is");
    }
}

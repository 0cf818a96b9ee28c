//! Bytes that come in on a connection with requests under way, cut anywhere, while it goes on otherwise as chance decides.
//! Whatever they are, they are taken or end the connection, in bounded memory; each request ends once, and only one that the bytes
//! disown, or that never left, counts as not processed.
//!
//! The tests with mutated bytes and the fuzzer play it.

#![expect(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "built for tests and for the fuzzer only"
)]

use std::collections::BTreeSet;
use std::time::Duration;

use fastrand::Rng;

use super::frames::{HEAD_BYTES, PAYLOAD_BYTES_MAX};
use super::testing::{GOAWAY, RESET, SeenOutcome, SessionRig, setting};

/// Requests that were sent when the first byte comes in, as far as the windows let them.
pub(super) const REQUESTS: usize = 8;
pub(super) const BODY_BYTES: usize = 300;
/// Upper bounds of the last frame of a connection (`GOAWAY`) and of a stream (`RST_STREAM`), bytes.
const LAST_WORDS_BYTES_MAX: usize = 80;
const RESET_BYTES: usize = HEAD_BYTES + 4;
/// Upper bound of a header block, bytes.
const BLOCK_BYTES_MAX: usize = 64 * 1024;

/// Outcome of each request after `bytes` have come in, in pieces and with other events between them as `random` decides;
/// `None` of one that was given up.
pub(super) fn play(bytes: &[u8], random: &mut Rng) -> Vec<Option<SeenOutcome>> {
    let mut playing = FuzzedConnection::new(random.choice([0, 10, 65_535]).unwrap());
    if random.bool() {
        playing.write(random);
    }
    let piece_max = random.choice([2, 50, 5_000]).unwrap();
    let mut rest = bytes;
    while !rest.is_empty() {
        let (piece, behind) = rest.split_at(random.usize(1..=piece_max).min(rest.len()));
        playing.feed(piece);
        playing.step(random);
        rest = behind;
    }
    playing.end(bytes)
}

/// A connection that bytes come in on.
struct FuzzedConnection {
    rig: SessionRig,
    streams: Vec<u32>,
    /// Those of which something may have left.
    left: BTreeSet<u32>,
    cancelled: BTreeSet<u32>,
    /// Bytes that have come in, and those that have left.
    fed: usize,
    written: usize,
    /// Bytes to be written that nothing which came in has caused.
    own: usize,
}

// === impl FuzzedConnection ===

impl FuzzedConnection {
    fn new(window: u32) -> Self {
        let mut rig = SessionRig::new(&setting(4, window));
        let streams: Vec<u32> = (0..REQUESTS).map(|_| rig.send(&[b'x'; BODY_BYTES])).collect();
        let rest = |stream: &u32| {
            let slot = rig.session.streams.get_mut(*stream).unwrap();
            slot.rest.as_ref().map_or(0, |rest| rest.len())
        };
        // What waits may leave byte by byte, each in a frame.
        let waiting: usize = streams.iter().map(rest).sum();
        let own = rig.session.out.waiting() + waiting * (HEAD_BYTES + 1);
        let (left, cancelled) = Default::default();
        Self { rig, streams, left, cancelled, fed: 0, written: 0, own }
    }

    fn step(&mut self, random: &mut Rng) {
        let before = self.rig.session.out.waiting();
        match random.u8(..12) {
            0..6 => return self.write(random),
            6 => self.rig.pass(Duration::from_millis(random.u64(..8_000)), true),
            7 => {
                let stream = random.choice(self.streams.iter().copied()).unwrap();
                if self.rig.session.streams.get_mut(stream).is_some() {
                    self.rig.session.cancel(stream);
                    self.cancelled.insert(stream);
                }
            }
            _ => {}
        }
        self.own += self.rig.session.out.waiting().saturating_sub(before);
    }

    fn write(&mut self, random: &mut Rng) {
        let offered = self.rig.session.offer().len();
        for stream in self.streams.clone() {
            if let Some(slot) = self.rig.session.streams.get_mut(stream)
                && self.rig.session.out.may_have_left(slot.begins_at)
            {
                self.left.insert(stream);
            }
        }
        let some = random.usize(..=offered);
        self.rig.session.out.took(some);
        self.written += some;
    }

    fn feed(&mut self, bytes: &[u8]) {
        self.rig.feed(bytes);
        self.fed += bytes.len();
        self.check_memory();
    }

    /// Bytes to be written are bounded by the bytes that came in, beside a reset for each stream and the last frame of the connection.
    fn check_memory(&self) {
        let session = &self.rig.session;
        let bytes = self.written + session.out.waiting();
        let bytes_max = self.own + self.fed + REQUESTS * RESET_BYTES + LAST_WORDS_BYTES_MAX;
        assert!(bytes <= bytes_max, "{bytes} of {bytes_max}");
        assert!(session.partial.len() < HEAD_BYTES + PAYLOAD_BYTES_MAX);
        let block = session.block.as_ref().map_or(0, |(.., block)| block.len());
        assert!(block <= BLOCK_BYTES_MAX, "{block}");
        assert!(session.streams.open() <= REQUESTS);
    }

    /// The end of the connection, and what became of each request; `None` of one that was given up.
    fn end(mut self, bytes: &[u8]) -> Vec<Option<SeenOutcome>> {
        self.rig.session.end("the server closed the connection");
        self.check_memory();
        assert_eq!(self.rig.session.streams.open(), 0);
        let mut outcomes = Vec::new();
        for stream in &self.streams {
            if self.cancelled.contains(stream) {
                outcomes.push(None);
                continue;
            }
            let outcome = self.rig.outcome(*stream);
            assert_ne!(outcome, SeenOutcome::Pending, "{stream} is waited for without an end");
            assert_eq!(self.rig.outcome(*stream), SeenOutcome::Pending, "{stream} ends twice");
            let is_unsent =
                matches!(outcome, SeenOutcome::NotProcessed { .. } | SeenOutcome::Http11Required);
            if is_unsent && self.left.contains(stream) {
                assert!(is_disowned(bytes, *stream), "{stream} would be processed twice");
            }
            outcomes.push(Some(outcome));
        }
        outcomes
    }
}

/// True if any frame of `bytes`, as far as they are frames, says that the server did not process the request.
fn is_disowned(mut bytes: &[u8], stream: u32) -> bool {
    let number = |at: &[u8]| u32::from_be_bytes(at.try_into().unwrap()) & 0x7fff_ffff;
    while bytes.len() >= HEAD_BYTES {
        let length = u32::from_be_bytes([0, bytes[0], bytes[1], bytes[2]]) as usize;
        let Some((payload, behind)) = bytes[HEAD_BYTES..].split_at_checked(length) else { break };
        let disowns = match bytes[3] {
            RESET if length == 4 => {
                number(&bytes[5..9]) == stream && [7, 13].contains(&number(payload))
            }
            GOAWAY if length >= 8 => number(&payload[..4]) < stream,
            _ => false,
        };
        if disowns {
            return true;
        }
        bytes = behind;
    }
    false
}

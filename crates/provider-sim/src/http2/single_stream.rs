//! "One stream until a valid token": a stream limit that changes, which h2 cannot announce.
//!
//! h2 believes in the higher limit from the start. Its first SETTINGS are rewritten to allow one
//! stream; a second SETTINGS frame, which h2 knows nothing of, allows more; and the client's
//! acknowledgement of that frame is taken out of what h2 reads.

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::ReadBuf;

const PREFACE_BYTES: usize = 24;
const HEADER_BYTES: usize = 9;
const SETTING_BYTES: usize = 6;
const KIND_SETTINGS: u8 = 0x4;
const FLAG_ACK: u8 = 0x1;
const MAX_CONCURRENT_STREAMS: [u8; 2] = [0, 3];

/// The state of one connection; pure bytes, no I/O.
#[derive(Debug)]
pub(super) struct SingleStream {
    has_sent_settings: bool,
    stage: SingleStreamStage,
    /// Bytes of the frame (at first: of the preface) under way that are still to pass.
    passing_bytes: usize,
    acknowledged: u32,
    /// The beginning of a frame header.
    unparsed: BytesMut,
    /// The bytes that h2 may read.
    received: BytesMut,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SingleStreamStage {
    One,
    /// More may be announced at the next frame boundary.
    Allowed(u32),
    Announced,
    /// The client has acknowledged.
    Over,
}

impl SingleStream {
    pub(super) fn new() -> Self {
        Self {
            has_sent_settings: false,
            stage: SingleStreamStage::One,
            passing_bytes: PREFACE_BYTES,
            acknowledged: 0,
            unparsed: BytesMut::new(),
            received: BytesMut::new(),
        }
    }

    pub(super) fn allow(&mut self, streams: u32) {
        if self.stage == SingleStreamStage::One {
            self.stage = SingleStreamStage::Allowed(streams);
        }
    }

    pub(super) fn is_limited(&self) -> bool {
        self.stage == SingleStreamStage::One
    }

    pub(super) fn is_over(&self) -> bool {
        self.stage == SingleStreamStage::Over
            && self.received.is_empty()
            && self.unparsed.is_empty()
            && self.passing_bytes == 0
    }

    /// The bytes to send in place of `bytes` when they are the first ones: SETTINGS for one stream.
    pub(super) fn first_settings(&mut self, bytes: &[u8]) -> Option<Vec<u8>> {
        if self.has_sent_settings {
            return None;
        }
        // SETTINGS are the first that h2 writes, in one piece.
        self.has_sent_settings = true;
        let mut settings = bytes.to_vec();
        for setting in settings.get_mut(HEADER_BYTES..)?.chunks_exact_mut(SETTING_BYTES) {
            if let Some((name, value)) = setting.split_at_mut_checked(2)
                && name == MAX_CONCURRENT_STREAMS
            {
                value.copy_from_slice(&1_u32.to_be_bytes());
            }
        }
        Some(settings)
    }

    /// The SETTINGS that announce the higher limit, once, when it is allowed.
    pub(super) fn take_settings(&mut self) -> Option<Vec<u8>> {
        let SingleStreamStage::Allowed(streams) = self.stage else {
            return None;
        };
        self.stage = SingleStreamStage::Announced;
        let mut frame = vec![0, 0, 6, KIND_SETTINGS, 0, 0, 0, 0, 0];
        frame.extend_from_slice(&MAX_CONCURRENT_STREAMS);
        frame.extend_from_slice(&streams.to_be_bytes());
        Some(frame)
    }

    /// Takes bytes from the client.
    pub(super) fn receive(&mut self, bytes: &[u8]) {
        self.unparsed.extend_from_slice(bytes);
        loop {
            let passing = self.passing_bytes.min(self.unparsed.len());
            self.received.unsplit(self.unparsed.split_to(passing));
            self.passing_bytes -= passing;
            let Some((&[high, middle, low, kind, flags], _)) = self.unparsed.split_first_chunk()
            else {
                return;
            };
            if self.unparsed.len() < HEADER_BYTES {
                return;
            }
            if kind == KIND_SETTINGS && flags & FLAG_ACK != 0 {
                self.acknowledged += 1;
                // The first acknowledgement is for the SETTINGS of h2 itself.
                if self.acknowledged == 2 {
                    self.unparsed.advance(HEADER_BYTES);
                    self.stage = SingleStreamStage::Over;
                    continue;
                }
            }
            let payload_bytes = u32::from_be_bytes([0, high, middle, low]);
            self.passing_bytes = HEADER_BYTES + usize::try_from(payload_bytes).unwrap_or(0);
        }
    }

    /// Moves what h2 may read into `buffer`; false when there is nothing.
    pub(super) fn take_received(&mut self, buffer: &mut ReadBuf<'_>) -> bool {
        let bytes: Bytes =
            self.received.split_to(self.received.len().min(buffer.remaining())).freeze();
        buffer.put_slice(&bytes);
        !bytes.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    const ACK: &[u8] = &[0, 0, 0, 4, 1, 0, 0, 0, 0];
    const PING: &[u8] = &[0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];

    #[test]
    fn the_second_acknowledgement_is_taken_out_wherever_reads_are_cut() {
        let sent = [PREFACE, ACK, PING, ACK, PING].concat();
        let expect = [PREFACE, ACK, PING, PING].concat();
        for read_bytes in 1..sent.len() {
            let mut single = SingleStream::new();
            let mut passed = Vec::new();
            for read in sent.chunks(read_bytes) {
                single.receive(read);
                let mut space = [0; 128];
                let mut buffer = ReadBuf::new(&mut space);
                single.take_received(&mut buffer);
                passed.extend_from_slice(buffer.filled());
            }
            assert_eq!(passed, expect, "reads of {read_bytes} bytes");
            assert!(single.is_over());
        }
    }

    #[test]
    fn the_first_settings_allow_one_stream_and_the_second_more() {
        let mut single = SingleStream::new();
        let settings = [0, 0, 12, 4, 0, 0, 0, 0, 0, 0, 3, 0, 0, 3, 232, 0, 6, 0, 0, 64, 0];
        let changed = single.first_settings(&settings).unwrap();
        assert_eq!(changed, [0, 0, 12, 4, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 1, 0, 6, 0, 0, 64, 0]);
        assert_eq!(single.first_settings(&settings), None);
        assert_eq!(single.take_settings(), None);
        single.allow(1000);
        let expect = vec![0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 3, 0, 0, 3, 232];
        assert_eq!(single.take_settings(), Some(expect));
        assert_eq!(single.take_settings(), None);
    }
}

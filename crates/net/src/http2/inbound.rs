//! Input of a connection: bytes to frames, and frames to the state of the [`Http2Session`].

use tokio::time::Instant;

use super::answer::{FieldList, NoReply};
use super::frames::{self, Allowed, ErrorCode, Frame, Violation, WRONG_SIZE, ensure};
use super::session::{ANSWERS_WINDOW_BYTES, BODY_WITHIN, Http2Session};
use crate::words;

/// Bytes of a header block that are taken. One that is larger cannot be passed over, since later ones build on it.
const BLOCK_BYTES_MAX: usize = 64 * 1024;
/// To change the window of so many streams costs as much as a frame.
const STREAMS_PER_IDLE_FRAME: usize = 128;

// === impl Http2Session ===

impl Http2Session {
    /// Takes what was read. What the peer must not send ends the connection.
    pub(super) fn receive(&mut self, bytes: &[u8], now: Instant) {
        if self.ending().is_none()
            && let Err(violation) = self.take(bytes, now)
        {
            self.fail(violation);
        }
    }

    fn take(&mut self, bytes: &[u8], now: Instant) -> Allowed {
        let mut joined = std::mem::take(&mut self.partial);
        let mut rest = bytes;
        // Most reads begin and end with a frame, and are taken where they are.
        if !joined.is_empty() {
            joined.extend_from_slice(bytes);
            rest = &joined;
        }
        while let Some(frame) = Frame::split_off(&mut rest)? {
            self.on_frame(frame, now)?;
        }
        // Less than a frame, whose size is bounded: a peer that sends byte by byte takes no more memory than one that
        // does not.
        self.partial = rest.to_vec();
        Ok(())
    }

    fn on_frame(&mut self, frame: Frame<'_>, now: Instant) -> Allowed {
        frame.check_stream()?;
        let Frame { kind, stream, payload, .. } = frame;
        let says_settings = kind == frames::SETTINGS && !frame.has(frames::ACK);
        let has_settings = says_settings || self.peer.streams_max.is_some();
        ensure(has_settings, "its first frame is not SETTINGS")?;
        // Section 6.10: all streams share the table of header fields, so blocks must not interleave.
        let goes_on = self.block.is_none() || kind == frames::CONTINUATION;
        ensure(goes_on, "a header block is interrupted")?;
        let is_last = frame.has(frames::END_STREAM);
        match kind {
            frames::DATA => self.on_data(stream, frame.content()?, payload.len(), is_last),
            frames::HEADERS if frame.has(frames::END_HEADERS) => {
                self.on_block(stream, frame.content()?, is_last, now)
            }
            frames::HEADERS => {
                self.block = Some((stream, is_last, frame.content()?.to_vec()));
                Ok(())
            }
            frames::CONTINUATION => self.on_continuation(frame, now),
            frames::RST_STREAM => self.on_reset(stream, ErrorCode(frame.number()?)),
            frames::SETTINGS if says_settings => self.on_settings(frame),
            // What was said binds no peer that does not say so: nothing comes by pushes, and lists that are too large are refused.
            frames::SETTINGS if payload.is_empty() => self.count_idle_frame(),
            frames::SETTINGS => Err(WRONG_SIZE),
            frames::PUSH_PROMISE => Err(Violation::of("a push was not allowed")),
            frames::PING => {
                self.on_ping(payload.try_into().map_err(|_| WRONG_SIZE)?, frame.has(frames::ACK))
            }
            frames::GOAWAY => {
                // Words may follow. They may repeat a request, so they are not read.
                let [last_stream, code, ..] = payload.as_chunks().0 else { return Err(WRONG_SIZE) };
                let last_stream = u32::from_be_bytes(*last_stream) & 0x7fff_ffff;
                self.on_go_away(last_stream, ErrorCode(u32::from_be_bytes(*code)))
            }
            frames::WINDOW_UPDATE => self.on_window_update(stream, frame.number()? & 0x7fff_ffff),
            // Priorities are for servers, and unknown kinds are ignored (section 4.1).
            _ => self.count_idle_frame(),
        }
    }

    fn on_ping(&mut self, opaque: [u8; 8], is_answer: bool) -> Allowed {
        if !is_answer {
            // Counted, since each is answered: the write buffer of a peer that does not read would grow without end.
            self.out.put(frames::PING, frames::ACK, 0, &opaque);
        } else if opaque == self.pings.to_be_bytes() {
            // An answer to an older ping, or to none, says nothing about the time since the last one.
            self.pong_by = None;
        }
        self.count_idle_frame()
    }

    fn on_data(&mut self, stream: u32, data: &[u8], window: usize, is_last: bool) -> Allowed {
        self.check_opened(stream)?;
        // Also for a stream that is over: its bytes have used up the connection's window all the same (section 6.9).
        self.widen_window(window)?;
        if data.is_empty() && !is_last {
            self.count_idle_frame()?;
        }
        // What was given up may be answered still (section 5.1), but not without end.
        let Some(slot) = self.streams.get_mut(stream) else { return self.count_idle_frame() };
        match slot.answer.as_mut().map(|answer| answer.add(data)) {
            None => self.refuse(stream, Violation::of("a body came in front of its head")),
            Some(true) if !is_last => {}
            Some(_) => self.complete(stream, (!is_last).then_some(ErrorCode::CANCEL)),
        }
        Ok(())
    }

    /// Notes bytes that the connection's window is narrower by, and widens it again when half of it is used.
    fn widen_window(&mut self, bytes: usize) -> Allowed {
        self.received = self.received.saturating_add(u32::try_from(bytes).unwrap_or(u32::MAX));
        if self.received > ANSWERS_WINDOW_BYTES {
            return Err(Violation(ErrorCode::FLOW_CONTROL_ERROR, "it sends more than the window"));
        }
        if self.received >= ANSWERS_WINDOW_BYTES / 2 {
            let received = std::mem::take(&mut self.received);
            self.out.put(frames::WINDOW_UPDATE, 0, 0, &received.to_be_bytes());
        }
        Ok(())
    }

    fn on_continuation(&mut self, frame: Frame<'_>, now: Instant) -> Allowed {
        self.count_idle_frame()?;
        let begun = self.block.take().filter(|(stream, ..)| *stream == frame.stream);
        let alone = Violation::of("a header block goes on that did not begin");
        let (stream, is_last, mut block) = begun.ok_or(alone)?;
        if block.len() + frame.payload.len() > BLOCK_BYTES_MAX {
            return Err(Violation(ErrorCode::ENHANCE_YOUR_CALM, "a header block is too large"));
        }
        block.extend_from_slice(frame.payload);
        if frame.has(frames::END_HEADERS) {
            return self.on_block(stream, &block, is_last, now);
        }
        self.block = Some((stream, is_last, block));
        Ok(())
    }

    /// Takes a whole header block: the head of an answer, one in front of it, or what follows its body.
    fn on_block(&mut self, stream: u32, block: &[u8], is_last: bool, now: Instant) -> Allowed {
        self.check_opened(stream)?;
        // Read in any case: later blocks build on it.
        let mut fields = FieldList::new(self.read_fields);
        let read =
            self.decoder.decode(block, |name, value, passed| fields.add(name, value, passed));
        read.map_err(|fault| Violation(ErrorCode::COMPRESSION_ERROR, fault))?;
        let Some(slot) = self.streams.get_mut(stream) else { return self.count_idle_frame() };
        if slot.answer.is_some() {
            // Trailers are not read; they have to end the stream.
            self.complete(stream, (!is_last).then_some(ErrorCode::PROTOCOL_ERROR));
            return Ok(());
        }
        match fields.into_head(is_last) {
            // Any number of such heads may come in front of an answer (section 8.1), so they are counted like a flood.
            Ok(None) => return self.count_idle_frame(),
            Ok(answer) => {
                self.quiet_checks = 0;
                slot.answer = answer;
                if is_last {
                    self.complete(stream, None);
                } else {
                    self.bodies.push_back((now + BODY_WITHIN, stream));
                }
            }
            Err(fault) => self.refuse(stream, Violation::of(fault)),
        }
        Ok(())
    }

    fn on_reset(&mut self, stream: u32, code: ErrorCode) -> Allowed {
        self.check_opened(stream)?;
        if self.streams.get_mut(stream).is_none() {
            return self.count_idle_frame();
        }
        let why = match code {
            // Section 8.7: the peer's promise that it did nothing. The connection is as good as before.
            ErrorCode::REFUSED_STREAM => NoReply::NotProcessed,
            ErrorCode::HTTP_1_1_REQUIRED => NoReply::Http11Required,
            _ => NoReply::Lost(format!("no answer: the server reset the stream ({code})")),
        };
        // The head of an answer decides, even if its body breaks off.
        self.streams.end(stream, why);
        Ok(())
    }

    fn on_settings(&mut self, frame: Frame<'_>) -> Allowed {
        let settings = frame.settings()?;
        self.count_idle_frame()?;
        // No limit, unless it says otherwise (section 6.5.2).
        self.peer.streams_max.get_or_insert(usize::MAX);
        for (number, value) in settings {
            // A frame has thousands of them, and a new window concerns every stream.
            self.count_idle_frame()?;
            let size = usize::try_from(value).unwrap_or(usize::MAX);
            match (number, value) {
                (frames::HEADER_TABLE_SIZE, _) => self.encoder.allow(size),
                (frames::MAX_CONCURRENT_STREAMS, _) => self.peer.streams_max = Some(size),
                (frames::INITIAL_WINDOW_SIZE, _) => self.set_initial_window(i64::from(value))?,
                (frames::ENABLE_PUSH, 1..) => {
                    return Err(Violation::of("a server cannot be pushed to"));
                }
                (frames::MAX_FRAME_SIZE, ..16_384 | 16_777_216..) => {
                    return Err(Violation::of("its largest frame is out of bounds"));
                }
                // What is sent here fits what every peer takes.
                _ => {}
            }
        }
        // Behind the changes, so whatever is written from here on goes by them (section 6.5.3).
        self.out.put(frames::SETTINGS, frames::ACK, 0, &[]);
        Ok(())
    }

    /// Changes the window of every stream, those that are open included: some become negative.
    fn set_initial_window(&mut self, bytes: i64) -> Allowed {
        if bytes == self.peer.initial_window {
            return Ok(());
        }
        // With many streams each change costs as much as many frames.
        for _ in 0..self.streams.open() / STREAMS_PER_IDLE_FRAME {
            self.count_idle_frame()?;
        }
        self.peer.initial_window = bytes;
        let mut is_too_wide = bytes > frames::WINDOW_MAX;
        for stream in self.streams.numbers() {
            let slot = self.streams.get_mut(stream);
            is_too_wide |= slot.is_some_and(|slot| bytes + slot.window > frames::WINDOW_MAX);
            // A window that was used up may have opened.
            self.queue_body(stream);
        }
        if is_too_wide { Err(TOO_WIDE) } else { Ok(()) }
    }

    /// Takes the peer's word that it will process no stream above `last_stream`. The connection ends with those below.
    fn on_go_away(&mut self, last_stream: u32, code: ErrorCode) -> Allowed {
        self.count_idle_frame()?;
        // What it has disowned may be on its way again.
        let rises = self.peer.goes_away.is_some_and(|(before, _)| last_stream > before);
        ensure(!rises, "its last stream rises")?;
        self.peer.goes_away = Some((last_stream, code));
        // The head of an answer decides: then it was processed, whatever is said now.
        let why = match code {
            ErrorCode::HTTP_1_1_REQUIRED => NoReply::Http11Required,
            _ => NoReply::NotProcessed,
        };
        self.end_streams_above(last_stream, &why, &why);
        Ok(())
    }

    fn on_window_update(&mut self, stream: u32, increment: u32) -> Allowed {
        self.count_idle_frame()?;
        let increment = i64::from(increment);
        let widen = |window: &mut i64, initial| {
            *window += increment;
            match increment {
                0 => Err(Violation::of("a window is widened by nothing")),
                _ if initial + *window > frames::WINDOW_MAX => Err(TOO_WIDE),
                _ => Ok(()),
            }
        };
        // Section 6.9: of the connection a fault is the end of the connection; of a stream, of that stream.
        if stream == 0 {
            return widen(&mut self.window, 0);
        }
        self.check_opened(stream)?;
        // The stream may have ended while this was on its way (section 5.1).
        let Some(slot) = self.streams.get_mut(stream) else { return Ok(()) };
        match widen(&mut slot.window, self.peer.initial_window) {
            Ok(()) => self.queue_body(stream),
            Err(violation) => self.refuse(stream, violation),
        }
        Ok(())
    }

    /// Ends one stream since the peer broke a rule on it, and tells it so.
    fn refuse(&mut self, stream: u32, Violation(code, why): Violation) {
        let words = words::plain(&format!("no answer: the server's is malformed: {why}"));
        self.streams.end(stream, NoReply::Lost(words));
        self.out.put_reset(stream, code);
    }

    fn check_opened(&self, stream: u32) -> Allowed {
        ensure(!self.streams.is_idle(stream), "a frame is on a stream that was not opened")
    }
}

const TOO_WIDE: Violation = Violation(ErrorCode::FLOW_CONTROL_ERROR, "a window is too wide");

#[cfg(test)]
#[path = "inbound_tests.rs"]
mod tests;

//! Input of a connection: bytes to frames, and frames to the state of the [`Http2Session`].

use tokio::time::Instant;

use super::answer::{FieldList, FieldsOf, NoReply};
use super::frames::{
    self, ErrorCode, Frame, HEAD_BYTES, Http2Setting, ProtocolViolation, WINDOW_MAX,
};
use super::session::{ANSWERS_WINDOW_BYTES, Http2Session};
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

    fn take(&mut self, mut bytes: &[u8], now: Instant) -> Result<(), ProtocolViolation> {
        while !self.inbound.partial.is_empty() {
            // First the head of the frame that has begun, then the rest of it.
            let mut partial = std::mem::take(&mut self.inbound.partial);
            let wanted =
                if partial.len() < HEAD_BYTES { HEAD_BYTES } else { frame_bytes(&partial)? };
            let missing = wanted.saturating_sub(partial.len()).min(bytes.len());
            let (more, behind) = bytes.split_at(missing);
            partial.extend_from_slice(more);
            bytes = behind;
            let is_whole = partial.len() >= HEAD_BYTES && partial.len() == frame_bytes(&partial)?;
            if is_whole {
                self.on_frame(&partial, now)?;
                partial.clear();
            }
            let is_exhausted = bytes.is_empty();
            self.inbound.partial = partial;
            if is_exhausted {
                return Ok(());
            }
        }
        while bytes.len() >= HEAD_BYTES
            && let Some((frame, behind)) = bytes.split_at_checked(frame_bytes(bytes)?)
        {
            self.on_frame(frame, now)?;
            bytes = behind;
        }
        // Less than a frame, whose size is bounded: a peer that sends byte by byte takes no more memory than one that
        // does not.
        self.inbound.partial.extend_from_slice(bytes);
        Ok(())
    }

    fn on_frame(&mut self, bytes: &[u8], now: Instant) -> Result<(), ProtocolViolation> {
        let frame = Frame::read(bytes)?;
        if !self.peer.has_greeted && !matches!(frame, Frame::Settings(_)) {
            return Err(ProtocolViolation(
                ErrorCode::PROTOCOL_ERROR,
                "its first frame is not SETTINGS",
            ));
        }
        // Section 6.10: all streams share the table of header fields, so blocks must not interleave.
        if self.inbound.block.is_some() && !matches!(frame, Frame::Continuation { .. }) {
            return Err(ProtocolViolation(
                ErrorCode::PROTOCOL_ERROR,
                "a header block is interrupted",
            ));
        }
        match frame {
            Frame::Data { stream, data, window, is_last } => {
                self.on_data(stream, data, window, is_last)
            }
            Frame::Headers { stream, block, is_whole: true, is_last } => {
                self.on_block(stream, block, is_last, now)
            }
            Frame::Headers { stream, block, is_whole: false, is_last } => {
                self.inbound.block = Some((stream, is_last, block.to_vec()));
                Ok(())
            }
            Frame::Continuation { stream, block, is_whole } => {
                self.on_continuation(stream, block, is_whole, now)
            }
            Frame::Reset { stream, code } => self.on_reset(stream, code),
            Frame::Settings(payload) => self.on_settings(payload),
            Frame::SettingsAcknowledged => {
                self.peer.has_acknowledged_settings = true;
                self.count_idle_frame()
            }
            Frame::PushPromise => {
                Err(ProtocolViolation(ErrorCode::PROTOCOL_ERROR, "a push was not allowed"))
            }
            Frame::Ping(opaque) => {
                // Counted, since each is answered: the write buffer of a peer that does not read would grow without
                // end.
                frames::put_pong(self.out.buffer(), opaque);
                self.count_idle_frame()
            }
            Frame::Pong(opaque) => {
                self.pong(opaque);
                self.count_idle_frame()
            }
            Frame::GoAway { last_stream, code } => self.on_go_away(last_stream, code),
            Frame::WindowUpdate { stream, increment } => self.on_window_update(stream, increment),
            Frame::Other => self.count_idle_frame(),
        }
    }

    fn on_data(
        &mut self,
        stream: u32,
        data: &[u8],
        window: usize,
        is_last: bool,
    ) -> Result<(), ProtocolViolation> {
        self.check_opened(stream)?;
        // Also for a stream that is over: its bytes have used up the connection's window all the same (section 6.9).
        self.widen_window(window)?;
        if data.is_empty() && !is_last {
            self.count_idle_frame()?;
        }
        // What was given up may be answered still (section 5.1), but not without end.
        let Some(slot) = self.streams.open_mut(stream) else { return self.count_idle_frame() };
        match slot.answer_mut().map(|answer| answer.add(data)) {
            None => {
                self.refuse(stream, ErrorCode::PROTOCOL_ERROR, "a body came in front of its head");
            }
            Some(true) if !is_last => {}
            Some(_) => self.complete(stream, (!is_last).then_some(ErrorCode::CANCEL)),
        }
        Ok(())
    }

    /// Notes bytes that the connection's window is narrower by, and widens it again when half of it is used.
    fn widen_window(&mut self, bytes: usize) -> Result<(), ProtocolViolation> {
        let received =
            u32::try_from(bytes).unwrap_or(u32::MAX).saturating_add(self.inbound.received);
        self.inbound.received = received;
        if received > ANSWERS_WINDOW_BYTES {
            return Err(ProtocolViolation(
                ErrorCode::FLOW_CONTROL_ERROR,
                "it sends more than the window",
            ));
        }
        if received >= ANSWERS_WINDOW_BYTES / 2 {
            frames::put_window_update(self.out.buffer(), 0, received);
            self.inbound.received = 0;
        }
        Ok(())
    }

    fn on_continuation(
        &mut self,
        stream: u32,
        block: &[u8],
        is_whole: bool,
        now: Instant,
    ) -> Result<(), ProtocolViolation> {
        self.count_idle_frame()?;
        let begun = self.inbound.block.take().filter(|(of, ..)| *of == stream);
        let alone = ProtocolViolation(
            ErrorCode::PROTOCOL_ERROR,
            "a header block goes on that did not begin",
        );
        let (_, is_last, mut whole) = begun.ok_or(alone)?;
        if whole.len() + block.len() > BLOCK_BYTES_MAX {
            return Err(ProtocolViolation(
                ErrorCode::ENHANCE_YOUR_CALM,
                "a header block is too large",
            ));
        }
        whole.extend_from_slice(block);
        if is_whole {
            return self.on_block(stream, &whole, is_last, now);
        }
        self.inbound.block = Some((stream, is_last, whole));
        Ok(())
    }

    /// Takes a whole header block: the head of an answer, one in front of it, or what follows its body.
    fn on_block(
        &mut self,
        stream: u32,
        block: &[u8],
        is_last: bool,
        now: Instant,
    ) -> Result<(), ProtocolViolation> {
        self.check_opened(stream)?;
        // Read in any case: later blocks build on it.
        let mut fields = FieldList::new(self.read_fields);
        let read =
            self.decoder.decode(block, |name, value, passed| fields.add(name, value, passed));
        read.map_err(|fault| ProtocolViolation(ErrorCode::COMPRESSION_ERROR, fault.0))?;
        let Some(slot) = self.streams.open_mut(stream) else { return self.count_idle_frame() };
        if slot.answer_mut().is_some() {
            // Trailers are not read; they have to end the stream.
            self.complete(stream, (!is_last).then_some(ErrorCode::PROTOCOL_ERROR));
            return Ok(());
        }
        match fields.into_head(is_last) {
            // Any number of such heads may come in front of an answer (section 8.1), so they are counted like a flood.
            Ok(FieldsOf::Interim) => return self.count_idle_frame(),
            Ok(FieldsOf::IncomingReply(answer)) => {
                self.answers += 1;
                slot.answered(answer);
                if is_last {
                    self.complete(stream, None);
                } else {
                    self.await_body(stream, now);
                }
            }
            Err(fault) => self.refuse(stream, ErrorCode::PROTOCOL_ERROR, fault),
        }
        Ok(())
    }

    fn on_reset(&mut self, stream: u32, code: ErrorCode) -> Result<(), ProtocolViolation> {
        self.check_opened(stream)?;
        if self.streams.open_mut(stream).is_none() {
            return self.count_idle_frame();
        }
        // The head of an answer decides, even if its body breaks off.
        if self.streams.complete(stream).is_none() {
            let why = match code {
                // Section 8.7: the peer's promise that it did nothing. The connection is as good as before.
                ErrorCode::REFUSED_STREAM => NoReply::NotProcessed { leave: false },
                ErrorCode::HTTP_1_1_REQUIRED => NoReply::Http11Required,
                _ => NoReply::Lost(format!("no answer: the server reset the stream ({code})")),
            };
            self.streams.fail(stream, why);
        }
        Ok(())
    }

    fn on_settings(&mut self, payload: &[u8]) -> Result<(), ProtocolViolation> {
        self.count_idle_frame()?;
        if !self.peer.has_greeted {
            // No limit, unless it says otherwise (section 6.5.2).
            self.peer.streams_max = usize::MAX;
            self.peer.has_greeted = true;
        }
        for setting in Http2Setting::read_all(payload) {
            // A frame has thousands of them, and a new window concerns every stream.
            self.count_idle_frame()?;
            match setting {
                Http2Setting::HeaderTableSize(bytes) => self.allow_table(bytes),
                Http2Setting::MaxConcurrentStreams(streams) => {
                    self.peer.streams_max = usize::try_from(streams).unwrap_or(usize::MAX);
                }
                Http2Setting::InitialWindowSize(bytes) => {
                    self.set_initial_window(i64::from(bytes))?;
                }
                Http2Setting::EnablePush(1..) => {
                    return Err(ProtocolViolation(
                        ErrorCode::PROTOCOL_ERROR,
                        "a server cannot be pushed to",
                    ));
                }
                Http2Setting::MaxFrameSize(..16_384 | 16_777_216..) => {
                    return Err(ProtocolViolation(
                        ErrorCode::PROTOCOL_ERROR,
                        "its largest frame is out of bounds",
                    ));
                }
                // What is sent here fits what every peer takes.
                Http2Setting::EnablePush(0)
                | Http2Setting::MaxFrameSize(_)
                | Http2Setting::Other => {}
            }
        }
        // Behind the changes, so whatever is written from here on goes by them (section 6.5.3).
        frames::put_settings_acknowledged(self.out.buffer());
        Ok(())
    }

    /// Changes the window of every stream, those that are open included: some become negative.
    fn set_initial_window(&mut self, bytes: i64) -> Result<(), ProtocolViolation> {
        if bytes == self.peer.initial_window {
            return Ok(());
        }
        // With many streams each change costs as much as many frames.
        for _ in 0..self.streams.open() / STREAMS_PER_IDLE_FRAME {
            self.count_idle_frame()?;
        }
        self.peer.initial_window = bytes;
        let mut is_too_wide = bytes > WINDOW_MAX;
        for stream in self.streams.open_numbers() {
            is_too_wide |=
                self.streams.open_mut(stream).is_some_and(|slot| bytes + slot.window > WINDOW_MAX);
            // A window that was used up may have opened.
            self.queue_body(stream);
        }
        if is_too_wide { Err(TOO_WIDE) } else { Ok(()) }
    }

    /// Takes the peer's word that it will process no stream above `last_stream`. The connection ends with those below.
    fn on_go_away(&mut self, last_stream: u32, code: ErrorCode) -> Result<(), ProtocolViolation> {
        self.count_idle_frame()?;
        if self.peer.goes_away.is_some_and(|(before, _)| last_stream > before) {
            // What it has disowned may be on its way again.
            return Err(ProtocolViolation(ErrorCode::PROTOCOL_ERROR, "its last stream rises"));
        }
        self.peer.goes_away = Some((last_stream, code));
        let mut first_unsent = None;
        for stream in self.streams.open_numbers().into_iter().filter(|stream| *stream > last_stream)
        {
            let begins_at = self.streams.get_mut(stream).map_or(0, |slot| slot.begins_at);
            if !self.out.may_have_left(begins_at) {
                first_unsent.get_or_insert(begins_at);
            }
            // The head of an answer decides: then it was processed, whatever is said now.
            if self.streams.complete(stream).is_none() {
                let is_other_version = code == ErrorCode::HTTP_1_1_REQUIRED;
                let disowned = NoReply::NotProcessed { leave: true };
                let why = if is_other_version { NoReply::Http11Required } else { disowned };
                self.streams.fail(stream, why);
            }
        }
        if let Some(position) = first_unsent {
            let bytes = self.out.withhold(position, |stream| stream > last_stream);
            // The peer never sees them, and will not give their window back.
            self.window += i64::try_from(bytes).unwrap_or(0);
        }
        Ok(())
    }

    fn on_window_update(&mut self, stream: u32, increment: u32) -> Result<(), ProtocolViolation> {
        self.count_idle_frame()?;
        let increment = i64::from(increment);
        if stream == 0 {
            self.window += increment;
            return match increment {
                // Section 6.9: of the connection it is the end of the connection; of a stream, of that stream.
                0 => Err(ProtocolViolation(
                    ErrorCode::PROTOCOL_ERROR,
                    "a window is widened by nothing",
                )),
                _ if self.window > WINDOW_MAX => Err(TOO_WIDE),
                _ => Ok(()),
            };
        }
        self.check_opened(stream)?;
        let initial = self.peer.initial_window;
        // The stream may have ended while this was on its way (section 5.1).
        let Some(slot) = self.streams.open_mut(stream) else { return Ok(()) };
        slot.window += increment;
        if increment == 0 {
            self.refuse(stream, ErrorCode::PROTOCOL_ERROR, "a window is widened by nothing");
        } else if initial + slot.window > WINDOW_MAX {
            self.refuse(stream, ErrorCode::FLOW_CONTROL_ERROR, "a window is too wide");
        } else {
            self.queue_body(stream);
        }
        Ok(())
    }

    /// Ends one stream since the peer broke a rule on it, and tells it so.
    fn refuse(&mut self, stream: u32, code: ErrorCode, why: &str) {
        if self.streams.complete(stream).is_none() {
            let words = words::plain(&format!("no answer: the server's is malformed: {why}"));
            self.streams.fail(stream, NoReply::Lost(words));
        }
        frames::put_reset(self.out.buffer(), stream, code);
    }

    fn check_opened(&self, stream: u32) -> Result<(), ProtocolViolation> {
        if self.streams.is_idle(stream) {
            return Err(ProtocolViolation(
                ErrorCode::PROTOCOL_ERROR,
                "a frame is on a stream that was not opened",
            ));
        }
        Ok(())
    }
}

const TOO_WIDE: ProtocolViolation =
    ProtocolViolation(ErrorCode::FLOW_CONTROL_ERROR, "a window is too wide");

/// How many bytes the frame has whose head begins `bytes`.
fn frame_bytes(bytes: &[u8]) -> Result<usize, ProtocolViolation> {
    Ok(Frame::length(bytes)?.unwrap_or(HEAD_BYTES))
}

#[cfg(test)]
#[path = "inbound_tests.rs"]
mod tests;

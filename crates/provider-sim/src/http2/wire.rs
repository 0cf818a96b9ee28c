//! The bytes below h2, for what its interface cannot say: a GOAWAY with a chosen last stream, and
//! a stream limit that changes while the connection is open.

use std::cell::{RefCell, RefMut};
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BufMut, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};

use super::single_stream::SingleStream;
use crate::tls::TlsStream;

const GOAWAY_REASON: &[u8] = br#"{"reason":"Shutdown"}"#;

/// A connection's bytes, shared by h2 and by the task that drives it.
#[derive(Clone)]
pub(super) struct SharedWire(Rc<RefCell<FlushedWire>>);

struct FlushedWire {
    tls: TlsStream,
    /// Nothing that h2 wrote is waiting: the next byte starts a frame.
    is_flushed: bool,
    /// Bytes of our own, which leave before what h2 writes next.
    own: BytesMut,
    single_stream: Option<SingleStream>,
}

// === impl SharedWire ===

impl SharedWire {
    /// With `single_stream` the client is allowed one stream until [`SharedWire::allow_streams`].
    pub(super) fn new(tls: TlsStream, single_stream: bool) -> Self {
        Self(Rc::new(RefCell::new(FlushedWire {
            tls,
            is_flushed: true,
            own: BytesMut::new(),
            single_stream: single_stream.then(SingleStream::new),
        })))
    }

    /// Lets the client open `streams` streams from the next flush on, if it was held to one.
    pub(super) fn allow_streams(&self, streams: u32) {
        if let Some(single_stream) = &mut self.0.borrow_mut().single_stream {
            single_stream.allow(streams);
        }
    }

    /// The client is still held to one stream.
    pub(super) fn is_single_stream(&self) -> bool {
        self.0.borrow().single_stream.as_ref().is_some_and(SingleStream::is_limited)
    }

    /// Everything h2 wrote has left.
    pub(super) fn is_flushed(&self) -> bool {
        self.0.borrow().is_flushed
    }

    /// Ends the connection with a GOAWAY after `last_stream`, and waits until the client closes.
    ///
    /// h2 must have flushed and must be gone. Reading on is what keeps the GOAWAY alive: closing a
    /// socket with unread bytes makes the kernel throw away what the client has not read.
    pub(super) async fn goodbye(self, last_stream: u32) -> io::Result<()> {
        let Some(wire) = Rc::into_inner(self.0) else {
            return Ok(());
        };
        let mut tls = wire.into_inner().tls;
        tls.write_all(&goaway(last_stream)).await?;
        tls.shutdown().await?;
        let mut ignored = [0; 4096];
        while tls.read(&mut ignored).await? > 0 {}
        Ok(())
    }
}

impl AsyncRead for SharedWire {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.0.borrow_mut().poll_read(context, buffer)
    }
}

impl AsyncWrite for SharedWire {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let mut wire = self.0.borrow_mut();
        if wire.hold_first_settings(bytes) {
            return Poll::Ready(Ok(bytes.len()));
        }
        ready!(wire.poll_write_own(context))?;
        wire.is_flushed = false;
        Pin::new(&mut wire.tls).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut wire = self.0.borrow_mut();
        let first = slices.iter().find(|slice| !slice.is_empty());
        if let Some(first) = first
            && wire.hold_first_settings(first)
        {
            return Poll::Ready(Ok(first.len()));
        }
        ready!(wire.poll_write_own(context))?;
        wire.is_flushed = false;
        Pin::new(&mut wire.tls).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.borrow().tls.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.borrow_mut().poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut wire: RefMut<'_, FlushedWire> = self.0.borrow_mut();
        Pin::new(&mut wire.tls).poll_shutdown(context)
    }
}

// === impl FlushedWire ===

impl FlushedWire {
    fn poll_read(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Some(single_stream) = &mut self.single_stream else {
            return Pin::new(&mut self.tls).poll_read(context, buffer);
        };
        if single_stream.take_received(buffer) {
            return Poll::Ready(Ok(()));
        }
        if single_stream.is_over() {
            // From here on bytes reach h2 without a copy.
            self.single_stream = None;
            return Pin::new(&mut self.tls).poll_read(context, buffer);
        }
        let mut scratch = [0; 4096];
        loop {
            let mut bytes = ReadBuf::new(&mut scratch);
            ready!(Pin::new(&mut self.tls).poll_read(context, &mut bytes))?;
            let is_end = bytes.filled().is_empty();
            single_stream.receive(bytes.filled());
            if single_stream.take_received(buffer) || is_end {
                return Poll::Ready(Ok(()));
            }
        }
    }

    fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_write_own(context))?;
        ready!(Pin::new(&mut self.tls).poll_flush(context))?;
        // Everything of h2 has left, so this frame stands between two of its own.
        let frame = self.single_stream.as_mut().and_then(SingleStream::take_settings);
        if let Some(frame) = frame {
            self.own.extend_from_slice(&frame);
            ready!(self.poll_write_own(context))?;
            ready!(Pin::new(&mut self.tls).poll_flush(context))?;
        }
        self.is_flushed = true;
        Poll::Ready(Ok(()))
    }

    fn poll_write_own(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.own.is_empty() {
            let written = ready!(Pin::new(&mut self.tls).poll_write(context, &self.own))?;
            self.own.advance(written);
        }
        Poll::Ready(Ok(()))
    }

    /// Takes over the first bytes h2 writes, its SETTINGS, when they are to say something else.
    fn hold_first_settings(&mut self, bytes: &[u8]) -> bool {
        let changed = self.single_stream.as_mut().and_then(|single| single.first_settings(bytes));
        if let Some(changed) = &changed {
            self.own.extend_from_slice(changed);
        }
        changed.is_some()
    }
}

fn goaway(last_stream: u32) -> BytesMut {
    const KIND: u8 = 0x7;
    let mut frame = BytesMut::new();
    let payload_bytes = u8::try_from(8 + GOAWAY_REASON.len()).unwrap_or(u8::MAX);
    frame.put_slice(&[0, 0, payload_bytes, KIND, 0, 0, 0, 0, 0]);
    frame.put_u32(last_stream);
    frame.put_u32(h2::Reason::NO_ERROR.into());
    frame.put_slice(GOAWAY_REASON);
    frame
}

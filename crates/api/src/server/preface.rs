//! The first bytes of a plain connection: whether they are the preface of HTTP/2.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf as _, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};

/// A socket of which something was read ahead.
#[derive(Debug)]
pub(super) struct BegunSocket<S> {
    socket: S,
    ahead: Bytes,
}

/// The preface of a client with prior knowledge (RFC 9113, section 3.4). No request of HTTP/1.1 begins so.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Reads as much of `socket` as tells whether it begins with the preface of HTTP/2, and says if it does.
pub(super) async fn read_preface<S>(mut socket: S) -> io::Result<(bool, BegunSocket<S>)>
where
    S: AsyncRead + Unpin,
{
    let mut ahead = BytesMut::with_capacity(PREFACE.len());
    while ahead.len() < PREFACE.len() && PREFACE.starts_with(&ahead) {
        if socket.read_buf(&mut ahead).await? == 0 {
            break;
        }
    }
    let is_http2 = ahead.starts_with(PREFACE);
    Ok((is_http2, BegunSocket { socket, ahead: ahead.freeze() }))
}

// === impl BegunSocket ===

impl<S: AsyncRead + Unpin> AsyncRead for BegunSocket<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.ahead.is_empty() {
            return Pin::new(&mut self.socket).poll_read(context, buffer);
        }
        let length = self.ahead.len().min(buffer.remaining());
        self.ahead.split_to(length).copy_to_slice(buffer.initialize_unfilled_to(length));
        buffer.advance(length);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for BegunSocket<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(context)
    }
}

//! A socket that is read far ahead of what is asked for. Its bytes have memory only while some of them wait: of hundreds of
//! connections most have none at a time, and memory that the last one has just used is still in the processor's cache.

use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};

/// Bytes that are read at a time: hundreds of answers. TLS by itself reads 4 KiB.
const AHEAD_BYTES: usize = 64 * 1024;

/// Reads ahead of what is asked for.
#[derive(Debug)]
pub(crate) struct ReadAheadSocket<Socket> {
    socket: Socket,
    bytes: Vec<u8>,
    /// How many of them were given out.
    given: usize,
}

// === impl ReadAheadSocket ===

impl<Socket> ReadAheadSocket<Socket> {
    pub(crate) const fn new(socket: Socket) -> Self {
        Self { socket, bytes: Vec::new(), given: 0 }
    }
}

impl<Socket: AsyncRead + Unpin> AsyncRead for ReadAheadSocket<Socket> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.bytes.is_empty() {
            // Kept only if something has come.
            let mut bytes = Vec::with_capacity(AHEAD_BYTES);
            ready!(pin!(this.socket.read_buf(&mut bytes)).poll(context))?;
            this.bytes = bytes;
        }
        let rest = this.bytes.get(this.given..).unwrap_or_default();
        let piece = rest.get(..buffer.remaining()).unwrap_or(rest);
        buffer.put_slice(piece);
        this.given += piece.len();
        if this.given == this.bytes.len() {
            (this.bytes, this.given) = (Vec::new(), 0);
        }
        Poll::Ready(Ok(()))
    }
}

impl<Socket: AsyncWrite + Unpin> AsyncWrite for ReadAheadSocket<Socket> {
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
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write_vectored(context, pieces)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_was_read_ahead_is_given_out_in_pieces_and_has_no_memory_when_it_is_gone() {
        let sent: Vec<u8> = (0..100_000_u32).map(|number| number.to_le_bytes()[0]).collect();
        let sent = sent.as_slice();
        let mut socket = ReadAheadSocket::new(sent);
        let mut given = Vec::new();
        for bytes in [1, 4_000, 65_535, 30_464] {
            let mut piece = vec![0; bytes];
            socket.read_exact(&mut piece).await.unwrap();
            given.extend_from_slice(&piece);
        }
        assert_eq!((given.as_slice(), socket.bytes.capacity()), (sent, 0));
        assert_eq!(socket.read(&mut [0]).await.unwrap(), 0, "the end");
    }

    #[tokio::test]
    async fn a_socket_that_has_nothing_takes_no_memory() {
        let (ours, _theirs) = tokio::io::duplex(1);
        let mut socket = ReadAheadSocket::new(ours);
        assert!(futures_util::poll!(pin!(socket.read(&mut [0]))).is_pending());
        assert_eq!(socket.bytes.capacity(), 0);
    }
}

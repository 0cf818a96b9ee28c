//! A socket that is read when the kernel says that it has something, or by a tick of one millisecond while its peer answers in many
//! small pieces. A wake-up costs more than a small answer does, and thousands come in a second from a server that writes each
//! answer by itself; a tick takes all that came since the last one. While it ticks the socket is not registered for
//! readiness, because a registered one would wake the thread all the same.

use std::io::{self, Read as _, Write as _};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use flow::Clock;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep};

/// Between two ticks: what an answer may wait longer for. The timers of tokio have no finer grain.
const TICK: Duration = Duration::from_millis(1);
/// Reads, or ticks, that one decision is made from.
const READS: u32 = 64;
/// Bytes of a small read: some five answers of a push service, each in a record of TLS.
const SMALL_BYTES: usize = 512;
/// Small reads in a millisecond from which on ticks are cheaper: a tick costs a timer and a call of the kernel, as a wake-up does.
const READS_PER_TICK: u32 = 4;

/// A TCP connection that reads by readiness or by ticks, whichever its traffic asks for.
#[derive(Debug)]
pub(crate) struct TickingSocket {
    /// `None` only after its registration failed, with which the connection ends.
    socket: Option<ReadBy>,
    rate: ReadRate,
    clock: Clock,
}

#[derive(Debug)]
enum ReadBy {
    /// The kernel says when it can be read.
    Readiness(TcpStream),
    /// It is read when the timer is due.
    Tick(std::net::TcpStream, Pin<Box<Sleep>>),
}

/// The reads of a socket since the last decision.
#[derive(Debug)]
struct ReadRate {
    since: Instant,
    reads: u32,
    bytes: usize,
    /// Bytes of a small read when ticks began; 0 while the kernel says when there is something.
    bytes_per_read: usize,
}

// === impl ReadRate ===

impl ReadRate {
    fn new(now: Instant) -> Self {
        Self { since: now, reads: 0, bytes: 0, bytes_per_read: 0 }
    }

    /// Counts a read of `bytes`, or a tick, which may have none, and decides at the end of [`READS`] of them if the next ones are
    /// ticks. `now` is asked for only then.
    fn is_ticking_after(&mut self, bytes: usize, now: impl FnOnce() -> Instant) -> bool {
        let was_ticking = self.bytes_per_read > 0;
        self.reads += 1;
        self.bytes += bytes;
        if self.reads < READS {
            return was_ticking;
        }
        let now = now();
        let mean = self.bytes / READS as usize;
        let is_ticking = if was_ticking {
            // Half of what made them begin, so that they do not end with the next pause.
            mean >= self.bytes_per_read * READS_PER_TICK as usize / 2
        } else {
            let in_time = now - self.since <= TICK * READS / READS_PER_TICK;
            in_time && mean <= SMALL_BYTES
        };
        let bytes_per_read = if was_ticking { self.bytes_per_read } else { mean.max(1) };
        *self = Self::new(now);
        self.bytes_per_read = if is_ticking { bytes_per_read } else { 0 };
        is_ticking
    }
}

// === impl TickingSocket ===

impl TickingSocket {
    /// Takes a connection that is registered, as each is at first.
    pub(crate) fn new(stream: TcpStream, clock: Clock) -> Self {
        let rate = ReadRate::new(clock.monotonic());
        Self { socket: Some(ReadBy::Readiness(stream)), rate, clock }
    }

    /// Counts a read or a tick, and changes over when what was counted asks for it.
    fn count(&mut self, bytes: usize) -> io::Result<()> {
        let clock = self.clock;
        let is_ticking = self.rate.is_ticking_after(bytes, || clock.monotonic());
        self.socket = match self.socket.take() {
            Some(ReadBy::Readiness(stream)) if is_ticking => {
                let timer = Box::pin(tokio::time::sleep(TICK));
                Some(ReadBy::Tick(stream.into_std()?, timer))
            }
            Some(ReadBy::Tick(stream, _)) if !is_ticking => {
                Some(ReadBy::Readiness(TcpStream::from_std(stream)?))
            }
            socket => socket,
        };
        Ok(())
    }

    /// The stream, registered again if it was not: for what has to wait until the socket can be written.
    fn registered(&mut self, context: &Context<'_>) -> io::Result<Pin<&mut TcpStream>> {
        let ticking = self.socket.take_if(|socket| matches!(socket, ReadBy::Tick(..)));
        if let Some(ReadBy::Tick(stream, _)) = ticking {
            self.rate = ReadRate::new(self.clock.monotonic());
            // The timer is gone that would have woken the reader, and a peer may write nothing more before it is read from.
            context.waker().wake_by_ref();
            self.socket = Some(ReadBy::Readiness(TcpStream::from_std(stream)?));
        }
        match &mut self.socket {
            Some(ReadBy::Readiness(stream)) => Ok(Pin::new(stream)),
            Some(ReadBy::Tick(..)) | None => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// Writes by `write` while the socket ticks. `None` when it is registered, or is full and has to be.
    fn write_ticking(
        &mut self,
        write: impl FnOnce(&mut std::net::TcpStream) -> io::Result<usize>,
    ) -> Option<io::Result<usize>> {
        let Some(ReadBy::Tick(stream, _)) = &mut self.socket else { return None };
        let written = write(stream);
        let is_full =
            written.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock);
        (!is_full).then_some(written)
    }
}

impl AsyncRead for TickingSocket {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        loop {
            let before = buffer.filled().len();
            let (is_read, is_drained) = match &mut this.socket {
                None => return Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
                Some(ReadBy::Readiness(stream)) => {
                    std::task::ready!(Pin::new(stream).poll_read(context, buffer))?;
                    (true, false)
                }
                Some(ReadBy::Tick(stream, timer)) => {
                    std::task::ready!(timer.as_mut().poll(context));
                    match stream.read(buffer.initialize_unfilled()) {
                        Ok(bytes) => {
                            buffer.advance(bytes);
                            (true, buffer.remaining() > 0)
                        }
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => (false, true),
                        Err(error) => return Poll::Ready(Err(error)),
                    }
                }
            };
            if is_drained && let Some(ReadBy::Tick(_, timer)) = &mut this.socket {
                timer.as_mut().reset(this.clock.monotonic() + TICK);
            }
            let bytes = buffer.filled().len() - before;
            this.count(bytes)?;
            if is_read {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

impl AsyncWrite for TickingSocket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.write_ticking(|stream| stream.write(bytes)) {
            Some(written) => Poll::Ready(written),
            None => self.registered(context)?.poll_write(context, bytes),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.write_ticking(|stream| stream.write_vectored(pieces)) {
            Some(written) => Poll::Ready(written),
            None => self.registered(context)?.poll_write_vectored(context, pieces),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // A socket holds nothing back.
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.registered(context)?.poll_shutdown(context)
    }
}

#[cfg(test)]
#[path = "ticking_tests.rs"]
mod tests;

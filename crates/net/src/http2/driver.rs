//! The task that moves a connection: it reads, watches the time, and writes what was asked for since its last turn in as few pieces
//! as possible. Requests do not wait for it, and have no task of their own.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncBufRead, AsyncWrite, AsyncWriteExt as _};
use tokio::time::Sleep;

use super::connection::Connection;
use super::session::SILENT;
use crate::tls;

/// Reads in a turn, each of a record of TLS; then other tasks have theirs.
const READS_PER_TURN: usize = 16;
/// How long a connection may take to say its last words.
const CLOSE_WITHIN: Duration = Duration::from_secs(2);

/// The socket of a connection, and what moves it.
#[derive(Debug)]
pub(super) struct Wire<Socket> {
    provider: &'static str,
    socket: Socket,
    pub(super) connection: Rc<Connection>,
    timer: Pin<Box<Sleep>>,
    /// True if something that was written may not have left.
    is_unflushed: bool,
    /// True once a write has failed: it is not known how much of it has left, so nothing may follow.
    is_broken: bool,
}

// === impl Wire ===

impl<Socket: AsyncBufRead + AsyncWrite + Unpin> Wire<Socket> {
    /// The wire of `connection` over `socket`.
    pub(super) fn new(provider: &'static str, connection: Connection, socket: Socket) -> Self {
        Self {
            provider,
            socket,
            // Due at once: the first turn sets it.
            timer: Box::pin(tokio::time::sleep_until(connection.clock.monotonic())),
            connection: Rc::new(connection),
            is_unflushed: false,
            is_broken: false,
        }
    }

    /// Waits until the peer has answered.
    ///
    /// # Errors
    /// When the connection ends instead; in words.
    pub(super) async fn greet(&mut self) -> Result<(), String> {
        poll_fn(|context| {
            let is_over = self.poll_turn(context).is_ready();
            let session = self.connection.session.borrow();
            match session.ending() {
                Some(ending) if is_over => Poll::Ready(Err(ending.to_owned())),
                _ if session.is_ready() => Poll::Ready(Ok(())),
                _ => Poll::Pending,
            }
        })
        .await
    }

    /// Moves the connection until it ends, and closes it. `progressed` is called whenever it has moved on.
    pub(super) async fn run(mut self, progressed: impl Fn()) {
        poll_fn(|context| {
            let is_over = self.poll_turn(context);
            progressed();
            is_over
        })
        .await;
        let provider = self.provider;
        match self.connection.session.borrow().ending() {
            Some(SILENT) => tracing::warn!(provider, "a connection fell silent: it is replaced"),
            why => tracing::debug!(provider, why, "connection ended"),
        }
        if self.is_broken {
            return;
        }
        // A peer that does not read is not waited for.
        let closing = async {
            poll_fn(|context| self.poll_write(context)).await?;
            self.socket.shutdown().await
        };
        if let Ok(Err(error)) = tokio::time::timeout(CLOSE_WITHIN, closing).await {
            tracing::debug!(provider, %error, "a connection could not be closed in order");
        }
    }

    /// One turn. Ready when the connection has ended, but for its last words.
    fn poll_turn(&mut self, context: &mut Context<'_>) -> Poll<()> {
        // Each turn anew, since the first request that asks for the next turn takes it.
        self.connection.waker.replace(Some(context.waker().clone()));
        // Before the time: an answer that is already here must not count as silence because this thread is late. The
        // writing comes last, so what was read and what was due have their frames in the same turn.
        self.read(context);
        self.watch_time(context);
        if let Poll::Ready(Err(error)) = self.poll_write(context) {
            self.is_broken = true;
            // What it said before says more than the failure: which streams it will not process.
            self.read(context);
            self.connection.session.borrow_mut().end(&tls::explain(&error));
        }
        let session = self.connection.session.borrow();
        if session.ending().is_some() { Poll::Ready(()) } else { Poll::Pending }
    }

    fn read(&mut self, context: &mut Context<'_>) {
        let mut session = self.connection.session.borrow_mut();
        let now = self.connection.clock.monotonic();
        for _ in 0..READS_PER_TURN {
            // Behind the end nothing counts: each request has its outcome.
            if session.ending().is_some() {
                return;
            }
            let mut socket = Pin::new(&mut self.socket);
            match socket.as_mut().poll_fill_buf(context) {
                Poll::Pending => return,
                Poll::Ready(Err(error)) => session.end(&tls::explain(&error)),
                Poll::Ready(Ok([])) => session.end("the server closed the connection"),
                Poll::Ready(Ok(input)) => {
                    self.connection.read_at.set(now);
                    session.receive(input, now);
                    let bytes = input.len();
                    socket.consume(bytes);
                }
            }
        }
        // The socket has more, so it will not wake this task by itself.
        context.waker().wake_by_ref();
    }

    fn watch_time(&mut self, context: &mut Context<'_>) {
        let mut session = self.connection.session.borrow_mut();
        while session.ending().is_none()
            && let Some(wake_at) = session.wake_at()
        {
            // What is due later than the timer has time until then.
            if wake_at < self.timer.deadline() || self.timer.is_elapsed() {
                self.timer.as_mut().reset(wake_at);
            }
            // Polled again after each change: a timer wakes nothing before it is polled.
            if self.timer.as_mut().poll(context).is_pending() {
                return;
            }
            let is_in_use = self.connection.in_flight.get() > 0;
            session.on_time(self.connection.clock.monotonic(), is_in_use);
        }
    }

    /// Writes what waits. Ready when all of it has left.
    fn poll_write(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut session = self.connection.session.borrow_mut();
        loop {
            let piece = session.offer();
            if piece.is_empty() {
                break;
            }
            self.is_unflushed = true;
            match ready!(Pin::new(&mut self.socket).poll_write(context, piece))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                bytes => session.out.took(bytes),
            }
        }
        // TLS holds records that the socket did not take: without this they would wait for the next write.
        if self.is_unflushed {
            ready!(Pin::new(&mut self.socket).poll_flush(context))?;
            self.is_unflushed = false;
        }
        Poll::Ready(Ok(()))
    }
}

impl<Socket> Drop for Wire<Socket> {
    /// Ends the session: requests that still wait get their outcome, as no other can come.
    fn drop(&mut self) {
        self.connection.session.borrow_mut().end("the connection was given up");
    }
}

#[cfg(test)]
#[path = "driver_tests.rs"]
mod tests;

//! The wire of a connection over a socket that counts what is written, and fails when it is told to.

use std::cell::RefCell;
use std::task::Waker;

use bytes::Bytes;
use tokio::io::{AsyncRead, BufReader, ReadBuf};

use super::*;
use crate::http2::answer::NoReply;
use crate::http2::connection::Connection;
use crate::http2::frames::PREFACE;
use crate::http2::testing::{
    ACK, HEADERS, OK, PING, SETTINGS, WHOLE, exchange, frame, parts, request, wire,
};

/// A socket whose peer has said something, and then says nothing more.
#[derive(Debug, Clone, Default)]
struct Socket(Rc<RefCell<SocketState>>);

#[derive(Debug, Default)]
struct SocketState {
    input: Vec<u8>,
    reader: Option<Waker>,
    /// The pieces that were written.
    written: Vec<Vec<u8>>,
    /// How many bytes of the next piece leave before the write fails, which says nothing of them.
    fails_after: Option<usize>,
    is_shut: bool,
}

impl Socket {
    fn say(&self, bytes: &[u8]) {
        let mut state = self.0.borrow_mut();
        state.input.extend_from_slice(bytes);
        if let Some(reader) = state.reader.take() {
            reader.wake();
        }
    }

    /// A connection over it whose peer has greeted.
    async fn greeted(&self) -> (Rc<Connection>, tokio::task::JoinHandle<()>) {
        self.say(&frame(SETTINGS, 0, 0, &[]));
        self.say(&frame(SETTINGS, ACK, 0, &[]));
        self.say(&frame(PING, ACK, 0, &1_u64.to_be_bytes()));
        let mut wire = wire(BufReader::new(self.clone()), &[]);
        wire.greet().await.unwrap();
        let connection = Rc::clone(&wire.connection);
        (connection, tokio::task::spawn_local(wire.run(|| ())))
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut state = self.0.borrow_mut();
        if state.input.is_empty() {
            state.reader = Some(context.waker().clone());
            return Poll::Pending;
        }
        let some = state.input.len().min(buffer.remaining());
        buffer.put_slice(&state.input.drain(..some).collect::<Vec<_>>());
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        self: Pin<&mut Self>,
        _context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let mut state = self.0.borrow_mut();
        let leaves = state.fails_after.map_or(bytes.len(), |bytes_max| bytes_max.min(bytes.len()));
        state.written.push(bytes[..leaves].to_vec());
        match state.fails_after {
            Some(_) => Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
            None => Poll::Ready(Ok(bytes.len())),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.borrow_mut().is_shut = true;
        Poll::Ready(Ok(()))
    }
}

async fn beside(test: impl AsyncFnOnce(Socket)) {
    tokio::task::LocalSet::new().run_until(test(Socket::default())).await;
}

#[tokio::test]
async fn what_is_asked_for_in_one_turn_leaves_in_one_piece_and_its_answers_are_read_in_one() {
    beside(async |socket| {
        let (connection, running) = socket.greeted().await;
        tokio::task::yield_now().await;
        socket.0.borrow_mut().written.clear();
        let answers =
            (0..100).map(|_| exchange(&connection, &request(), Bytes::from_static(b"body")));
        let mut answers = Box::pin(futures_util::future::join_all(answers));
        assert!(futures_util::poll!(&mut answers).is_pending());
        tokio::task::yield_now().await;
        let written = std::mem::take(&mut socket.0.borrow_mut().written);
        assert_eq!(written.len(), 1);
        assert_eq!(parts(&written[0]).len(), 200);
        let ok: Vec<u8> =
            (0..100).flat_map(|number| frame(HEADERS, WHOLE, 2 * number + 1, OK)).collect();
        socket.say(&ok);
        assert!(answers.as_mut().await.iter().all(|answer| answer.as_ref().unwrap().status == 200));
        drop(answers);
        connection.close_if_unused();
        running.await.unwrap();
        assert!(socket.0.borrow().is_shut);
    })
    .await;
}

/// Whatever a failing write has sent, nothing follows it, and what it was given may have been processed.
#[tokio::test]
async fn what_a_failed_write_was_given_is_lost_and_nothing_follows_it() {
    for leaves in [0, 1, 30, 1_000_000] {
        beside(async |socket| {
            let (connection, running) = socket.greeted().await;
            tokio::task::yield_now().await;
            let given = exchange(&connection, &request(), Bytes::from_static(b"body"));
            socket.0.borrow_mut().fails_after = Some(leaves);
            let begun = socket.0.borrow().written.len();
            assert!(matches!(given.await, Err(NoReply::Lost(_))), "{leaves}");
            let later = exchange(&connection, &request(), Bytes::new()).await;
            assert_eq!(later.unwrap_err(), NoReply::NotProcessed);
            running.await.unwrap();
            assert_eq!(socket.0.borrow().written.len(), begun + 1);
        })
        .await;
    }
}

/// Requests above its last stream are not written, though the socket would fail only then.
#[tokio::test]
async fn a_goaway_that_comes_in_front_of_a_write_is_heard_first() {
    beside(async |socket| {
        let (connection, running) = socket.greeted().await;
        tokio::task::yield_now().await;
        let given = exchange(&connection, &request(), Bytes::from_static(b"body"));
        socket.0.borrow_mut().fails_after = Some(10);
        socket.say(&crate::http2::testing::go_away(0, 0));
        assert_eq!(given.await.unwrap_err(), NoReply::NotProcessed);
        assert!(!connection.session.borrow().takes_requests());
        running.abort();
        assert!(running.await.unwrap_err().is_cancelled());
    })
    .await;
}

#[tokio::test]
async fn a_peer_that_ends_the_connection_instead_of_a_greeting_is_named() {
    beside(async |socket| {
        socket.say(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        let mut wire = wire(BufReader::new(socket.clone()), &[]);
        let why = wire.greet().await.unwrap_err();
        assert!(why.starts_with("the server broke the protocol"), "{why}");
        assert!(socket.0.borrow().written[0].starts_with(PREFACE));
    })
    .await;
}

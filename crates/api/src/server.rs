//! The server: so many connections, none of them slow for ever.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::Body;
use flow::Tasks;
use flow::tasks::Panicked;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use notification::limits;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Sleep, sleep, timeout};
use tower::ServiceExt;

use crate::Site;
use crate::limits::{
    CONNECTION_BYTES, CONNECTIONS, DRAIN_TIMEOUT, FIRST_HEAD_TIMEOUT, HEAD_TIMEOUT,
    UNAUTHENTICATED_OF_ADDRESS,
};
use crate::unauthenticated::{ConnectionNote, Unauthenticated, UnauthenticatedPlace};

/// How long to wait when the system has no more descriptors.
const ACCEPT_PAUSE: std::time::Duration = std::time::Duration::from_millis(100);

/// A socket whose peer must take what is written to it, piece by piece, within
/// [`limits::IDLE_TIMEOUT`]. Reading is timed where it is known what is waited for: heads by hyper, bodies
/// by their reader.
struct Patient {
    socket: TcpStream,
    stalled: Option<Pin<Box<Sleep>>>,
}

/// Serves `site`, whichever it is when a request comes, on `listener` until `shutdown` is over, and then until the requests under way are, or
/// [`DRAIN_TIMEOUT`] has passed.
///
/// # Errors
/// None at present: a failing accept is tried again. The signature leaves room.
pub async fn serve(
    listener: TcpListener,
    site: watch::Receiver<Site>,
    shutdown: impl Future<Output = ()> + Send,
) -> io::Result<()> {
    let unauthenticated = Arc::new(Unauthenticated::new(UNAUTHENTICATED_OF_ADDRESS));
    serve_within(listener, site, unauthenticated, shutdown).await
}

async fn serve_within(
    listener: TcpListener,
    site: watch::Receiver<Site>,
    unauthenticated: Arc<Unauthenticated>,
    shutdown: impl Future<Output = ()> + Send,
) -> io::Result<()> {
    let slots = Arc::new(Semaphore::new(CONNECTIONS));
    let (stop, stopping) = watch::channel(false);
    let mut connections = Tasks::default();
    tokio::pin!(shutdown);
    loop {
        tokio::select! {
            // Asked for first: callers without end must not keep the server from stopping.
            biased;
            () = &mut shutdown => break,
            // Connections that ended are taken out, or their number would grow for ever.
            Some(ended) = connections.next() => report(ended),
            accepted = accept(&listener, &slots) => match accepted {
                Ok((socket, address, slot)) => {
                    let Some(place) = unauthenticated.admit(address.ip()) else {
                        tracing::debug!(%address, "too many connections of this address without a key");
                        continue;
                    };
                    let site = site.clone();
                    let connection = connection(socket, place, site.clone(), stopping.clone());
                    connections.spawn("connection", async move {
                        connection.await;
                        // The slot is free before the store is asked: a sweep waits for commits.
                        drop(slot);
                        let intake = site.borrow().intake.clone();
                        if let Some(intake) = intake {
                            intake.sweep().await;
                        }
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "connection not accepted");
                    // Mostly the system is out of descriptors, and the next try would fail likewise.
                    sleep(ACCEPT_PAUSE).await;
                }
            },
        }
    }
    // Closed before the drain: a new caller is turned away at once, and does not wait in the listen queue in vain.
    drop(listener);
    stop.send_replace(true);
    if timeout(DRAIN_TIMEOUT, connections.drain()).await.is_err() {
        tracing::warn!("requests under way were cut off");
    }
    Ok(())
}

/// Waits for a slot first: callers beyond it stay in the listen queue.
async fn accept(
    listener: &TcpListener,
    slots: &Arc<Semaphore>,
) -> io::Result<(TcpStream, SocketAddr, OwnedSemaphorePermit)> {
    // The loop drops this future whenever something else happens: the slot goes back, and the connection stays queued.
    let slot = Arc::clone(slots).acquire_owned().await.map_err(io::Error::other)?;
    let (socket, address) = listener.accept().await?;
    // An answer line of a stream must not wait until the one before it is acknowledged.
    socket.set_nodelay(true)?;
    Ok((socket, address, slot))
}

async fn connection(
    socket: TcpStream,
    place: UnauthenticatedPlace,
    site: watch::Receiver<Site>,
    mut stopping: watch::Receiver<bool>,
) {
    let note = ConnectionNote::new(place);
    let of_requests = note.clone();
    let service = service_fn(move |mut request: hyper::Request<hyper::body::Incoming>| {
        of_requests.note_request();
        request.extensions_mut().insert(of_requests.clone());
        // Looked up for each request: a connection that was made during the start is served the whole API later.
        let router = site.borrow().router.clone();
        router.oneshot(request.map(Body::new))
    });
    let io = TokioIo::new(Patient { socket, stalled: None });
    let connection = http1::Builder::new()
        // The time limit of heads needs it: hyper has no clock of its own.
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(CONNECTION_BYTES)
        .serve_connection(io, service);
    tokio::pin!(connection);
    let silent = async {
        if timeout(FIRST_HEAD_TIMEOUT, note.asked()).await.is_ok() {
            std::future::pending::<()>().await;
        }
    };
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        // Without an answer: there is no request.
        () = silent => return,
        _ = stopping.changed() => {
            // The request under way is finished, within the time that `serve` gives to all of them.
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "connection broke");
    }
}

fn report(ended: Result<&'static str, Panicked>) {
    if let Err(Panicked { name }) = ended {
        tracing::error!(task = name, "task panicked");
    }
}

// === impl Patient ===

impl Patient {
    /// Passes `progress` on; when there is none, starts to count.
    fn watch<T>(
        &mut self,
        context: &mut Context<'_>,
        progress: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if progress.is_ready() {
            self.stalled = None;
            return progress;
        }
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(limits::IDLE_TIMEOUT)));
        // Polling it registers the task with the timer: a socket that stays full wakes it no other way.
        match stalled.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl AsyncRead for Patient {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_read(context, buffer)
    }
}

impl AsyncWrite for Patient {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let progress = Pin::new(&mut self.socket).poll_write(context, bytes);
        self.watch(context, progress)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let progress = Pin::new(&mut self.socket).poll_write_vectored(context, slices);
        self.watch(context, progress)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // A TCP socket has nothing to flush, so this never stalls.
        Pin::new(&mut self.socket).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use axum::extract::Extension;
    use axum::routing::get;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    /// A site whose every request has a key that is known.
    fn site() -> Site {
        let known = get(async |Extension(note): Extension<ConnectionNote>| note.note_key());
        Site { router: axum::Router::new().route("/", known), intake: None }
    }

    #[tokio::test]
    async fn connections_beyond_those_of_an_address_are_closed_until_a_key_comes_by_one() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (_site, site) = watch::channel(site());
        let unauthenticated = Arc::new(Unauthenticated::new(2));
        let mut tasks = Tasks::default();
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        tasks.spawn("server", async move {
            let stopped = async { drop(stopped.await) };
            serve_within(listener, site, unauthenticated, stopped).await.unwrap();
        });
        let mut first = TcpStream::connect(address).await.unwrap();
        let mut second = TcpStream::connect(address).await.unwrap();
        let mut third = TcpStream::connect(address).await.unwrap();
        assert!(matches!(third.read(&mut [0]).await, Ok(0) | Err(_)), "closed at once");
        for _ in 0..2 {
            first.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
            assert!(first.read(&mut [0; 1_000]).await.unwrap() > 0);
        }
        let mut fourth = TcpStream::connect(address).await.unwrap();
        for other in [&mut second, &mut fourth] {
            other.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
            assert!(other.read(&mut [0; 1_000]).await.unwrap() > 0);
        }
        drop((first, second, fourth, stop));
        tasks.drain().await;
    }
}

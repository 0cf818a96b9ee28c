//! The server: listeners, each with so many connections, none of them slow for ever.
//!
//! ```text
//! listener       sockets that callers connect to     unix_socket      a socket with a file
//! connection     HTTP/1.1, the TLS handshake         patient          writing, as long as the peer reads
//! preface        which of the two a socket speaks    http2            HTTP/2
//! served_site    the site, and when to stop          stream_activity  its requests under way
//!                                                    stream_tasks     their tasks
//! ```

mod connection;
mod http2;
mod listener;
mod patient;
mod preface;
mod served_site;
mod stream_activity;
mod stream_tasks;
mod unix_socket;

use std::future::Future;
use std::io;
use std::sync::Arc;

use flow::Tasks;
use flow::tasks::Panicked;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{sleep, timeout};

use crate::Site;
use crate::limits::{DRAIN_TIMEOUT, TENANT_SHARE, UNAUTHENTICATED_SHARE};
use crate::tenant_connections::TenantConnections;
use crate::unauthenticated::{ConnectionNote, Unauthenticated};

pub use listener::ApiListener;
pub use unix_socket::UnixSocket;

use listener::{AcceptedSocket, ServedSocket};
use served_site::ServedSite;

/// The bounds of a listener's connections.
struct ConnectionBounds {
    /// Of all.
    slots: Arc<Semaphore>,
    /// Of each address, of those by which no key came.
    unauthenticated: Arc<Unauthenticated>,
    /// Of each tenant.
    tenants: Arc<TenantConnections>,
}

/// How long to wait when the system has no more descriptors.
const ACCEPT_PAUSE: std::time::Duration = std::time::Duration::from_millis(100);

/// Serves `site`, whichever it is when a request comes, on `listener` until `shutdown` is over, and then until the requests under way are, or
/// [`DRAIN_TIMEOUT`] has passed.
///
/// # Errors
/// When the runtime does not take the socket. A failing accept is tried again.
pub async fn serve(
    listener: ApiListener,
    site: watch::Receiver<Site>,
    shutdown: impl Future<Output = ()> + Send,
) -> io::Result<()> {
    let (socket, connections) = listener.register()?;
    let slots = Arc::new(Semaphore::new(connections));
    let tenants = TenantConnections::new(Arc::clone(&slots), connections / TENANT_SHARE);
    let bounds = ConnectionBounds {
        slots,
        unauthenticated: Arc::new(Unauthenticated::new(connections / UNAUTHENTICATED_SHARE)),
        tenants: Arc::new(tenants),
    };
    serve_within(socket, site, bounds, shutdown).await;
    Ok(())
}

async fn serve_within(
    socket: ServedSocket,
    site: watch::Receiver<Site>,
    bounds: ConnectionBounds,
    shutdown: impl Future<Output = ()> + Send,
) {
    let (stop, stopping) = watch::channel(false);
    let served = ServedSite { site, stopping };
    let mut connections = Tasks::default();
    tokio::pin!(shutdown);
    loop {
        tokio::select! {
            // Asked for first: callers without end must not keep the server from stopping.
            biased;
            () = &mut shutdown => break,
            // Connections that ended are taken out, or their number would grow for ever.
            Some(ended) = connections.next() => report(ended),
            accepted = accept(&socket, &bounds.slots) => match accepted {
                Ok((accepted, slot)) => {
                    let Some(note) = bounds.note(&accepted) else { continue };
                    let served = served.clone();
                    connections.spawn("connection", async move {
                        serve_connection(accepted, note, served.clone()).await;
                        // The slot is free before the store is asked: a sweep waits for commits.
                        drop(slot);
                        served.sweep().await;
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
    drop(socket);
    stop.send_replace(true);
    if timeout(DRAIN_TIMEOUT, connections.drain()).await.is_err() {
        tracing::warn!("requests under way were cut off");
    }
}

/// Waits for a slot first: callers beyond it stay in the listen queue.
async fn accept(
    socket: &ServedSocket,
    slots: &Arc<Semaphore>,
) -> io::Result<(AcceptedSocket, OwnedSemaphorePermit)> {
    // The loop drops this future whenever something else happens: the slot goes back, and the connection stays queued.
    let slot = Arc::clone(slots).acquire_owned().await.map_err(io::Error::other)?;
    Ok((socket.accept().await?, slot))
}

async fn serve_connection(accepted: AcceptedSocket, note: ConnectionNote, served: ServedSite) {
    match accepted {
        AcceptedSocket::Plain(socket, _) => connection::plain(socket, note, served).await,
        // Boxed: these need more room than the first, which would have it as well.
        AcceptedSocket::Unix(socket) => Box::pin(connection::unix(socket, note, served)).await,
        AcceptedSocket::Tls(socket, _, tls) => {
            Box::pin(connection::tls(socket, tls, note, served)).await;
        }
    }
}

fn report(ended: Result<&'static str, Panicked>) {
    if let Err(Panicked { name }) = ended {
        tracing::error!(task = name, "task panicked");
    }
}

// === impl ConnectionBounds ===

impl ConnectionBounds {
    /// A note on a connection that has a place, or needs none; `None` if its address has no more places.
    fn note(&self, accepted: &AcceptedSocket) -> Option<ConnectionNote> {
        let Some(address) = accepted.address() else {
            return Some(ConnectionNote::new(None, &self.tenants));
        };
        let place = self.unauthenticated.admit(address);
        if place.is_none() {
            tracing::debug!(%address, "too many connections of this address without a key");
        }
        place.map(|place| ConnectionNote::new(place, &self.tenants))
    }
}

#[cfg(test)]
mod tests;

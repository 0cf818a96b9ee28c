//! The sockets that callers connect to: plain TCP, TCP with TLS, and Unix sockets.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::watch;
use tokio_rustls::rustls::ServerConfig;

use super::unix_socket::{SocketFile, UnixSocket};
use crate::limits::{CONNECTIONS, OPERATOR_CONNECTIONS};

/// One socket that callers connect to. It may be made in one runtime and served in another.
#[derive(Debug)]
pub struct ApiListener {
    socket: BoundSocket,
    connections: usize,
}

#[derive(Debug)]
enum BoundSocket {
    Tcp(std::net::TcpListener, Option<TlsSettings>),
    Unix(UnixSocket),
}

/// The settings of TLS, whichever they are when a connection begins.
pub(super) type TlsSettings = watch::Receiver<Arc<ServerConfig>>;

/// A socket that is registered with the runtime that serves it.
#[derive(Debug)]
pub(super) enum ServedSocket {
    Tcp(TcpListener, Option<TlsSettings>),
    /// The file is removed with it.
    Unix(UnixListener, SocketFile),
}

/// A connection that was accepted.
#[derive(Debug)]
pub(super) enum AcceptedSocket {
    Plain(TcpStream, IpAddr),
    Tls(TcpStream, IpAddr, Arc<ServerConfig>),
    Unix(UnixStream),
}

// === impl ApiListener ===

impl ApiListener {
    /// Plain HTTP/1.1 on `listener`.
    ///
    /// # Errors
    /// When the runtime does not let go of it.
    pub fn tcp(listener: TcpListener) -> io::Result<Self> {
        // Events of a socket come to the runtime that it was registered with.
        Ok(Self::new(BoundSocket::Tcp(listener.into_std()?, None)))
    }

    /// TLS on `listener`, by the settings that `tls` has when a connection begins. ALPN chooses HTTP/2 or HTTP/1.1.
    ///
    /// # Errors
    /// When the runtime does not let go of it.
    pub fn tls(listener: TcpListener, tls: watch::Receiver<Arc<ServerConfig>>) -> io::Result<Self> {
        Ok(Self::new(BoundSocket::Tcp(listener.into_std()?, Some(tls))))
    }

    /// HTTP/1.1 on a Unix socket, or HTTP/2 from a client that knows that it is there.
    pub fn unix(socket: UnixSocket) -> Self {
        Self::new(BoundSocket::Unix(socket))
    }

    fn new(socket: BoundSocket) -> Self {
        Self { socket, connections: CONNECTIONS }
    }

    /// This listener for operators, with [`OPERATOR_CONNECTIONS`].
    #[must_use]
    pub fn for_operators(self) -> Self {
        Self { connections: OPERATOR_CONNECTIONS, ..self }
    }

    /// Its socket, in the runtime that this is called in, and how many connections are served at a time.
    pub(super) fn register(self) -> io::Result<(ServedSocket, usize)> {
        let socket = match self.socket {
            BoundSocket::Tcp(listener, tls) => {
                ServedSocket::Tcp(TcpListener::from_std(listener)?, tls)
            }
            BoundSocket::Unix(socket) => {
                let (listener, file) = socket.into_parts();
                ServedSocket::Unix(UnixListener::from_std(listener)?, file)
            }
        };
        Ok((socket, self.connections))
    }
}

// === impl ServedSocket ===

impl ServedSocket {
    /// The next connection. Dropping the future loses none.
    pub(super) async fn accept(&self) -> io::Result<AcceptedSocket> {
        match self {
            Self::Tcp(listener, tls) => {
                let (socket, address) = listener.accept().await?;
                // An answer line of a stream must not wait until the one before it is acknowledged.
                socket.set_nodelay(true)?;
                Ok(match tls {
                    None => AcceptedSocket::Plain(socket, address.ip()),
                    Some(tls) => {
                        AcceptedSocket::Tls(socket, address.ip(), Arc::clone(&tls.borrow()))
                    }
                })
            }
            Self::Unix(listener, _file) => Ok(AcceptedSocket::Unix(listener.accept().await?.0)),
        }
    }
}

// === impl AcceptedSocket ===

impl AcceptedSocket {
    /// The other end's address; a Unix socket has none.
    pub(super) fn address(&self) -> Option<IpAddr> {
        match self {
            Self::Plain(_, address) | Self::Tls(_, address, _) => Some(*address),
            Self::Unix(_) => None,
        }
    }
}

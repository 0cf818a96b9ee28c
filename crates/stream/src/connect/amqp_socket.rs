//! The socket under a connection, and a way to end it from outside.
//!
//! The client library runs each connection on a thread of its own, which waits for as long as the socket gives no sign. A server
//! that accepts and says nothing would cost a thread per attempt; so the end of an attempt ends its socket.

use std::io;
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, PoisonError};

use lapin::tcp::{AsyncTcpStream, TLSConfig};
use lapin::uri::{AMQPScheme, AMQPUri};
use lapin::{Connection, ConnectionProperties};
use tokio::time::timeout;

use super::CONNECT_TIMEOUT;

/// Ends its socket when it is dropped.
#[derive(Debug, Default)]
pub struct AmqpSocket(Arc<Mutex<SocketState>>);

#[derive(Debug, Default)]
enum SocketState {
    #[default]
    Connecting,
    Open(TcpStream),
    Ended,
}

// === impl AmqpSocket ===

impl AmqpSocket {
    /// Connects to the broker; with TLS it must be certified by an authority of the system or of `roots`, PEM.
    ///
    /// # Errors
    /// When the broker cannot be reached, or refuses. Dropping the future or this value ends what was begun.
    pub async fn connect(
        &self,
        uri: AMQPUri,
        roots: Option<&str>,
        properties: ConnectionProperties,
    ) -> lapin::Result<Connection> {
        let state = Arc::clone(&self.0);
        let roots = roots.map(str::to_owned);
        let runtime = lapin::runtime::default_runtime()?;
        Connection::connector(
            uri,
            runtime,
            async move |uri: AMQPUri, runtime| {
                let host = uri.authority.host.clone();
                let addresses = runtime.to_socket_addrs((host.clone(), uri.authority.port));
                let connect = AsyncTcpStream::connect(&runtime, addresses);
                let stream = timeout(CONNECT_TIMEOUT, connect)
                    .await
                    .unwrap_or_else(|_late| Err(io::ErrorKind::TimedOut.into()))?;
                // Before TLS: it may be the handshake that never ends. By a handle of its own, since the stream belongs to the
                // library.
                if let AsyncTcpStream::Plain(plain) = &stream {
                    let handle = plain.get_ref().as_fd().try_clone_to_owned()?;
                    adopt(&state, TcpStream::from(handle))?;
                }
                Ok(match uri.scheme {
                    AMQPScheme::AMQP => stream,
                    AMQPScheme::AMQPS => {
                        let config = TLSConfig { identity: None, cert_chain: roots.as_deref() };
                        stream.into_tls(&host, config).await?
                    }
                })
            },
            properties,
        )
        .await
    }
}

impl Drop for AmqpSocket {
    fn drop(&mut self) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let SocketState::Open(stream) = std::mem::replace(&mut *state, SocketState::Ended) {
            end(&stream);
        }
    }
}

/// Remembers `stream`, unless its owner was dropped.
fn adopt(state: &Mutex<SocketState>, stream: TcpStream) -> io::Result<()> {
    let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
    if matches!(*state, SocketState::Ended) {
        end(&stream);
        return Err(io::ErrorKind::ConnectionAborted.into());
    }
    *state = SocketState::Open(stream);
    Ok(())
}

fn end(stream: &TcpStream) {
    // It fails when the other side was faster.
    let _ended = stream.shutdown(Shutdown::Both);
}

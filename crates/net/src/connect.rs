//! Connections for HTTP of any version, over TCP and TLS, and why there is none.

use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use crate::connection_counts::ConnectFault;
use crate::endpoint::Origin;
use crate::guard::Forbidden;
use crate::tcp::{self, Reach};
use crate::{tls, words};

/// How long resolving, TCP, TLS and the first words of the protocol may take together.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Why there is no connection; in words.
#[derive(Debug, Clone)]
pub(crate) enum ConnectFailure {
    /// It would lead where it must not.
    Forbidden(Forbidden),
    /// The peer does not speak this version of HTTP.
    NotSpoken(String),
    /// It cannot be connected to for now, and at which part it failed.
    Unreachable(ConnectFault, String),
}

/// Bounds the time of `connecting`, which makes a connection to `origin`.
pub(crate) async fn in_time<Connection>(
    origin: &Origin,
    connecting: impl Future<Output = Result<Connection, ConnectFailure>>,
) -> Result<Connection, ConnectFailure> {
    let connected = tokio::time::timeout(CONNECT_TIMEOUT, connecting).await;
    let late = || format!("{origin} did not complete a connection within 10 s");
    connected.unwrap_or_else(|_| {
        Err(ConnectFailure::Unreachable(ConnectFault::Timeout, words::plain(&late())))
    })
}

/// Resolves the name of `origin` and connects, if `reach` admits all of its addresses.
pub(crate) async fn over_tcp(
    origin: &Origin,
    reach: &dyn Reach,
) -> Result<TcpStream, ConnectFailure> {
    let connected = tcp::connect(&origin.host, origin.port, reach, tcp::UNACKNOWLEDGED_MAX).await;
    connected.map_err(|error| match error {
        tcp::ConnectError::Forbidden(forbidden) => ConnectFailure::Forbidden(forbidden),
        tcp::ConnectError::Unresolved(message) => {
            ConnectFailure::of(origin, ConnectFault::Resolve, &message)
        }
        tcp::ConnectError::Failed(message) => {
            ConnectFailure::of(origin, ConnectFault::Connect, &message)
        }
    })
}

/// Begins TLS with `origin` over `stream`.
pub(crate) async fn over_tls<Stream: AsyncRead + AsyncWrite + Unpin>(
    origin: &Origin,
    config: &Arc<ClientConfig>,
    stream: Stream,
) -> Result<TlsStream<Stream>, ConnectFailure> {
    let shaken = tls::shake_hands(config, &origin.host, stream).await;
    shaken.map_err(|error| ConnectFailure::of(origin, ConnectFault::Tls, &tls::explain(&error)))
}

// === impl ConnectFailure ===

impl ConnectFailure {
    /// It cannot be connected to `origin` for now.
    pub(crate) fn of(origin: &Origin, fault: ConnectFault, why: &str) -> Self {
        Self::Unreachable(fault, words::plain(&format!("cannot connect to {origin}: {why}")))
    }

    /// Logs it: as a warning where the address is the operator's own, and must be reached.
    pub(crate) fn log(&self, provider: &str, is_configured: bool) {
        match self {
            // Each message to such an address says so.
            Self::Forbidden(_) => {}
            Self::NotSpoken(error) | Self::Unreachable(_, error) if is_configured => {
                tracing::warn!(provider, error, "no connection");
            }
            Self::NotSpoken(error) | Self::Unreachable(_, error) => {
                tracing::debug!(provider, error, "no connection");
            }
        }
    }

    /// The part of connecting at which it failed.
    pub(crate) const fn fault(&self) -> ConnectFault {
        match self {
            Self::Forbidden(_) => ConnectFault::Forbidden,
            Self::NotSpoken(_) => ConnectFault::Protocol,
            Self::Unreachable(fault, _) => *fault,
        }
    }

    /// True if another try would be told the same.
    pub(crate) const fn is_final(&self) -> bool {
        !matches!(self, Self::Unreachable(..))
    }
}

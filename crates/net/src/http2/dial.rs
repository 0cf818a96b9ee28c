//! How a connection is made, until the peer has answered over it.

use std::sync::Arc;

use flow::Clock;
use http::HeaderName;
use tokio_rustls::client::TlsStream;

use super::connection::{Connection, Priming};
use super::driver::Wire;
use crate::connect::{self, ConnectFailure};
use crate::connection_counts::ConnectFault;
use crate::endpoint::Origin;
use crate::read_ahead::ReadAheadSocket;
use crate::tcp::Reach;
use crate::ticking::TickingSocket;
use crate::words;

/// How connections are made.
#[derive(Debug, Clone)]
pub struct Dial {
    /// The name of the service, for the log.
    pub provider: &'static str,
    /// The server. It is always spoken to over TLS.
    pub origin: Origin,
    /// The TLS configuration, which has to offer `h2` by ALPN.
    pub tls: Arc<rustls::ClientConfig>,
    /// Which addresses may be connected to.
    pub reach: Arc<dyn Reach>,
    /// How many streams a new connection takes before its first answer.
    pub priming: Priming,
    /// The header fields of answers that are kept, in lower case. All others are checked only.
    pub read_fields: &'static [HeaderName],
}

/// A connection over TLS, to be run as a task.
pub(super) type TlsWire = Wire<TlsStream<ReadAheadSocket<TickingSocket>>>;

// === impl Dial ===

impl Dial {
    /// Makes a connection.
    pub(super) async fn connect(&self, clock: Clock) -> Result<TlsWire, ConnectFailure> {
        let connecting = async {
            let stream = connect::over_tcp(&self.origin, &*self.reach).await?;
            let stream = ReadAheadSocket::new(TickingSocket::new(stream, clock));
            let stream = connect::over_tls(&self.origin, &self.tls, stream).await?;
            // Without the peer's word by ALPN HTTP/2 must not be spoken (RFC 9113, section 3.2).
            if stream.get_ref().1.alpn_protocol() != Some(b"h2") {
                let why = format!("{}: it has to offer h2 by ALPN", self.not_spoken());
                return Err(ConnectFailure::NotSpoken(words::short(why)));
            }
            let connection = Connection::new(self.priming, self.read_fields, clock);
            let mut wire = Wire::new(self.provider, connection, stream);
            // With TLS 1.3 a peer that refuses our certificate, and a proxy without a server, say so only now. A request would be
            // in doubt then. And the peer's first frame, SETTINGS, is in front of its answer: what it grants is known then.
            wire.greet().await.map_err(|why| {
                ConnectFailure::of(
                    &self.origin,
                    ConnectFault::Protocol,
                    &format!("it was closed at once: {why}"),
                )
            })?;
            // Otherwise one would be made after the other, without a pause between.
            if !wire.connection.session.borrow().takes_requests() {
                return Err(ConnectFailure::of(
                    &self.origin,
                    ConnectFault::Protocol,
                    "it goes away at once",
                ));
            }
            Ok(wire)
        };
        connect::in_time(&self.origin, connecting).await
    }

    pub(super) fn not_spoken(&self) -> String {
        words::plain(&format!("{} does not speak HTTP/2", self.origin))
    }
}

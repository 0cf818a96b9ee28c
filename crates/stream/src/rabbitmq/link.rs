//! Connections to RabbitMQ.

use std::path::PathBuf;
use std::time::Duration;

use flow::Clock;
use lapin::{Channel, Connection, ConnectionProperties};
use tokio::time::timeout;

use crate::StreamError;
use crate::connect::{AmqpAddress, AmqpSocket, CONNECT_TIMEOUT};

/// How connections are made.
#[derive(Debug, Clone)]
pub(super) struct AmqpConnector {
    pub(super) address: AmqpAddress,
    /// More root certificates to trust, PEM.
    pub(super) ca_file: Option<PathBuf>,
    /// Name of the connections, for the operator of the broker.
    pub(super) name: String,
    pub(super) clock: Clock,
}

/// A connection with one channel.
#[derive(Debug)]
pub(super) struct AmqpLink {
    pub(super) connection: Connection,
    pub(super) channel: Channel,
    /// Socket of the connection, dropped last: its shutdown ends all that still waits on it.
    _socket: AmqpSocket,
}

/// Longest wait for a connection to end in good order.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

// === impl AmqpConnector ===

impl AmqpConnector {
    /// Connects, and makes a channel.
    pub(super) async fn connect(&self) -> Result<AmqpLink, StreamError> {
        let roots = match &self.ca_file {
            Some(path) => {
                let refuse = |error| {
                    StreamError::Refused(format!("{}: cannot be read: {error}", path.display()))
                };
                Some(std::fs::read_to_string(path).map_err(refuse)?)
            }
            None => None,
        };
        let properties = ConnectionProperties::default()
            .with_connection_name(format!("belfry {}", self.name).into());
        let socket = AmqpSocket::default();
        let connect = async {
            let uri = self.address.uri();
            let connection = socket.connect(uri, roots.as_deref(), properties).await?;
            let channel = connection.create_channel().await?;
            Ok((connection, channel))
        };
        let Ok(connected) = timeout(2 * CONNECT_TIMEOUT, connect).await else {
            let address = &self.address;
            let seconds = 2 * CONNECT_TIMEOUT.as_secs();
            return Err(StreamError::Unavailable(format!(
                "RabbitMQ at {address} accepted a connection and said nothing within {seconds} s"
            )));
        };
        let (connection, channel) = connected.map_err(|error| self.address.explain(&error))?;
        Ok(AmqpLink { connection, channel, _socket: socket })
    }
}

// === impl AmqpLink ===

impl AmqpLink {
    pub(super) fn is_connected(&self) -> bool {
        self.connection.status().connected() && self.channel.status().connected()
    }

    pub(super) async fn close(&self) {
        let closed = timeout(CLOSE_TIMEOUT, self.connection.close(200, "done".into())).await;
        if !matches!(closed, Ok(Ok(()))) {
            tracing::debug!("RabbitMQ did not answer to the end of the connection");
        }
    }
}

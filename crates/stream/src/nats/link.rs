//! Connections to NATS: made when they are needed, made anew when they are gone.

use std::path::PathBuf;
use std::time::Duration;

use async_nats::connection::State;
use async_nats::jetstream::context::ContextBuilder;
use async_nats::{Client, jetstream};
use flow::Clock;
use tokio::time::timeout;

use crate::StreamError;
use crate::connect::NatsAddress;

/// How connections are made.
#[derive(Debug, Clone)]
pub(super) struct NatsConnector {
    pub(super) address: NatsAddress,
    /// More root certificates to trust, PEM.
    pub(super) ca_file: Option<PathBuf>,
    /// Name of the connections, for the operator of the server.
    pub(super) name: String,
    pub(super) clock: Clock,
}

/// Longest wait for an answer of `JetStream`.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Messages that a connection's writer holds.
const CAPACITY: usize = 8_192;
/// Longest wait for a connection to end in good order.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

// === impl NatsConnector ===

impl NatsConnector {
    pub(super) async fn connect(&self) -> Result<(Client, jetstream::Context), StreamError> {
        let options = self.address.options(&self.name, CAPACITY, self.ca_file.as_deref()).await?;
        let client = options.connect(self.address.server()).await;
        let client = client.map_err(|error| self.address.explain_connect(&error))?;
        let jetstream = ContextBuilder::new()
            .timeout(ANSWER_TIMEOUT)
            .max_ack_inflight(CAPACITY)
            .build(client.clone());
        Ok((client, jetstream))
    }

    /// A failure at the server, for operators.
    pub(super) fn failed(&self, what: &str, error: impl std::fmt::Display) -> StreamError {
        StreamError::Unavailable(format!("NATS at {}: {what}: {error}", self.address))
    }
}

/// True if a message that is given to `client` can be sent.
pub(super) fn is_connected(client: &Client) -> bool {
    client.connection_state() == State::Connected
}

/// Ends a connection, with what was handed over written.
pub(super) async fn close(client: &Client) {
    let ended = async {
        client.flush().await.ok()?;
        client.drain().await.ok()
    };
    if timeout(CLOSE_TIMEOUT, ended).await.is_err() {
        tracing::debug!("NATS did not answer to the end of the connection");
    }
}

//! Connections: how they are made, set up and lost.

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio_postgres::{Client, Config, Statement};

use super::errors;
use super::tls::{self, Tls};
use crate::StoreError;

/// Makes connections to one database.
#[derive(Debug, Clone)]
pub(super) struct Connector {
    config: Config,
    tls: Tls,
}

/// One connection, and the statements that are prepared on it. Closed when it is dropped.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) client: Client,
    /// The server's process behind it.
    pub(super) backend: i32,
    statements: HashMap<&'static str, Statement>,
    driver: JoinHandle<()>,
}

/// How long a connection may take to be made.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// After this long without an answer to what was sent, the system gives a connection up.
const SILENCE_MAX: Duration = Duration::from_secs(10);
/// The session's own settings. Idle transactions are ended by the server, so that a process that was stopped holds no
/// locks for long; all names are looked for in our own schema.
const SETTINGS: &str = "SET search_path = belfry, pg_catalog; \
     SET statement_timeout = '30s'; SET lock_timeout = '10s'; \
     SET idle_in_transaction_session_timeout = '15s'; \
     SET client_min_messages = warning; SET default_transaction_isolation = 'read committed'";

// === impl Connector ===

impl Connector {
    /// To the database that `url` names; `name` is what its administrator sees. Certificates signed by those in `ca_file`
    /// are trusted, too.
    pub(super) fn new(url: &str, name: &str, ca_file: Option<&Path>) -> Result<Self, StoreError> {
        let mut config: Config = url.parse().map_err(|error| errors::bad_url(&error))?;
        config
            .application_name(name)
            .connect_timeout(CONNECT_TIMEOUT)
            .keepalives(true)
            .keepalives_idle(SILENCE_MAX / 2)
            .keepalives_interval(Duration::from_secs(2))
            .keepalives_retries(2)
            .tcp_user_timeout(SILENCE_MAX);
        Ok(Self { config, tls: tls::connector(ca_file)? })
    }

    /// Connects, and sets the session up.
    pub(super) async fn connect(&self) -> Result<Connection, tokio_postgres::Error> {
        let connection = self.connect_plain().await?;
        connection.client.batch_execute(SETTINGS).await?;
        Ok(connection)
    }

    /// Connects with the server's own settings.
    pub(super) async fn connect_plain(&self) -> Result<Connection, tokio_postgres::Error> {
        let (client, driver) = self.config.connect(self.tls.clone()).await?;
        #[expect(clippy::disallowed_methods, reason = "it ends with the connection that holds it")]
        let driver = tokio::spawn(async move {
            if let Err(error) = driver.await {
                tracing::debug!(%error, "a connection to the database ended");
            }
        });
        let row = client.query_one("SELECT pg_backend_pid()", &[]).await?;
        let backend = row.get(0);
        Ok(Connection { client, backend, statements: HashMap::new(), driver })
    }
}

// === impl Connection ===

impl Connection {
    /// The prepared form of `sql`.
    pub(super) async fn prepared(
        &mut self,
        sql: &'static str,
    ) -> Result<Statement, tokio_postgres::Error> {
        if let Some(statement) = self.statements.get(sql) {
            return Ok(statement.clone());
        }
        let statement = self.client.prepare(sql).await?;
        self.statements.insert(sql, statement.clone());
        Ok(statement)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // Also when the other end has fallen silent: the socket is closed here and now.
        self.driver.abort();
    }
}

//! Connections: how they are made, set up, and lost.

use std::collections::HashMap;
use std::future::poll_fn;
use std::path::Path;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use flow::Tasks;
use tokio_postgres::config::TargetSessionAttrs;
use tokio_postgres::{AsyncMessage, Client, Config, Error, GenericClient, Notification, Statement};

use super::growth::{FORGET_PLANS, Sizes};
use super::tls::{self, Tls};
use super::{errors, schema};
use crate::StoreError;

/// Makes connections to one database.
#[derive(Debug, Clone)]
pub(super) struct Connector {
    config: Config,
    tls: Tls,
    /// Pauses the statements of its connections, in tests.
    #[cfg(test)]
    pub(super) gate: Option<super::races::Gate>,
}

/// A connection, and the statements that are prepared on it. Closed at once when it is dropped.
#[derive(Debug)]
pub(super) struct PostgresSession {
    pub(super) client: Client,
    /// The server's process behind it. A session receives its own notifications, too.
    pub(super) backend: i32,
    /// Its name, of no other session before or after it.
    pub(super) id: String,
    /// Transactions of this session that wrote a token, or would have if they had written anything.
    transactions: AtomicI64,
    #[cfg(test)]
    pub(super) gate: Option<super::races::Gate>,
    pub(super) statements: StatementCache,
    /// The sizes of the tables that its plans were made for.
    sizes: Mutex<Sizes>,
    /// The task that moves its bytes.
    _driver: Tasks,
}

/// The prepared forms of the statements of a session.
#[derive(Debug, Default)]
pub(super) struct StatementCache(Mutex<HashMap<&'static str, Statement>>);

/// Called with every notification, before the answer to anything that was sent after it arrived.
pub(super) type OnNotification = Arc<dyn Fn(Notification) + Send + Sync>;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Time of silence after which the system gives the connection up.
const SILENCE_MAX: Duration = Duration::from_secs(10);
/// The session's process, and a name for it: the process may be another one's later, and a random one is never given twice.
const WHO: &str = "SELECT pg_backend_pid(), gen_random_uuid()::text";
/// Settings of a session. All names are looked for in our own schema. Locks are waited for less long than statements may take,
/// and the server ends an idle transaction, so a process that was stopped holds up no other for long. An answered change is
/// durable, even where the server's default is less.
const SETTINGS: &str = "SET search_path = belfry, pg_catalog; \
     SET client_min_messages = warning; \
     SET default_transaction_isolation = 'read committed'; \
     SET statement_timeout = '30s'; \
     SET lock_timeout = '5s'; \
     SET idle_in_transaction_session_timeout = '10s'; \
     SELECT set_config('synchronous_commit', 'on', false) \
       WHERE current_setting('synchronous_commit') = 'off' AND current_setting('fsync') = 'on'";

// === impl Connector ===

impl Connector {
    /// Connections to the database that `url` names; `name` is what an administrator sees of them. Certificates signed by
    /// those in `ca_file` are trusted, too.
    pub(super) fn new(url: &str, name: &str, ca_file: Option<&Path>) -> Result<Self, StoreError> {
        let mut config: Config = url.parse().map_err(|error| errors::bad_url(&error))?;
        config
            .application_name(format!("belfry {name}"))
            .connect_timeout(CONNECT_TIMEOUT)
            // A dead link is noticed by these probes while it is idle, and by the time-out below while it sends.
            .keepalives_idle(SILENCE_MAX / 2)
            .keepalives_interval(SILENCE_MAX / 5)
            .keepalives_retries(2)
            .tcp_user_timeout(SILENCE_MAX)
            // Of several hosts in the address only the primary will do, and after a failover the next connection finds the new one.
            .target_session_attrs(TargetSessionAttrs::ReadWrite);
        Ok(Self {
            config,
            tls: tls::connector(ca_file)?,
            #[cfg(test)]
            gate: None,
        })
    }

    /// Makes the first connection: brings the schema up to date, and reports every defect in full.
    pub(super) async fn prepare(&self) -> Result<(), StoreError> {
        // Without the settings of a session: a migration, or the wait for that of another process, may take longer.
        let mut session = self.open(None).await.map_err(|error| self.at_start(&error))?;
        schema::prepare(&mut session.client).await
    }

    /// Says in full why the first connection failed.
    pub(super) fn at_start(&self, error: &Error) -> StoreError {
        errors::at_start(error, &self.config)
    }

    /// Connections for questions only, which a standby answers as well.
    pub(super) fn for_questions(mut self) -> Self {
        self.config.target_session_attrs(TargetSessionAttrs::Any);
        self
    }

    /// Connects, and sets the session up. A server that takes the connection and then says nothing is left.
    pub(super) async fn connect(
        &self,
        on_notification: Option<OnNotification>,
    ) -> Result<PostgresSession, Error> {
        let connecting = async {
            let session = self.open(on_notification).await?;
            session.client.batch_execute(SETTINGS).await?;
            Ok(session)
        };
        let connected = tokio::time::timeout(SILENCE_MAX, connecting).await;
        connected.unwrap_or_else(|_elapsed| Err(errors::silence()))
    }

    /// A session with the server's own settings.
    async fn open(
        &self,
        on_notification: Option<OnNotification>,
    ) -> Result<PostgresSession, Error> {
        let (client, mut connection) = self.config.connect(self.tls.clone()).await?;
        let mut driver = Tasks::default();
        driver.spawn("store-connection", async move {
            loop {
                // Message by message: awaited as a whole, the connection would drop notifications.
                match poll_fn(|context| connection.poll_message(context)).await {
                    Some(Ok(AsyncMessage::Notification(notification))) => {
                        if let Some(on_notification) = &on_notification {
                            on_notification(notification);
                        }
                    }
                    Some(Ok(_)) => {}
                    Some(Err(error)) => {
                        // The user of the session gets an error as well, and reports it.
                        tracing::debug!(error = %errors::in_words(&error), "lost a connection");
                        return;
                    }
                    None => return,
                }
            }
        });
        let row = client.query_one(WHO, &[]).await?;
        let (backend, id) = (row.try_get(0)?, row.try_get(1)?);
        Ok(PostgresSession {
            client,
            backend,
            id,
            transactions: AtomicI64::new(0),
            #[cfg(test)]
            gate: self.gate.clone(),
            statements: StatementCache::default(),
            sizes: Mutex::default(),
            _driver: driver,
        })
    }
}

// === impl StatementCache ===

impl StatementCache {
    /// The prepared form of `sql` in the session of `client`.
    pub(super) async fn prepared(
        &self,
        client: &impl GenericClient,
        sql: &'static str,
    ) -> Result<Statement, Error> {
        // The lock must not be held while the server prepares it.
        let known = self.known().get(sql).cloned();
        if let Some(statement) = known {
            return Ok(statement);
        }
        let statement = client.prepare(sql).await?;
        // Two callers may both have prepared it: each holds its own, and one of them is kept.
        self.known().insert(sql, statement.clone());
        Ok(statement)
    }

    fn known(&self) -> MutexGuard<'_, HashMap<&'static str, Statement>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl PostgresSession ===

impl PostgresSession {
    /// The prepared form of `sql`.
    pub(super) async fn prepared(&self, sql: &'static str) -> Result<Statement, Error> {
        self.statements.prepared(&self.client, sql).await
    }

    /// The number of a transaction, used once in this session.
    pub(super) fn next_number(&self) -> i64 {
        // One transaction at a time uses a session: it is atomic only because the session is shared.
        self.transactions.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// The query that a transaction sends with its beginning, for [`follow_growth`](Self::follow_growth); `None` with most of them.
    pub(super) fn sizes_query_at_begin(&self) -> Option<String> {
        self.sizes().question_at_begin()
    }

    /// The query that a transaction sends after it has written many rows, for [`follow_growth`](Self::follow_growth).
    pub(super) fn sizes_query(&self) -> String {
        self.sizes().question()
    }

    /// Drops the plans of this session if the sizes of the tables, where they were queried, differ from those that the plans were
    /// made for.
    pub(super) async fn follow_growth(&self, sizes: Option<String>) -> Result<(), Error> {
        let is_other = sizes.is_some_and(|sizes| self.sizes().learn(&sizes));
        if is_other { self.client.batch_execute(FORGET_PLANS).await } else { Ok(()) }
    }

    fn sizes(&self) -> MutexGuard<'_, Sizes> {
        self.sizes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

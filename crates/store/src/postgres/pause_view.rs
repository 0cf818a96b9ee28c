//! The view of the pauses that each process goes by, read with its beats.

use std::sync::Arc;

use notification::Pauses;
use tokio::sync::watch;
use tokio_postgres::{Error, Row};

use super::connection::Session;
use super::read::Snapshot;
use crate::StoreError;
use crate::rows::paused::pause_of;

/// What this process knows of the pauses.
#[derive(Debug)]
pub(super) struct KnownPauses {
    view: watch::Sender<Arc<Pauses>>,
    /// The worker and the version that are in its row.
    said: Option<(i64, i64)>,
}

const SELECT_PAUSES: &str =
    "SELECT value, tenant, scope, since FROM meta LEFT JOIN pause ON true WHERE key = 'pauses'";

// === impl KnownPauses ===

impl KnownPauses {
    pub(super) fn new() -> Self {
        Self { view: watch::Sender::default(), said: None }
    }

    pub(super) fn view(&self) -> watch::Receiver<Arc<Pauses>> {
        self.view.subscribe()
    }

    /// Reads them if `version` is not what the row of `worker` has; whether it did.
    pub(super) async fn follow(
        &mut self,
        session: &Session,
        worker: i64,
        version: i64,
    ) -> Result<bool, Error> {
        if self.said == Some((worker, version)) {
            return Ok(false);
        }
        let select = session.prepared(SELECT_PAUSES).await?;
        match pauses_at(&session.client.query(&select, &[]).await?) {
            Ok((version, pauses)) => {
                self.view.send_replace(Arc::new(pauses));
                // Only now: from here on no attempt of them begins.
                let say = session.prepared("UPDATE worker SET pauses = $2 WHERE id = $1").await?;
                session.client.execute(&say, &[&worker, &version]).await?;
                self.said = Some((worker, version));
            }
            // It is not said that this process goes by them.
            Err(error) => tracing::error!(%error, "cannot follow a pause of a newer belfry"),
        }
        Ok(true)
    }
}

// === impl Snapshot ===

impl Snapshot<'_> {
    /// Workers that are alive and may not go by `version` of the pauses yet.
    pub(super) async fn workers_behind(&self, version: i64) -> Result<i64, StoreError> {
        let select = "SELECT count(*) FROM worker \
             WHERE alive_until >= clock_timestamp() AND pauses < $1";
        Ok(self.transaction.query_one(select, &[&version]).await?.try_get(0)?)
    }

    pub(super) async fn pauses(&self) -> Result<Pauses, StoreError> {
        Ok(pauses_at(&self.transaction.query(SELECT_PAUSES, &[]).await?)?.1)
    }
}

/// The version and the pauses in rows of [`SELECT_PAUSES`].
fn pauses_at(rows: &[Row]) -> Result<(i64, Pauses), StoreError> {
    let (mut version, mut pauses) = (0, Vec::new());
    for row in rows {
        version = row.try_get(0)?;
        if let Some(tenant) = row.try_get(1)? {
            pauses.push(pause_of(tenant, row.try_get(2)?, row.try_get(3)?)?);
        }
    }
    Ok((version, pauses.into_iter().collect()))
}

//! The view of the pauses that each process goes by, read with its beats.

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared};
use notification::Pauses;
use tokio::sync::watch;
use tokio_postgres::{Error, Row};

use super::connection::PostgresSession;
use super::read::Snapshot;
use super::request::{WriterHandle, WriterRequest};
use super::transaction::{RunError, Transaction};
use crate::StoreError;
use crate::rows::paused::pause_of;

/// The pauses that this process has read, and the version that its claims follow.
#[derive(Debug, Default)]
pub(super) struct KnownPauses {
    pub(super) view: watch::Sender<Arc<Pauses>>,
    /// The version that the view has.
    read: Option<i64>,
    /// Version under which all claims under way began, or a later one.
    settled: Option<i64>,
    /// The worker and the version that are in its row.
    said: Option<(i64, i64)>,
    waiting: Option<AwaitedVersion>,
}

/// A version of the view, and the end of the claims that began before it.
#[derive(Debug)]
struct AwaitedVersion {
    version: i64,
    ended: Shared<BoxFuture<'static, Result<(), StoreError>>>,
}

/// A request that is answered when every transaction of its writer has ended that began before it: a claim among them is
/// committed, or undone.
#[derive(Debug)]
pub(super) struct EndOfEarlier;

const SELECT_PAUSES: &str =
    "SELECT value, tenant, scope, since FROM meta LEFT JOIN pause ON true WHERE key = 'pauses'";

#[async_trait]
impl WriterRequest for EndOfEarlier {
    type Answer = ();

    async fn run(&self, _transaction: &mut Transaction<'_>) -> Result<(), RunError> {
        Ok(())
    }
}

// === impl KnownPauses ===

impl KnownPauses {
    /// Reads them if `version` is another one than the view has, and says in the row of `worker` how far this process goes by
    /// them; whether they were read. `claims` is the writer that claims, if there is one yet.
    pub(super) async fn follow(
        &mut self,
        session: &PostgresSession,
        (worker, version): (i64, i64),
        claims: Option<&WriterHandle>,
    ) -> Result<bool, Error> {
        let is_new = self.read != Some(version);
        if is_new {
            let select = session.prepared(SELECT_PAUSES).await?;
            match pauses_at(&session.client.query(&select, &[]).await?) {
                // They may be newer than `version`, which alone is said: what else this process goes by, the API keys, was read for it.
                Ok((_, pauses)) => {
                    // Published before the version counts as read: with the version, the row of the worker promises that no
                    // attempt begins here without regard to the view.
                    self.view.send_replace(Arc::new(pauses));
                    self.read = Some(version);
                }
                // It is not said that this process goes by them.
                Err(error) => tracing::error!(%error, "cannot follow a pause of a newer belfry"),
            }
        }
        self.wait_for_claims(claims);
        let Some(version) = self.settled else { return Ok(is_new) };
        // With the worker's number: after a removal the new row has no version, though the view has not changed.
        if self.said != Some((worker, version)) {
            let say = session.prepared("UPDATE worker SET pauses = $2 WHERE id = $1").await?;
            session.client.execute(&say, &[&worker, &version]).await?;
            self.said = Some((worker, version));
        }
        Ok(is_new)
    }

    /// Has claims waited for that may go by an older version than the view. Not within a beat: a writer that is held up must not
    /// keep this process from saying that it is alive. One wait after the other, so that a version is said however fast they follow.
    fn wait_for_claims(&mut self, claims: Option<&WriterHandle>) {
        let Some(version) = self.read.filter(|_| self.read != self.settled) else { return };
        // A store that is being opened has no writer yet, so no claim can have begun under an older version.
        let Some(claims) = claims.cloned() else {
            self.settled = Some(version);
            return;
        };
        let ended = || async move { claims.run(EndOfEarlier).await }.boxed().shared();
        self.waiting.get_or_insert_with(|| AwaitedVersion { version, ended: ended() });
    }

    /// Ends when there is more to say with the next beat. Cancel safe.
    pub(super) async fn settled(&mut self) {
        let Some(waiting) = &mut self.waiting else { return std::future::pending().await };
        // The version of the view when the wait began: the view may be newer by now, and claims that began in between are not
        // waited for yet.
        let (ended, version) = ((&mut waiting.ended).await, waiting.version);
        self.waiting = None;
        match ended {
            Ok(()) => self.settled = Some(version),
            // The next beat tries again, unless the store has failed.
            Err(error) => {
                tracing::debug!(%error, "claims that began before a pause cannot be waited for");
                // It does not end, or a store that has failed would have this process beat without a pause.
                std::future::pending::<()>().await;
            }
        }
    }
}

// === impl Snapshot ===

impl Snapshot<'_> {
    /// Workers that may not go by `version` of the pauses yet. One whose lease is over begins nothing, but a claim of it may be under
    /// way until it is removed; one that left in order has none.
    pub(super) async fn workers_behind(&self, version: i64) -> Result<i64, StoreError> {
        let select = "SELECT count(*) FROM worker WHERE pauses < $1 AND ended IS NULL";
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
        // The join keeps the row of the version when there is no pause at all.
        if let Some(tenant) = row.try_get(1)? {
            pauses.push(pause_of(tenant, row.try_get(2)?, row.try_get(3)?)?);
        }
    }
    Ok((version, pauses.into_iter().collect()))
}

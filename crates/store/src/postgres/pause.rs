//! Pauses: their rows, and when they are in force.
//!
//! Their *version* rises with each change. Every worker reads them with the beat that sees a new version, before that beat moves
//! its deadline, and says in its row that it goes by it when the claims have ended that began before. A pause is answered when every
//! worker does, or is removed: one that is overdue begins nothing, and reads them before it begins anything again, but a claim of it
//! may be under way until then.

use std::collections::BTreeSet;
use std::time::Duration;

use async_trait::async_trait;
use notification::{Envelope, Name, Pause, Pauses, Scope, Timestamp, limits};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::Postgres;
use super::columns::signed;
use super::request::WriterRequest;
use super::transaction::{RunError, Transaction};
use crate::rows::paused::{PUT_AWAY, pause_of};
use crate::{Paused, StoreError};

/// Adds a pause; gives the version from which on it is in force.
#[derive(Debug)]
pub(super) struct AddPause(pub(super) Pause);

/// Ends a pause; whether there was one, and the version from which on there is none.
#[derive(Debug)]
pub(super) struct EndPause {
    pub(super) tenant: Name,
    pub(super) scope: Scope,
}

/// Changes of the pauses wait for each other here, so a version has all that were made before it. Those of the API keys raise it,
/// too.
pub(super) const NEXT_VERSION: &str =
    "UPDATE meta SET value = value + 1 WHERE key = 'pauses' RETURNING value";
/// Time after which it is checked again whether every worker has followed: a beat that is woken takes some milliseconds.
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(10);
/// Time for which workers are waited for. A worker that has not followed by then runs a program without pauses, or its claim is
/// held up by the database: the lease of any other one is over, and it is removed.
const FOLLOW_WITHIN: Duration = limits::WORKER_LEASE.saturating_add(limits::WORKER_BEAT);

#[async_trait]
impl WriterRequest for AddPause {
    type Answer = (Paused, i64);

    async fn run(&self, transaction: &mut Transaction<'_>) -> Result<Self::Answer, RunError> {
        let Pause { tenant, scope, since } = &self.0;
        if let Scope::Broadcast(id) = scope {
            let select =
                "SELECT FROM broadcast WHERE id = $1 AND tenant = $2 AND sealed_at IS NOT NULL";
            let number = id.0.cast_signed();
            if transaction.rows(select, &[&number, &tenant.as_str()]).await?.is_empty() {
                return Ok((Paused::Unknown, 0));
            }
        }
        // Raised also by a pause that is there: the caller that made it may be waiting still.
        let version = transaction.row(NEXT_VERSION, &[]).await?.try_get(0)?;
        // Bounded, since every process holds all pauses in memory. A pause that is there keeps its time.
        let insert = "INSERT INTO pause (tenant, scope, since) SELECT $1, $2, $3 \
             WHERE (SELECT count(*) FROM (SELECT FROM pause LIMIT $4) AS counted) < $4 \
             ON CONFLICT DO NOTHING";
        let (tenant, scope) = (tenant.as_str(), scope.to_string());
        let pauses_max = signed(limits::PAUSES);
        transaction.execute(insert, &[&tenant, &scope, &since.millis(), &pauses_max]).await?;
        let select = "SELECT since FROM pause WHERE scope = $1 AND tenant = $2";
        let rows = transaction.rows(select, &[&scope, &tenant]).await?;
        let Some(row) = rows.first() else { return Ok((Paused::TooMany, version)) };
        // The caller waits until the beat of every worker has read the pauses, so it is woken.
        transaction.notify_cluster().await?;
        let since = Timestamp::from_millis(row.try_get(0)?);
        Ok((Paused::InForce { since, is_everywhere: false }, version))
    }
}

#[async_trait]
impl WriterRequest for EndPause {
    type Answer = (bool, i64);

    async fn run(&self, transaction: &mut Transaction<'_>) -> Result<Self::Answer, RunError> {
        let version = transaction.row(NEXT_VERSION, &[]).await?.try_get(0)?;
        let delete = "DELETE FROM pause WHERE scope = $1 AND tenant = $2";
        let (scope, tenant) = (self.scope.to_string(), self.tenant.as_str());
        let ended = transaction.execute(delete, &[&scope, &tenant]).await?;
        if let Scope::Broadcast(id) = self.scope
            && ended > 0
        {
            // From the first batch again, if it is being resumed already: the pause in between may have put away chunks that
            // were passed.
            let insert = "INSERT INTO resuming (broadcast, passed) VALUES ($1, 0) \
                 ON CONFLICT (broadcast) DO UPDATE SET passed = 0";
            transaction.execute(insert, &[&id.0.cast_signed()]).await?;
            // Of its slices, too.
            transaction.effects.waits = true;
        }
        transaction.notify_cluster().await?;
        Ok((ended > 0, version))
    }
}

// === impl Transaction ===

impl Transaction<'_> {
    /// The pauses of broadcasts that cover some of `envelopes`, locked: none of them ends before this transaction does, so chunks
    /// that it puts away are found when the broadcast is resumed.
    pub(super) async fn hold_pauses(
        &mut self,
        pauses: &Pauses,
        envelopes: impl Iterator<Item = &Envelope>,
    ) -> Result<Pauses, RunError> {
        let broadcasts = envelopes.filter_map(|envelope| pauses.broadcast_of(envelope));
        let scopes: BTreeSet<String> =
            broadcasts.map(|id| Scope::Broadcast(id).to_string()).collect();
        if scopes.is_empty() {
            return Ok(Pauses::default());
        }
        let select = "SELECT tenant, scope, since FROM pause WHERE scope = ANY($1) ORDER BY scope FOR KEY SHARE";
        let scopes: Vec<String> = scopes.into_iter().collect();
        let rows = self.rows(select, &[&scopes]).await?;
        let pause = |row: &Row| Ok(pause_of(row.try_get(0)?, row.try_get(1)?, row.try_get(2)?)?);
        rows.iter().map(pause).collect()
    }

    /// Makes put-away chunks of the next batches of a resumed broadcast due again; true if there was such a broadcast.
    pub(super) async fn resume_slice(&mut self) -> Result<bool, RunError> {
        let select = "SELECT broadcast, passed FROM resuming ORDER BY broadcast LIMIT 1 FOR UPDATE SKIP LOCKED";
        let rows = self.rows(select, &[]).await?;
        let Some(row) = rows.first() else { return Ok(false) };
        let broadcast: i64 = row.try_get(0)?;
        let slice = self.slice(broadcast, row.try_get(1)?).await?;
        let batches: Vec<i64> = slice.batches.iter().map(|batch| batch.id).collect();
        // By the due time alone: a retry that waits for its own time was not put away, and keeps that time.
        let update = "WITH locked AS (SELECT id, batch FROM chunk WHERE batch = ANY($1) ORDER BY id FOR UPDATE) \
             UPDATE chunk SET due_at = $3 FROM locked JOIN batch ON batch.id = locked.batch \
             WHERE chunk.id = locked.id AND lease_until IS NULL AND chunk.due_at >= least($2, batch.expires_at) \
             RETURNING chunk.lane";
        // All are due at the time of the broadcast.
        if let Some(due_at) = slice.batches.first().map(|batch| batch.due_at) {
            let parameters: [&(dyn ToSql + Sync); 3] =
                [&batches, &PUT_AWAY.millis(), &due_at.millis()];
            for row in &self.rows(update, &parameters).await? {
                self.due(i64::from(row.try_get::<_, i32>(0)?), due_at);
            }
        }
        if slice.is_last {
            self.execute("DELETE FROM resuming WHERE broadcast = $1", &[&broadcast]).await?;
        } else {
            let update = "UPDATE resuming SET passed = $2 WHERE broadcast = $1";
            let passed = batches.last().copied().unwrap_or(0);
            self.execute(update, &[&broadcast, &passed]).await?;
            self.effects.waits = true;
        }
        Ok(true)
    }
}

// === impl Postgres ===

impl Postgres {
    /// Pauses, and waits until every worker goes by it.
    pub(super) async fn add_pause(&self, pause: Pause) -> Result<Paused, StoreError> {
        let (paused, version) = self.work.run_or_give_up(AddPause(pause)).await?;
        let Paused::InForce { since, .. } = paused else { return Ok(paused) };
        Ok(Paused::InForce { since, is_everywhere: self.is_followed(version).await })
    }

    /// Resumes, and waits until every worker goes by it; whether it was paused.
    pub(super) async fn end_pause(&self, end: EndPause) -> Result<bool, StoreError> {
        let (was_paused, version) = self.work.run_or_give_up(end).await?;
        // Not part of the answer: a worker that does not follow in time only sends later.
        self.is_followed(version).await;
        Ok(was_paused)
    }

    /// Waits until every worker follows `version`; true if all do. The change is durable either way.
    pub(super) async fn is_followed(&self, version: i64) -> bool {
        let followed = async {
            while self.reader.workers_behind(version).await? > 0 {
                tokio::time::sleep(ASK_AGAIN_AFTER).await;
            }
            Ok(())
        };
        let followed: Result<Result<(), StoreError>, _> =
            tokio::time::timeout(FOLLOW_WITHIN, followed).await;
        matches!(followed, Ok(Ok(())))
    }
}

//! The tenants of chunks: a chunk names its batch and its lane, and what becomes of it is counted for its tenant.
//!
//! A lane is of one tenant (decision 0027), so that of the lane is enough, and those of lanes are remembered. Only lanes that are older
//! than that, all of the tenant `default`, may have batches of others: there the batch itself is looked up, if it may be as old.

use std::collections::HashMap;

use notification::{BatchId, Name};
use tokio_postgres::{Error, Row};

use super::claim::missing;
use super::columns::narrow;
use super::transaction::{RunError, Transaction};
use crate::StoreError;
use crate::rows::codes::{self, LaneId};
use crate::rows::model::{BatchRow, ChunkRow};

/// The tenants of batches.
#[derive(Debug, Default)]
pub(super) struct BatchTenants(HashMap<BatchId, Name>);

/// The tenant of lanes that are older than lanes of tenants.
const OF_OLD_LANES: &str = "default";
pub(super) const SELECT_OF_LANES: &str = "SELECT id, tenant FROM tenant_lane WHERE id = ANY($1)";
pub(super) const SELECT_OF_BATCHES: &str = "SELECT id, tenant FROM batch WHERE id = ANY($1)";
pub(super) const SELECT_MIXED: &str = "SELECT value FROM meta WHERE key = 'mixed_lanes_through'";

// === impl BatchTenants ===

impl BatchTenants {
    pub(super) fn of(&self, batch: BatchId) -> Result<&Name, StoreError> {
        self.0.get(&batch).ok_or_else(|| missing(batch))
    }
}

// === impl Transaction ===

impl Transaction<'_> {
    /// The tenants of the batches of `chunks`. Costs no query where the lanes are known and were made with their tenants.
    pub(super) async fn tenants_of<'c>(
        &mut self,
        chunks: impl Iterator<Item = &'c ChunkRow>,
    ) -> Result<BatchTenants, RunError> {
        let lane_of: HashMap<BatchId, LaneId> =
            chunks.map(|chunk| (chunk.batch, chunk.lane)).collect();
        let mut lanes = self.tenants_of_lanes(lane_of.values()).await?;
        let (mut tenants, mut by_batch) = (BatchTenants::default(), Vec::new());
        for (batch, lane) in lane_of {
            let known = self.state.lane_tenants.get(lane).or_else(|| lanes.get(&lane)).cloned();
            match known {
                Some(tenant) if !self.may_be_mixed(&tenant, batch).await? => {
                    tenants.0.insert(batch, tenant);
                }
                Some(_) | None => by_batch.push(batch.0.cast_signed()),
            }
        }
        for (lane, tenant) in lanes.drain() {
            self.state.lane_tenants.insert(lane, tenant);
        }
        if !by_batch.is_empty() {
            for row in self.rows(SELECT_OF_BATCHES, &[&by_batch]).await? {
                let batch = BatchId(row.try_get::<_, i64>(0)?.cast_unsigned());
                tenants.0.insert(batch, codes::name(row.try_get(1)?)?);
            }
        }
        Ok(tenants)
    }

    /// The tenants of those `lanes` that are not known.
    async fn tenants_of_lanes(
        &mut self,
        lanes: impl Iterator<Item = &'_ LaneId>,
    ) -> Result<HashMap<LaneId, Name>, RunError> {
        let known = &self.state.lane_tenants;
        let mut unknown: Vec<i32> =
            lanes.filter(|lane| known.get(**lane).is_none()).map(|lane| narrow(*lane)).collect();
        unknown.sort_unstable();
        unknown.dedup();
        if unknown.is_empty() {
            return Ok(HashMap::new());
        }
        let rows = self.rows(SELECT_OF_LANES, &[&unknown]).await?;
        let tenant =
            |row: &Row| Ok((row.try_get::<_, i32>(0)?.into(), codes::name(row.try_get(1)?)?));
        rows.iter().map(tenant).collect()
    }

    /// Remembers the tenants of the lanes of `chunks`, by their `batches`: they will be settled here.
    pub(super) async fn note_tenants(
        &mut self,
        chunks: &[ChunkRow],
        batches: &HashMap<BatchId, BatchRow>,
    ) -> Result<(), Error> {
        for chunk in chunks {
            let Some(batch) = batches.get(&chunk.batch) else { continue };
            if self.state.lane_tenants.get(chunk.lane).is_some() {
                continue;
            }
            let tenant = &batch.envelope.lane.tenant;
            // One of another tenant that is as old may lie in a lane of `default`.
            if tenant.as_str() == OF_OLD_LANES || chunk.batch > self.mixed_through().await? {
                self.state.lane_tenants.insert(chunk.lane, tenant.clone());
            }
        }
        Ok(())
    }

    /// True if `batch` may be of another tenant than its lane, which is of `tenant`.
    async fn may_be_mixed(&mut self, tenant: &Name, batch: BatchId) -> Result<bool, Error> {
        Ok(tenant.as_str() == OF_OLD_LANES && batch <= self.mixed_through().await?)
    }

    async fn mixed_through(&mut self) -> Result<BatchId, Error> {
        if let Some(through) = self.state.lane_tenants.mixed_through {
            return Ok(through);
        }
        let row = self.row(SELECT_MIXED, &[]).await?;
        let through = BatchId(row.try_get::<_, i64>(0)?.cast_unsigned());
        self.state.lane_tenants.mixed_through = Some(through);
        Ok(through)
    }
}

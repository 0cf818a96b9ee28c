//! The trail of acts.

use notification::{Name, Timestamp};
use rusqlite::{Row, params};

use super::prune::StepUnderWay;
use super::read::Snapshot;
use super::rows::signed;
use super::transaction::Transaction;
use crate::acts::ACTS_LOOKED_AT;
use crate::rows::codes;
use crate::rows::retention::OldRows;
use crate::{Act, ActBegun, ActEnded, ActFilter, ActPage, StoreError};

impl Transaction<'_> {
    pub(super) fn begin_act(&mut self, act: &ActBegun) -> Result<u64, StoreError> {
        let ActBegun { at, request, key, caller, tenant, call, asked } = act;
        let key = key.as_ref().map(Name::as_str);
        let (caller, tenant) = (caller.as_str(), tenant.as_str());
        let insert = "INSERT INTO act (at, request, key, caller, tenant, call, asked) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
        self.sql(insert)?.execute(params![
            at.millis(),
            request,
            key,
            caller,
            tenant,
            call,
            asked
        ])?;
        Ok(self.connection.last_insert_rowid().cast_unsigned())
    }

    pub(super) fn end_act(&mut self, id: u64, end: &ActEnded) -> Result<(), StoreError> {
        let update = "UPDATE act SET ended_at = ?2, status = ?3, answer = ?4, tenant = coalesce(?5, tenant) WHERE id = ?1";
        let ActEnded { at, status, tenant, answer } = end;
        let tenant = tenant.as_ref().map(Name::as_str);
        self.sql(update)?.execute(params![
            id.cast_signed(),
            at.millis(),
            status,
            answer,
            tenant
        ])?;
        Ok(())
    }

    /// Removes old acts, but the last.
    pub(super) fn prune_acts(&mut self, step: &mut StepUnderWay<'_>) -> Result<(), StoreError> {
        let Some(lifetime) = step.retention.acts else { return Ok(()) };
        let select = self.sql("SELECT id, at FROM act WHERE id > 0 ORDER BY id LIMIT ?1")?;
        let (old, last) = OldRows::read(select, lifetime, step.now)?;
        if let Some(last) = last {
            self.sql("DELETE FROM act WHERE id <= ?1")?.execute([last])?;
        }
        step.result.removed.acts += old.count as u64;
        step.note(&old);
        Ok(())
    }
}

impl Snapshot {
    /// Some of the acts behind `after`, newest first.
    pub(super) fn acts(
        &self,
        filter: &ActFilter,
        after: Option<u64>,
        items_max: usize,
    ) -> Result<ActPage, StoreError> {
        let after = after.map_or(i64::MAX, |after| i64::try_from(after).unwrap_or(i64::MAX));
        let looked_at = signed(ACTS_LOOKED_AT);
        let mut acts = Vec::new();
        if let Some(tenant) = &filter.tenant {
            let select = "SELECT id, at, request, key, caller, tenant, call, asked, ended_at, status, answer FROM act \
                 WHERE tenant = ?1 AND id < ?2 ORDER BY id DESC LIMIT ?3";
            let mut select = self.connection.prepare_cached(select)?;
            let mut rows = select.query(params![tenant.as_str(), after, looked_at])?;
            while let Some(row) = rows.next()? {
                acts.push(act_at(row)?);
            }
        } else {
            let select = "SELECT id, at, request, key, caller, tenant, call, asked, ended_at, status, answer FROM act \
                 WHERE id < ?1 ORDER BY id DESC LIMIT ?2";
            let mut select = self.connection.prepare_cached(select)?;
            let mut rows = select.query(params![after, looked_at])?;
            while let Some(row) = rows.next()? {
                acts.push(act_at(row)?);
            }
        }
        Ok(ActPage::of(acts, filter, items_max))
    }
}

fn act_at(row: &Row<'_>) -> Result<Act, StoreError> {
    let key: Option<String> = row.get(3)?;
    let (ended_at, status): (Option<i64>, Option<u16>) = (row.get(8)?, row.get(9)?);
    let answer = row.get(10)?;
    let end = |(at, status)| {
        let at = Timestamp::from_millis(at);
        ActEnded { at, status, tenant: None, answer }
    };
    Ok(Act {
        id: row.get::<_, i64>(0)?.cast_unsigned(),
        begun: ActBegun {
            at: Timestamp::from_millis(row.get(1)?),
            request: row.get(2)?,
            key: key.map(|key| codes::name(&key)).transpose()?,
            caller: codes::name(row.get_ref(4)?.as_str()?)?,
            tenant: codes::name(row.get_ref(5)?.as_str()?)?,
            call: row.get(6)?,
            asked: row.get(7)?,
        },
        ended: ended_at.zip(status).map(end),
    })
}

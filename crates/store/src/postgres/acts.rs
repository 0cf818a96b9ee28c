//! The trail of acts.

use std::time::Duration;

use async_trait::async_trait;
use notification::{Name, Timestamp};
use tokio_postgres::Row;

use super::columns::signed;
use super::read::Snapshot;
use super::request::WriterRequest;
use super::transaction::{RunError, Transaction};
use crate::acts::ACTS_LOOKED_AT;
use crate::rows::codes;
use crate::rows::retention::{OldRows, ROWS_PER_STEP};
use crate::{Act, ActBegun, ActEnded, ActFilter, ActPage, StoreError};

/// Writes the beginning of an act; gives its number.
#[derive(Debug)]
pub(super) struct BeginAct(pub(super) ActBegun);

/// Writes the end of an act.
#[derive(Debug)]
pub(super) struct EndAct {
    pub(super) id: u64,
    pub(super) end: ActEnded,
}

#[async_trait]
impl WriterRequest for BeginAct {
    type Answer = u64;

    async fn run(&self, transaction: &mut Transaction<'_>) -> Result<u64, RunError> {
        let ActBegun { at, request, key, caller, tenant, call, asked } = &self.0;
        let key = key.as_ref().map(Name::as_str);
        let (at, caller, tenant) = (at.millis(), caller.as_str(), tenant.as_str());
        let insert = "INSERT INTO act (at, request, key, caller, tenant, call, asked) \
             VALUES ($1, $2, $3, $4, $5, $6, $7) RETURNING id";
        let row =
            transaction.row(insert, &[&at, request, &key, &caller, &tenant, call, asked]).await?;
        Ok(row.try_get::<_, i64>(0)?.cast_unsigned())
    }
}

#[async_trait]
impl WriterRequest for EndAct {
    type Answer = ();

    async fn run(&self, transaction: &mut Transaction<'_>) -> Result<(), RunError> {
        let ActEnded { at, status, tenant, answer } = &self.end;
        let tenant = tenant.as_ref().map(Name::as_str);
        let update = "UPDATE act SET ended_at = $2, status = $3, answer = $4, tenant = coalesce($5, tenant) WHERE id = $1";
        let (at, status) = (at.millis(), status.cast_signed());
        transaction
            .execute(update, &[&self.id.cast_signed(), &at, &status, answer, &tenant])
            .await?;
        Ok(())
    }
}

impl Transaction<'_> {
    /// Removes some of the acts that are older than `lifetime`, but not the last; tells of them.
    pub(super) async fn prune_acts(
        &mut self,
        lifetime: Duration,
        now: Timestamp,
    ) -> Result<OldRows, RunError> {
        let select = "SELECT id, at FROM act WHERE id > 0 ORDER BY id LIMIT $1";
        let rows = self.rows(select, &[&signed(ROWS_PER_STEP + 1)]).await?;
        let times: Result<Vec<Timestamp>, _> =
            rows.iter().map(|row| row.try_get(1).map(Timestamp::from_millis)).collect();
        let old = OldRows::of(&times?, lifetime, now);
        if let Some(last) = old.count.checked_sub(1).and_then(|last| rows.get(last)) {
            let last: i64 = last.try_get(0)?;
            self.execute("DELETE FROM act WHERE id <= $1", &[&last]).await?;
        }
        Ok(old)
    }
}

impl Snapshot<'_> {
    /// Some of the acts behind `after`, newest first.
    pub(super) async fn acts(
        &self,
        filter: &ActFilter,
        after: Option<u64>,
        items_max: usize,
    ) -> Result<ActPage, StoreError> {
        let after = after.map_or(i64::MAX, |after| i64::try_from(after).unwrap_or(i64::MAX));
        let looked_at = signed(ACTS_LOOKED_AT);
        let rows = if let Some(tenant) = &filter.tenant {
            // By both columns, so that no plan but one by the index has the order: the primary key passes the acts of others.
            let select = "SELECT id, at, request, key, caller, tenant, call, asked, ended_at, status, answer FROM act \
                 WHERE (tenant, id) > ($1, 0) AND (tenant, id) < ($1, $2) ORDER BY tenant DESC, id DESC LIMIT $3";
            self.rows(select, &[&tenant.as_str(), &after, &looked_at]).await?
        } else {
            let select = "SELECT id, at, request, key, caller, tenant, call, asked, ended_at, status, answer FROM act \
                 WHERE id < $1 ORDER BY id DESC LIMIT $2";
            self.rows(select, &[&after, &looked_at]).await?
        };
        let acts = rows.iter().map(act_at).collect::<Result<_, _>>()?;
        Ok(ActPage::of(acts, filter, items_max))
    }
}

fn act_at(row: &Row) -> Result<Act, StoreError> {
    let key: Option<&str> = row.try_get(3)?;
    let (ended_at, status): (Option<i64>, Option<i16>) = (row.try_get(8)?, row.try_get(9)?);
    let answer = row.try_get(10)?;
    let end = |(at, status): (i64, i16)| ActEnded {
        at: Timestamp::from_millis(at),
        status: status.cast_unsigned(),
        tenant: None,
        answer,
    };
    Ok(Act {
        id: row.try_get::<_, i64>(0)?.cast_unsigned(),
        begun: ActBegun {
            at: Timestamp::from_millis(row.try_get(1)?),
            request: row.try_get(2)?,
            key: key.map(codes::name).transpose()?,
            caller: codes::name(row.try_get(4)?)?,
            tenant: codes::name(row.try_get(5)?)?,
            call: row.try_get(6)?,
            asked: row.try_get(7)?,
        },
        ended: ended_at.zip(status).map(end),
    })
}

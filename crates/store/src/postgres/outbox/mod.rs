//! The outbox: what applications inserted within their own transactions becomes notifications, each row once.
//!
//! A drain takes the rows whose transactions ended since the last one and moves the position, in the transaction that
//! stores what they became. Rows are neither updated nor deleted: slots of the table that are all taken are truncated.

mod position;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use notification::limits::{OUTBOX_BYTES, OUTBOX_ROWS};
use notification::{Bytes, Draft, Timestamp};
use tokio::sync::watch;
use tokio_postgres::{Error, Row};

use super::Postgres;
use super::round::{Failure, Round};
use super::writer::Ask;
use super::xid::Xid;
use crate::{Admission, Drained, Outbox, OutboxRow, Screen, StoreError};
use position::{Ended, Place, Position, Span};

/// Takes in some of what was committed since the last time.
struct Drain {
    screen: Arc<Screen>,
    now: Timestamp,
}

/// What a drain has come to so far.
#[derive(Debug, Default)]
struct Haul {
    accepted: u64,
    rows: usize,
    bytes: usize,
    rejected: Vec<(Place, String)>,
    /// The last row that was taken, when there may be more behind it.
    stopped: Option<Place>,
}

/// Rows read at once: each may be as long as a payload may be.
const PAGE_ROWS: i32 = 256;
const LOCK: &str =
    "SELECT snapshot::text, txid, id FROM outbox_position WHERE is_only FOR UPDATE SKIP LOCKED";
const PAGE: &str = "SELECT txid, id, tenant, channel, recipient, content::text, options::text, priority, guarantee, \
     send_at, expires_at, idempotency_key, template, variables::text, fallback::text FROM outbox_page($1, $2, $3, $4, $5::text::pg_snapshot, $6)";
const MOVE: &str =
    "UPDATE outbox_position SET snapshot = $1::text::pg_snapshot, txid = $2, id = $3 WHERE is_only";
const REJECT: &str = "INSERT INTO outbox_rejected (id, reason, tenant, channel, recipient, content, options, priority, \
     guarantee, send_at, expires_at, idempotency_key, template, variables, fallback) \
     SELECT id, reason, tenant, channel, recipient, content, options, priority, guarantee, send_at, expires_at, \
     idempotency_key, template, variables, fallback FROM outbox JOIN unnest($1::xid8[], $2::int8[], $3::text[]) AS refused (txid, id, reason) \
     USING (txid, id)";

#[async_trait]
impl Outbox for Postgres {
    async fn drain(&self, screen: Arc<Screen>, now: Timestamp) -> Result<Drained, StoreError> {
        self.intake.ask_patiently(Drain { screen, now }).await
    }

    fn outbox_changes(&self) -> watch::Receiver<u64> {
        self.outbox.clone()
    }
}

// === impl Drain ===

impl fmt::Debug for Drain {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Drain").field("now", &self.now).finish_non_exhaustive()
    }
}

#[async_trait]
impl Ask for Drain {
    type Answer = Drained;

    async fn ask(&self, round: &mut Round<'_>) -> Result<Drained, Failure> {
        let mut haul = Haul::default();
        if round.row("SELECT outbox_waits()", &[]).await?.try_get(0)? {
            // Another process that drains has it locked, and takes what there is.
            let Some(position) = lock(round).await? else { return Ok(Drained::default()) };
            self.take(round, &position, &mut haul).await?;
        }
        round.row("SELECT outbox_rotate()", &[]).await?;
        Ok(Drained {
            accepted: haul.accepted,
            rejected: haul.rejected.len() as u64,
            more: haul.stopped.is_some(),
        })
    }

    fn items(&self) -> usize {
        OUTBOX_ROWS
    }
}

impl Drain {
    async fn take(
        &self,
        round: &mut Round<'_>,
        position: &Position,
        haul: &mut Haul,
    ) -> Result<(), Failure> {
        // Asked with the lock in hand: it shows all that the last drain saw.
        let now = "SELECT pg_current_snapshot()::text";
        let now: Ended = round.row(now, &[]).await?.try_get::<_, &str>(0)?.parse()?;
        if now.xmax < position.ended.xmax {
            return Err(copied().into());
        }
        let late = wrote(round, position.late(&now)).await?;
        let late = late.into_iter().map(|txid| position.rest_of(txid));
        for span in late.chain(position.new_ones(&now)) {
            if haul.stopped.is_none() {
                self.take_span(round, span, &now, haul).await?;
            }
        }
        reject(round, &haul.rejected).await?;
        let Position { ended, part } = position.moved(now, haul.stopped);
        let (txid, id) = (part.map(|part| Xid(part.txid)), part.map(|part| part.id));
        round.execute(MOVE, &[&ended.to_string(), &txid, &id]).await?;
        Ok(())
    }

    /// Takes the rows of a span, as far as there is room.
    async fn take_span(
        &self,
        round: &mut Round<'_>,
        span: Span,
        now: &Ended,
        haul: &mut Haul,
    ) -> Result<(), Failure> {
        let (first, last, now) = (Xid(span.first), Xid(span.last), now.to_string());
        let mut after = span.after;
        loop {
            let (txid, id) = (Xid(after.txid), after.id);
            let rows = round.rows(PAGE, &[&first, &last, &txid, &id, &now, &PAGE_ROWS]).await?;
            let mut drafts = Vec::with_capacity(rows.len());
            for row in &rows {
                after = Place { txid: row.try_get::<_, Xid>(0)?.0, id: row.try_get(1)? };
                let row = outbox_row(row)?;
                haul.rows += 1;
                haul.bytes += bytes_of(&row);
                match (self.screen)(row, self.now) {
                    Ok(draft) => {
                        // What templates make of a row may be much larger than the row.
                        haul.bytes += draft.content.bytes_stored();
                        drafts.push((after, draft));
                    }
                    Err(reason) => haul.rejected.push((after, reason)),
                }
                if haul.is_full() {
                    break;
                }
            }
            self.pack(round, drafts, haul).await?;
            if haul.is_full() {
                haul.stopped = Some(after);
                return Ok(());
            }
            if rows.len() < usize::try_from(PAGE_ROWS).unwrap_or(0) {
                return Ok(());
            }
        }
    }

    /// Accepts each for itself.
    async fn pack(
        &self,
        round: &mut Round<'_>,
        drafts: Vec<(Place, Draft)>,
        haul: &mut Haul,
    ) -> Result<(), Failure> {
        let keys = drafts.iter().filter_map(|(_, draft)| {
            let key = draft.idempotency.as_ref()?.key.clone();
            Some((draft.envelope.tenant.clone(), key))
        });
        round.look_up(keys.collect()).await?;
        round.reserve_batches(drafts.len()).await?;
        for (place, draft) in drafts {
            match round.pack(vec![draft], self.now) {
                Ok(admissions) => {
                    let is_new =
                        |admission: &&Admission| matches!(admission, Admission::Accepted(_));
                    haul.accepted += admissions.iter().filter(is_new).count() as u64;
                }
                Err(StoreError::KeyReused { .. }) => {
                    let reason = "idempotency_key: was used before for something else";
                    haul.rejected.push((place, reason.to_owned()));
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

impl Haul {
    /// Whether it is enough for one transaction.
    fn is_full(&self) -> bool {
        self.rows >= OUTBOX_ROWS || self.bytes >= OUTBOX_BYTES
    }
}

/// The position, locked; `None` when somebody else has it locked.
async fn lock(round: &mut Round<'_>) -> Result<Option<Position>, Failure> {
    let rows = round.rows(LOCK, &[]).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    let ended = row.try_get::<_, &str>(0)?.parse()?;
    let part = match (row.try_get::<_, Option<Xid>>(1)?, row.try_get(2)?) {
        (Some(Xid(txid)), Some(id)) => Some(Place { txid, id }),
        _ => None,
    };
    Ok(Some(Position { ended, part }))
}

/// Keeps those of the transactions that left rows.
async fn wrote(round: &mut Round<'_>, mut txids: Vec<u64>) -> Result<Vec<u64>, Error> {
    if txids.is_empty() {
        return Ok(txids);
    }
    let asked: Vec<Xid> = txids.iter().map(|txid| Xid(*txid)).collect();
    let rows = round.rows("SELECT * FROM outbox_writers($1)", &[&asked]).await?;
    let writers: HashSet<u64> = rows
        .iter()
        .map(|row| row.try_get::<_, Xid>(0).map(|Xid(txid)| txid))
        .collect::<Result<_, _>>()?;
    txids.retain(|txid| writers.contains(txid));
    Ok(txids)
}

/// Puts rows aside.
async fn reject(round: &mut Round<'_>, rejected: &[(Place, String)]) -> Result<(), Error> {
    if rejected.is_empty() {
        return Ok(());
    }
    let txids: Vec<Xid> = rejected.iter().map(|(place, _)| Xid(place.txid)).collect();
    let ids: Vec<i64> = rejected.iter().map(|(place, _)| place.id).collect();
    let reasons: Vec<&str> = rejected.iter().map(|(_, reason)| reason.as_str()).collect();
    round.execute(REJECT, &[&txids, &ids, &reasons]).await.map(drop)
}

/// Transactions here are numbered lower than those that were taken: taking on would pass over new rows.
fn copied() -> StoreError {
    StoreError::Schema(
        "the outbox was copied from another server, where transactions had other numbers: do what docs/outbox.md says \
         under \"After a restore\""
            .to_owned(),
    )
}

/// About: what is short is left out.
fn bytes_of(row: &OutboxRow) -> usize {
    let texts = [&row.content, &row.options, &row.variables, &row.fallback];
    row.recipient.len() + texts.into_iter().map(Bytes::len).sum::<usize>()
}

fn outbox_row(row: &Row) -> Result<OutboxRow, Error> {
    let bytes = |column| {
        let text: Option<&str> = row.try_get(column)?;
        Ok::<_, Error>(text.map(|text| Bytes::copy_from_slice(text.as_bytes())).unwrap_or_default())
    };
    let instant =
        |column| Ok::<_, Error>(row.try_get::<_, Option<SystemTime>>(column)?.map(timestamp));
    Ok(OutboxRow {
        tenant: row.try_get(2)?,
        channel: row.try_get(3)?,
        recipient: row.try_get(4)?,
        content: bytes(5)?,
        options: bytes(6)?,
        priority: row.try_get(7)?,
        guarantee: row.try_get(8)?,
        send_at: instant(9)?,
        expires_at: instant(10)?,
        idempotency_key: row.try_get(11)?,
        template: row.try_get(12)?,
        variables: bytes(13)?,
        fallback: bytes(14)?,
    })
}

/// To the millisecond, as instants are kept here.
fn timestamp(time: SystemTime) -> Timestamp {
    let millis = |span: std::time::Duration| i64::try_from(span.as_millis()).unwrap_or(i64::MAX);
    Timestamp::from_millis(match time.duration_since(UNIX_EPOCH) {
        Ok(since) => millis(since),
        Err(before) => -millis(before.duration()),
    })
}

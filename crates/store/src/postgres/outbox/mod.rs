//! The outbox: what applications inserted within their own transactions becomes notifications, each row once.
//!
//! A drain reads the rows whose transactions ended since the last one, validates them, and stores what they became in one
//! transaction with the position. Nothing is locked while rows are validated, which may take long: the position is compared
//! instead, and another drainer that moved it meanwhile has taken those rows. Rows are neither updated nor deleted: slots
//! of the table that are all taken are truncated.

mod position;
#[cfg(test)]
mod tenants_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod upgrade_tests;
#[cfg(test)]
mod waiting_tests;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use flow::Clock;
use notification::limits::{OUTBOX_BYTES, OUTBOX_ROWS};
use notification::{Bytes, Draft, Timestamp};
use tokio::sync::watch;
use tokio_postgres::{Error, Row};

use super::Postgres;
use super::ingest::keys_of;
use super::request::{WriterHandle, WriterRequest};
use super::transaction::{RunError, Transaction};
use super::xid::Xid;
use crate::{Admission, DrainedRows, Outbox, OutboxRow, StoreError, Validator};
use position::{EndedTransactions, Position, RowPosition, Span};

/// Reads some of the rows that were committed since the last drain.
#[derive(Debug)]
struct ReadRows;

/// Rows as they were read.
#[derive(Debug)]
struct RowsRead {
    position: Position,
    /// The transactions that had ended when they were read.
    ended: EndedTransactions,
    rows: Vec<(RowPosition, OutboxRow)>,
    bytes: usize,
    /// True if there is more for lack of room.
    is_full: bool,
}

/// Takes in what became of rows, if the position is still where they were read from.
#[derive(Debug, Clone)]
struct AcceptRows {
    position: Position,
    ended: EndedTransactions,
    /// In the order in which they are taken: each is a draft, or there is a reason why not.
    rows: Vec<(RowPosition, Result<Draft, String>)>,
    /// The last row that was validated, when there may be more behind it.
    stopped: Option<RowPosition>,
    now: Timestamp,
}

/// Time for which a drain validates before it stores what it has: rows that take long delay the rest of the outbox no longer.
const VALIDATED_FOR: Duration = Duration::from_secs(2);
/// Rows read at once: each may be as long as a payload may be.
const PAGE_ROWS: i32 = 256;
const SELECT: &str = "SELECT snapshot::text, txid, id FROM outbox_position WHERE is_only";
const LOCK: &str =
    "SELECT snapshot::text, txid, id FROM outbox_position WHERE is_only FOR UPDATE SKIP LOCKED";
const PAGE: &str = "SELECT txid, id, tenant, channel, recipient, content::text, options::text, priority, guarantee, \
     send_at, expires_at, idempotency_key, template, variables::text, fallback::text, external_id, tags::text, metadata::text \
     FROM outbox_page($1, $2, $3, $4, $5::text::pg_snapshot, $6)";
const ROTATE: &str = "SELECT outbox_rotate()";
const MOVE: &str =
    "UPDATE outbox_position SET snapshot = $1::text::pg_snapshot, txid = $2, id = $3 WHERE is_only";
const REJECT: &str = "INSERT INTO outbox_rejected (id, reason, tenant, channel, recipient, content, options, priority, \
     guarantee, send_at, expires_at, idempotency_key, template, variables, fallback, external_id, tags, metadata) \
     SELECT id, reason, tenant, channel, recipient, content, options, priority, guarantee, send_at, expires_at, \
     idempotency_key, template, variables, fallback, external_id, tags, metadata \
     FROM outbox JOIN unnest($1::xid8[], $2::int8[], $3::text[]) AS refused (txid, id, reason) USING (txid, id)";

#[async_trait]
impl Outbox for Postgres {
    async fn drain(
        &self,
        validator: Arc<Validator>,
        now: Timestamp,
    ) -> Result<DrainedRows, StoreError> {
        drain(&self.intake, validator, now, self.time.clock()).await
    }

    fn outbox_changes(&self) -> watch::Receiver<u64> {
        self.outbox.clone()
    }
}

/// Takes in some of what was committed since the last time, through the writer `intake`.
pub(super) async fn drain(
    intake: &WriterHandle,
    validator: Arc<Validator>,
    now: Timestamp,
    clock: Clock,
) -> Result<DrainedRows, StoreError> {
    // In a transaction of its own, so that none is open while rows are validated.
    let Some(found) = intake.run_or_give_up(ReadRows).await? else {
        return Ok(DrainedRows::default());
    };
    // Templates may take long, and this is a thread of connections.
    let validating = tokio::task::spawn_blocking(move || found.validate(&*validator, now, clock));
    let validated = validating
        .await
        .map_err(|error| StoreError::Broken(format!("the outbox was not validated: {error}")));
    let mut accepting = Arc::new(validated?);
    loop {
        let drained = intake.run_or_give_up(Arc::clone(&accepting)).await;
        let Err(StoreError::Invalid(reason) | StoreError::Undone(reason)) = &drained else {
            return drained;
        };
        // One row that the database refuses must not hold up all that come behind it.
        if !Arc::make_mut(&mut accepting).leave_out(reason) {
            return drained;
        }
    }
}

// === impl ReadRows ===

#[async_trait]
impl WriterRequest for ReadRows {
    type Answer = Option<RowsRead>;

    async fn run(&self, transaction: &mut Transaction<'_>) -> Result<Option<RowsRead>, RunError> {
        if !transaction.row("SELECT outbox_waits()", &[]).await?.try_get(0)? {
            // A slot that the last drain could not empty, because it was still written to, is emptied now.
            transaction.row(ROTATE, &[]).await?;
            return Ok(None);
        }
        let position = position_at(&transaction.row(SELECT, &[]).await?)?;
        // Asked after the position was read: it shows all that the last drain saw.
        let ended = "SELECT pg_current_snapshot()::text";
        let ended: EndedTransactions =
            transaction.row(ended, &[]).await?.try_get::<_, &str>(0)?.parse()?;
        // One server's numbers only rise, so this position is another server's.
        if ended.xmax < position.ended.xmax {
            return Err(copied().into());
        }
        // Every transaction of the database is among them, and most have written no row here: each would cost a look.
        let late = wrote(transaction, position.late(&ended)).await?;
        let late = late.into_iter().map(|txid| position.rest_of(txid));
        let spans: Vec<Span> = late.chain(position.new_ones(&ended)).collect();
        let mut found = RowsRead { position, ended, rows: Vec::new(), bytes: 0, is_full: false };
        for span in spans {
            if !found.is_full {
                found.read_span(transaction, span).await?;
            }
        }
        Ok(Some(found))
    }
}

// === impl RowsRead ===

impl RowsRead {
    /// Reads the rows of a span, as far as there is room.
    async fn read_span(
        &mut self,
        transaction: &mut Transaction<'_>,
        span: Span,
    ) -> Result<(), RunError> {
        let (first, last, ended) = (Xid(span.first), Xid(span.last), self.ended.to_string());
        let mut after = span.after;
        loop {
            let (txid, id) = (Xid(after.txid), after.id);
            let rows =
                transaction.rows(PAGE, &[&first, &last, &txid, &id, &ended, &PAGE_ROWS]).await?;
            for row in &rows {
                after = RowPosition { txid: row.try_get::<_, Xid>(0)?.0, id: row.try_get(1)? };
                let row = outbox_row(row)?;
                self.bytes += bytes_of(&row);
                self.rows.push((after, row));
                // After the row is taken: one that is larger than the bound alone would never be, and all behind it would wait.
                if is_enough(self.rows.len(), self.bytes) {
                    self.is_full = true;
                    return Ok(());
                }
            }
            if rows.len() < usize::try_from(PAGE_ROWS).unwrap_or(0) {
                return Ok(());
            }
        }
    }

    /// Validates rows in their order: all of them, or as many as there is time and room for, but one at least.
    fn validate(self, validate: &Validator, now: Timestamp, clock: Clock) -> AcceptRows {
        let Self { position, ended, rows, is_full, .. } = self;
        let begun = clock.boot();
        let (count, mut bytes) = (rows.len(), 0);
        let (mut judged, mut stopped) = (Vec::with_capacity(count), None);
        for (validated, (place, row)) in (1..).zip(rows) {
            bytes += bytes_of(&row);
            let draft = validate(row, now);
            // What templates make of a row may be much larger than the row.
            bytes += draft.as_ref().map_or(0, |draft| draft.content.bytes_stored());
            judged.push((place, draft));
            let is_late = clock.boot().saturating_sub(begun) >= VALIDATED_FOR;
            if is_late || is_enough(validated, bytes) || validated == count {
                let may_be_more = validated < count || is_full;
                stopped = may_be_more.then_some(place);
                break;
            }
        }
        AcceptRows { position, ended, rows: judged, stopped, now }
    }
}

// === impl AcceptRows ===

#[async_trait]
impl WriterRequest for Arc<AcceptRows> {
    type Answer = DrainedRows;

    async fn run(&self, transaction: &mut Transaction<'_>) -> Result<DrainedRows, RunError> {
        // Another process that drains takes what there is.
        if lock(transaction).await?.as_ref() != Some(&self.position) {
            return Ok(DrainedRows::default());
        }
        let (accepted, rejected) = self.pack(transaction).await?;
        reject(transaction, &rejected).await?;
        let Position { ended, part } = self.position.moved(self.ended.clone(), self.stopped);
        let (txid, id) = (part.map(|part| Xid(part.txid)), part.map(|part| part.id));
        // In the transaction that stores what the rows became: either both are there after a crash, or neither.
        transaction.execute(MOVE, &[&ended.to_string(), &txid, &id]).await?;
        // After the move: a slot is emptied once all of it lies before the position.
        transaction.row(ROTATE, &[]).await?;
        let rejected = rejected.len() as u64;
        Ok(DrainedRows { accepted, rejected, more: self.stopped.is_some() })
    }

    fn items(&self) -> usize {
        self.drafts().count()
    }
}

impl AcceptRows {
    fn drafts(&self) -> impl Iterator<Item = &Draft> {
        self.rows.iter().filter_map(|(_, draft)| draft.as_ref().ok())
    }

    /// The database refuses one of the rows: leaves the second half of them to the next drain, or puts the one aside that
    /// is left, for that `reason`; whether there is anything to be tried then.
    fn leave_out(&mut self, reason: &str) -> bool {
        if let [(_, draft)] = self.rows.as_mut_slice() {
            // Refused once more although it is put aside, it is not the row that the database refuses.
            let is_new = draft.is_ok();
            *draft = Err(format!("the database refuses it: {reason}"));
            return is_new;
        }
        self.rows.truncate(self.rows.len() / 2);
        self.stopped = self.rows.last().map(|(place, _)| *place);
        self.stopped.is_some()
    }

    /// Accepts each for itself; how many are new, and what cannot be accepted.
    async fn pack(
        &self,
        transaction: &mut Transaction<'_>,
    ) -> Result<(u64, Vec<(RowPosition, String)>), RunError> {
        // Before packing, which cannot query the server.
        transaction.look_up(keys_of(self.drafts())).await?;
        transaction.reserve_batches(self.drafts().count()).await?;
        let (mut accepted, mut rejected) = (0, Vec::new());
        for (place, draft) in &self.rows {
            let draft = match draft {
                Ok(draft) => draft,
                Err(reason) => {
                    rejected.push((*place, reason.clone()));
                    continue;
                }
            };
            // One at a time: a key that is refused refuses all that is packed with it, and each row has an answer of its own.
            match transaction.pack(vec![draft.clone()], self.now) {
                Ok(admissions) => {
                    let is_new =
                        |admission: &&Admission| matches!(admission, Admission::Accepted(_));
                    accepted += admissions.iter().filter(is_new).count() as u64;
                }
                Err(StoreError::KeyReused { .. }) => {
                    let reason = "idempotency_key: was used before for something else";
                    rejected.push((*place, reason.to_owned()));
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok((accepted, rejected))
    }
}

/// True if so much is enough for one transaction.
const fn is_enough(rows: usize, bytes: usize) -> bool {
    rows >= OUTBOX_ROWS || bytes >= OUTBOX_BYTES
}

/// The position, locked; `None` when another process has it locked.
async fn lock(transaction: &mut Transaction<'_>) -> Result<Option<Position>, RunError> {
    let rows = transaction.rows(LOCK, &[]).await?;
    Ok(rows.first().map(position_at).transpose()?)
}

fn position_at(row: &Row) -> Result<Position, StoreError> {
    let ended = row.try_get::<_, &str>(0)?.parse()?;
    let part = match (row.try_get::<_, Option<Xid>>(1)?, row.try_get(2)?) {
        (Some(Xid(txid)), Some(id)) => Some(RowPosition { txid, id }),
        _ => None,
    };
    Ok(Position { ended, part })
}

/// Keeps those of the transactions that left rows.
async fn wrote(transaction: &mut Transaction<'_>, mut txids: Vec<u64>) -> Result<Vec<u64>, Error> {
    if txids.is_empty() {
        return Ok(txids);
    }
    let asked: Vec<Xid> = txids.iter().map(|txid| Xid(*txid)).collect();
    let rows = transaction.rows("SELECT * FROM outbox_writers($1)", &[&asked]).await?;
    let writers: HashSet<u64> = rows
        .iter()
        .map(|row| row.try_get::<_, Xid>(0).map(|Xid(txid)| txid))
        .collect::<Result<_, _>>()?;
    txids.retain(|txid| writers.contains(txid));
    Ok(txids)
}

/// Puts rows aside.
async fn reject(
    transaction: &mut Transaction<'_>,
    rejected: &[(RowPosition, String)],
) -> Result<(), Error> {
    if rejected.is_empty() {
        return Ok(());
    }
    let txids: Vec<Xid> = rejected.iter().map(|(place, _)| Xid(place.txid)).collect();
    let ids: Vec<i64> = rejected.iter().map(|(place, _)| place.id).collect();
    // A reason repeats what the row says, and JSON can say a NUL, which no text here may have.
    let reasons: Vec<String> =
        rejected.iter().map(|(_, reason)| reason.replace('\0', "\u{fffd}")).collect();
    transaction.execute(REJECT, &[&txids, &ids, &reasons]).await.map(drop)
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
    let texts =
        [&row.content, &row.options, &row.variables, &row.fallback, &row.tags, &row.metadata];
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
        external_id: row.try_get(15)?,
        tags: bytes(16)?,
        metadata: bytes(17)?,
    })
}

/// To the millisecond, as instants are kept here.
fn timestamp(time: SystemTime) -> Timestamp {
    let millis = |span: Duration| i64::try_from(span.as_millis()).unwrap_or(i64::MAX);
    Timestamp::from_millis(match time.duration_since(UNIX_EPOCH) {
        Ok(since) => millis(since),
        Err(before) => -millis(before.duration()),
    })
}

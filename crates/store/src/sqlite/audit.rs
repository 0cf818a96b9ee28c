//! The audit: three streams side by side, in constant memory and in short slices.
//!
//! A long read would keep the write-ahead log from starting anew, so each slice is a transaction of its own, and the account is
//! that of the instant at which the audit began: members that have ended since, by the log, are put back.

use std::collections::{BTreeMap, BTreeSet};

use notification::{Account, Name, State};
use rusqlite::{Rows, params};

use super::read::Snapshot;
use crate::rows::audit::BatchAudit;
use crate::rows::codec::decode_log;
use crate::rows::codes;
use crate::totals::RecordedTotals;
use crate::{Audit, StoreError};

/// An audit between two slices.
#[derive(Debug)]
pub(super) struct Auditing {
    audit: Audit,
    /// The running totals at the start.
    recorded: RecordedTotals,
    /// Broadcasts that were open at the start: nothing of them is in the totals.
    open: BTreeSet<i64>,
    /// Broadcasts that were withdrawn at the start, and the batches behind which that had still to be written down.
    withdrawn: BTreeMap<i64, (i64, bool)>,
    /// The last batch of the start.
    batch_max: i64,
    /// The last row of the log at the start.
    log_max: i64,
    /// Last batch that is accounted for.
    passed: i64,
    rows_max: usize,
}

/// State of an audit after a slice.
#[derive(Debug)]
pub(super) enum AuditSlice {
    /// The audit goes on with the next slice.
    More(Auditing),
    /// The audit has its result.
    Done(Audit),
}

/// Rows that belong to batches, in order of batch, with the next one in hand.
struct AuditRows<'a> {
    rows: Rows<'a>,
    next: Option<SideRow>,
    /// Rows read so far.
    read: usize,
}

struct SideRow {
    batch: i64,
    blob: Option<Vec<u8>>,
    /// Members of a chunk; the number of a row of the log.
    number: i64,
}

/// Rows read in one slice, about: some tens of milliseconds.
pub(super) const SLICE_ROWS: usize = 8_192;

const BATCHES: &str = "SELECT batch.id, count, broadcast, lane.id IS NOT NULL, batch.tenant FROM batch \
     LEFT JOIN tenant_lane AS lane ON lane.id = batch.lane WHERE batch.id > ?1 AND batch.id <= ?2 ORDER BY batch.id";
const CHUNKS: &str =
    "SELECT batch, members, count FROM chunk WHERE batch > ?1 AND batch <= ?2 ORDER BY batch";
const LOG: &str =
    "SELECT batch, entries, id FROM log WHERE batch > ?1 AND batch <= ?2 ORDER BY batch, id";

// === impl Snapshot ===

impl Snapshot {
    /// Notes how things stand. No slice after this reads more than about `rows_max` rows.
    pub(super) fn begin_audit(&self, rows_max: usize) -> Result<Auditing, StoreError> {
        let last = |sql| self.connection.query_row(sql, [], |row| row.get(0));
        let batch_max = last("SELECT coalesce(max(id), 0) FROM batch")?;
        let log_max = last("SELECT coalesce(max(id), 0) FROM log")?;
        let recorded = self.recorded_totals()?;
        let open = self.open_broadcasts()?;
        let mut withdrawn = self.waiting()?;
        withdrawn.retain(|_, (_, is_withdrawn)| *is_withdrawn);
        let mut audit = Audit::default();
        // None is added until the audit ends: see `audit_lock`.
        self.add_tombstones(&mut audit)?;
        // Rows behind the last batch are looked at now: later there are rows of batches that came in meanwhile.
        for (sql, what) in [(CHUNKS, "chunk"), (LOG, "log row")] {
            let mut beyond = self.connection.prepare_cached(sql)?;
            let mut beyond = AuditRows::new(beyond.query(params![batch_max, i64::MAX])?)?;
            beyond.report_strays(i64::MAX, what, &mut audit)?;
        }
        // Not zero: a row of a batch with a number that is never given is to be found, too.
        let passed = i64::MIN;
        Ok(Auditing { audit, recorded, open, withdrawn, batch_max, log_max, passed, rows_max })
    }

    /// Walks batches, chunks and log in order of batch, and accounts for every member of every batch.
    pub(super) fn audit_slice(&self, mut auditing: Auditing) -> Result<AuditSlice, StoreError> {
        // Asked with each slice: its chunks and its log are those of this moment as well.
        let open_now = self.open_broadcasts()?;
        let waiting_now = self.waiting()?;
        let bounds = params![auditing.passed, auditing.batch_max];
        let mut batches = self.connection.prepare_cached(BATCHES)?;
        let mut chunks = self.connection.prepare_cached(CHUNKS)?;
        let mut log = self.connection.prepare_cached(LOG)?;
        let mut batches = batches.query(bounds)?;
        let mut chunks = AuditRows::new(chunks.query(bounds)?)?;
        let mut log = AuditRows::new(log.query(bounds)?)?;
        let mut passed = 0;
        // By all rows that were read: a batch that was retried often has many rows in the log.
        while passed + chunks.read + log.read < auditing.rows_max {
            let Some(row) = batches.next()? else {
                let end = auditing.batch_max.saturating_add(1);
                chunks.report_strays(end, "chunk", &mut auditing.audit)?;
                log.report_strays(end, "log row", &mut auditing.audit)?;
                return Ok(AuditSlice::Done(auditing.finish()));
            };
            let batch: i64 = row.get(0)?;
            let count = usize::from(row.get::<_, u16>(1)?);
            let broadcast: Option<i64> = row.get(2)?;
            let is_open = broadcast.is_some_and(|it| open_now.contains(&it));
            let was_open = broadcast.is_some_and(|it| auditing.open.contains(&it));
            chunks.report_strays(batch, "chunk", &mut auditing.audit)?;
            log.report_strays(batch, "log row", &mut auditing.audit)?;
            let is_behind = |of: &BTreeMap<i64, (i64, bool)>| {
                broadcast.and_then(|it| of.get(&it)).is_some_and(|(passed, _)| *passed < batch)
            };
            let was_withdrawn = is_behind(&auditing.withdrawn);
            // Members that were withdrawn since, and are not in the log, are put back by this.
            let state = if was_withdrawn { State::Cancelled } else { State::Pending };
            let waiting = is_behind(&waiting_now).then_some(state);
            // Nothing of an open broadcast is accepted, so each chunk and each line of it is one too many.
            let expected = if is_open { 0 } else { count };
            let mut members = BatchAudit::new(batch, expected, waiting, &mut auditing.audit);
            members.check_lane(row.get(3)?);
            while let Some(chunk) = chunks.take(batch)? {
                let items = usize::try_from(chunk.number).unwrap_or(0);
                members.add_chunk(chunk.blob.as_deref(), items);
            }
            let mut since = Vec::new();
            // A member withdrawn before was cancelled before, whenever it was written down, and not requeued until it was.
            let mut may_write_down = was_withdrawn;
            while let Some(row) = log.take(batch)? {
                let entries = row.blob.unwrap_or_default();
                members.add_log(&entries)?;
                if row.number > auditing.log_max {
                    let writes_down =
                        std::mem::take(&mut may_write_down) && is_withdrawal(&entries)?;
                    since.extend((!writes_down).then_some(entries));
                }
            }
            let account = members.finish().account;
            // If it was sealed since, the totals of the start still have nothing of it.
            if !was_open {
                let tenant = codes::name(row.get_ref(4)?.as_str()?)?;
                auditing.add(&tenant, account, &since)?;
            }
            auditing.passed = batch;
            passed += 1;
        }
        Ok(AuditSlice::More(auditing))
    }

    /// Adds the notifications whose rows are gone.
    fn add_tombstones(&self, audit: &mut Audit) -> Result<(), StoreError> {
        let mut select =
            self.connection.prepare_cached("SELECT tenant, state, count FROM tombstone")?;
        let mut rows = select.query([])?;
        while let Some(row) = rows.next()? {
            let accepted = row.get::<_, i64>(2)?.cast_unsigned();
            let mut account = Account { accepted, ..Account::default() };
            account.add(codes::state(row.get(1)?)?, accepted);
            audit.add(&codes::name(row.get_ref(0)?.as_str()?)?, &account);
        }
        Ok(())
    }

    /// The broadcasts of which some batches wait: up to which one they are done, and whether they are withdrawn.
    fn waiting(&self) -> Result<BTreeMap<i64, (i64, bool)>, StoreError> {
        let mut select = self.connection.prepare_cached(
            "SELECT broadcast, passed, withdrawn_at IS NOT NULL FROM unreleased \
             WHERE passed IS NOT NULL",
        )?;
        let rows = select.query_map([], |row| Ok((row.get(0)?, (row.get(1)?, row.get(2)?))))?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    fn open_broadcasts(&self) -> Result<BTreeSet<i64>, StoreError> {
        let mut select =
            self.connection.prepare_cached("SELECT id FROM broadcast WHERE sealed_at IS NULL")?;
        let ids = select.query_map([], |row| row.get(0))?;
        Ok(ids.collect::<Result<_, _>>()?)
    }
}

// === impl Auditing ===

impl Auditing {
    /// Adds a batch of `tenant` as it stood at the start: `since` are the later rows of the log.
    fn add(
        &mut self,
        tenant: &Name,
        mut account: Account,
        since: &[Vec<u8>],
    ) -> Result<(), StoreError> {
        // Backwards: of one that was requeued and then ended, the end is put back first.
        for entries in since.iter().rev() {
            for group in decode_log(entries)?.into_iter().rev() {
                if group.attempted.state.is_terminal() {
                    let ended = group.indexes.len() as u64;
                    account.remove(group.attempted.state, ended);
                    account.add(State::Pending, ended);
                } else if let Some(from) = group.attempted.taken_back() {
                    let requeued = group.indexes.len() as u64;
                    account.remove(State::Pending, requeued);
                    account.add(from, requeued);
                }
            }
        }
        self.audit.add(tenant, &account);
        Ok(())
    }

    fn finish(self) -> Audit {
        let Self { mut audit, recorded, .. } = self;
        recorded.compare(&mut audit);
        audit
    }
}

// === impl AuditRows ===

impl<'a> AuditRows<'a> {
    fn new(rows: Rows<'a>) -> Result<Self, StoreError> {
        let mut side = Self { rows, next: None, read: 0 };
        side.advance()?;
        Ok(side)
    }

    /// The next row, if it belongs to `batch`.
    fn take(&mut self, batch: i64) -> Result<Option<SideRow>, StoreError> {
        let Some(row) = self.next.take_if(|next| next.batch == batch) else { return Ok(None) };
        self.advance()?;
        Ok(Some(row))
    }

    /// Reports rows whose batch should have come before `batch`.
    fn report_strays(
        &mut self,
        batch: i64,
        what: &str,
        audit: &mut Audit,
    ) -> Result<(), StoreError> {
        while let Some(stray) = self.next.take_if(|next| next.batch < batch) {
            audit.report(format!("a {what} belongs to batch {}, which is missing", stray.batch));
            self.advance()?;
        }
        Ok(())
    }

    fn advance(&mut self) -> Result<(), StoreError> {
        self.next = match self.rows.next()? {
            Some(row) => {
                self.read += 1;
                Some(SideRow { batch: row.get(0)?, blob: row.get(1)?, number: row.get(2)? })
            }
            None => None,
        };
        Ok(())
    }
}

/// True if a row of the log holds cancellations only.
fn is_withdrawal(entries: &[u8]) -> Result<bool, StoreError> {
    Ok(decode_log(entries)?.iter().all(|group| group.attempted.state == State::Cancelled))
}

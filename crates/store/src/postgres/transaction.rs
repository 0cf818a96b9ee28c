//! A transaction, and the statements that its parts share.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use futures_util::try_join;
use notification::{BatchId, ByteString, ChunkId, Name, Timestamp, limits};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Error, Row};

use super::LOG_WRITERS;
use super::columns::{ChunkColumns, INSERT_CHUNK, chunk_at, counted, select_chunk};
use super::commit::SentCommit;
use super::connection::PostgresSession;
use super::growth::MANY;
use super::notices::to_payloads;
use super::pause_points::COMMITTED;
use super::placement::DestinationHash;
use super::totals_changes::TotalsChanges;
use super::writer_state::{Effects, Membership, WriterState};
use crate::rows::codec::{LogLine, LogRow};
use crate::rows::codes::LaneId;
use crate::rows::evidence::AttemptEvidence;
use crate::rows::members::Members;
use crate::rows::model::{ChunkRow, NewChunk};
use crate::rows::packing::BatchPacker;
use crate::{CommitCounts, KeyUse, StoreError};

/// The transaction under way. It may come to nothing and be done again.
#[derive(Debug)]
pub(super) struct Transaction<'a> {
    pub(super) session: &'a PostgresSession,
    pub(super) state: &'a mut WriterState,
    /// The database's time at its beginning.
    pub(super) begun_at: Timestamp,
    /// The last number of a batch that had been announced when it began, if that was queried: none up to it is given any more
    /// (decision 0053).
    announced: Option<u64>,
    pub(super) effects: Effects,
    pub(super) packer: BatchPacker,
    /// The idempotency keys that were looked up and had been used.
    pub(super) key_uses: HashMap<TenantKey, (KeyUse, [u8; 32])>,
    /// All idempotency keys that were looked up, used or not.
    pub(super) looked_up: HashSet<TenantKey>,
    pub(super) totals: TotalsChanges,
}

/// An idempotency key, and whose it is.
pub(super) type TenantKey = (Name, ByteString);

/// Rows to be written together, in one flight.
#[derive(Debug, Default)]
pub(super) struct Writes {
    log: Vec<(i64, Vec<u8>)>,
    /// Batches and the codes of ends by which they are listed.
    undelivered: BTreeSet<(i64, i16)>,
    chunks: Vec<NewChunk>,
    /// Chunks that were cut off others.
    rests: Vec<NewChunk>,
    /// The members that changed chunks keep, with the epoch of each chunk, by number. A chunk without members is gone.
    changed: BTreeMap<i64, (i64, Members)>,
}

/// Reason for which a request was not done.
#[derive(Debug)]
pub(super) enum RunError {
    /// The request was refused; the transaction goes on without it.
    Refused(StoreError),
    /// The transaction failed.
    Database(Error),
    /// A statement met other rows than the transaction had locked: nothing of the transaction may stay, and it is done again.
    Conflict(&'static str),
}

const SELECT_ANNOUNCED: &str = "SELECT announced FROM search_progress WHERE is_one";
/// A worker came or went.
pub(super) const NOTIFY_CLUSTER: &str = "SELECT pg_notify('belfry_cluster', '')";

// === impl Transaction ===

impl<'a> Transaction<'a> {
    pub(super) async fn begin(
        session: &'a PostgresSession,
        state: &'a mut WriterState,
    ) -> Result<Self, Error> {
        session.pause("BEGIN").await?;
        state.is_notifying = false;
        let lock = if state.logs { LOG_WRITERS } else { "" };
        // Before the transaction has a number: one with a number and without the lock counts as one that writes no log.
        let begin = format!("BEGIN; {lock}");
        let question = session.sizes_query_at_begin();
        // Intake takes numbers of batches in every transaction.
        let announced = (!state.logs).then(|| format!("({SELECT_ANNOUNCED})"));
        let beside: Vec<&str> =
            [&question, &announced].into_iter().flatten().map(String::as_str).collect();
        let (begun_at, mut values) = state.time.query(&session.client, &begin, &beside).await?;
        let announced = announced.and_then(|_| values.pop().flatten()?.parse().ok());
        session.follow_growth(values.pop().flatten()).await?;
        Ok(Self {
            session,
            state,
            begun_at,
            announced,
            effects: Effects::default(),
            packer: BatchPacker::default(),
            key_uses: HashMap::new(),
            looked_up: HashSet::new(),
            totals: TotalsChanges::default(),
        })
    }

    /// The last number of a batch that was announced when this transaction had begun.
    pub(super) async fn announced(&mut self) -> Result<u64, Error> {
        if let Some(announced) = self.announced {
            return Ok(announced);
        }
        let row = self.row(SELECT_ANNOUNCED, &[]).await?;
        let announced = row.try_get::<_, i64>(0)?.cast_unsigned();
        self.announced = Some(announced);
        Ok(announced)
    }

    /// [`PostgresSession::follow_growth`] after one statement of this transaction has written `rows`.
    pub(super) async fn follow_own_growth(&mut self, rows: u64) -> Result<(), Error> {
        if rows < MANY {
            return Ok(());
        }
        let (client, sizes) = (&self.session.client, self.session.sizes_query());
        let (_, mut values) = self.state.time.query(client, "", &[&sizes]).await?;
        self.session.follow_growth(values.pop().flatten()).await
    }

    /// Commits; durable when it returns. If the answer is lost, the server is queried by [`WriterState::committing`].
    pub(super) async fn commit(mut self) -> Result<(), RunError> {
        // First: what was packed is counted in the totals and named in the notices that follow.
        self.store_packed().await?;
        self.write_totals().await?;
        self.notify_processes().await?;
        // Known before the commit is sent: if the answer is lost, the server is asked by it.
        let commit = SentCommit::prepare(self.session).await?;
        self.state.commit_sent(commit, self.effects);
        self.session.pause("COMMIT").await?;
        let begun_at = CommitCounts::begin();
        self.session.client.batch_execute("COMMIT").await?;
        self.state.commits.committed(begun_at, true);
        Ok(self.session.pause(COMMITTED).await?)
    }

    /// Notifies the cluster's other processes, if there are any.
    async fn notify_processes(&mut self) -> Result<(), Error> {
        let notices = self.state.notify.select(self.effects.notices());
        if notices.is_empty() {
            return Ok(());
        }
        let worker = self.state.membership.borrow().worker;
        let payloads = to_payloads(worker, &notices);
        let tell = "SELECT pg_notify('belfry_work', payload) FROM unnest($1::text[]) AS payload";
        // From here on an error may say that the server has no room for notices.
        self.state.is_notifying = true;
        self.rows(tell, &[&payloads]).await.map(drop)
    }

    /// Notifies the other processes that a worker came or went. Without the notification they see it at their next beat.
    pub(super) async fn notify_cluster(&mut self) -> Result<(), Error> {
        if self.state.notify.is_muted() {
            return Ok(());
        }
        self.state.is_notifying = true;
        self.execute(NOTIFY_CLUSTER, &[]).await.map(drop)
    }

    pub(super) async fn rows(
        &mut self,
        sql: &'static str,
        parameters: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, Error> {
        let statement = self.session.prepared(sql).await?;
        self.session.pause(sql).await?;
        self.session.client.query(&statement, parameters).await
    }

    pub(super) async fn row(
        &mut self,
        sql: &'static str,
        parameters: &[&(dyn ToSql + Sync)],
    ) -> Result<Row, Error> {
        let statement = self.session.prepared(sql).await?;
        self.session.pause(sql).await?;
        self.session.client.query_one(&statement, parameters).await
    }

    pub(super) async fn execute(
        &mut self,
        sql: &'static str,
        parameters: &[&(dyn ToSql + Sync)],
    ) -> Result<u64, Error> {
        let statement = self.session.prepared(sql).await?;
        self.session.pause(sql).await?;
        self.session.client.execute(&statement, parameters).await
    }

    /// Changes as many rows as there are `ids`, or fails the transaction.
    pub(super) async fn change(
        &mut self,
        sql: &'static str,
        ids: usize,
        parameters: &[&(dyn ToSql + Sync)],
    ) -> Result<(), RunError> {
        check_changed(self.execute(sql, parameters).await?, ids)
    }

    /// Ends `members` of a tenant's batch as `line` says. The caller takes them out of their chunk.
    pub(super) fn end(
        &mut self,
        writes: &mut Writes,
        (tenant, batch): (&Name, BatchId),
        line: &LogLine<'_>,
        members: &Members,
    ) {
        if members.is_empty() {
            return;
        }
        let mut row = LogRow::new();
        row.push(line, members.iter());
        self.count_ended(tenant, line.state, members.len());
        // Feeds wait for the same changes as claims.
        self.effects.woke = true;
        writes.log(batch, &row);
    }

    /// A chunk of the lane is ready, due at `at`.
    pub(super) fn due(&mut self, lane: LaneId, at: Timestamp) {
        let first = self.effects.dues.entry(lane).or_insert(at);
        *first = at.min(*first);
        self.effects.woke = true;
    }

    /// `items` of a claimed chunk are settled or due again; with the last of them the claim is over.
    pub(super) fn freed(&mut self, chunk: &ChunkRow, items: usize, is_over: bool) {
        // The weight of its bytes is known for the chunk as a whole, so it is free when nothing of the chunk is held any more.
        let weight = items + if is_over { chunk.weight + limits::CHUNK_WEIGHT } else { 0 };
        // Before the commit: if that fails, all of this is read anew.
        if is_over && let Some(until) = chunk.lease_until {
            self.state.claiming.leases.remove(&(until, chunk.id));
        }
        let freed = self.effects.freed.entry((chunk.partition, chunk.lane)).or_default();
        freed.deliveries += items;
        freed.weight += weight;
        self.effects.woke = true;
    }

    /// Notes the evidence of settlements for the lane's destination.
    pub(super) fn tried(&mut self, lane: LaneId, mut attempts: AttemptEvidence) {
        let Membership { consumers, producers, .. } = *self.state.membership.borrow();
        // Each producer may fill its share of what all consumers take, and this is what one takes.
        let places = attempts.places.saturating_mul(consumers.max(1));
        attempts.places = places.div_ceil(producers.max(1));
        if !attempts.tell_nothing() {
            let known = self.effects.attempts.entry(lane);
            known.and_modify(|known| known.merge(attempts)).or_insert(attempts);
        }
    }

    /// Chunks by number, locked in the order of their numbers.
    pub(super) async fn lock_chunks(
        &mut self,
        ids: &[i64],
    ) -> Result<HashMap<ChunkId, ChunkRow>, RunError> {
        // In one order everywhere: two transactions that lock some of the same chunks would deadlock otherwise.
        let select = select_chunk!("FROM chunk WHERE id = ANY($1) ORDER BY id FOR UPDATE");
        let rows = self.rows(select, &[&ids]).await?;
        let chunks = rows.iter().map(|row| chunk_at(row).map(|chunk| (chunk.id, chunk)));
        Ok(chunks.collect::<Result<_, _>>()?)
    }

    /// New chunks with their partitions: see [`RecentArrivals::place`](super::placement::RecentArrivals::place).
    pub(super) fn placed(
        &mut self,
        new: Vec<(DestinationHash, NewChunk)>,
    ) -> impl Iterator<Item = NewChunk> {
        self.state.recent_arrivals.place(new, self.begun_at)
    }

    /// Writes rows, in one flight.
    pub(super) async fn write(&mut self, mut writes: Writes) -> Result<(), RunError> {
        for chunk in &writes.chunks {
            self.due(chunk.lane, chunk.due_at);
        }
        // Behind the loop that announces: a rest is in the partition of what it was cut off, so no other process has to hear of it.
        writes.chunks.append(&mut writes.rests);
        let session = self.session;
        let log = session.prepared(INSERT_LOG).await?;
        let undelivered = session.prepared(INSERT_UNDELIVERED).await?;
        let chunk = session.prepared(INSERT_CHUNK).await?;
        let gone = session.prepared(DELETE_CHUNK).await?;
        let kept = session.prepared(UPDATE_CHUNK).await?;
        let client = &session.client;
        let (batches, entries): (Vec<i64>, Vec<Vec<u8>>) = writes.log.into_iter().unzip();
        let new = ChunkColumns::new(&writes.chunks);
        let (deleted, left): (Vec<_>, Vec<_>) =
            writes.changed.into_iter().partition(|(_, (_, members))| members.is_empty());
        let (gone_ids, gone_epochs): (Vec<i64>, Vec<i64>) =
            deleted.into_iter().map(|(id, (epoch, _))| (id, epoch)).unzip();
        let (ids, epochs): (Vec<i64>, Vec<i64>) =
            left.iter().map(|(id, (epoch, _))| (*id, *epoch)).unzip();
        let counts: Vec<i32> =
            left.iter().map(|(_, (_, members))| counted(members.len())).collect();
        let members: Vec<Vec<u8>> =
            left.iter().map(|(_, (_, members))| members.to_blob()).collect();
        let (ended, states): (Vec<i64>, Vec<i16>) = writes.undelivered.into_iter().unzip();
        let ended_row: [&(dyn ToSql + Sync); 2] = [&ended, &states];
        let log_row: [&(dyn ToSql + Sync); 2] = [&batches, &entries];
        let new_row = new.parameters();
        let gone_row: [&(dyn ToSql + Sync); 2] = [&gone_ids, &gone_epochs];
        let kept_row: [&(dyn ToSql + Sync); 4] = [&ids, &epochs, &counts, &members];
        session.pause("-- rows of the log and of chunks").await?;
        let maybe = async |is_wanted: bool, statement, parameters: &[&(dyn ToSql + Sync)]| {
            if is_wanted { client.execute(statement, parameters).await } else { Ok(0) }
        };
        let (_, _, _, removed, changed) = try_join!(
            maybe(!batches.is_empty(), &log, &log_row),
            maybe(!ended.is_empty(), &undelivered, &ended_row),
            maybe(!new.batch.is_empty(), &chunk, &new_row),
            maybe(!gone_ids.is_empty(), &gone, &gone_row),
            maybe(!ids.is_empty(), &kept, &kept_row),
        )?;
        check_changed(removed, gone_ids.len())?;
        check_changed(changed, ids.len())
    }
}

const INSERT_LOG: &str =
    "INSERT INTO log (batch, entries) SELECT * FROM unnest($1::int8[], $2::bytea[])";
/// Two transactions may write the same row, and neither waits for the other.
const INSERT_UNDELIVERED: &str = "INSERT INTO undelivered (batch, state, tenant) \
     SELECT batch.id, ended.state, batch.tenant FROM unnest($1::int8[], $2::int2[]) AS ended (batch, state) \
     JOIN batch ON batch.id = ended.batch WHERE NOT EXISTS ( \
       SELECT FROM undelivered AS listed WHERE listed.batch = ended.batch AND listed.state = ended.state)";
/// Chunks are changed by number and epoch, and the transaction fails if one of them is another by now: a transaction that changes a chunk
/// has locked it, and what the transaction says of its members is true of that epoch only.
const DELETE_CHUNK: &str = "DELETE FROM chunk USING unnest($1::int8[], $2::int8[]) AS gone (id, epoch) \
     WHERE chunk.id = gone.id AND chunk.epoch = gone.epoch";
/// Gives a chunk that is not claimed a new epoch: a claim that has read its former state must not write that back.
const UPDATE_CHUNK: &str = "UPDATE chunk SET count = new.count, members = new.members, \
     epoch = chunk.epoch + (lease_until IS NULL)::int \
     FROM unnest($1::int8[], $2::int8[], $3::int4[], $4::bytea[]) AS new (id, epoch, count, members) \
     WHERE chunk.id = new.id AND chunk.epoch = new.epoch";

// === impl Writes ===

impl Writes {
    pub(super) fn log(&mut self, batch: BatchId, row: &LogRow) {
        if !row.is_empty() {
            self.log.push((batch.0.cast_signed(), row.as_bytes().to_vec()));
        }
        let listed = row.listed.iter().map(|state| (batch.0.cast_signed(), state.code().into()));
        self.undelivered.extend(listed);
    }

    pub(super) fn chunk(&mut self, chunk: NewChunk) {
        self.chunks.push(chunk);
    }

    /// Writes a chunk that was cut off another one. No process is notified of it.
    pub(super) fn rest(&mut self, chunk: NewChunk) {
        self.rests.push(chunk);
    }

    /// Gives a chunk these members; without any it is gone.
    pub(super) fn set_members(&mut self, chunk: &ChunkRow, members: &Members) {
        let (id, epoch) = (chunk.id.0.cast_signed(), i64::from(chunk.epoch.0));
        // Several settlements may be of one chunk, and reaping cuts one twice: the last members count.
        self.changed.insert(id, (epoch, members.clone()));
    }
}

// === impl RunError ===

impl From<Error> for RunError {
    fn from(error: Error) -> Self {
        Self::Database(error)
    }
}

impl From<StoreError> for RunError {
    fn from(error: StoreError) -> Self {
        Self::Refused(error)
    }
}

fn check_changed(rows: u64, expected: usize) -> Result<(), RunError> {
    if rows == expected as u64 {
        return Ok(());
    }
    Err(RunError::Conflict("a chunk changed while it was held"))
}

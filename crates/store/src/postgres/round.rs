//! One transaction of a writer: what it decided to write, and writing it.
//!
//! Statements are sent in flights: as many as can be decided together are on their way before the first is answered, the
//! `COMMIT` among the last. What a flight may bring about without our hearing of it is told apart: before a `COMMIT`
//! was sent, a transaction that is lost did nothing.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use futures_util::future::{join, join_all};
use notification::{BatchId, ChunkId, State, Timestamp};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::board::Place;
use super::connection::Session;
use super::errors::{Kind, in_words};
use super::notices::{self, CHANNEL, Notice};
use super::shared::{Role, Shared, partition_of};
use super::table::{Held, held};
use super::writes::Writes;
use crate::rows::codec::{LogLine, LogRow};
use crate::rows::filter::print;
use crate::rows::lanes::LaneId;
use crate::rows::members::Members;
use crate::{StoreError, Suppression};

/// Why a round did not end as it should.
#[derive(Debug)]
pub(super) enum Interrupted {
    /// The connection is gone, and the transaction with it.
    Lost(String),
    /// The connection went while the transaction `xid` was being committed: nobody here knows.
    Unknown { xid: String, told: String },
    /// The transaction was undone because another was in its way.
    Again(String),
    /// It would fail again.
    Fatal(StoreError),
}

/// A chunk to be stored, ready.
#[derive(Debug)]
pub(super) struct NewChunk {
    pub(super) batch: BatchId,
    pub(super) lane: LaneId,
    pub(super) due_at: Timestamp,
    pub(super) attempt: u16,
    pub(super) crashes: u16,
    pub(super) count: usize,
    /// `None` means all of the batch.
    pub(super) members: Option<Members>,
}

/// The transaction under way.
#[derive(Debug)]
pub(super) struct Round<'a> {
    pub(super) session: &'a Session,
    pub(super) shared: &'a Shared,
    role: Role,
    xid: String,
    /// Chunks that are locked, as they will be.
    held: HashMap<ChunkId, Held>,
    changed: BTreeSet<ChunkId>,
    gone: BTreeSet<ChunkId>,
    parts: Vec<NewChunk>,
    log: Vec<(BatchId, LogRow)>,
    totals: BTreeMap<u8, i64>,
    suppressions: Vec<Suppression>,
    dues: BTreeMap<LaneId, Place>,
    /// Lanes that lost something ready.
    thinned: BTreeSet<LaneId>,
    told: Vec<Notice>,
    freed: Vec<(u8, LaneId, usize)>,
    /// How many of `freed` the board knows.
    freed_known: usize,
    /// Chunks that were deleted.
    over: Vec<ChunkId>,
    /// Whether more may be claimable afterwards.
    pub(super) woke: bool,
}

/// Statements that are ready to be sent.
pub(super) type Flight<'a> =
    Vec<Pin<Box<dyn Future<Output = Result<Vec<Row>, tokio_postgres::Error>> + Send + 'a>>>;

/// Longer than any wait for a lock; whoever is silent for longer is not there.
const READING_MAX: Duration = Duration::from_secs(10);
/// What is written may be much, and the disk slow.
pub(super) const WRITING_MAX: Duration = Duration::from_secs(30);

const TELL: &str = "SELECT pg_notify($1, $2)";

// === impl Interrupted ===

impl From<tokio_postgres::Error> for Interrupted {
    fn from(error: tokio_postgres::Error) -> Self {
        match Kind::of(&error) {
            Kind::Lost => Self::Lost(in_words(&error)),
            Kind::Again => Self::Again(in_words(&error)),
            Kind::Fatal => Self::Fatal(error.into()),
        }
    }
}

impl From<StoreError> for Interrupted {
    fn from(error: StoreError) -> Self {
        Self::Fatal(error)
    }
}

// === impl Round ===

impl<'a> Round<'a> {
    /// Begins a transaction by `statements`.
    pub(super) async fn begin(
        session: &'a Session,
        shared: &'a Shared,
        role: Role,
        statements: &str,
    ) -> Result<Self, Interrupted> {
        let client = &session.client;
        let xid = session.prepared("SELECT pg_current_xact_id()::text").await?;
        let flight = join(client.batch_execute(statements), client.query_one(&xid, &[]));
        let (begun, xid) = in_time(READING_MAX, flight).await?;
        begun?;
        Ok(Self {
            session,
            shared,
            role,
            xid: xid?.try_get(0)?,
            held: HashMap::new(),
            changed: BTreeSet::new(),
            gone: BTreeSet::new(),
            parts: Vec::new(),
            log: Vec::new(),
            totals: BTreeMap::new(),
            suppressions: Vec::new(),
            dues: BTreeMap::new(),
            thinned: BTreeSet::new(),
            told: Vec::new(),
            freed: Vec::new(),
            freed_known: 0,
            over: Vec::new(),
            woke: false,
        })
    }

    /// Asks the database.
    pub(super) async fn query(
        &self,
        sql: &'static str,
        parameters: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, Interrupted> {
        ask(self.session, sql, parameters).await
    }

    /// Asks for chunks and locks them; they are in hand from now on.
    pub(super) async fn hold(
        &mut self,
        sql: &'static str,
        parameters: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<ChunkId>, Interrupted> {
        let rows = self.query(sql, parameters).await?;
        rows.iter().map(|row| Ok(self.take_in_hand(held(row)?))).collect()
    }

    pub(super) fn take_in_hand(&mut self, held: Held) -> ChunkId {
        let id = held.row.id;
        self.held.insert(id, held);
        id
    }

    /// A chunk in hand, as it will be; `None` when it is gone, or never was.
    pub(super) fn chunk(&self, id: ChunkId) -> Option<&Held> {
        self.held.get(&id)
    }

    /// The chunk will be like this.
    pub(super) fn change(&mut self, held: Held) {
        self.changed.insert(held.row.id);
        self.held.insert(held.row.id, held);
    }

    /// Leaves only `rest` in a chunk in hand; an empty chunk is gone.
    pub(super) fn shrink(&mut self, id: ChunkId, rest: &Members) {
        if rest.is_empty() {
            self.held.remove(&id);
            self.changed.remove(&id);
            self.gone.insert(id);
        } else if let Some(held) = self.held.get_mut(&id) {
            held.row.count = rest.len();
            held.row.members = Some(rest.clone());
            self.changed.insert(id);
        }
    }

    pub(super) fn add_chunk(&mut self, chunk: NewChunk) {
        if !self.shared.owns_surely(partition_of(chunk.batch)) {
            self.told.push(Notice::Due { lane: chunk.lane, at: chunk.due_at });
        }
        self.parts.push(chunk);
        self.woke = true;
    }

    /// Counts `items` that were accepted.
    pub(super) fn count_accepted(&mut self, items: u64) {
        *self.totals.entry(State::Pending.code()).or_default() += items.cast_signed();
    }

    /// Counts `items` that were pending and ended.
    pub(super) fn count_ended(&mut self, state: State, items: usize) {
        debug_assert!(state.is_terminal(), "only an end changes the totals");
        let items = i64::try_from(items).unwrap_or(i64::MAX);
        *self.totals.entry(State::Pending.code()).or_default() -= items;
        *self.totals.entry(state.code()).or_default() += items;
    }

    /// Ends `members` as `line` says. The caller takes them out of their chunk.
    pub(super) fn end(&mut self, batch: BatchId, line: &LogLine<'_>, members: &Members) {
        if !members.is_empty() {
            let mut row = LogRow::new();
            row.push(line, members.iter());
            self.count_ended(line.state, members.len());
            self.add_log(batch, row);
        }
    }

    pub(super) fn add_log(&mut self, batch: BatchId, row: LogRow) {
        if !row.is_empty() {
            self.log.push((batch, row));
        }
    }

    pub(super) fn suppress(&mut self, suppression: Suppression) {
        let print = print(suppression.channel.as_str(), &suppression.recipient);
        self.told.push(Notice::Suppressed { print });
        self.suppressions.push(suppression);
    }

    /// What was claimed of a partition is not any more, as far as `weight` goes.
    pub(super) fn free(&mut self, partition: u8, lane: LaneId, weight: usize) {
        self.freed.push((partition, lane, weight));
        self.woke = true;
    }

    /// Something of the lane is ready from `place` on.
    pub(super) fn due(&mut self, batch: BatchId, lane: LaneId, place: Place) {
        let partition = partition_of(batch);
        if self.shared.owns(partition) {
            let first = self.dues.entry(lane).or_insert(place);
            *first = place.min(*first);
        }
        if !self.shared.owns_surely(partition) {
            self.told.push(Notice::Due { lane, at: place.due_at });
        }
        self.woke = true;
    }

    /// Something of the lane that was ready is not any more.
    pub(super) fn thin(&mut self, lane: LaneId) {
        self.thinned.insert(lane);
    }

    /// Something of the lane is ready from `place` on, in many partitions.
    pub(super) fn due_everywhere(&mut self, lane: LaneId, place: Place) {
        let first = self.dues.entry(lane).or_insert(place);
        *first = place.min(*first);
        self.told.push(Notice::Due { lane, at: place.due_at });
        self.woke = true;
    }

    /// Others are to look at everything.
    pub(super) fn tell_everything(&mut self) {
        self.told.push(Notice::Everything);
        self.woke = true;
    }

    /// Writes what was decided so far, so that later statements of this transaction see it.
    pub(super) async fn flush(&mut self) -> Result<(), Interrupted> {
        let writes = self.writes();
        let statements = writes.prepare(self.session).await?;
        let mut flight: Flight<'_> = Vec::new();
        writes.send(self.session, &statements, &mut flight);
        let answers = in_time(WRITING_MAX, join_all(flight)).await?;
        let mut added = Vec::new();
        for answer in answers {
            added.extend(answer?);
        }
        self.take_in(&added)
    }

    /// Writes what is left to be written and commits. What is in memory follows.
    pub(super) async fn commit(mut self) -> Result<(), Interrupted> {
        let writes = self.writes();
        let mut statements = writes.prepare(self.session).await?;
        let message = notices::write(self.notices());
        let tell = self.session.prepared(TELL).await?;
        let client = &self.session.client;
        let mut flight: Flight<'_> = Vec::new();
        writes.send(self.session, &statements, &mut flight);
        statements.clear();
        if let Some(message) = &message {
            flight.push(Box::pin(async move { client.query(&tell, &[&CHANNEL, message]).await }));
        }
        let both = join(join_all(flight), client.batch_execute("COMMIT"));
        let unknown = |told: String| Interrupted::Unknown { xid: self.xid.clone(), told };
        let Ok((answers, committed)) = tokio::time::timeout(WRITING_MAX, both).await else {
            return Err(unknown("no answer in time".to_owned()));
        };
        let mut added = Vec::new();
        for answer in answers.into_iter().chain([committed.map(|()| Vec::new())]) {
            match answer.map_err(Interrupted::from) {
                Ok(rows) => added.extend(rows),
                // The rest of the flight, the `COMMIT` in it, may have been heard.
                Err(Interrupted::Lost(told)) => return Err(unknown(told)),
                Err(other) => return Err(other),
            }
        }
        self.take_in(&added)?;
        self.apply();
        Ok(())
    }

    /// What others are told: of each lane the earliest instant, of each partition and lane the sum.
    fn notices(&self) -> Vec<Notice> {
        let mut dues: BTreeMap<LaneId, Timestamp> = BTreeMap::new();
        let mut notices = Vec::new();
        for notice in &self.told {
            if let Notice::Due { lane, at } = *notice {
                let first = dues.entry(lane).or_insert(at);
                *first = at.min(*first);
            } else {
                notices.push(*notice);
            }
        }
        let mut freed: BTreeMap<(u8, LaneId), usize> = BTreeMap::new();
        for &(partition, lane, weight) in &self.freed {
            if !self.shared.owns_surely(partition) {
                *freed.entry((partition, lane)).or_default() += weight;
            }
        }
        let freed = freed.into_iter();
        notices.extend(dues.into_iter().map(|(lane, at)| Notice::Due { lane, at }));
        notices.extend(freed.map(|((partition, lane), weight)| Notice::Freed {
            partition,
            lane,
            weight,
        }));
        notices
    }

    /// What was decided since the last flight.
    fn writes(&mut self) -> Writes {
        let mut writes = Writes::default();
        for id in std::mem::take(&mut self.changed) {
            if let Some(held) = self.held.get(&id) {
                writes.change(held);
            }
        }
        for id in std::mem::take(&mut self.gone) {
            writes.delete(id);
            self.over.push(id);
        }
        for part in std::mem::take(&mut self.parts) {
            writes.add(&part);
        }
        for (batch, row) in std::mem::take(&mut self.log) {
            writes.add_log(batch, &row);
        }
        for (state, change) in std::mem::take(&mut self.totals) {
            writes.add_total(state, change);
        }
        writes.suppress(std::mem::take(&mut self.suppressions));
        writes
    }

    /// Notes where the chunks are that were added.
    fn take_in(&mut self, added: &[Row]) -> Result<(), Interrupted> {
        for row in added.iter().filter(|row| row.len() == 3) {
            let lane = LaneId::from(row.try_get::<_, i32>(0)?);
            let due_at = Timestamp::from_millis(row.try_get(1)?);
            let place = Place { due_at, chunk: row.try_get(2)? };
            let first = self.dues.entry(lane).or_insert(place);
            *first = place.min(*first);
        }
        Ok(())
    }

    /// What is in memory follows what is written.
    pub(super) fn apply(&mut self) {
        let mut board = self.shared.board();
        for notice in &self.told {
            if let Notice::Suppressed { print } = notice {
                board.suppressed.insert_print(*print);
            }
        }
        if !self.shared.produces {
            return;
        }
        for (lane, place) in std::mem::take(&mut self.dues) {
            // The work writer is who reads: it knows what it wrote.
            match self.role {
                Role::Intake => board.due(lane, place),
                Role::Work => board.found_due(lane, place),
            }
        }
        for &(partition, lane, weight) in self.freed.iter().skip(self.freed_known) {
            if self.shared.owns(partition) {
                board.free(lane, weight);
            }
        }
        self.freed_known = self.freed.len();
        for lane in std::mem::take(&mut self.thinned) {
            board.recheck(lane);
        }
        for chunk in self.over.drain(..) {
            board.unlease(chunk);
        }
    }
}

/// Asks the database, in a transaction or without one.
pub(super) async fn ask(
    session: &Session,
    sql: &'static str,
    parameters: &[&(dyn ToSql + Sync)],
) -> Result<Vec<Row>, Interrupted> {
    let statement = in_time(READING_MAX, session.prepared(sql)).await??;
    let rows = session.client.query(&statement, parameters);
    Ok(in_time(WRITING_MAX, rows).await??)
}

/// A flight that is not answered in `longest` is lost, and the connection with it.
pub(super) async fn in_time<T>(
    longest: Duration,
    flight: impl Future<Output = T>,
) -> Result<T, Interrupted> {
    let answered = tokio::time::timeout(longest, flight).await;
    answered.map_err(|_elapsed| Interrupted::Lost("no answer in time".to_owned()))
}

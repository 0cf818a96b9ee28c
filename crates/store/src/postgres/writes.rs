//! What a round writes, in columns: one statement for all rows of a table.

use notification::{BatchId, ChunkId, Timestamp};
use tokio_postgres::Statement;
use tokio_postgres::types::ToSql;

use super::connection::Session;
use super::round::{Flight, Interrupted, NewChunk};
use super::shared::partition_of;
use super::table::{Held, lane_number, small};
use crate::Suppression;
use crate::rows::codec::LogRow;
use crate::rows::members::Members;

/// The columns of everything that a flight writes.
#[derive(Debug, Default)]
pub(super) struct Writes {
    changes: Changes,
    gone: Vec<i64>,
    additions: Additions,
    log: (Vec<i64>, Vec<Vec<u8>>),
    totals: (Vec<i16>, Vec<i64>),
    suppressions: (Vec<String>, Vec<String>, Vec<String>, Vec<i64>),
}

/// Columns of the chunks that change.
#[derive(Debug, Default)]
struct Changes {
    id: Vec<i64>,
    epoch: Vec<i64>,
    crashes: Vec<i32>,
    lease_until: Vec<Option<i64>>,
    worker: Vec<Option<i64>>,
    is_ticket: Vec<bool>,
    begun_through: Vec<Option<i32>>,
    count: Vec<i32>,
    members: Vec<Option<Vec<u8>>>,
}

/// Columns of the chunks that are new.
#[derive(Debug, Default)]
struct Additions {
    batch: Vec<i64>,
    lane: Vec<i32>,
    partition: Vec<i16>,
    due_at: Vec<i64>,
    attempt: Vec<i32>,
    crashes: Vec<i32>,
    count: Vec<i32>,
    members: Vec<Option<Vec<u8>>>,
}

const CHANGE_CHUNKS: &str = "UPDATE chunk AS c SET epoch = n.epoch, crashes = n.crashes, \
     lease_until = n.lease_until, worker = n.worker, is_ticket = n.is_ticket, \
     begun_through = n.begun_through, count = n.count, members = n.members \
     FROM unnest($1::bigint[], $2::bigint[], $3::int[], $4::bigint[], $5::bigint[], $6::bool[], \
       $7::int[], $8::int[], $9::bytea[]) \
       AS n (id, epoch, crashes, lease_until, worker, is_ticket, begun_through, count, members) \
     WHERE c.id = n.id";
const DELETE_CHUNKS: &str = "DELETE FROM chunk WHERE id = ANY($1)";
/// Answers with the first chunk of each lane and instant.
const ADD_CHUNKS: &str = "WITH added AS ( \
       INSERT INTO chunk (batch, lane, partition, due_at, attempt, crashes, count, members) \
       SELECT * FROM unnest($1::bigint[], $2::int[], $3::smallint[], $4::bigint[], $5::int[], \
         $6::int[], $7::int[], $8::bytea[]) RETURNING lane, due_at, id) \
     SELECT lane, due_at, min(id) FROM added GROUP BY lane, due_at";
const ADD_LOG: &str =
    "INSERT INTO log (batch, entries) SELECT * FROM unnest($1::bigint[], $2::bytea[])";
const ADD_TOTALS: &str =
    "INSERT INTO totals_delta (state, change) SELECT * FROM unnest($1::smallint[], $2::bigint[])";
const ADD_SUPPRESSIONS: &str = "INSERT INTO suppression (channel, recipient, reason, since) \
     SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[]) ON CONFLICT DO NOTHING";
// === impl Writes ===

impl Writes {
    /// Notes a chunk that changed.
    pub(super) fn change(&mut self, held: &Held) {
        self.changes.push(held);
    }

    /// Notes a chunk that is gone.
    pub(super) fn delete(&mut self, chunk: ChunkId) {
        self.gone.push(chunk.0.cast_signed());
    }

    /// Notes a new chunk.
    pub(super) fn add(&mut self, chunk: &NewChunk) {
        self.additions.push(chunk);
    }

    pub(super) fn add_log(&mut self, batch: BatchId, row: &LogRow) {
        self.log.0.push(batch.0.cast_signed());
        self.log.1.push(row.as_bytes().to_vec());
    }

    /// Notes that `change` more notifications are in a state.
    pub(super) fn add_total(&mut self, state: u8, change: i64) {
        if change != 0 {
            self.totals.0.push(i16::from(state));
            self.totals.1.push(change);
        }
    }

    /// Notes who joins the suppression list: in one order everywhere, so that two processes never wait for each other.
    pub(super) fn suppress(&mut self, mut suppressions: Vec<Suppression>) {
        suppressions.sort_by(|one, other| {
            (&one.channel, &one.recipient).cmp(&(&other.channel, &other.recipient))
        });
        for one in suppressions {
            self.suppressions.0.push(one.channel.as_str().to_owned());
            self.suppressions.1.push(one.recipient.to_string());
            self.suppressions.2.push(one.reason);
            self.suppressions.3.push(one.since.millis());
        }
    }

    /// The statements that are needed, in the order in which they are sent.
    pub(super) async fn prepare(&self, session: &Session) -> Result<Vec<Statement>, Interrupted> {
        let needed = [
            (!self.changes.id.is_empty(), CHANGE_CHUNKS),
            (!self.gone.is_empty(), DELETE_CHUNKS),
            (!self.additions.batch.is_empty(), ADD_CHUNKS),
            (!self.log.0.is_empty(), ADD_LOG),
            (!self.totals.0.is_empty(), ADD_TOTALS),
            (!self.suppressions.0.is_empty(), ADD_SUPPRESSIONS),
        ];
        let mut statements = Vec::new();
        for (_, sql) in needed.into_iter().filter(|(is_needed, _)| *is_needed) {
            statements.push(session.prepared(sql).await?);
        }
        Ok(statements)
    }

    /// Adds the statements to a flight.
    pub(super) fn send<'a>(
        &'a self,
        session: &'a Session,
        statements: &[Statement],
        flight: &mut Flight<'a>,
    ) {
        let (changes, new) = (&self.changes, &self.additions);
        let (texts, log) = (&self.suppressions, &self.log);
        let parameters: [(bool, Vec<&'a (dyn ToSql + Sync)>); 6] = [
            (!changes.id.is_empty(), changes.parameters()),
            (!self.gone.is_empty(), vec![&self.gone]),
            (!new.batch.is_empty(), new.parameters()),
            (!log.0.is_empty(), vec![&log.0, &log.1]),
            (!self.totals.0.is_empty(), vec![&self.totals.0, &self.totals.1]),
            (!texts.0.is_empty(), vec![&texts.0, &texts.1, &texts.2, &texts.3]),
        ];
        let needed = parameters.into_iter().filter(|(is_needed, _)| *is_needed);
        for ((_, parameters), statement) in needed.zip(statements.iter().cloned()) {
            flight
                .push(Box::pin(async move { session.client.query(&statement, &parameters).await }));
        }
    }
}

// === impl Changes ===

impl Changes {
    fn push(&mut self, held: &Held) {
        let row = &held.row;
        self.id.push(row.id.0.cast_signed());
        self.epoch.push(i64::from(row.epoch.0));
        self.crashes.push(i32::from(row.crashes));
        self.lease_until.push(row.lease_until.map(Timestamp::millis));
        self.worker.push(held.worker);
        self.is_ticket.push(held.is_ticket);
        self.begun_through.push(row.begun_through.map(i32::from));
        self.count.push(small(row.count).unwrap_or(i32::MAX));
        self.members.push(row.members.as_ref().map(Members::to_blob));
    }

    fn parameters(&self) -> Vec<&(dyn ToSql + Sync)> {
        vec![
            &self.id,
            &self.epoch,
            &self.crashes,
            &self.lease_until,
            &self.worker,
            &self.is_ticket,
            &self.begun_through,
            &self.count,
            &self.members,
        ]
    }
}

// === impl Additions ===

impl Additions {
    fn push(&mut self, part: &NewChunk) {
        self.batch.push(part.batch.0.cast_signed());
        self.lane.push(lane_number(part.lane));
        self.partition.push(i16::from(partition_of(part.batch)));
        self.due_at.push(part.due_at.millis());
        self.attempt.push(i32::from(part.attempt));
        self.crashes.push(i32::from(part.crashes));
        self.count.push(small(part.count).unwrap_or(i32::MAX));
        self.members.push(part.members.as_ref().map(Members::to_blob));
    }

    fn parameters(&self) -> Vec<&(dyn ToSql + Sync)> {
        vec![
            &self.batch,
            &self.lane,
            &self.partition,
            &self.due_at,
            &self.attempt,
            &self.crashes,
            &self.count,
            &self.members,
        ]
    }
}

//! A store that several processes share: tickets, the outbox, and the status of the cluster.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use notification::{Bytes, Chunk, Draft, Ticket, Timestamp};
use tokio::sync::watch;

use crate::StoreError;

/// Exchanges tickets for chunks. For collect, in the process that delivers them.
#[async_trait]
pub trait TakeTickets: Send + Sync + std::fmt::Debug {
    /// Claims the chunk of each ticket for this process, with the next epoch and a lease of its own, durably. Answers
    /// in order; `None` where there is nothing to send: the ticket is void (it was taken before, its lease ended),
    /// or all of the chunk was expired or suppressed and is settled as that.
    async fn take(
        &self,
        tickets: Vec<Ticket>,
        now: Timestamp,
        lease: Duration,
    ) -> Result<Vec<Option<Chunk>>, StoreError>;
}

/// A row that an application inserted into the outbox within its own transaction. Only the database's own constraints are checked
/// yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutboxRow {
    /// The tenant that it belongs to.
    pub tenant: String,
    /// Name of the channel.
    pub channel: String,
    /// Device token, endpoint, address.
    pub recipient: String,
    /// JSON; empty when a template is named.
    pub content: Bytes,
    /// JSON; empty when there are none.
    pub options: Bytes,
    /// The name of a configured template.
    pub template: Option<String>,
    /// JSON; empty when there are none.
    pub variables: Bytes,
    /// JSON; empty when there is none.
    pub fallback: Bytes,
    /// Priority, in the spelling of the API.
    pub priority: String,
    /// Guarantee, in the spelling of the API.
    pub guarantee: String,
    /// Due time: no attempt begins before it.
    pub send_at: Option<Timestamp>,
    /// Expiry: no attempt begins at or after it.
    pub expires_at: Option<Timestamp>,
    /// The application's key.
    pub idempotency_key: Option<String>,
    /// The application's own id of whom or what it is about.
    pub external_id: Option<String>,
    /// JSON; empty when there are none.
    pub tags: Bytes,
    /// JSON; empty when there are none.
    pub metadata: Bytes,
}

/// Turns a row of the outbox into a draft, or returns the reason why it is refused, in words.
pub type Validator = dyn Fn(OutboxRow, Timestamp) -> Result<Draft, String> + Send + Sync;

/// Counts of outbox rows that were drained.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DrainedRows {
    /// Rows that are notifications now.
    pub accepted: u64,
    /// Rows that were put aside with the reason: see `outbox_rejected`.
    pub rejected: u64,
    /// True if there may be more rows.
    pub more: bool,
}

/// Drains the outbox, into which applications write within their own transactions. For ingest.
#[async_trait]
pub trait Outbox: Send + Sync + std::fmt::Debug {
    /// Accepts some of the rows that were committed to the outbox since the last call, each exactly once. A row that `validator`
    /// refuses, or whose idempotency key was used for other content, is put aside with the reason. `validator` may take long: it
    /// runs on a thread of its own, outside of any transaction, and the rows that are left after some seconds are left for the
    /// next call.
    async fn drain(
        &self,
        validator: Arc<Validator>,
        now: Timestamp,
    ) -> Result<DrainedRows, StoreError>;

    /// Changes when rows were committed.
    fn outbox_changes(&self) -> watch::Receiver<u64>;
}

/// A process of the cluster.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkerStatus {
    /// Its number, new with every start.
    pub id: i64,
    /// Its name: host and process.
    pub name: String,
    /// Its version.
    pub version: String,
    /// True if it owns partitions and claims from them.
    pub produces: bool,
    /// True if it delivers.
    pub consumes: bool,
    /// Address of its API.
    pub listen: Option<String>,
    /// Time of its start.
    pub started_at: Timestamp,
    /// Time left of its lease on itself; zero when it is overdue and about to be removed.
    pub alive_for: Duration,
    /// True if it finishes the work it has and takes no more.
    pub is_standing_by: bool,
    /// Partitions it owns.
    pub partitions: u16,
    /// Deliveries that it holds.
    pub claimed: u64,
    /// Deliveries settled by it, since it started.
    pub settled: u64,
    /// Deliveries settled per second, over its last few seconds.
    pub settled_per_second: f64,
}

/// All processes, and the work left to them together.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ClusterStatus {
    /// Workers in the order of their start.
    pub workers: Vec<WorkerStatus>,
    /// Partitions without an owner at the moment.
    pub partitions_free: u16,
    /// The rows of the outbox.
    pub outbox: OutboxStatus,
}

/// How many rows of the outbox there are, each count up to [`OUTBOX_ROWS_COUNTED`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OutboxStatus {
    /// Rows that were committed and are not taken yet.
    pub waiting: u64,
    /// How long ago the first of these was inserted; zero where none waits, or where all that wait were inserted before schema 33.
    pub oldest: Duration,
    /// Rows that were put aside: they stay until an operator removes them, or their lifetime ends.
    pub rejected: u64,
}

/// Rows of the outbox to which a status counts.
pub const OUTBOX_ROWS_COUNTED: u32 = 10_000;

//! The store seam: the one place of truth about notifications.
//!
//! Narrow traits, so that a stage can hold no more than it may do: [`Ingest`] for the ingest stage, [`Claims`] for dispatch,
//! [`Begin`] for deliver, [`Settlements`] for settle, [`ReadStore`] for queries, [`Operations`] for changes by callers and
//! operators, [`Prune`] for retention, [`SearchIndex`] for the index by recipient, [`KeyStore`] for API keys and [`ActTrail`] for the trail of what callers change. [`Store`] is all of
//! them, with a reader that answers its queries.
//!
//! Every method takes a batch and answers per item. Every change is durable when its method returns: write first, acknowledge
//! second. (Leases and open broadcasts need only outlive the process, not a power cut: both end with it.) Calls of all callers
//! are merged into common transactions.
//!
//! [`conformance`] is the suite that every backend passes, and every double.

mod acts;
mod api_keys;
mod assignment;
mod broadcasts;
mod cancel;
mod claim;
mod cluster;
mod commit_counts;
mod erasure;
mod error;
mod event;
mod ingest;
mod list_order;
mod operations;
mod quota;
mod read;
mod reader_shares;
mod recovery;
mod reschedule;
mod resolution;
mod retention;
mod rows;
mod search;
mod source_shard;
mod space;

#[cfg(feature = "conformance")]
pub mod conformance;
#[cfg(feature = "memory")]
pub mod memory;
#[cfg(feature = "postgres")]
pub mod postgres;
pub mod sqlite;
#[cfg(test)]
mod statements;
mod suppression;
mod tenant_page;
mod totals;

pub use acts::{Act, ActBegun, ActEnded, ActFilter, ActPage, ActTrail};
pub use api_keys::{FormerKey, KeyChange, KeyChanged, KeyHash, KeyStore, StoredKey, StoredKeys};
pub use assignment::TotalsAssignment;
pub use broadcasts::{BroadcastFilter, BroadcastPage, ListedBroadcast};
pub use cancel::{CancelPage, CancelPlace, CancelPlaceError, CancelScope, CancelTarget, Cancelled};
pub use claim::{
    Begin, Claim, ClaimRequest, Claims, Mark, MarkAnswer, Offer, Settled, Settlements,
};
pub use cluster::{
    ClusterStatus, DrainedRows, OUTBOX_ROWS_COUNTED, Outbox, OutboxRow, OutboxStatus, TakeTickets,
    Validator, WorkerStatus,
};
pub use commit_counts::CommitCounts;
pub use erasure::Erased;
pub use error::{ErrorKind, StoreError};
pub use event::{Attempted, DeliveryEvent, DeliveryFilter, DeliveryPage, EVENT_ROWS, write_labels};
pub use ingest::{Admission, BroadcastDraft, BroadcastOpened, Ingest, KeyUse, RecipientGroup};
pub use list_order::ListOrder;
#[cfg(feature = "memory")]
pub use memory::Memory;
pub use operations::{Operations, Paused, Requeued};
#[cfg(feature = "postgres")]
pub use postgres::{Postgres, PostgresReader};
pub use quota::{Peers, QuotaLedger};
pub use read::{
    Audit, BroadcastPart, BroadcastStatus, Filter, History, LaneEvidence, LaneList, LanePace,
    LaneStatus, LogEntry, LogPage, LogPosition, Page, ParkedChannel, ReadStore, WaitingCounts,
};
pub use reader_shares::{Patience, TenantReads};
pub use recovery::{Ending, Recovery};
pub use reschedule::{Reschedule, RescheduleCounts, Rescheduled};
pub use resolution::{Resolution, ResolutionError, Resolved};
pub use retention::{
    Lifetimes, Prune, PruneStep, Removed, RetainedPart, Retention, TenantRetention,
};
pub use rows::due::{LANES_LISTED, WAITING_CHUNKS_COUNTED};
pub use search::SearchIndex;
pub use source_shard::ShardCursor;
pub use space::StoreSpace;
pub use sqlite::{Sqlite, SqliteReader};
pub use suppression::{
    Change, EventPosition, FeedCursor, Lift, PositionError, Suppression, SuppressionEvent,
    SuppressionPage,
};
pub use tenant_page::TenantPage;
pub use totals::assign_totals;

use notification::Chunk;

/// The whole interface of a backend.
pub trait Store:
    Ingest
    + Claims<Chunk>
    + Offer
    + Begin
    + Settlements
    + Operations
    + Prune
    + SearchIndex
    + KeyStore
    + ActTrail
{
    /// Answers questions about the store, and can do nothing else.
    fn reader(&self) -> &dyn ReadStore;
}

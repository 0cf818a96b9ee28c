//! The search index, by recipient, label, tenant and channel: postings in runs, runs in blocks, and the rules by which runs are made,
//! merged and looked up. No SQL.
//!
//! A *posting* says that a notification has a term: (term, batch, index); one of a tenant or a channel, with the index 0, that the stretch of
//! neighbouring batches has it from this batch on (decision 0059). A *run* has the postings of a stretch of batch numbers,
//! sorted; stretches of complete runs do not overlap. Runs of one level that are neighbours are merged into one of the next level
//! when there are [`FAN_IN`](plan::FAN_IN) of them, so a posting is written about once for each level, and a look-up reads about
//! one block of each run.
//!
//! A complete run is never changed, and what depends on the state of a run is decided from its row. So a step can be worked out
//! beside the writer, and a process that ends at any moment leaves an index that is whole.

pub(crate) mod block;
pub(crate) mod build;
pub(crate) mod lookup;
pub(crate) mod merge;
pub(crate) mod plan;
#[cfg(test)]
pub(crate) mod searches;
pub(crate) mod term;
#[cfg(test)]
mod tests;

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use notification::BatchId;

use crate::StoreError;
use block::Block;
use term::Term;

/// The word that a notification has a term. Ordered by term, then by batch, then by index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Posting {
    pub(crate) term: Term,
    pub(crate) batch: BatchId,
    pub(crate) index: u16,
}

/// A posting as the two columns of a database that order blocks, or a place between two postings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct BlockKey {
    pub(crate) term: i64,
    /// Batch and index; not negative, but for a place before all postings of a term.
    pub(crate) place: i64,
}

/// The blocks of runs, as a database or a test has them.
pub(crate) trait Blocks {
    /// The last block of `run` that begins at `key` or before it.
    async fn at_or_before(&self, run: i64, key: BlockKey) -> Result<Option<Block>, StoreError>;

    /// The first block of `run` that begins after `key`.
    async fn after(&self, run: i64, key: BlockKey) -> Result<Option<Block>, StoreError>;
}

/// Reads blocks of a database that answers at once, without a runtime.
pub(crate) fn at_once<T>(
    reading: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    match pin!(reading).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => answer,
        Poll::Pending => Err(StoreError::Unavailable("blocks that are not there yet".to_owned())),
    }
}

// === impl BlockKey ===

impl BlockKey {
    pub(crate) const MIN: Self = Self { term: i64::MIN, place: i64::MIN };
    pub(crate) const MAX: Self = Self { term: i64::MAX, place: i64::MAX };

    /// The place just before this one.
    pub(crate) const fn before(self) -> Self {
        Self { term: self.term, place: self.place.saturating_sub(1) }
    }
}

impl From<Posting> for BlockKey {
    fn from(Posting { term, batch, index }: Posting) -> Self {
        // A number of a batch has 46 bits.
        Self { term: term.to_column(), place: (batch.0 << 16 | u64::from(index)).cast_signed() }
    }
}

impl From<BlockKey> for Posting {
    fn from(BlockKey { term, place }: BlockKey) -> Self {
        let place = place.cast_unsigned();
        let index = u16::try_from(place & u64::from(u16::MAX)).unwrap_or(u16::MAX);
        Self { term: Term::from_column(term), batch: BatchId(place >> 16), index }
    }
}

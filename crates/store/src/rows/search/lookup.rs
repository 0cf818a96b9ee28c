//! Look-ups: where a term is, in order of place.

use std::collections::BTreeMap;
use std::ops::Bound;

use notification::BatchId;

use super::block::Block;
use super::plan::Run;
use super::term::Term;
use super::{BlockKey, Blocks, Posting};
use crate::{ListOrder, StoreError};

/// Places that a term was found at, in the order that was asked for. Each is to be compared: another value may have the same term.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Candidates {
    pub(crate) places: Vec<(BatchId, u16)>,
    /// True if there may be more behind them.
    pub(crate) has_more: bool,
}

/// A term that is looked up.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lookup {
    pub(crate) term: Term,
    pub(crate) order: ListOrder,
    /// The place behind which to begin, in this order.
    pub(crate) after: Option<(BatchId, u16)>,
    /// Places to be found at most; more than none.
    pub(crate) places_max: usize,
}

/// Blocks that were fetched before a look-up: of each run the last two that begin at [`Lookup::from`] or before it, and the first two
/// of the term behind it. A look-up of no more places than a block has postings reads no others, for only the last block of a run
/// has fewer.
#[derive(Debug, Default)]
pub(crate) struct FetchedBlocks(BTreeMap<(i64, BlockKey), Block>);

// === impl FetchedBlocks ===

impl FetchedBlocks {
    pub(crate) fn add(&mut self, run: i64, block: Block) {
        self.0.insert((run, block.first), block);
    }
}

impl Blocks for FetchedBlocks {
    async fn at_or_before(&self, run: i64, key: BlockKey) -> Result<Option<Block>, StoreError> {
        let range = (run, BlockKey::MIN)..=(run, key);
        Ok(self.0.range(range).next_back().map(|(_, block)| block.clone()))
    }

    async fn after(&self, run: i64, key: BlockKey) -> Result<Option<Block>, StoreError> {
        let range = (Bound::Excluded((run, key)), Bound::Included((run, BlockKey::MAX)));
        Ok(self.0.range(range).next().map(|(_, block)| block.clone()))
    }
}

// === impl Lookup ===

impl Lookup {
    /// Looks the term up in `runs`, which are complete, in any order.
    pub(crate) async fn find(
        &self,
        blocks: &impl Blocks,
        runs: &[Run],
    ) -> Result<Candidates, StoreError> {
        let mut runs: Vec<&Run> = runs.iter().filter(|run| self.may_have(run)).collect();
        runs.sort_by_key(|run| run.first_batch);
        if self.order == ListOrder::NewestFirst {
            runs.reverse();
        }
        let mut places = Vec::new();
        for run in runs {
            match self.order {
                ListOrder::OldestFirst => self.ascend(blocks, run.id, &mut places).await?,
                ListOrder::NewestFirst => self.descend(blocks, run.id, &mut places).await?,
            }
            if places.len() >= self.places_max {
                places.truncate(self.places_max);
                return Ok(Candidates { places, has_more: true });
            }
        }
        Ok(Candidates { places, has_more: false })
    }

    /// The key from which on a run is read, in this order.
    pub(crate) fn from(&self) -> BlockKey {
        let term = self.term.to_column();
        match (self.order, self.after) {
            (ListOrder::OldestFirst, None) => BlockKey { term, place: i64::MIN },
            (ListOrder::NewestFirst, None) => BlockKey { term, place: i64::MAX },
            (order, Some((batch, index))) => {
                let key = BlockKey::from(Posting { term: self.term, batch, index });
                if order == ListOrder::OldestFirst { key } else { key.before() }
            }
        }
    }

    /// True unless all of `run` is on the wrong side of where to begin.
    pub(crate) fn may_have(&self, run: &Run) -> bool {
        self.after.is_none_or(|(batch, _)| match self.order {
            ListOrder::OldestFirst => run.last_batch >= batch,
            ListOrder::NewestFirst => run.first_batch <= batch,
        })
    }

    async fn ascend(
        &self,
        blocks: &impl Blocks,
        run: i64,
        places: &mut Vec<(BatchId, u16)>,
    ) -> Result<(), StoreError> {
        let from = self.from();
        let mut next = match blocks.at_or_before(run, from).await? {
            Some(block) => Some(block),
            None => blocks.after(run, from).await?,
        };
        while let Some(block) = next
            && block.first.term <= self.term.to_column()
            && places.len() < self.places_max
        {
            let of_term = self.of_term(&block)?;
            let behind =
                of_term.into_iter().filter(|place| self.after.is_none_or(|it| *place > it));
            places.extend(behind);
            next = blocks.after(run, block.first).await?;
        }
        Ok(())
    }

    async fn descend(
        &self,
        blocks: &impl Blocks,
        run: i64,
        places: &mut Vec<(BatchId, u16)>,
    ) -> Result<(), StoreError> {
        let mut from = self.from();
        while let Some(block) = blocks.at_or_before(run, from).await?
            && places.len() < self.places_max
        {
            let of_term = self.of_term(&block)?.into_iter().rev();
            places.extend(of_term.filter(|place| self.after.is_none_or(|it| *place < it)));
            if block.first.term < self.term.to_column() {
                break;
            }
            from = block.first.before();
        }
        Ok(())
    }

    /// Places of the term in `block`, ascending.
    fn of_term(&self, block: &Block) -> Result<Vec<(BatchId, u16)>, StoreError> {
        let postings = block.decode()?;
        let of_term = postings.iter().filter(|posting| posting.term == self.term);
        Ok(of_term.map(|posting| (posting.batch, posting.index)).collect())
    }
}

//! Look-ups: where a term is, in order of place.

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

// === impl Lookup ===

impl Lookup {
    /// Looks the term up in `runs`, which are complete, in any order.
    pub(crate) fn find(
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
                ListOrder::OldestFirst => self.ascend(blocks, run.id, &mut places)?,
                ListOrder::NewestFirst => self.descend(blocks, run.id, &mut places)?,
            }
            if places.len() >= self.places_max {
                places.truncate(self.places_max);
                return Ok(Candidates { places, has_more: true });
            }
        }
        Ok(Candidates { places, has_more: false })
    }

    /// True unless all of `run` is on the wrong side of where to begin.
    fn may_have(&self, run: &Run) -> bool {
        self.after.is_none_or(|(batch, _)| match self.order {
            ListOrder::OldestFirst => run.last_batch >= batch,
            ListOrder::NewestFirst => run.first_batch <= batch,
        })
    }

    fn ascend(
        &self,
        blocks: &impl Blocks,
        run: i64,
        places: &mut Vec<(BatchId, u16)>,
    ) -> Result<(), StoreError> {
        let from = match self.after {
            Some((batch, index)) => Posting { term: self.term, batch, index }.into(),
            None => BlockKey { term: self.term.to_column(), place: i64::MIN },
        };
        let mut next = match blocks.at_or_before(run, from)? {
            Some(block) => Some(block),
            None => blocks.after(run, from)?,
        };
        while let Some(block) = next
            && block.first.term <= self.term.to_column()
            && places.len() < self.places_max
        {
            let of_term = self.of_term(&block)?;
            let behind =
                of_term.into_iter().filter(|place| self.after.is_none_or(|it| *place > it));
            places.extend(behind);
            next = blocks.after(run, block.first)?;
        }
        Ok(())
    }

    fn descend(
        &self,
        blocks: &impl Blocks,
        run: i64,
        places: &mut Vec<(BatchId, u16)>,
    ) -> Result<(), StoreError> {
        let mut from = match self.after {
            Some((batch, index)) => {
                BlockKey::from(Posting { term: self.term, batch, index }).before()
            }
            None => BlockKey { term: self.term.to_column(), place: i64::MAX },
        };
        while let Some(block) = blocks.at_or_before(run, from)?
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

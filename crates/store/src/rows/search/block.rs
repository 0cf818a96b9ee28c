//! Blocks of postings. Numbers are LEB128 varints, as in the other blobs:
//!
//! ```text
//! 1           version
//! base        a batch number that no posting is below
//! { term-before's batch-base index } | { 0 batch-before's index } ...
//! ```
//!
//! A posting says how much its term is above the one before. The batch of another term counts from the base, that of the same term
//! from the posting before.

use notification::BatchId;

use super::term::Term;
use super::{BlockKey, Posting};
use crate::StoreError;
use crate::rows::blob::{ByteReader, damaged, put};

/// A block as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Block {
    /// Its first posting.
    pub(crate) first: BlockKey,
    pub(crate) postings: Vec<u8>,
}

/// Cuts ascending postings into blocks.
#[derive(Debug)]
pub(crate) struct BlockWriter {
    base: BatchId,
    block: Option<Block>,
    last: Posting,
    blocks: Vec<Block>,
}

const VERSION: u8 = 1;
/// Bytes after which a block is complete. With one more posting and its other columns it fits a page of 8,192 bytes, of which
/// SQLite takes 8,157 for a row.
const BLOCK_BYTES: usize = 8_000;
/// Postings that a complete block has at least: one takes 20 bytes at most, those of three numbers of 64, 46 and 16 bits.
pub(crate) const BLOCK_POSTINGS_MIN: usize = BLOCK_BYTES / 20;

// === impl BlockWriter ===

impl BlockWriter {
    /// Begins with the first block of postings none of which is of a batch below `base`.
    pub(crate) fn new(base: BatchId) -> Self {
        let last = Posting { term: Term(0), batch: base, index: 0 };
        Self { base, block: None, last, blocks: Vec::new() }
    }

    /// Adds a posting, which comes after all before; true if it completed a block.
    pub(crate) fn push(&mut self, posting: Posting) -> bool {
        let block = self.block.get_or_insert_with(|| {
            let mut postings = vec![VERSION];
            put(&mut postings, self.base.0);
            self.last = Posting { term: Term(0), batch: self.base, index: 0 };
            Block { first: posting.into(), postings }
        });
        let step = posting.term.0 - self.last.term.0;
        let from = if step == 0 { self.last.batch } else { self.base };
        put(&mut block.postings, step);
        put(&mut block.postings, posting.batch.0 - from.0);
        put(&mut block.postings, u64::from(posting.index));
        self.last = posting;
        let is_complete = block.postings.len() >= BLOCK_BYTES;
        if is_complete {
            self.blocks.extend(self.block.take());
        }
        is_complete
    }

    /// All blocks; the last one may be small.
    pub(crate) fn finish(mut self) -> Vec<Block> {
        self.blocks.extend(self.block);
        self.blocks
    }
}

// === impl Block ===

impl Block {
    /// Its postings, ascending.
    pub(crate) fn decode(&self) -> Result<Vec<Posting>, StoreError> {
        let mut input = ByteReader::new(&self.postings);
        if input.number()? != u64::from(VERSION) {
            return Err(damaged("a block of the search index"));
        }
        let base = input.number()?;
        let mut postings = Vec::with_capacity(self.postings.len() / 8);
        let (mut term, mut batch) = (0u64, base);
        while !input.is_empty() {
            let step = input.number()?;
            let from = if step == 0 { batch } else { base };
            term = term.wrapping_add(step);
            batch = from.wrapping_add(input.number()?);
            postings.push(Posting {
                term: Term(term),
                batch: BatchId(batch),
                index: input.small()?,
            });
        }
        Ok(postings)
    }
}

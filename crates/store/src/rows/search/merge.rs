//! Merging: the next part of a run from the runs that it replaces.

use notification::BatchId;

use super::block::{Block, BlockWriter};
use super::{BlockKey, Blocks, Posting};
use crate::StoreError;

/// The next part of a run.
#[derive(Debug)]
pub(crate) struct MergedPart {
    pub(crate) blocks: Vec<Block>,
    /// True if nothing comes after it.
    pub(crate) is_last: bool,
}

/// A place in a run that is read forwards, with the postings of its block in hand.
struct RunReader {
    run: i64,
    block: BlockKey,
    postings: Vec<Posting>,
    position: usize,
}

/// Postings after which a part ends, with its block: some 10 ms of work, and 1 MiB of memory.
pub(crate) const PART_POSTINGS: usize = 65_536;

/// The part of a run that comes behind what `output` has of it, from `inputs`, which have no batch below `base`; of about
/// `postings_max` postings.
pub(crate) async fn merge(
    blocks: &impl Blocks,
    output: Option<i64>,
    inputs: &[i64],
    (base, postings_max): (BatchId, usize),
) -> Result<MergedPart, StoreError> {
    let after = match output {
        Some(run) => last_posting(blocks, run).await?,
        None => None,
    };
    let mut readers = Vec::with_capacity(inputs.len());
    for &run in inputs {
        readers.push(RunReader::open(blocks, run, after).await?);
    }
    let (mut writer, mut written) = (BlockWriter::new(base), 0);
    loop {
        let least = readers.iter_mut().filter_map(|reader| Some((reader.posting()?, reader)));
        let Some((posting, reader)) = least.min_by_key(|(posting, _)| *posting) else {
            return Ok(MergedPart { blocks: writer.finish(), is_last: true });
        };
        reader.pass(blocks).await?;
        written += 1;
        // At the end of a block: one that is small stays small in the run.
        if writer.push(posting) && written >= postings_max {
            let is_last = readers.iter().all(|reader| reader.posting().is_none());
            return Ok(MergedPart { blocks: writer.finish(), is_last });
        }
    }
}

/// The last posting that a run has so far.
async fn last_posting(blocks: &impl Blocks, run: i64) -> Result<Option<Posting>, StoreError> {
    match blocks.at_or_before(run, BlockKey::MAX).await? {
        Some(block) => Ok(block.decode()?.last().copied()),
        None => Ok(None),
    }
}

// === impl RunReader ===

impl RunReader {
    /// Begins behind `after`.
    async fn open(
        blocks: &impl Blocks,
        run: i64,
        after: Option<Posting>,
    ) -> Result<Self, StoreError> {
        let mut reader = Self { run, block: BlockKey::MIN, postings: Vec::new(), position: 0 };
        if let Some(after) = after
            && let Some(block) = blocks.at_or_before(run, after.into()).await?
        {
            reader.block = block.first;
            reader.postings = block.decode()?;
            reader.position = reader.postings.partition_point(|posting| *posting <= after);
        }
        reader.refill(blocks).await?;
        Ok(reader)
    }

    /// The next posting; `None` at the end.
    fn posting(&self) -> Option<Posting> {
        self.postings.get(self.position).copied()
    }

    async fn pass(&mut self, blocks: &impl Blocks) -> Result<(), StoreError> {
        self.position += 1;
        self.refill(blocks).await
    }

    async fn refill(&mut self, blocks: &impl Blocks) -> Result<(), StoreError> {
        if self.position >= self.postings.len()
            && let Some(block) = blocks.after(self.run, self.block).await?
        {
            (self.block, self.postings, self.position) = (block.first, block.decode()?, 0);
        }
        Ok(())
    }
}

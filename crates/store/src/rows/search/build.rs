//! The making of a run of batches that are not indexed yet.

use std::collections::BTreeSet;

use notification::{BatchId, Bytes};

use super::Posting;
use super::block::{Block, BlockWriter};
use super::plan::{RUN_BYTES, RUN_POSTINGS};
use super::term::{Term, TermKey};
use crate::StoreError;
use crate::rows::codec::Items;
use crate::rows::labels::BatchLabels;
use crate::rows::stretches::STRETCH;

/// Collects the postings of batches, which come in the order of their numbers.
#[derive(Debug)]
pub(crate) struct RunBuilder {
    key: TermKey,
    postings: Vec<Posting>,
    /// The stretch that the last batch is in, and the terms of it that have a posting.
    stretch: (u64, BTreeSet<Term>),
    numbers: Option<(BatchId, BatchId)>,
    bytes: usize,
}

/// A run of level 0 that is not stored yet.
#[derive(Debug)]
pub(crate) struct NewRun {
    pub(crate) first_batch: BatchId,
    pub(crate) last_batch: BatchId,
    pub(crate) blocks: Vec<Block>,
}

// === impl RunBuilder ===

impl RunBuilder {
    pub(crate) const fn new(key: TermKey) -> Self {
        let stretch = (0, BTreeSet::new());
        Self { key, postings: Vec::new(), stretch, numbers: None, bytes: 0 }
    }

    /// True if it holds as much as a run may have.
    pub(crate) const fn is_full(&self) -> bool {
        self.postings.len() >= RUN_POSTINGS || self.bytes >= RUN_BYTES
    }

    /// Adds a batch with the number of its members, its tenant and its channel, its items and its labels.
    pub(crate) fn add(
        &mut self,
        (batch, count): (BatchId, u16),
        (tenant, channel): (&str, &str),
        items: Bytes,
        labels: Option<Bytes>,
    ) -> Result<(), StoreError> {
        self.add_to_stretch(batch, tenant, channel);
        self.bytes += items.len() + labels.as_ref().map_or(0, Bytes::len);
        let mut items = Items::new(items)?;
        let labels = BatchLabels::decode(labels, count.into())?;
        for index in 0..count {
            let (own, others) = items.read_recipients()?;
            // Empty once it was removed.
            for recipient in others.iter().chain(Some(&own).filter(|own| !own.is_empty())) {
                let term = self.key.recipient(tenant, recipient);
                self.postings.push(Posting { term, batch, index });
            }
            let Some(labels) = labels.get(index) else { continue };
            let external_id = Some(&labels.external_id).filter(|id| !id.is_empty());
            let external_id = external_id.map(|id| self.key.external_id(tenant, id));
            let tags = labels.tags().iter().map(|tag| self.key.tag(tenant, tag));
            let terms = external_id.into_iter().chain(tags);
            self.postings.extend(terms.map(|term| Posting { term, batch, index }));
        }
        let (first, _) = self.numbers.unwrap_or((batch, batch));
        self.numbers = Some((first, batch));
        Ok(())
    }

    /// Adds what the stretch of a batch is found by, unless a batch before it has: the posting is of its first one that has the term,
    /// and of the stretch from there on.
    fn add_to_stretch(&mut self, batch: BatchId, tenant: &str, channel: &str) {
        let key = self.key;
        let (stretch, known) = &mut self.stretch;
        if *stretch != batch.0 / STRETCH {
            *stretch = batch.0 / STRETCH;
            known.clear();
        }
        let terms =
            [key.tenant(tenant), key.channel(Some(tenant), channel), key.channel(None, channel)];
        let new = terms.into_iter().filter(|term| known.insert(*term));
        self.postings.extend(new.map(|term| Posting { term, batch, index: 0 }));
    }

    /// The run; `None` if no batch was added.
    pub(crate) fn finish(mut self) -> Option<NewRun> {
        let (first_batch, last_batch) = self.numbers?;
        self.postings.sort_unstable();
        self.postings.dedup();
        let mut writer = BlockWriter::new(first_batch);
        for posting in self.postings {
            writer.push(posting);
        }
        Some(NewRun { first_batch, last_batch, blocks: writer.finish() })
    }
}

//! Labels of the members of a batch, as a blob.
//!
//! ```text
//! 1                                                       version
//! length-of-table { number-of-tags { tag } metadata } ... tags and metadata, each once
//! 0 | 1                                                   all members have the entry that follows; or each has one, in order
//! { position external-id } ...                            position in the table from 1 on; 0 for none
//! ```

use std::collections::HashMap;
use std::sync::Arc;

use notification::{BatchId, ByteString, Bytes, CommonLabels, Draft, Labels};

use super::blob::{BlobReader, VERSION, damaged, put, put_slice};
use super::members::Members;
use crate::StoreError;

/// Labels of the members of a batch.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct BatchLabels {
    /// In order of index; empty when no member has any.
    members: Vec<Labels>,
    bytes: usize,
}

/// Bytes of the numbers of one entry, at most.
const ENTRY_BYTES: usize = 8;

// === impl BatchLabels ===

impl BatchLabels {
    /// The labels of a broadcast, as those of a batch with one member.
    pub(crate) fn one(labels: Labels) -> Self {
        let mut one = Self::default();
        one.push(0, labels);
        one
    }

    /// Reads the column of a batch with `count` members.
    pub(crate) fn decode(blob: Option<Bytes>, count: usize) -> Result<Self, StoreError> {
        let Some(blob) = blob else { return Ok(Self::default()) };
        if blob.first() != Some(&VERSION) {
            return Err(damaged("labels"));
        }
        let mut reader = BlobReader::new(blob, 1);
        let mut table = Vec::new();
        for _ in 0..reader.number()? {
            // Copied, so that whatever has them does not keep all of the blob in memory.
            let tags = (0..reader.number()?).map(|_| Ok(copy(&reader.text()?)));
            let tags = tags.collect::<Result<_, StoreError>>()?;
            let metadata = Bytes::copy_from_slice(&reader.next()?);
            table.push(Arc::new(CommonLabels { tags, metadata }));
        }
        let entry = |reader: &mut BlobReader| {
            let position = usize::try_from(reader.number()?).map_err(|_| damaged("labels"))?;
            let common = position.checked_sub(1).map(|position| table.get(position).cloned());
            let common = common.map(|it| it.ok_or_else(|| damaged("labels"))).transpose()?;
            Ok::<_, StoreError>(Labels { external_id: reader.text()?, common })
        };
        let members = match reader.number()? {
            0 => vec![entry(&mut reader)?; count],
            _ => (0..count).map(|_| entry(&mut reader)).collect::<Result<_, _>>()?,
        };
        // Not counted: nothing is added to what was read.
        Ok(Self { members, bytes: 0 })
    }

    /// The column; `None` if no member has labels.
    pub(crate) fn encode(&self) -> Option<Vec<u8>> {
        let first = self.members.first()?;
        if self.members.iter().all(Labels::is_empty) {
            return None;
        }
        let all_alike = self.members.iter().all(|labels| labels == first);
        let (mut table, mut positions) = (Vec::new(), HashMap::new());
        let mut entries = vec![u8::from(!all_alike)];
        for labels in self.members.iter().take(if all_alike { 1 } else { usize::MAX }) {
            let position = labels.common.as_deref().map_or(0, |common| {
                *positions.entry(common).or_insert_with(|| {
                    table.push(common);
                    table.len() as u64
                })
            });
            put(&mut entries, position);
            put_slice(&mut entries, labels.external_id.as_bytes());
        }
        let mut blob = vec![VERSION];
        put(&mut blob, table.len() as u64);
        for common in table {
            put(&mut blob, common.tags.len() as u64);
            common.tags.iter().for_each(|tag| put_slice(&mut blob, tag.as_bytes()));
            put_slice(&mut blob, &common.metadata);
        }
        blob.append(&mut entries);
        Some(blob)
    }

    /// Labels of a member, in bytes of their own: those of the others may go.
    pub(crate) fn of(&self, index: u16) -> Labels {
        let Some(labels) = self.get(index) else { return Labels::default() };
        Labels { external_id: copy(&labels.external_id), common: labels.common.clone() }
    }

    /// Labels of a member, if any member has some.
    pub(crate) fn get(&self, index: u16) -> Option<&Labels> {
        self.members.get(usize::from(index))
    }

    /// Adds those of the next member, the one numbered `index`.
    pub(crate) fn push(&mut self, index: u16, labels: Labels) {
        if self.members.is_empty() && labels.is_empty() {
            return;
        }
        self.bytes = self.bytes_with(&labels);
        self.members.resize(index.into(), Labels::default());
        self.members.push(labels);
    }

    /// Bytes of all of them with one more, about.
    pub(crate) fn bytes_with(&self, next: &Labels) -> usize {
        let is_known = |last: &Labels| last.common == next.common;
        let common = if self.members.last().is_some_and(is_known) { 0 } else { next.bytes() };
        let own = if next.is_empty() { 0 } else { next.external_id.len() + ENTRY_BYTES };
        self.bytes + common + own
    }

    /// Removes those of some members.
    pub(crate) fn remove(&mut self, gone: &Members) {
        for index in gone.iter() {
            if let Some(labels) = self.members.get_mut(usize::from(index)) {
                *labels = Labels::default();
            }
        }
    }
}

fn copy(text: &ByteString) -> ByteString {
    ByteString::from(&**text)
}

/// Batches of the notifications that `drafts` stand in for.
pub(crate) fn stood_in_for(drafts: &[Draft]) -> Vec<BatchId> {
    let mut batches: Vec<BatchId> = drafts
        .iter()
        .filter_map(|draft| Some(draft.content.fallback.as_ref()?.of?.batch()))
        .collect();
    batches.sort_unstable();
    batches.dedup();
    batches
}

/// Gives each of `drafts` the labels of the notification that it stands in for.
pub(crate) fn inherit(drafts: &mut [Draft], labels: &HashMap<BatchId, BatchLabels>) {
    for draft in drafts {
        let Some(of) = draft.content.fallback.as_ref().and_then(|it| it.of) else { continue };
        if let Some(labels) = labels.get(&of.batch()) {
            draft.labels = labels.of(of.index());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(external_id: &str, tags: &[&str]) -> Labels {
        let common = CommonLabels {
            tags: tags.iter().map(|tag| ByteString::from(*tag)).collect(),
            metadata: Bytes::from_static(b"{}"),
        };
        let common = (!tags.is_empty()).then(|| Arc::new(common));
        Labels { external_id: external_id.into(), common }
    }

    fn of(members: &[Labels]) -> BatchLabels {
        let mut all = BatchLabels::default();
        (0..).zip(members).for_each(|(index, labels)| all.push(index, labels.clone()));
        all
    }

    fn read(blob: Option<Vec<u8>>, count: u16) -> Vec<Labels> {
        let all = BatchLabels::decode(blob.map(Bytes::from), count.into()).unwrap();
        (0..count).map(|index| all.of(index)).collect()
    }

    #[test]
    fn labels_are_read_as_they_were_written_and_cost_nothing_where_there_are_none() {
        let none = Labels::default();
        assert_eq!(of(&[none.clone(), none.clone()]).encode(), None);
        assert_eq!(read(None, 2), [none.clone(), none.clone()]);

        let tagged = labels("", &["a", "b"]);
        let person = Labels { external_id: "user 42".into(), ..tagged.clone() };
        for members in [
            vec![none.clone(), none.clone(), tagged.clone()],
            vec![tagged.clone(), person.clone(), none, labels("x", &["c"]), person],
            vec![tagged; 1_000],
        ] {
            let blob = of(&members).encode().unwrap();
            assert_eq!(read(Some(blob), members.len().try_into().unwrap()), members);
        }
    }

    #[test]
    fn labels_that_all_members_share_are_stored_once() {
        let blob = of(&vec![labels("", &["tag"]); 1_000]).encode().unwrap();
        assert!(blob.len() < 20, "{} bytes", blob.len());
    }

    #[test]
    fn those_of_removed_members_are_gone() {
        let mut all = of(&[labels("one", &["a"]), labels("two", &["b"])]);
        all.remove(&Members::from_iter([0]));
        assert_eq!(read(all.encode(), 2), [Labels::default(), labels("two", &["b"])]);
        all.remove(&Members::from_iter([1]));
        assert_eq!(all.encode(), None);
    }

    #[test]
    fn damage_is_found() {
        let blob = of(&[labels("one", &["a"]), labels("two", &["b"])]).encode().unwrap();
        for length in 0..blob.len() {
            let cut = Bytes::copy_from_slice(blob.get(..length).unwrap());
            assert!(BatchLabels::decode(Some(cut), 2).is_err(), "cut to {length} bytes");
        }
    }
}

//! A set of indexes within a batch, as a bit per index.

/// A set of members of a batch, by index.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Members {
    words: Vec<u64>,
}

const WORD_BITS: usize = u64::BITS as usize;

// === impl Members ===

impl Members {
    /// The indexes below `count`.
    pub(crate) fn all(count: usize) -> Self {
        let mut words = vec![u64::MAX; count / WORD_BITS];
        let rest = count % WORD_BITS;
        if rest > 0 {
            words.push((1 << rest) - 1);
        }
        Self { words }
    }

    /// Adds `index`; false when it was there.
    pub(crate) fn insert(&mut self, index: u16) -> bool {
        let (word, bit) = place(index);
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        let Some(word) = self.words.get_mut(word) else { return false };
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }

    /// Takes `index` out; false when it was not there.
    pub(crate) fn remove(&mut self, index: u16) -> bool {
        let (word, bit) = place(index);
        let Some(word) = self.words.get_mut(word) else { return false };
        let was_there = *word & bit != 0;
        *word &= !bit;
        was_there
    }

    /// Adds all of `other`.
    pub(crate) fn extend(&mut self, other: &Self) {
        other.iter().for_each(|index| _ = self.insert(index));
    }

    pub(crate) fn contains(&self, index: u16) -> bool {
        let (word, bit) = place(index);
        self.words.get(word).is_some_and(|word| word & bit != 0)
    }

    pub(crate) fn len(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.words.iter().all(|&word| word == 0)
    }

    /// The indexes in ascending order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = u16> {
        let bits = self.words.iter().zip(0u16..).flat_map(|(&word, position)| {
            let base = position * 64;
            (0u16..64).filter(move |bit| word >> bit & 1 != 0).map(move |bit| base + bit)
        });
        bits.fuse()
    }

    /// Little-endian, without the zeros at the end.
    pub(crate) fn to_blob(&self) -> Vec<u8> {
        let mut blob: Vec<u8> = self.words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let used = blob.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
        blob.truncate(used);
        blob
    }

    pub(crate) fn from_blob(blob: &[u8]) -> Self {
        let word =
            |bytes: &[u8]| bytes.iter().rev().fold(0u64, |word, &byte| word << 8 | u64::from(byte));
        Self { words: blob.chunks(8).map(word).collect() }
    }
}

impl FromIterator<u16> for Members {
    fn from_iter<I: IntoIterator<Item = u16>>(indexes: I) -> Self {
        let mut members = Self::default();
        for index in indexes {
            members.insert(index);
        }
        members
    }
}

/// The word that holds `index`, and its bit there.
const fn place(index: u16) -> (usize, u64) {
    (index as usize / WORD_BITS, 1 << (index as usize % WORD_BITS))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn members_are_a_set_that_survives_being_stored(indexes: Vec<u16>, removed: Vec<u16>) {
            let mut members: Members = indexes.iter().copied().collect();
            let mut expect: BTreeSet<u16> = indexes.into_iter().collect();
            for index in removed {
                prop_assert_eq!(members.remove(index), expect.remove(&index));
            }
            let again = Members::from_blob(&members.to_blob());
            prop_assert_eq!(again.iter().collect::<Vec<_>>(), expect.iter().copied().collect::<Vec<_>>());
            prop_assert_eq!(again.len(), expect.len());
            prop_assert_eq!(again.is_empty(), expect.is_empty());
        }
    }

    #[test]
    fn all_members_are_those_below_the_count() {
        for count in [0, 1, 63, 64, 65, 1000] {
            let all = Members::all(count);
            assert_eq!(all.len(), count);
            assert_eq!(
                all.iter().map(usize::from).collect::<Vec<_>>(),
                (0..count).collect::<Vec<_>>()
            );
        }
    }
}

//! The filter that spares most lookups in the suppression list.

use std::hash::{DefaultHasher, Hash, Hasher};

/// Says of a recipient that it is certainly not suppressed, or perhaps (a Bloom filter of fixed size).
/// A recipient taken off the list stays a "perhaps" until the list is read again.
#[derive(Debug, Default)]
pub(crate) struct RecipientFilter {
    /// None while no recipient is listed: a store without a list spares the memory.
    bits: Vec<u64>,
}

/// 2 MiB: with 1,000,000 suppressed recipients, one in 90 of the rest is looked up for nothing.
const FILTER_BITS: u64 = 1 << 24;
const PROBES: u32 = 3;

// === impl RecipientFilter ===

impl RecipientFilter {
    pub(crate) fn is_empty(&self) -> bool {
        self.bits.is_empty()
    }

    pub(crate) fn insert(&mut self, channel: &str, recipient: &str) {
        if self.bits.is_empty() {
            self.bits = vec![0; usize::try_from(FILTER_BITS / 64).unwrap_or(usize::MAX)];
        }
        for (word, bit) in places(channel, recipient) {
            if let Some(word) = self.bits.get_mut(word) {
                *word |= bit;
            }
        }
    }

    /// True if the recipient may be one of those listed; false if it is not.
    pub(crate) fn may_contain(&self, channel: &str, recipient: &str) -> bool {
        places(channel, recipient)
            .all(|(word, bit)| self.bits.get(word).is_some_and(|word| word & bit != 0))
    }
}

/// The bits of one recipient: three parts of one hash, 24 bits each. Two of them have two or three of its 64 bits in common.
fn places(channel: &str, recipient: &str) -> impl Iterator<Item = (usize, u64)> {
    // Keyed by no secret: recipients that are made to collide cost look-ups, and nothing else.
    let mut hasher = DefaultHasher::new();
    (channel, recipient).hash(&mut hasher);
    let hash = hasher.finish();
    (0..PROBES).map(move |probe| {
        let place = hash.rotate_left(probe * 21) % FILTER_BITS;
        (usize::try_from(place / 64).unwrap_or(usize::MAX), 1 << (place % 64))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_filter_knows_everybody_on_the_list_and_few_others() {
        let mut filter = RecipientFilter::default();
        assert!(!filter.may_contain("ios", "anybody"));
        for number in 0..10_000 {
            filter.insert("ios", &number.to_string());
        }
        for number in 0..10_000 {
            assert!(filter.may_contain("ios", &number.to_string()));
        }
        let mistaken = |number: &u32| filter.may_contain("web", &number.to_string());
        assert!((0..10_000).filter(mistaken).count() < 10);
    }
}

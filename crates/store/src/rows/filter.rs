//! Spares most lookups in the suppression list.

/// Says of a recipient that it is certainly not suppressed, or perhaps (a Bloom filter of fixed size).
/// A recipient taken off the list stays a "perhaps" until the filter is built anew.
#[derive(Debug)]
pub(crate) struct RecipientFilter {
    bits: Vec<u64>,
}

/// 2 MiB: with 1,000,000 suppressed recipients, one in 90 others is looked up for nothing.
const FILTER_BITS: u64 = 1 << 24;
const PROBES: u32 = 3;
/// An odd number without a pattern: the golden ratio's fraction.
const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

// === impl RecipientFilter ===

impl RecipientFilter {
    /// A filter of nobody.
    pub(crate) const fn new() -> Self {
        Self { bits: Vec::new() }
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.bits.is_empty()
    }

    pub(crate) fn insert(&mut self, channel: &str, recipient: &str) {
        self.insert_print(print(channel, recipient));
    }

    /// Adds a recipient by its [`print`].
    pub(crate) fn insert_print(&mut self, print: u64) {
        if self.bits.is_empty() {
            self.bits = vec![0; usize::try_from(FILTER_BITS / 64).unwrap_or(usize::MAX)];
        }
        for (word, bit) in places(print) {
            if let Some(word) = self.bits.get_mut(word) {
                *word |= bit;
            }
        }
    }

    pub(crate) fn may_contain(&self, channel: &str, recipient: &str) -> bool {
        !self.bits.is_empty()
            && places(print(channel, recipient))
                .all(|(word, bit)| self.bits.get(word).is_some_and(|word| word & bit != 0))
    }
}

/// A number that stands for a recipient, the same in every process and version.
pub(crate) fn print(channel: &str, recipient: &str) -> u64 {
    let mix = |hash: u64, word: u64| (hash.rotate_left(23) ^ word).wrapping_mul(MULTIPLIER);
    let number =
        |bytes: &[u8]| bytes.iter().rev().fold(0u64, |word, &byte| word << 8 | u64::from(byte));
    let texts = [channel.as_bytes(), recipient.as_bytes()];
    let hash = texts.iter().fold(MULTIPLIER, |hash, text| {
        let (words, rest) = text.as_chunks();
        let hash = words.iter().fold(hash, |hash, word| mix(hash, u64::from_le_bytes(*word)));
        mix(mix(hash, number(rest)), text.len() as u64)
    });
    let folded = (hash ^ hash >> 32).wrapping_mul(MULTIPLIER);
    folded ^ folded >> 29
}

/// The bits of one recipient: disjoint parts of its print.
fn places(print: u64) -> impl Iterator<Item = (usize, u64)> {
    (0..PROBES).map(move |probe| {
        let place = print.rotate_left(probe * 21) % FILTER_BITS;
        (usize::try_from(place / 64).unwrap_or(usize::MAX), 1 << (place % 64))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_filter_knows_everybody_on_the_list_and_few_others() {
        let mut filter = RecipientFilter::new();
        assert!(!filter.may_contain("ios", "anybody"));
        for number in 0..10_000 {
            filter.insert("ios", &number.to_string());
        }
        for number in 0..10_000 {
            assert!(filter.may_contain("ios", &number.to_string()));
        }
        let mistaken = |number: &u32| filter.may_contain("web", &number.to_string());
        assert!((0..10_000).filter(mistaken).count() < 10);
        let mistaken = |number: &u32| filter.may_contain("ios", &format!("{number:064x}"));
        assert!((0..10_000).filter(mistaken).count() < 10);
    }

    #[test]
    fn a_print_never_changes_because_other_versions_know_it() {
        assert_eq!(print("ios", "a-device-token"), 6_568_364_567_410_893_777);
    }
}

//! Which of the notifications that travel together are traced.

use crate::trace::{CONTEXT_BYTES, TraceContext};

/// Traces of some of the notifications of a batch, a chunk or a group of recipients, by their indexes. Mostly there are none: they
/// take no memory then, and a look costs one comparison.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ItemTraces(Vec<(u16, TraceContext)>);

/// Bytes of one in a store: the index, low byte first, and the context.
const STORED_BYTES: usize = 2 + CONTEXT_BYTES;

// === impl ItemTraces ===

impl ItemTraces {
    /// None of any.
    pub const NONE: Self = Self(Vec::new());

    /// Adds the notification at `index`, which is behind all that were added before; only a traced one is kept.
    pub fn push(&mut self, index: u16, trace: Option<TraceContext>) {
        debug_assert!(self.is_behind(index), "in ascending order");
        self.0.extend(trace.map(|trace| (index, trace)));
    }

    /// True if `index` is behind all that are kept.
    fn is_behind(&self, index: u16) -> bool {
        self.0.last().is_none_or(|(last, _)| *last < index)
    }

    /// Those of the notifications at `indexes`, which ascend.
    #[must_use]
    pub fn of(&self, indexes: impl IntoIterator<Item = u16>) -> Self {
        if self.is_empty() {
            return Self::NONE;
        }
        let traced = |index| Some((index, self.get(index)?));
        Self(indexes.into_iter().filter_map(traced).collect())
    }

    /// The trace of the notification at `index`.
    pub fn get(&self, index: u16) -> Option<TraceContext> {
        let place = self.0.binary_search_by_key(&index, |(index, _)| *index).ok()?;
        self.0.get(place).map(|(_, trace)| *trace)
    }

    /// True if none of them is traced.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Bytes that a store keeps for them, with one more if there is a `next`.
    pub fn stored_bytes_with(&self, next: Option<TraceContext>) -> usize {
        (self.0.len() + usize::from(next.is_some())) * STORED_BYTES
    }

    /// The traces as a store keeps them; `None` when there are none.
    pub fn to_bytes(&self) -> Option<Vec<u8>> {
        let stored = |(index, trace): &(u16, TraceContext)| {
            index.to_le_bytes().into_iter().chain(trace.to_bytes())
        };
        (!self.is_empty()).then(|| self.0.iter().flat_map(stored).collect())
    }

    /// The traces that a store has kept. What is none is left out, as [`TraceContext::from_bytes`] does.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let mut traces = Self::NONE;
        for item in bytes.as_chunks::<STORED_BYTES>().0 {
            let Some((index, trace)) = item.split_first_chunk() else { continue };
            let index = u16::from_le_bytes(*index);
            // Out of order in a damaged store alone: it would not be found.
            if traces.is_behind(index) {
                traces.push(index, TraceContext::from_bytes(trace));
            }
        }
        traces
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace(number: u8) -> Option<TraceContext> {
        TraceContext::from_bytes(&[number; CONTEXT_BYTES])
    }

    #[test]
    fn each_is_found_by_its_index_and_no_other() {
        let mut traces = ItemTraces::NONE;
        assert_eq!((traces.get(0), traces.to_bytes()), (None, None));
        for index in [0, 7, 999, u16::MAX] {
            traces.push(index, trace(u8::try_from(index % 250 + 1).unwrap()));
        }
        let bytes = traces.to_bytes().unwrap();
        assert_eq!(bytes.len(), traces.stored_bytes_with(None));
        assert_eq!(traces.stored_bytes_with(trace(1)), 5 * STORED_BYTES);
        let read = ItemTraces::from_bytes(&bytes);
        assert_eq!(read, traces);
        let found: Vec<_> = [0, 1, 7, 998, 999, u16::MAX].map(|index| read.get(index)).into();
        let expected = [trace(1), None, trace(8), None, trace(250), trace(36)];
        assert_eq!(found, expected);
        let some = read.of([1, 7, 998, u16::MAX]);
        assert_eq!(some.stored_bytes_with(None), 2 * STORED_BYTES);
        assert_eq!((some.get(7), some.get(999), some.get(u16::MAX)), (trace(8), None, trace(36)));
    }

    #[test]
    fn what_a_damaged_store_has_kept_is_left_out() {
        let mut traces = ItemTraces::NONE;
        traces.push(3, trace(1));
        traces.push(5, trace(2));
        let bytes = traces.to_bytes().unwrap();
        let (first, second) = bytes.split_at(STORED_BYTES);
        assert_eq!(ItemTraces::from_bytes(&[second, first].concat()).get(5), trace(2));
        let (cut, none) = (&bytes[..bytes.len() - 1], [&first[..2], &[0; CONTEXT_BYTES]].concat());
        assert_eq!(ItemTraces::from_bytes(cut).to_bytes().unwrap(), first);
        assert!(ItemTraces::from_bytes(&none).is_empty());
        // As it was stored before decision 0085, for all of a batch.
        assert!(ItemTraces::from_bytes(&[1; CONTEXT_BYTES]).is_empty());
    }
}

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

    /// Adds the trace of the notification at `index`, which is behind all that were added before.
    pub fn push(&mut self, index: u16, trace: TraceContext) {
        debug_assert!(self.0.last().is_none_or(|(last, _)| *last < index), "in ascending order");
        self.0.push((index, trace));
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

    /// Bytes that a store keeps for them.
    pub fn stored_bytes(&self) -> usize {
        self.0.len() * STORED_BYTES
    }

    /// The traces as a store keeps them; `None` when there are none.
    pub fn to_bytes(&self) -> Option<Vec<u8>> {
        let stored = |(index, trace): &(u16, TraceContext)| {
            index.to_le_bytes().into_iter().chain(trace.to_bytes())
        };
        (!self.is_empty()).then(|| self.0.iter().flat_map(stored).collect())
    }

    /// The traces that a store has kept. What is none is left out: to lose a trace is better than not to deliver.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let (stored, _) = bytes.as_chunks::<STORED_BYTES>();
        let items = stored.iter().filter_map(|item| {
            let (index, trace) = item.split_first_chunk()?;
            Some((u16::from_le_bytes(*index), TraceContext::from_bytes(trace)?))
        });
        let mut traces = Self::NONE;
        for (index, trace) in items {
            // Out of order in a damaged store alone: it would not be found.
            if traces.0.last().is_none_or(|(last, _)| *last < index) {
                traces.push(index, trace);
            }
        }
        traces
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace(number: u8) -> TraceContext {
        TraceContext::from_bytes(&[number; CONTEXT_BYTES]).unwrap()
    }

    #[test]
    fn each_is_found_by_its_index_and_no_other() {
        let mut traces = ItemTraces::NONE;
        assert_eq!((traces.get(0), traces.to_bytes()), (None, None));
        for index in [0, 7, 999, u16::MAX] {
            traces.push(index, trace(u8::try_from(index % 250 + 1).unwrap()));
        }
        let bytes = traces.to_bytes().unwrap();
        assert_eq!(bytes.len(), traces.stored_bytes());
        let read = ItemTraces::from_bytes(&bytes);
        assert_eq!(read, traces);
        let found: Vec<_> = [0, 1, 7, 998, 999, u16::MAX].map(|index| read.get(index)).into();
        let expected = [Some(1), None, Some(8), None, Some(250), Some(36)];
        assert_eq!(found, expected.map(|number| number.map(trace)));
    }

    #[test]
    fn what_a_damaged_store_has_kept_is_left_out() {
        let mut traces = ItemTraces::NONE;
        traces.push(3, trace(1));
        traces.push(5, trace(2));
        let bytes = traces.to_bytes().unwrap();
        let (first, second) = bytes.split_at(STORED_BYTES);
        assert_eq!(ItemTraces::from_bytes(&[second, first].concat()).get(5), Some(trace(2)));
        let (cut, none) = (&bytes[..bytes.len() - 1], [&first[..2], &[0; CONTEXT_BYTES]].concat());
        assert_eq!(ItemTraces::from_bytes(cut).to_bytes().unwrap(), first);
        assert!(ItemTraces::from_bytes(&none).is_empty());
        assert!(ItemTraces::from_bytes(&[1; CONTEXT_BYTES]).is_empty());
    }
}

//! The chunks of one claim, summed up: the rule by which a claim stops, one for all stores.

use notification::limits;

use crate::ClaimRequest;

/// Load of a due chunk in a claim.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ChunkLoad {
    pub(crate) items: usize,
    /// Bytes of recipients and contents, as far as they are known.
    pub(crate) bytes: usize,
}

/// The load of the chunks that a claim has taken.
#[derive(Debug)]
pub(crate) struct ClaimLoad {
    items_max: usize,
    taken: ChunkLoad,
}

// === impl ClaimLoad ===

impl ClaimLoad {
    pub(crate) fn new(request: &ClaimRequest) -> Self {
        Self { items_max: request.items, taken: ChunkLoad { items: 0, bytes: 0 } }
    }

    /// True if the chunk is claimed as well. Else the claim stops: its lane keeps its turn, so the next claim begins with it.
    pub(crate) fn fits(&self, chunk: ChunkLoad) -> bool {
        let Self { items_max, taken } = self;
        // The first chunk goes whatever its size, or one larger than a claim would never be claimed.
        taken.items == 0
            || taken.items + chunk.items <= *items_max
                && taken.bytes + chunk.bytes <= limits::CLAIM_BYTES
    }

    pub(crate) fn add(&mut self, chunk: ChunkLoad) {
        self.taken.items += chunk.items;
        self.taken.bytes += chunk.bytes;
    }

    /// Deliveries that are claimed.
    pub(crate) fn items(&self) -> usize {
        self.taken.items
    }
}

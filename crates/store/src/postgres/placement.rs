//! The partition of a chunk that is made: that of its destination, or one after the other while the destination is hot (decision 0037).
//!
//! All chunks of a cold destination are claimed by one process, which so has the only windows, breaker, learned limit and
//! connections for it. Those of a hot one are spread over all processes. Each writer goes by what it has stored itself: a wrong
//! guess costs speed only, because the epoch of a chunk says who may act on it.

use notification::{BatchId, Timestamp, limits};

use crate::rows::model::NewChunk;
use crate::rows::period::PeriodCounts;

/// A destination, as a number that is the same in every process: a hash of its channel and its name. Lanes of other tenants and
/// priorities have the same one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DestinationHash(u64);

/// Deliveries for which a writer has made chunks lately, by destination.
#[derive(Debug)]
pub(super) struct RecentArrivals {
    /// Deliveries in a minute from which on a destination is hot.
    hot_from: u32,
    /// By hash: destinations that share a place are hot together, and are spread as one.
    places: Vec<ArrivalPlace>,
}

#[derive(Debug, Clone, Copy, Default)]
struct ArrivalPlace {
    /// Deliveries by the minute.
    counts: PeriodCounts,
    /// The partition of the last chunk that was spread, and its number in its round.
    last: Option<(i16, u16)>,
}

/// Deliveries in a minute from which on a destination is hot: four full chunks. Fewer are little work for one process, also where
/// each of many processes stores as many.
pub(super) const HOT_FROM: u32 = 4_000;
/// Destinations that are told apart: 384 KiB for each writer.
const PLACES: usize = 16_384;
/// The number of virtual partitions.
const PARTITIONS: u128 = limits::PARTITIONS as u128;
/// From the partition of a chunk to that of the next one of a hot destination. It has no divisor in common with their number, so that
/// each partition gets one chunk of a round of so many; and it is near the golden section of it, so that the partitions of a few chunks,
/// which several workers own, are far apart.
const STEP: i16 = 39;
const _: () = assert!(limits::PARTITIONS.is_power_of_two() && STEP % 2 == 1);

// === impl DestinationHash ===

impl DestinationHash {
    pub(super) fn of(channel: &str, destination: &str) -> Self {
        // FNV-1a, with a byte between the two that is in neither.
        let bytes = channel.bytes().chain([u8::MAX]).chain(destination.bytes());
        let add = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        Self(bytes.fold(0xcbf2_9ce4_8422_2325, add))
    }

    fn partition(self) -> i16 {
        spread(self.0)
    }

    fn place(self) -> usize {
        usize::try_from(self.0 % PLACES as u64).unwrap_or_default()
    }
}

// === impl RecentArrivals ===

impl RecentArrivals {
    pub(super) fn new(hot_from: u32) -> Self {
        Self { hot_from, places: vec![ArrivalPlace::default(); PLACES] }
    }

    /// Counts the deliveries of new chunks, and gives those of cold destinations the partitions of these. All are counted first,
    /// so that a large group is spread from its first chunk on.
    pub(super) fn place(
        &mut self,
        new: Vec<(DestinationHash, NewChunk)>,
        now: Timestamp,
    ) -> impl Iterator<Item = NewChunk> {
        let minute = now.millis().div_euclid(60_000);
        for (destination, chunk) in &new {
            if let Some(place) = self.places.get_mut(destination.place()) {
                place.counts.add(minute, chunk.members.len());
            }
        }
        new.into_iter().map(|(destination, chunk)| {
            let partition = match self.places.get_mut(destination.place()) {
                Some(place) if place.counts.highest() >= self.hot_from => place.next(chunk.batch),
                _ => destination.partition(),
            };
            NewChunk { partition, ..chunk }
        })
    }
}

// === impl ArrivalPlace ===

impl ArrivalPlace {
    /// The partition of the next chunk that is spread. The first one's follows from its batch, which is of this writer alone: all
    /// writers begin elsewhere. Each round begins one partition further, so that also each second chunk, or each tenth, comes to all: as
    /// where lanes of the destination take turns.
    fn next(&mut self, batch: BatchId) -> i16 {
        let (partition, number) = match self.last {
            None => (spread(batch.0), 1),
            Some((last, limits::PARTITIONS)) => (last + STEP + 1, 1),
            Some((last, number)) => (last + STEP, number + 1),
        };
        let partition = partition % limits::PARTITIONS.cast_signed();
        self.last = Some((partition, number));
        partition
    }
}

/// A partition for a number: numbers that follow each other fill all partitions alike (Fibonacci hashing; Knuth, TAOCP 6.4).
fn spread(number: u64) -> i16 {
    // The product is a part of the whole range of 64 bits, and the partition the same part of all partitions: only so, by the highest
    // bits, are neighbours as far apart as they can be.
    let part = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    i16::try_from((u128::from(part) * PARTITIONS) >> 64).unwrap_or_default()
}

#[cfg(test)]
#[path = "placement_tests.rs"]
mod tests;

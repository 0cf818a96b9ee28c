//! Streams of other systems by URL: where notifications are read from, and where records are put; and the maps of their events.

#[cfg(any(feature = "kinesis", feature = "sqs"))]
mod late;
mod map;
mod place;
mod place_targets;
#[cfg(feature = "kinesis")]
mod positions;
mod servers;

pub(crate) use map::read_map;
pub(crate) use place::{SourceParts, StreamPlace};
pub(crate) use place_targets::PlaceTargets;
#[cfg(feature = "kinesis")]
pub(crate) use positions::StorePositions;

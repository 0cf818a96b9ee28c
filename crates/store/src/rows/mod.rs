//! Rows, their blobs, and the rules on them, for both databases. No SQL.

pub(crate) mod audit;
pub(crate) mod blame;
pub(crate) mod blob;
pub(crate) mod cancel_scope;
pub(crate) mod claim_load;
pub(crate) mod codec;
pub(crate) mod codes;
pub(crate) mod due;
#[cfg(test)]
pub(crate) mod emptied_lanes;
pub(crate) mod erasure;
pub(crate) mod events;
pub(crate) mod evidence;
pub(crate) mod keys;
pub(crate) mod labels;
pub(crate) mod lane_list;
pub(crate) mod lanes;
#[cfg(test)]
mod lanes_tests;
pub(crate) mod listing;
pub(crate) mod matching;
pub(crate) mod members;
pub(crate) mod model;
pub(crate) mod pace;
pub(crate) mod packing;
pub(crate) mod parked;
pub(crate) mod paused;
pub(crate) mod period;
pub(crate) mod places;
pub(crate) mod progress;
pub(crate) mod recipient_filter;
pub(crate) mod release;
pub(crate) mod removal;
pub(crate) mod requeue;
pub(crate) mod reschedule;
pub(crate) mod resolve;
pub(crate) mod retention;
pub(crate) mod room;
pub(crate) mod search;
pub(crate) mod seek;
pub(crate) mod settlement;
pub(crate) mod stretches;
#[cfg(test)]
pub(crate) mod traces_of_contents;
pub(crate) mod undelivered;

use flow::merge::Bounds;
use notification::limits;

/// Numbers that a store may have given since the copy or dump was made that it is restored from, and that callers keep: new ones
/// begin behind so many.
pub(crate) const GIVEN_SINCE: i64 = 1 << 32;

/// Bounds of one transaction of a writer, and of the requests of each kind that may wait for it.
pub(crate) const TRANSACTION: Bounds = Bounds {
    items: limits::TRANSACTION_COMMANDS,
    weight: limits::TRANSACTION_ITEMS,
    waiting: limits::WRITER_COMMANDS,
};

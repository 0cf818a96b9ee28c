//! Cancellation of a notification, of a broadcast, or of the waiting notifications of a scope.

use std::fmt;
use std::str::FromStr;

use notification::{BroadcastId, Name, NotificationId, Scope, Timestamp};

/// A notification or a broadcast, to cancel or to reschedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CancelTarget {
    /// A notification.
    Notification(NotificationId),
    /// All pending notifications of a broadcast.
    Broadcast(BroadcastId),
}

/// Counts of notifications that were cancelled, and of those for which the cancellation came too late.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cancelled {
    /// Now cancelled.
    pub cancelled: u64,
    /// Too late: claimed, and perhaps on the wire.
    pub under_way: u64,
    /// Too late: ended before.
    pub ended: u64,
}

/// A call of the cancellation of a scope.
///
/// Calls follow one another, each from where the one before ended ([`CancelPage::next`]), until there is no next one. A
/// notification that waits when the first call is made, and neither is claimed nor comes back from a claim or a paused broadcast
/// meanwhile, is cancelled when the last is answered. Of a paused scope, that is everything that is not under way; and if nothing
/// was under way, nothing is left. On PostgreSQL a claim that ran while the pause was made may end behind the calls: a second run
/// finds the notifications that came back from it. Notifications that are accepted or requeued meanwhile may be cancelled or not.
/// A call that is cut off has done nothing, or all of its part.
///
/// Chunks older than lanes of tenants (decision 0027) wait in lanes of the tenant `default`: as part of a broadcast they are
/// cancelled with it, by their lane, channel or tenant they are not, unless the tenant is `default`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CancelScope {
    /// Tenant that owns the scope.
    pub tenant: Name,
    /// Scope within the tenant.
    pub scope: Scope,
    /// Place at which the call before ended; `None` for the first call.
    pub from: Option<CancelPlace>,
    /// True to count only.
    pub is_dry: bool,
    /// Time of the cancellation.
    pub now: Timestamp,
}

/// The result of one call.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CancelPage {
    /// Notifications that are cancelled now, or would be.
    pub cancelled: u64,
    /// Too late: claimed, and perhaps on the wire. Of a lane, a channel and a tenant the first call counts these.
    pub under_way: u64,
    /// Place at which the next call continues; `None` at the end.
    pub next: Option<CancelPlace>,
}

/// Place that a cancellation of a scope has reached. Its text is for callers to hand back, without a meaning of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CancelPlace(pub(crate) CancelStage);

/// See [`CancelPlace`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CancelStage {
    /// Among the batches of the broadcast that is cancelled.
    Batches(CancelCursor),
    /// Behind a batch of one of the broadcasts that wait to be released.
    Waiting { broadcast: i64, batch: i64 },
    /// Behind a chunk of a lane.
    Lane(LanePlace),
}

/// The next slice of the batches of a broadcast that is cancelled, or rescheduled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CancelCursor {
    /// Last batch that is done.
    pub(crate) after: i64,
    /// The last batch that may have chunks; those behind it are dealt with.
    pub(crate) until: i64,
}

/// A place among the chunks that wait in the lanes of a tenant: by channel, lane, due time, chunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LanePlace {
    pub(crate) channel: String,
    pub(crate) lane: i64,
    pub(crate) due_at: i64,
    pub(crate) chunk: i64,
}

/// A text that no cancellation gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("pass `next` of the answer before, or leave it out to begin")]
pub struct CancelPlaceError;

// === impl CancelScope ===

impl CancelScope {
    /// Beginning of a call over lanes: among the waiting broadcasts, behind a batch of the one or before it, or among the lanes,
    /// at their beginning if no place is given.
    pub(crate) fn begins_at(&self) -> (Option<(i64, i64)>, Option<LanePlace>) {
        match self.from.as_ref().map(|from| &from.0) {
            Some(CancelStage::Lane(place)) => (None, Some(place.clone())),
            Some(&CancelStage::Waiting { broadcast, batch }) => (Some((broadcast, batch)), None),
            Some(CancelStage::Batches(_)) | None => (Some((0, 0)), None),
        }
    }
}

// === impl LanePlace ===

impl LanePlace {
    /// The place before all chunks of a lane, and before the lanes behind it.
    pub(crate) fn before(channel: &str, lane: i64) -> Self {
        Self { channel: channel.to_owned(), lane, due_at: i64::MIN, chunk: i64::MIN }
    }
}

// === impl CancelPlace ===

impl fmt::Display for CancelPlace {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            CancelStage::Batches(CancelCursor { after, until }) => {
                write!(formatter, "batches.{after}.{until}")
            }
            CancelStage::Waiting { broadcast, batch } => {
                write!(formatter, "waiting.{broadcast}.{batch}")
            }
            CancelStage::Lane(LanePlace { channel, lane, due_at, chunk }) => {
                write!(formatter, "lane.{lane}.{due_at}.{chunk}.{channel}")
            }
        }
    }
}

impl FromStr for CancelPlace {
    type Err = CancelPlaceError;

    fn from_str(text: &str) -> Result<Self, CancelPlaceError> {
        let parts: Vec<&str> = text.split('.').collect();
        let number = |text: &str| text.parse::<i64>().map_err(|_| CancelPlaceError);
        let place = match parts[..] {
            ["batches", after, until] => {
                CancelStage::Batches(CancelCursor { after: number(after)?, until: number(until)? })
            }
            ["waiting", broadcast, batch] => {
                CancelStage::Waiting { broadcast: number(broadcast)?, batch: number(batch)? }
            }
            // Before its first channel a walk is at none.
            ["lane", lane, due_at, chunk, channel]
                if channel.is_empty() || channel.parse::<Name>().is_ok() =>
            {
                CancelStage::Lane(LanePlace {
                    channel: channel.to_owned(),
                    lane: number(lane)?,
                    due_at: number(due_at)?,
                    chunk: number(chunk)?,
                })
            }
            _ => return Err(CancelPlaceError),
        };
        Ok(Self(place))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_place_is_read_back_from_its_text() {
        let lane = LanePlace { channel: "mail".to_owned(), lane: 7, due_at: -1, chunk: 9 };
        let places = [
            CancelStage::Batches(CancelCursor { after: 3, until: i64::MAX }),
            CancelStage::Waiting { broadcast: 1, batch: 2 },
            CancelStage::Lane(lane),
            CancelStage::Lane(LanePlace::before("", 0)),
        ];
        for place in places.map(CancelPlace) {
            assert_eq!(place.to_string().parse(), Ok(place));
        }
        for text in ["", "batches.1", "batches.1.x", "lane.1.2.3", "lane.1.2.3.a\0", "other.1"] {
            assert_eq!(text.parse::<CancelPlace>(), Err(CancelPlaceError), "{text:?}");
        }
    }
}

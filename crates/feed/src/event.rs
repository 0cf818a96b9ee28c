//! Events of both kinds, and the content of a notification that hands them on.

use notification::{Name, Timestamp};
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use store::{DeliveryFilter, EventPosition, ReadStore, StoreError};

/// The events that a feed hands on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FeedSource {
    /// Every change of the suppression list.
    Suppressions,
    /// Outcomes, and attempts if asked for, of one tenant.
    Deliveries {
        /// The events that are handed on.
        filter: DeliveryFilter,
        /// True if a feed that is seen for the first time begins with the oldest event that is kept; else it begins with the
        /// first one after that moment.
        from_start: bool,
    },
}

/// An event as it is handed on.
#[derive(Debug)]
pub(crate) struct FeedEvent {
    pub(crate) position: EventPosition,
    pub(crate) at: Timestamp,
    pub(crate) json: Box<RawValue>,
}

/// Some of the events of a source.
#[derive(Debug)]
pub(crate) struct FeedPage {
    pub(crate) events: Vec<FeedEvent>,
    /// Position at which the next page begins; equal to the requested one at the end.
    pub(crate) next: EventPosition,
    /// Rows of the log that were passed over; 0 where all rows are events.
    pub(crate) rows: usize,
}

/// The content of one notification of a feed.
#[derive(Debug, Serialize)]
pub(crate) struct FeedContent<'a> {
    r#type: &'static str,
    /// Name of the feed; there is one of suppressions, which needs none.
    #[serde(skip_serializing_if = "Option::is_none")]
    feed: Option<&'a Name>,
    /// The `until` of the one before.
    after: EventPosition,
    until: EventPosition,
    /// All events after the one position and until the other.
    events: Vec<&'a RawValue>,
}

/// Events of the suppression list in one notification.
const SUPPRESSIONS: usize = 500;
/// Delivery events read at a time: more than fit into one notification, so that its bytes alone bound it.
const DELIVERIES: usize = 2_000;

// === impl FeedSource ===

impl FeedSource {
    /// True if a feed at `position` has yet to find where it begins.
    pub(crate) fn is_unstarted(&self, position: EventPosition) -> bool {
        match self {
            Self::Suppressions => false,
            Self::Deliveries { from_start, .. } => {
                !from_start && position == EventPosition::default()
            }
        }
    }

    /// Events in one notification at most.
    pub(crate) const fn events_max(&self) -> usize {
        match self {
            Self::Suppressions => SUPPRESSIONS,
            Self::Deliveries { .. } => DELIVERIES,
        }
    }

    /// Events from `position` on, at most `events_max`.
    pub(crate) async fn page(
        &self,
        reads: &dyn ReadStore,
        position: EventPosition,
        events_max: usize,
    ) -> Result<FeedPage, StoreError> {
        match self {
            Self::Suppressions => {
                let page = reads.suppression_events(position, events_max).await?;
                let event = |event: &store::SuppressionEvent| {
                    Ok(FeedEvent { position: event.position, at: event.at, json: json(event)? })
                };
                let events = page.events.iter().map(event).collect::<Result<_, StoreError>>()?;
                Ok(FeedPage { events, next: page.next, rows: 0 })
            }
            Self::Deliveries { filter, .. } => {
                let page = reads.delivery_events(filter.clone(), position, events_max).await?;
                let event = |event: &store::DeliveryEvent| {
                    let (position, at) = (event.position, event.attempted.at);
                    Ok(FeedEvent { position, at, json: json(event)? })
                };
                let events = page.events.iter().map(event).collect::<Result<_, StoreError>>()?;
                Ok(FeedPage { events, next: page.next, rows: page.rows })
            }
        }
    }

    /// The content that hands on `events`, all that are after `after` and until `until`, for the feed called `name`.
    pub(crate) fn content(
        &self,
        name: &Name,
        after: EventPosition,
        until: EventPosition,
        events: &[FeedEvent],
    ) -> Result<Vec<u8>, StoreError> {
        let (r#type, feed) = match self {
            Self::Suppressions => ("suppressions", None),
            Self::Deliveries { .. } => ("deliveries", Some(name)),
        };
        let events = events.iter().map(|event| &*event.json).collect();
        let content = FeedContent { r#type, feed, after, until, events };
        serde_json::to_vec(&content).map_err(|error| damaged(&error))
    }
}

// === impl FeedEvent ===

impl FeedEvent {
    /// Bytes that it takes in a content, with the comma.
    pub(crate) fn bytes(&self) -> usize {
        self.json.get().len() + 1
    }
}

fn json(event: &impl Serialize) -> Result<Box<RawValue>, StoreError> {
    to_raw_value(event).map_err(|error| damaged(&error))
}

fn damaged(error: &serde_json::Error) -> StoreError {
    StoreError::Damaged(format!("an event: {error}"))
}

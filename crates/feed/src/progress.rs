//! The progress of a feed, for operators.

use std::time::Duration;

use notification::{Name, Timestamp};
use store::{EventPosition, ReadStore, StoreError};

use crate::event::FeedSource;

/// A feed, as those who look at its progress know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FeedPlan {
    /// Name of the feed, under which its cursor is kept.
    pub name: Name,
    /// The events that it hands on.
    pub source: FeedSource,
}

/// Progress of a feed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FeedProgress {
    /// The application has taken all events up to here.
    pub position: EventPosition,
    /// Time of the first event that the application has not accepted; `None` if there is none.
    pub waiting_since: Option<Timestamp>,
}

/// Pages that are read to find the first event: the feed itself passes over what does not match, and keeps its place.
const PAGES: usize = 4;

// === impl FeedProgress ===

impl FeedProgress {
    /// Reads the progress of `feed` from `reads`.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn read(reads: &dyn ReadStore, feed: &FeedPlan) -> Result<Self, StoreError> {
        let position = reads.feed(feed.name.clone()).await?.position;
        let mut from = position;
        if feed.source.is_unstarted(position) {
            return Ok(Self { position, waiting_since: None });
        }
        for _ in 0..PAGES {
            let page = feed.source.page(reads, from, 1).await?;
            if let Some(first) = page.events.first() {
                return Ok(Self { position, waiting_since: Some(first.at) });
            }
            if page.next == from {
                break;
            }
            from = page.next;
        }
        Ok(Self { position, waiting_since: None })
    }

    /// Age at `now` of the first event that the application has not accepted; zero if there is none.
    pub fn lag(&self, now: Timestamp) -> Duration {
        self.waiting_since.map_or(Duration::ZERO, |since| now.since(since))
    }
}

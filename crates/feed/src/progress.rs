//! How far a feed is, for operators.

use std::time::Duration;

use notification::{Name, Timestamp};
use store::{EventPosition, ReadStore, StoreError};

/// How far a feed is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FeedProgress {
    /// The application has taken all changes up to here.
    pub position: EventPosition,
    /// When the first one happened that it has not taken; `None` when it has all of them.
    pub waiting_since: Option<Timestamp>,
}

// === impl FeedProgress ===

impl FeedProgress {
    /// Asks `reads` about the feed called `feed`.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn read(reads: &dyn ReadStore, feed: Name) -> Result<Self, StoreError> {
        let position = reads.feed(feed).await?.position;
        let page = reads.suppression_events(position, 1).await?;
        Ok(Self { position, waiting_since: page.events.first().map(|event| event.at) })
    }

    /// For how long the application has not been told of something.
    pub fn lag(&self, now: Timestamp) -> Duration {
        self.waiting_since.map_or(Duration::ZERO, |since| now.since(since))
    }
}

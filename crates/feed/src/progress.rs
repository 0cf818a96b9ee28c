//! The progress of a feed, for operators.

use std::time::Duration;

use notification::{Name, Timestamp};
use store::{EventPosition, ReadStore, StoreError};

/// Progress of a feed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FeedProgress {
    /// The application has taken all changes up to here.
    pub position: EventPosition,
    /// Time of the first change that the application has not accepted; `None` if there is none.
    pub waiting_since: Option<Timestamp>,
}

// === impl FeedProgress ===

impl FeedProgress {
    /// Reads the progress of the feed named `feed` from `reads`.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn read(reads: &dyn ReadStore, feed: Name) -> Result<Self, StoreError> {
        let position = reads.feed(feed).await?.position;
        let page = reads.suppression_events(position, 1).await?;
        Ok(Self { position, waiting_since: page.events.first().map(|event| event.at) })
    }

    /// Age at `now` of the first change that the application has not accepted; zero if there is none.
    pub fn lag(&self, now: Timestamp) -> Duration {
        self.waiting_since.map_or(Duration::ZERO, |since| now.since(since))
    }
}

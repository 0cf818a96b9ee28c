//! Requests that wait for events: a bounded wait for the next page, for whatever is followed.

use std::time::Duration;

use store::{DeliveryFilter, DeliveryPage, EventPosition, ReadStore, StoreError, SuppressionPage};
use tokio::time::{sleep, timeout};

use crate::ApiState;
use crate::caller::Caller;
use crate::limits::LONG_POLL;
use crate::problem::Problem;
use crate::query::Query;

/// From a change to the look at it: what changes meanwhile is looked at once.
const GATHER: Duration = Duration::from_millis(200);
/// Between two looks without a word, while a caller waits: another process's word may be lost.
const LOOK_AT_LEAST_EVERY: Duration = Duration::from_secs(2);

/// A page of something that is followed.
pub(crate) trait FollowedPage {
    /// True if it has no event.
    fn is_empty(&self) -> bool;

    /// Position at which the next page begins.
    fn next(&self) -> EventPosition;
}

/// Something that is followed, page by page.
pub(crate) trait Followed: Sync {
    /// A page of it.
    type Page: FollowedPage + Send;

    /// The page behind `from`.
    fn page(
        &self,
        reads: &dyn ReadStore,
        from: EventPosition,
    ) -> impl Future<Output = Result<Self::Page, StoreError>> + Send;
}

/// Changes of the suppression list, so many in a page.
pub(crate) struct FollowedChanges {
    pub(crate) events_max: usize,
}

/// Delivery events, so many in a page.
pub(crate) struct FollowedDeliveries {
    pub(crate) filter: DeliveryFilter,
    pub(crate) events_max: usize,
}

impl FollowedPage for SuppressionPage {
    fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    fn next(&self) -> EventPosition {
        self.next
    }
}

impl FollowedPage for DeliveryPage {
    fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    fn next(&self) -> EventPosition {
        self.next
    }
}

impl Followed for FollowedChanges {
    type Page = SuppressionPage;

    async fn page(
        &self,
        reads: &dyn ReadStore,
        from: EventPosition,
    ) -> Result<SuppressionPage, StoreError> {
        reads.suppression_events(from, self.events_max).await
    }
}

impl Followed for FollowedDeliveries {
    type Page = DeliveryPage;

    async fn page(
        &self,
        reads: &dyn ReadStore,
        from: EventPosition,
    ) -> Result<DeliveryPage, StoreError> {
        reads.delivery_events(self.filter.clone(), from, self.events_max).await
    }
}

/// `wait`: the seconds for which a caller waits, 0 if it is not given.
pub(crate) fn wait_of(query: &mut Query) -> Result<Duration, Problem> {
    let wait: u64 = query.parse("wait")?.unwrap_or(0);
    if wait > LONG_POLL.as_secs() {
        let most = LONG_POLL.as_secs();
        return Err(Problem::parameter(format!("parameter wait: must be 0 to {most} (seconds)")));
    }
    Ok(Duration::from_secs(wait))
}

// === impl ApiState ===

impl ApiState {
    /// The page of `followed` after `position`; when there is nothing, what comes within `wait`. Pages that have moved on
    /// without an event are passed over.
    pub(crate) async fn follow<F: Followed>(
        &self,
        caller: &Caller,
        position: EventPosition,
        wait: Duration,
        followed: &F,
    ) -> Result<F::Page, StoreError> {
        let mut changes = self.changes.clone();
        let mut from = position;
        if wait.is_zero() {
            return followed.page(&*self.reads_of(caller), position).await;
        }
        // A caller that waits is not refused once there is something to tell.
        let reads = self.patient_reads_of(caller);
        let waiting = async {
            loop {
                // What changes from here on wakes the wait below, also if it changes during the look.
                changes.mark_unchanged();
                let page = followed.page(&*reads, from).await?;
                if !page.is_empty() || self.is_stopping() {
                    return Ok(page);
                }
                let is_moved = page.next() != from;
                from = page.next();
                if is_moved {
                    continue;
                }
                tokio::select! {
                    store_is_gone = changes.changed() => {
                        if store_is_gone.is_err() {
                            return Ok(page);
                        }
                        sleep(GATHER).await;
                    }
                    () = sleep(LOOK_AT_LEAST_EVERY) => {}
                }
            }
        };
        match timeout(wait, waiting).await {
            Ok(page) => page,
            // The time may have passed while changes were gathered: they are answered now.
            Err(_elapsed) => followed.page(&*reads, from).await,
        }
    }
}

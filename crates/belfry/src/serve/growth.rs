//! The task that looks at the size of the store now and then, for the forecast in the status.

use std::sync::Arc;

use api::StoreGrowth;
use flow::Clock;
use store::{ReadStore, StoreError};
use tokio::sync::watch;
use tokio::time::sleep;

/// Notes the size of the store.
#[derive(Debug)]
pub(super) struct GrowthTask {
    pub(super) reads: Arc<dyn ReadStore>,
    pub(super) growth: Arc<StoreGrowth>,
    pub(super) clock: Clock,
}

// === impl GrowthTask ===

impl GrowthTask {
    /// Runs until `stopping`.
    pub(super) async fn run(self, mut stopping: watch::Receiver<bool>) -> Result<(), StoreError> {
        tokio::select! {
            // A sender that is gone stops as well.
            _ = stopping.wait_for(|stopping| *stopping) => Ok(()),
            () = self.look() => Ok(()),
        }
    }

    async fn look(&self) {
        loop {
            match self.reads.space().await {
                Ok(Some(space)) => self.growth.note(pipeline::timestamp(self.clock), space),
                Ok(None) => {}
                // The database is away: that is reported where it matters.
                Err(error) => tracing::debug!(%error, "the size of the store is not known"),
            }
            sleep(StoreGrowth::LOOK_EVERY).await;
        }
    }
}

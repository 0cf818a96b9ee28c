//! The end of a process's membership of the cluster.

use flow::Tasks;
use flow::tasks::Panicked;

use super::Postgres;
use super::membership::Intent;
use crate::Ending;

// === impl Postgres ===

impl Postgres {
    /// Leaves the cluster in good order, and then is of no more use. Deliveries that this process still holds are due again at
    /// once.
    pub async fn close(&self) {
        self.end(Ending::Left).await;
    }

    /// [`Postgres::close`] for a process that says how it ends.
    pub async fn end(&self, ending: Ending) {
        self.intent.send_replace(Intent::Leave(ending));
        let mut tasks = self.tasks.lock().await;
        while let Some(ended) = tasks.next().await {
            // It is the one that gives back what this process has, unless it panicked; the other ones have no end, and are dropped
            // below.
            let (Ok(name) | Err(Panicked { name })) = ended;
            if name == "store-worker" {
                break;
            }
        }
        *tasks = Tasks::default();
    }
}

//! Tasks of one thread that end with their owner: what keeps connections moving and ends idle ones.

use std::cell::RefCell;

use tokio::task::{AbortHandle, JoinSet};

/// The tasks of one owner. Dropping it ends them.
#[derive(Debug, Default)]
pub struct LocalTasks(RefCell<JoinSet<()>>);

// === impl LocalTasks ===

impl LocalTasks {
    /// Runs `task` on this thread, beside its owner.
    pub fn spawn(&self, task: impl Future<Output = ()> + 'static) -> AbortHandle {
        let mut tasks = self.0.borrow_mut();
        // What has ended would be kept otherwise.
        while tasks.try_join_next().is_some() {}
        tasks.spawn_local(task)
    }

    /// Waits until all have ended.
    pub async fn join(&self) {
        // Taken out, since a borrow must not last over the wait: a task that ends may spawn another.
        let mut tasks = self.0.take();
        while tasks.join_next().await.is_some() {}
    }

    /// Ends all, and waits until they have.
    pub async fn abort(&self) {
        self.0.borrow_mut().abort_all();
        self.join().await;
    }
}

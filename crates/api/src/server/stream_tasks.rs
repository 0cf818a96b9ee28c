//! The tasks that answer the requests of one HTTP/2 connection. They end with it.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use hyper::rt::Executor;
use tokio::task::JoinSet;

use super::served_site::ServedSite;

/// The tasks of a connection. Dropping it ends them, as the end of an HTTP/1.1 connection ends its request.
#[derive(Debug, Default)]
pub(super) struct StreamTasks(Arc<Mutex<JoinSet<()>>>);

/// Spawns tasks for as long as their connection is there. Its tasks hold it as well, so it does not hold them.
#[derive(Debug, Clone)]
pub(super) struct StreamSpawner {
    tasks: Weak<Mutex<JoinSet<()>>>,
    served: ServedSite,
}

// === impl StreamTasks ===

impl StreamTasks {
    pub(super) fn spawner(&self, served: ServedSite) -> StreamSpawner {
        StreamSpawner { tasks: Arc::downgrade(&self.0), served }
    }
}

// === impl StreamSpawner ===

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for StreamSpawner {
    fn execute(&self, stream: F) {
        // Without its connection a stream has nothing to answer to: it is dropped.
        let Some(tasks) = self.tasks.upgrade() else { return };
        let mut tasks = tasks.lock().unwrap_or_else(PoisonError::into_inner);
        // Those that ended are taken out, or their number would grow for as long as the connection lasts.
        while let Some(ended) = tasks.try_join_next() {
            if let Err(error) = ended {
                tracing::error!(%error, "request panicked");
            }
        }
        let served = self.served.clone();
        tasks.spawn(async move {
            stream.await;
            // A stream that was reset may have been an upload; its connection may go on for days.
            served.sweep().await;
        });
    }
}

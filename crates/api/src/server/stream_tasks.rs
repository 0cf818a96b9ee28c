//! The tasks that answer the requests of one HTTP/2 connection. They end with it.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use hyper::rt::Executor;
use tokio::task::{AbortHandle, Id, JoinSet};

use super::served_site::ServedSite;

/// The tasks of a connection. Dropping it ends them, as the end of an HTTP/1.1 connection ends its request.
#[derive(Debug, Default)]
pub(super) struct StreamTasks(Arc<Mutex<RunningStreams>>);

#[derive(Debug, Default)]
struct RunningStreams {
    tasks: JoinSet<()>,
    /// Those of `tasks`.
    handles: HashMap<Id, AbortHandle>,
}

/// Spawns tasks for as long as their connection is there. Its tasks hold it as well, so it does not hold them.
#[derive(Debug, Clone)]
pub(super) struct StreamSpawner {
    running: Weak<Mutex<RunningStreams>>,
    served: ServedSite,
}

// === impl StreamTasks ===

impl StreamTasks {
    pub(super) fn spawner(&self, served: ServedSite) -> StreamSpawner {
        StreamSpawner { running: Arc::downgrade(&self.0), served }
    }

    /// Ends the task `id`: its stream is reset, and the others go on.
    pub(super) fn abort(&self, id: Id) {
        if let Some(handle) = lock(&self.0).handles.get(&id) {
            handle.abort();
        }
    }
}

fn lock(running: &Mutex<RunningStreams>) -> MutexGuard<'_, RunningStreams> {
    // Every critical section leaves the tasks whole, even if it panicked.
    running.lock().unwrap_or_else(PoisonError::into_inner)
}

// === impl RunningStreams ===

impl RunningStreams {
    /// Takes out those that ended, or their number would grow for as long as the connection lasts.
    fn reap(&mut self) {
        while let Some(ended) = self.tasks.try_join_next_with_id() {
            let id = match ended {
                Ok((id, ())) => id,
                Err(error) => {
                    if error.is_panic() {
                        tracing::error!(%error, "request panicked");
                    }
                    error.id()
                }
            };
            self.handles.remove(&id);
        }
    }
}

// === impl StreamSpawner ===

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for StreamSpawner {
    fn execute(&self, stream: F) {
        // Without its connection a stream has nothing to answer to: it is dropped.
        let Some(running) = self.running.upgrade() else { return };
        let served = self.served.clone();
        let mut running = lock(&running);
        running.reap();
        let handle = running.tasks.spawn(async move {
            stream.await;
            // A stream that was reset may have been an upload; its connection may go on for days.
            served.sweep().await;
        });
        running.handles.insert(handle.id(), handle);
    }
}

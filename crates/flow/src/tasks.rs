//! No anonymous tasks: everything that runs in the background has a name, and a drain waits for it.

use std::future::Future;
use std::io;

use tokio::task::{Id, JoinSet};

/// The background tasks of one component. Dropping it aborts those that still run.
#[derive(Debug, Default)]
pub struct Tasks {
    running: JoinSet<()>,
    names: Vec<(Id, &'static str)>,
}

/// A task that ended by a panic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Panicked {
    /// The task's name.
    pub name: &'static str,
}

// === impl Tasks ===

impl Tasks {
    /// Runs `future` in the background under `name`, on the current runtime.
    pub fn spawn(&mut self, name: &'static str, future: impl Future<Output = ()> + Send + 'static) {
        let handle = self.running.spawn(future);
        self.names.push((handle.id(), name));
    }

    /// Waits until the next task ends and gives its name; `None` when none is left.
    pub async fn next(&mut self) -> Option<Result<&'static str, Panicked>> {
        let (id, panicked) = match self.running.join_next_with_id().await? {
            Ok((id, ())) => (id, false),
            Err(error) => (error.id(), error.is_panic()),
        };
        let name = self.forget(id);
        Some(if panicked { Err(Panicked { name }) } else { Ok(name) })
    }

    /// Waits until every task has ended.
    pub async fn drain(&mut self) {
        while let Some(ended) = self.next().await {
            match ended {
                Ok(name) => tracing::debug!(task = name, "task ended"),
                Err(Panicked { name }) => tracing::error!(task = name, "task panicked"),
            }
        }
    }

    fn forget(&mut self, id: Id) -> &'static str {
        let position = self.names.iter().position(|(known, _)| *known == id);
        position.map_or("unnamed", |position| self.names.swap_remove(position).1)
    }
}

// === impl Panicked ===

impl From<Panicked> for io::Error {
    fn from(panicked: Panicked) -> Self {
        Self::other(format!("task {} panicked", panicked.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_is_told_by_the_name_of_its_task() {
        let mut tasks = Tasks::default();
        tasks.spawn("good", async {});
        assert_eq!(tasks.next().await, Some(Ok("good")));
        tasks.spawn("bad", async { panic!("as planned") });
        assert_eq!(tasks.next().await, Some(Err(Panicked { name: "bad" })));
        assert_eq!(tasks.next().await, None);
    }
}

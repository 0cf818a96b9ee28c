//! Named background tasks: a drain waits for each of them.

use std::future::Future;
use std::io;
use std::pin::pin;

use tokio::sync::watch;
use tokio::task::{Id, JoinSet};

/// The background tasks of one component. Dropping it aborts those that still run.
///
/// Tasks that are to last as long as their process are watched by [`Tasks::ended`]: when one has ended unasked, by a panic
/// too, its work is done by no other.
#[derive(Debug, Default)]
pub struct Tasks {
    running: JoinSet<()>,
    names: Vec<(Id, &'static str)>,
    ended: watch::Sender<Option<Ended>>,
    /// The task that is to panic.
    sabotaged: watch::Sender<Option<&'static str>>,
}

/// A task that came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// The task's name.
    pub name: &'static str,
    /// True if the task ended by a panic.
    pub panicked: bool,
}

/// Reports the end of a task when it is dropped: after a return, a panic and an abort alike.
struct EndGuard(&'static str, watch::Sender<Option<Ended>>);

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
        let end_guard = EndGuard(name, self.ended.clone());
        let mut sabotaged = self.sabotaged.subscribe();
        let handle = self.running.spawn(async move {
            let mut future = pin!(future);
            // Dropped before the future is: the end is reported before its consequences.
            let _end_guard = end_guard;
            tokio::select! {
                // The request to panic is looked at first, so that it holds at the next poll, before the task's own work.
                biased;
                Ok(_) = sabotaged.wait_for(|sabotaged| *sabotaged == Some(name)) => {
                    sabotage(name);
                }
                () = &mut future => {}
            }
        });
        self.names.push((handle.id(), name));
    }

    /// Becomes the first task that ended, as soon as it has ended, also if [`Tasks::next`] is never called.
    pub fn ended(&self) -> watch::Receiver<Option<Ended>> {
        self.ended.subscribe()
    }

    /// The names of the tasks whose end was not taken by [`Tasks::next`] or [`Tasks::drain`].
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.names.iter().map(|(_id, name)| *name)
    }

    /// Makes the task called `name` panic when it is next polled. For tests of what watches it.
    pub fn sabotage(&self, name: &'static str) {
        self.sabotaged.send_replace(Some(name));
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

    /// Aborts all tasks, and waits until what they held is dropped.
    pub async fn abort(&mut self) {
        self.running.shutdown().await;
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

#[expect(clippy::panic, reason = "it is asked to")]
fn sabotage(name: &str) {
    panic!("the task {name} was asked to panic");
}

// === impl Ended ===

impl std::fmt::Display for Ended {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { name, panicked } = self;
        write!(formatter, "the task {name} {}", if *panicked { "panicked" } else { "ended" })
    }
}

// === impl EndGuard ===

impl Drop for EndGuard {
    fn drop(&mut self) {
        let ended = Ended { name: self.0, panicked: std::thread::panicking() };
        // Only the first end is kept: later ones are mostly its consequences.
        self.1.send_if_modified(|first| first.is_none().then(|| *first = Some(ended)).is_some());
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

    #[tokio::test]
    async fn the_first_end_is_seen_without_waiting_for_any() {
        for (sabotaged, panicked) in [(Some("watched"), true), (None, false)] {
            let mut tasks = Tasks::default();
            let mut ended = tasks.ended();
            tasks.spawn("other", std::future::pending());
            let (go, gone) = tokio::sync::oneshot::channel::<()>();
            tasks.spawn("watched", async { gone.await.unwrap() });
            assert!(tasks.names().eq(["other", "watched"]));
            match sabotaged {
                Some(name) => tasks.sabotage(name),
                None => go.send(()).unwrap(),
            }
            let first = *ended.wait_for(Option::is_some).await.unwrap();
            assert_eq!(first, Some(Ended { name: "watched", panicked }));
        }
    }
}

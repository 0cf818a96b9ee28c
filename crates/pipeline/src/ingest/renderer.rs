//! Threads for compiling and rendering templates only.
//!
//! A template may keep a thread for milliseconds, and a caller may send thousands: on the threads that serve callers,
//! claim, settle and renew leases they would delay every caller. Here they delay each other only: tenants take turns, one
//! piece of work at a time, and work that would wait behind too many pieces is refused at once.

use std::collections::{HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::{fmt, io, thread};

use flow::histogram::doubling;
use flow::{Clock, Histogram};
use notification::Name;
use notification::limits::OVERLOAD_RETRY_AFTER;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use tokio::sync::oneshot;

use super::{IngestError, IngestShare};
use crate::ingest::limits::{RENDER_WAITING, RENDER_WAITING_OF_TENANT};
use crate::metrics::shown::{ShownHistogram, show_gauge, show_histogram};

/// A bounded pool of threads; shared by cloning. Its threads end when the last clone is gone.
#[derive(Clone)]
pub struct Renderer {
    owner: Arc<QueueOwner>,
}

/// Closes the queue when the last clone of a renderer is gone, which ends its threads.
struct QueueOwner {
    shared: Arc<RenderQueue>,
}

struct RenderQueue {
    waiting: Mutex<FairQueue>,
    wake: Condvar,
    /// Microseconds that each piece of work took.
    took_us: Histogram,
}

/// The work of a renderer, as it is at a scrape.
struct RenderMetrics(Arc<RenderQueue>);

/// Work that no thread has taken yet, given out round-robin over the tenants.
#[derive(Default)]
struct FairQueue {
    of_tenants: HashMap<Name, VecDeque<RenderJob>>,
    /// The tenants that have work, the next one first.
    turns: VecDeque<Name>,
    count: usize,
    is_closed: bool,
}

type RenderJob = Box<dyn FnOnce() + Send>;

/// Upper bounds of the time of a piece of work, microseconds: from 50 µs to 0.8 s.
static TOOK_US: [u64; 15] = doubling(50);

// === impl Renderer ===

impl Renderer {
    /// Starts `threads` threads.
    ///
    /// # Errors
    /// When the system gives no more threads.
    pub fn start(threads: usize) -> io::Result<Self> {
        let shared = Arc::new(RenderQueue {
            waiting: Mutex::default(),
            wake: Condvar::new(),
            took_us: Histogram::new(&TOOK_US),
        });
        let owner = Arc::new(QueueOwner { shared: Arc::clone(&shared) });
        for _ in 0..threads {
            let shared = Arc::clone(&shared);
            // If one cannot be started, those before it end with `owner`.
            thread::Builder::new().name("render".to_owned()).spawn(move || shared.work())?;
        }
        Ok(Self { owner })
    }

    /// The metrics of its work.
    pub(crate) fn metrics(&self) -> Box<dyn Collector> {
        Box::new(RenderMetrics(Arc::clone(&self.owner.shared)))
    }

    /// Runs `work` on one of the threads, when it is the tenant's turn. The work of a caller that has hung up is still done.
    ///
    /// # Errors
    /// [`IngestError::TenantOverloaded`] when [`RENDER_WAITING_OF_TENANT`] pieces of the tenant's work are waiting,
    /// [`IngestError::Overloaded`] when [`RENDER_WAITING`] of all tenants are.
    ///
    /// # Panics
    /// When `work` panics.
    pub async fn run<T: Send + 'static>(
        &self,
        tenant: &Name,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, IngestError> {
        let (reply, done) = oneshot::channel();
        let work = Box::new(move || {
            // A panic is the caller's: it must not end the thread that renders for all.
            let outcome = catch_unwind(AssertUnwindSafe(work));
            // A caller that has hung up needs no answer.
            let _unheard = reply.send(outcome);
        });
        self.owner.shared.push(tenant, work)?;
        match done.await {
            Ok(Ok(done)) => Ok(done),
            Ok(Err(panic)) => resume_unwind(panic),
            Err(_closed) => Err(IngestError::Overloaded { retry_after: OVERLOAD_RETRY_AFTER }),
        }
    }
}

impl fmt::Debug for Renderer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let waiting = self.owner.shared.waiting().count;
        formatter.debug_struct("Renderer").field("waiting", &waiting).finish_non_exhaustive()
    }
}

// === impl QueueOwner ===

impl Drop for QueueOwner {
    fn drop(&mut self) {
        self.shared.waiting().is_closed = true;
        self.shared.wake.notify_all();
    }
}

// === impl RenderQueue ===

impl RenderQueue {
    fn push(&self, tenant: &Name, work: RenderJob) -> Result<(), IngestError> {
        self.waiting().push(tenant, work)?;
        self.wake.notify_one();
        Ok(())
    }

    /// The loop of each thread, until the queue is closed.
    fn work(&self) {
        // Spans are the same by every clock.
        let clock = Clock::system();
        while let Some(work) = self.next() {
            let begun_at = clock.monotonic();
            work();
            let micros = clock.monotonic().duration_since(begun_at).as_micros();
            self.took_us.observe(u64::try_from(micros).unwrap_or(u64::MAX));
        }
    }

    fn next(&self) -> Option<RenderJob> {
        let idle = |waiting: &mut FairQueue| waiting.count == 0 && !waiting.is_closed;
        // Looked at again after each wake-up: a condition variable may wake without a reason.
        let waiting = self.wake.wait_while(self.waiting(), idle);
        waiting.unwrap_or_else(PoisonError::into_inner).pop()
    }

    fn waiting(&self) -> MutexGuard<'_, FairQueue> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl RenderMetrics ===

impl Collector for RenderMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let name = "belfry_render_seconds";
        let help =
            "Seconds of each piece of work with templates: a notification or a part of a broadcast";
        let took = ShownHistogram::seconds(self.0.took_us.total());
        show_histogram(&mut encoder, (name, help), &took)?;
        let name = "belfry_renders_waiting";
        let help = "Pieces of work with templates that wait for a thread";
        let waiting = self.0.waiting().count as u64;
        show_gauge(&mut encoder, (name, help), waiting)
    }
}

impl fmt::Debug for RenderMetrics {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("RenderMetrics").finish_non_exhaustive()
    }
}

// === impl FairQueue ===

impl FairQueue {
    fn push(&mut self, tenant: &Name, work: RenderJob) -> Result<(), IngestError> {
        let retry_after = OVERLOAD_RETRY_AFTER;
        if self.count >= RENDER_WAITING {
            return Err(IngestError::Overloaded { retry_after });
        }
        let of_tenant = self.of_tenants.entry(tenant.clone()).or_default();
        if of_tenant.len() >= RENDER_WAITING_OF_TENANT {
            return Err(IngestError::TenantOverloaded {
                share: IngestShare::Rendering,
                retry_after,
            });
        }
        // A tenant stands in the line once, however much work it has.
        if of_tenant.is_empty() {
            self.turns.push_back(tenant.clone());
        }
        of_tenant.push_back(work);
        self.count += 1;
        Ok(())
    }

    /// The next piece of work of the tenant whose turn it is, which goes to the end of the line.
    fn pop(&mut self) -> Option<RenderJob> {
        let tenant = self.turns.pop_front()?;
        let of_tenant = self.of_tenants.get_mut(&tenant)?;
        let work = of_tenant.pop_front()?;
        self.count -= 1;
        if of_tenant.is_empty() {
            // Forgotten without work, since the number of tenants has no bound.
            self.of_tenants.remove(&tenant);
        } else {
            self.turns.push_back(tenant);
        }
        Some(work)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    fn tenant(name: &str) -> Name {
        name.parse().unwrap()
    }

    /// Adds `count` pieces of work that say whose they are.
    fn push(waiting: &mut FairQueue, whose: &str, count: usize, said: &mpsc::SyncSender<String>) {
        for _ in 0..count {
            let (said, whose_it_is) = (said.clone(), whose.to_owned());
            let work = Box::new(move || said.send(whose_it_is).unwrap());
            waiting.push(&tenant(whose), work).unwrap();
        }
    }

    #[test]
    fn tenants_take_turns_however_much_one_of_them_sends() {
        let (said, heard) = mpsc::sync_channel(RENDER_WAITING);
        let mut waiting = FairQueue::default();
        push(&mut waiting, "greedy", RENDER_WAITING_OF_TENANT, &said);
        push(&mut waiting, "modest", 1, &said);
        push(&mut waiting, "other", 2, &said);
        while let Some(work) = waiting.pop() {
            work();
        }
        drop(said);
        let order: Vec<String> = heard.iter().collect();
        assert_eq!(order[..6], ["greedy", "modest", "other", "greedy", "other", "greedy"]);
        assert_eq!(order.len(), RENDER_WAITING_OF_TENANT + 3);
        assert!(waiting.of_tenants.is_empty() && waiting.turns.is_empty() && waiting.count == 0);
    }

    #[test]
    fn too_much_work_is_refused_as_one_tenants_or_as_all_tenants() {
        let (said, _heard) = mpsc::sync_channel(1);
        let mut waiting = FairQueue::default();
        push(&mut waiting, "greedy", RENDER_WAITING_OF_TENANT, &said);
        let retry_after = OVERLOAD_RETRY_AFTER;
        let refused = waiting.push(&tenant("greedy"), Box::new(|| {}));
        assert_eq!(
            refused,
            Err(IngestError::TenantOverloaded { share: IngestShare::Rendering, retry_after })
        );
        for number in 0..RENDER_WAITING - RENDER_WAITING_OF_TENANT {
            push(&mut waiting, &format!("t{number}"), 1, &said);
        }
        let refused = waiting.push(&tenant("another"), Box::new(|| {}));
        assert_eq!(refused, Err(IngestError::Overloaded { retry_after }));
        drop(waiting.pop());
        assert_eq!(waiting.push(&tenant("another"), Box::new(|| {})), Ok(()));
    }

    #[tokio::test]
    async fn work_is_done_on_other_threads_and_a_panic_is_the_callers() {
        let renderer = Renderer::start(1).unwrap();
        let a = tenant("a");
        let name = renderer.run(&a, || thread::current().name().map(str::to_owned));
        assert_eq!(name.await.unwrap().as_deref(), Some("render"));
        let panicking = renderer.clone();
        let panicked = tokio::task::LocalSet::new()
            .run_until(async move {
                tokio::task::spawn_local(async move {
                    panicking.run(&tenant("a"), || panic!("as planned")).await
                })
                .await
            })
            .await;
        assert!(panicked.unwrap_err().is_panic());
        assert_eq!(renderer.run(&a, || 2).await, Ok(2), "the thread goes on");
    }
}

//! Merging of requests over one connection: one loop performs all waiting requests together.
//!
//! Callers of several kinds hand in items, and each waits for the outcome of its own. A loop that owns the connection takes the
//! waiting items as one group, performs it, and answers item by item; items that are handed in meanwhile are the next group. An
//! item alone is therefore performed at once, and under load groups are as large as the connection makes callers wait.
//!
//! - No timer and no polling: a loop without work is parked until an item or a [`Control`] wakes it.
//! - Callers that were answered together come back together, some microseconds apart. A loop that took the first of them at once
//!   would have the others wait for a group of one. So after a group of several it yields while fewer wait than that group had, a
//!   bounded number of times; after a group of one it never does.
//! - Each kind has a queue of [`Bounds::waiting`] items; beyond it callers of this kind wait, and only they.
//! - A group takes from the kinds in turn, one item each, and from one kind in the order in which callers came. A kind with
//!   ten thousand items waiting delays one of another kind by a single group.
//! - An item carries its own answer, mostly a [`oneshot::Sender`]; one that is dropped gives its caller [`Closed`]. No
//!   outcome is of a whole group: [`Unmerge`] finds the items that fail when the others can be done.
//! - A loop that is closed takes the items that were handed in before, and then ends.
//!
//! [`Merging::Separate`] runs a loop for each kind, to compare with (decision 0030).

use std::future::{Future, poll_fn};
use std::ops::Range;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use tokio::sync::{mpsc, oneshot};
use tokio::task::yield_now;

/// Number of loops that serve the kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Merging {
    /// One loop for all kinds.
    #[default]
    Shared,
    /// One loop for each kind; they take turns on the connection, under a fair lock.
    Separate,
}

/// Bounds of a group and of the queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Items of a group, at most.
    pub items: usize,
    /// Their weights together, at most; a heavier item is a group with what weighs nothing.
    pub weight: usize,
    /// Items of one kind that wait for a group, at most, but for one that the loop has looked at.
    pub waiting: usize,
}

/// A request that can be merged.
pub trait Weighted {
    /// Weight of the item, counted against [`Bounds::weight`].
    fn weight(&self) -> usize;
}

/// All parts of a connection's merging: callers of `KINDS` kinds, and a loop or several.
#[derive(Debug)]
pub struct Merge<T, const KINDS: usize> {
    /// Callers' ends of the queues, one for each kind.
    pub callers: [MergeHandle<T>; KINDS],
    /// Loops' ends of the queues: one, or one for each kind.
    pub loops: Vec<Groups<T>>,
    /// Control of all loops.
    pub control: Control,
}

/// Hands in items of one kind.
#[derive(Debug)]
pub struct MergeHandle<T>(mpsc::Sender<T>);

/// Answer to a caller whose loop has ended: its item was not performed, or it is unknown whether it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Closed;

/// Speaks to loops without handing in an item. As a [`Waker`], it has them look again.
#[derive(Debug, Clone, Default)]
pub struct Control {
    signals: Vec<mpsc::Sender<LoopSignal>>,
    taken: Arc<GroupTally>,
}

/// Counts of groups and items that loops took from their queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Groups with an item.
    pub groups: u64,
    /// Their items.
    pub items: u64,
}

/// A loop's end of the queues.
#[derive(Debug)]
pub struct Groups<T> {
    kinds: Vec<KindQueue<T>>,
    /// The kind whose turn it is.
    turn: usize,
    /// Items of the last group.
    last: usize,
    bounds: Bounds,
    signals: mpsc::Receiver<LoopSignal>,
    taken: Arc<GroupTally>,
}

/// Reason for which a group that was performed as one was undone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Undone<E> {
    /// An item of it cannot be done; which one is not known.
    OneItemFailed(E),
    /// A failure of what all items share, such as the connection.
    AllFailed(E),
}

/// Search for the items of a group that fail, while the others are done; it gives the part to be performed next, as one.
///
/// A part that an item undoes is split, and its halves are performed one after the other, so one failing item among a thousand
/// costs twenty groups. An error of all is given to all items that are not done, without another try.
#[derive(Debug)]
pub struct Unmerge<E> {
    items: usize,
    /// Parts to be performed, the next one last.
    parts: Vec<Range<usize>>,
    /// Outcomes of the first items.
    outcomes: Vec<Result<(), E>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LoopSignal {
    LookAgain,
    Close,
}

#[derive(Debug, Default)]
struct GroupTally {
    groups: AtomicU64,
    items: AtomicU64,
}

/// The queue of one kind.
#[derive(Debug)]
struct KindQueue<T> {
    /// The first that waits, once the loop has looked at it.
    first: Option<T>,
    queue: mpsc::Receiver<T>,
}

/// Wakes a thread.
struct ThreadWaker(Thread);

/// State of a loop that yields to callers that come back.
#[derive(Default)]
struct Yielding {
    /// Items that waited when it looked last.
    waiting: usize,
    /// Times since one came.
    times: usize,
}

/// Vain yields of a loop before it takes a group: some tens of microseconds, a tenth of a synced commit.
const YIELDS: usize = 64;

// === impl Merge ===

impl<T: Weighted, const KINDS: usize> Merge<T, KINDS> {
    /// Queues of `KINDS` kinds, and the ends of the loops that are to take from them.
    pub fn new(merging: Merging, bounds: Bounds) -> Self {
        let (callers, kinds) = queues(bounds.waiting);
        let mut control = Control::default();
        let loops = match merging {
            Merging::Shared => vec![control.groups(kinds, bounds)],
            Merging::Separate => {
                kinds.into_iter().map(|kind| control.groups(vec![kind], bounds)).collect()
            }
        };
        Self { callers, loops, control }
    }
}

// === impl MergeHandle ===

impl<T> Clone for MergeHandle<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> MergeHandle<T> {
    /// Hands in the item that `make` makes with the place for its outcome, and waits for that. Waits before while too many of
    /// its kind do.
    ///
    /// # Errors
    /// When the loop ended, or dropped the item.
    pub async fn call<A>(&self, make: impl FnOnce(oneshot::Sender<A>) -> T) -> Result<A, Closed> {
        let (outcome, answered) = oneshot::channel();
        self.0.send(make(outcome)).await.map_err(|_refused| Closed)?;
        answered.await.map_err(|_dropped| Closed)
    }
}

// === impl Control ===

impl Control {
    /// Has the loops perform the items handed in, refuse later ones, and end. Returns when they are notified, not when they have
    /// ended.
    pub async fn close(&self) {
        for signals in &self.signals {
            // A loop that is gone is closed.
            let _told_or_gone = signals.send(LoopSignal::Close).await;
        }
    }

    fn groups<T>(&mut self, kinds: Vec<KindQueue<T>>, bounds: Bounds) -> Groups<T> {
        // A second request to look again is the first, and one to close waits for its place.
        let (sender, signals) = mpsc::channel(1);
        self.signals.push(sender);
        Groups { kinds, turn: 0, last: 0, bounds, signals, taken: Arc::clone(&self.taken) }
    }

    /// Counts of the groups and items taken so far.
    pub fn counts(&self) -> Counts {
        Counts {
            groups: self.taken.groups.load(Ordering::Relaxed),
            items: self.taken.items.load(Ordering::Relaxed),
        }
    }
}

impl Wake for Control {
    /// Has each loop take a group, which may be empty.
    fn wake(self: Arc<Self>) {
        for signals in &self.signals {
            // A full channel brings the loop here anyway.
            let _told_or_busy = signals.try_send(LoopSignal::LookAgain);
        }
    }
}

// === impl Groups ===

impl<T: Weighted> Groups<T> {
    /// Parks until an item waits, or until the control wakes it; true if the loop goes on. Once closed, or without callers, it
    /// goes on for as long as an item waits. Cancel safe.
    pub async fn ready(&mut self) -> bool {
        poll_fn(|context| self.poll_ready(context)).await
    }

    /// [`Groups::ready`] for a thread without a runtime.
    pub fn ready_blocking(&mut self) -> bool {
        block_on(self.ready())
    }

    /// [`Groups::ready`] without waiting; also true if no item waits.
    pub fn goes_on(&mut self) -> bool {
        match self.poll_ready(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(goes_on) => goes_on,
            Poll::Pending => true,
        }
    }

    /// Takes the waiting items, within the bounds, once the callers of the last group had time to come back. To be called when
    /// the connection is free, and no earlier: items that are handed in until then go along.
    pub async fn take(&mut self) -> Vec<T> {
        let mut yielding = Yielding::default();
        while self.yields(&mut yielding) {
            yield_now().await;
        }
        self.take_now()
    }

    /// [`Groups::take`] for a thread without a runtime.
    pub fn take_blocking(&mut self) -> Vec<T> {
        let mut yielding = Yielding::default();
        while self.yields(&mut yielding) {
            thread::yield_now();
        }
        self.take_now()
    }

    /// Parks until items wait, and takes them; `None` when the queue is closed, or without callers, and nothing waits. An empty
    /// group when the control wakes it.
    pub async fn next(&mut self) -> Option<Vec<T>> {
        if self.ready().await { Some(self.take().await) } else { None }
    }

    /// Adds to `group` what waits behind it, so that it has `items` at most and whatever it weighs: for a loop whose
    /// connection is away, to see whose time is over.
    pub fn add_waiting(&mut self, group: &mut Vec<T>, items: usize) {
        for kind in &mut self.kinds {
            while group.len() < items
                && let Some(item) = kind.next_within(usize::MAX)
            {
                group.push(item);
            }
        }
    }

    fn take_now(&mut self) -> Vec<T> {
        let mut group = Vec::new();
        let (mut weight, mut passed) = (0, 0);
        while group.len() < self.bounds.items && passed < self.kinds.len() {
            let room = self.bounds.weight.saturating_sub(weight);
            // Alone it must go, however heavy it is.
            let room = if weight == 0 { usize::MAX } else { room };
            let kind = self.kinds.get_mut(self.turn);
            let item = kind.and_then(|kind| kind.next_within(room));
            self.turn = (self.turn + 1) % self.kinds.len();
            match item {
                Some(item) => {
                    weight += item.weight();
                    group.push(item);
                    passed = 0;
                }
                None => passed += 1,
            }
        }
        // An empty group is the control's doing: no callers come back from it.
        if !group.is_empty() {
            self.last = group.len();
            self.taken.groups.fetch_add(1, Ordering::Relaxed);
            self.taken.items.fetch_add(group.len() as u64, Ordering::Relaxed);
        }
        group
    }

    /// True if the loop is to yield once more before it takes a group.
    fn yields(&self, yielding: &mut Yielding) -> bool {
        let waiting = self.kinds.iter().map(KindQueue::waiting).sum();
        if waiting != yielding.waiting {
            *yielding = Yielding { waiting, times: 0 };
        }
        yielding.times += 1;
        waiting > 0 && waiting < self.last && yielding.times <= YIELDS
    }

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<bool> {
        let mut looks = false;
        while let Poll::Ready(Some(signal)) = self.signals.poll_recv(context) {
            match signal {
                LoopSignal::LookAgain => looks = true,
                LoopSignal::Close => self.kinds.iter_mut().for_each(|kind| kind.queue.close()),
            }
        }
        let mut is_open = false;
        for kind in &mut self.kinds {
            match kind.poll_first(context) {
                // A signal to look again is answered by it, too: the loop takes a group in any case.
                Poll::Ready(true) => return Poll::Ready(true),
                Poll::Ready(false) => {}
                Poll::Pending => is_open = true,
            }
        }
        match (looks, is_open) {
            (true, _) => Poll::Ready(true),
            (false, true) => Poll::Pending,
            (false, false) => Poll::Ready(false),
        }
    }
}

// === impl Unmerge ===

impl<E: Clone> Unmerge<E> {
    /// The search in a group of `items` items, which are performed as one first.
    pub fn new(items: usize) -> Self {
        let all = 0..items;
        Self { items, parts: vec![all], outcomes: Vec::with_capacity(items) }
    }

    /// Range of the items to be performed as one, all or none of them; `None` when each has its outcome. Unchanged until
    /// [`Unmerge::ended`] is called.
    pub fn part(&self) -> Option<Range<usize>> {
        self.parts.last().cloned()
    }

    /// Takes the result of [`Unmerge::part`].
    pub fn ended(&mut self, performed: Result<(), Undone<E>>) {
        let Some(Range { start, end }) = self.parts.pop() else { return };
        match performed {
            Err(Undone::OneItemFailed(_)) if end - start > 1 => {
                let middle = start.midpoint(end);
                self.parts.extend([middle..end, start..middle]);
            }
            Ok(()) => self.outcomes.resize(end, Ok(())),
            Err(Undone::OneItemFailed(error)) => self.outcomes.resize(end, Err(error)),
            Err(Undone::AllFailed(error)) => {
                self.outcomes.resize(self.items, Err(error));
                self.parts.clear();
            }
        }
    }

    /// Outcomes of all items, in their order.
    pub fn outcomes(self) -> Vec<Result<(), E>> {
        self.outcomes
    }
}

// === impl KindQueue ===

impl<T: Weighted> KindQueue<T> {
    /// Ready with true if an item waits, with false if the queue is closed; pending while it is empty.
    fn poll_first(&mut self, context: &mut Context<'_>) -> Poll<bool> {
        if self.first.is_none() {
            match self.queue.poll_recv(context) {
                Poll::Ready(first) => self.first = first,
                Poll::Pending => return Poll::Pending,
            }
        }
        Poll::Ready(self.first.is_some())
    }

    fn waiting(&self) -> usize {
        usize::from(self.first.is_some()) + self.queue.len()
    }

    /// The first that waits, if it weighs no more than `room`.
    fn next_within(&mut self, room: usize) -> Option<T> {
        let first = self.first.take().or_else(|| self.queue.try_recv().ok())?;
        if first.weight() > room {
            self.first = Some(first);
            return None;
        }
        Some(first)
    }
}

// === impl ThreadWaker ===

impl Wake for ThreadWaker {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// [`Merge::new`] with one loop and without a control.
pub fn shared<T: Weighted, const KINDS: usize>(
    bounds: Bounds,
) -> ([MergeHandle<T>; KINDS], Groups<T>) {
    let (callers, kinds) = queues(bounds.waiting);
    (callers, Control::default().groups(kinds, bounds))
}

fn queues<T, const KINDS: usize>(waiting: usize) -> ([MergeHandle<T>; KINDS], Vec<KindQueue<T>>) {
    let mut kinds = Vec::with_capacity(KINDS);
    let callers = std::array::from_fn(|_kind| {
        let (sender, queue) = mpsc::channel(waiting);
        kinds.push(KindQueue { first: None, queue });
        MergeHandle(sender)
    });
    (callers, kinds)
}

fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(ThreadWaker(thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

#[cfg(test)]
#[path = "merge_tests.rs"]
mod tests;

//! Thread affinity: a destination that gets little is sent to by one thread.
//!
//! The threads share a destination's limit, and a small one is not worth to be divided: each part would wait for places of the others,
//! and keep connections of its own, whose first answer it waits for. A chunk whose destination gets little goes to the thread that the
//! destination is assigned to. When it gets much meanwhile, that thread gives the chunk back.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use notification::{Chunk, Lane, limits};
use queue::Message;
use tokio::sync::mpsc::{self, error::TrySendError};

/// The inboxes through which the sender threads of a process hand chunks to each other. The threads share it.
#[derive(Debug)]
pub struct ThreadAffinity {
    /// Senders of chunks to each thread; `None` before a thread begins and after it ends.
    inboxes: Mutex<Vec<Option<mpsc::Sender<ArrivedChunk>>>>,
    threads: usize,
}

/// The inbox of one sender thread.
#[derive(Debug)]
pub(super) struct ThreadInbox {
    affinity: Arc<ThreadAffinity>,
    number: usize,
    receiver: mpsc::Receiver<ArrivedChunk>,
}

/// A chunk that has come to a thread.
#[derive(Debug)]
pub(super) struct ArrivedChunk {
    pub(super) message: Message<Arc<Chunk>>,
    pub(super) from: ChunkOrigin,
}

/// Origin of a chunk that has come to a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChunkOrigin {
    Queue,
    /// The thread with this number: the destination is assigned to the receiver.
    Thread(usize),
    /// The thread that the destination is assigned to, which gives the chunk back.
    AssignedThread,
}

/// The attempts that a destination gets: so many at a time, each of which takes so long; `None` before the first answer on this thread.
#[derive(Debug, Clone, Copy)]
pub(super) struct DestinationSize {
    pub(super) limit: usize,
    pub(super) latency: Option<Duration>,
}

/// A limit from which on each thread has a part of it that is worth having.
const SHARED_LIMIT_MIN: usize = 64;
/// Attempts a second from which on a destination is shared: three quarters of the mails that one thread signs with RSA-2048
/// (bench/README.md), the dearest that channels do for an attempt.
const SHARED_RATE_MIN: f64 = 2_000.0;

// === impl DestinationSize ===

impl DestinationSize {
    /// True if one thread is enough for it.
    pub(super) fn is_small(self) -> bool {
        let Self { limit, latency } = self;
        let is_slow = |latency: Duration| {
            f64::from(u32::try_from(limit).unwrap_or(u32::MAX))
                < SHARED_RATE_MIN * latency.as_secs_f64()
        };
        limit < SHARED_LIMIT_MIN || latency.is_none_or(is_slow)
    }
}

// === impl ThreadAffinity ===

impl ThreadAffinity {
    /// The inboxes of a process with `threads` sender threads, none of them open.
    pub fn new(threads: usize) -> Arc<Self> {
        let inboxes = (0..threads).map(|_| None).collect();
        Arc::new(Self { inboxes: Mutex::new(inboxes), threads })
    }

    /// The sender threads.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Seat of one more thread, to which chunks can be handed from now on.
    pub(super) fn open_inbox(self: &Arc<Self>) -> ThreadInbox {
        let (sender, receiver) = mpsc::channel(limits::HANDED_CHUNKS);
        let mut inboxes = self.inboxes();
        // A place that a thread has left is taken again, so the homes stay within the threads that there are.
        let number = inboxes.iter().position(Option::is_none).unwrap_or(inboxes.len());
        match inboxes.get_mut(number) {
            Some(inbox) => *inbox = Some(sender),
            None => inboxes.push(Some(sender)),
        }
        ThreadInbox { affinity: Arc::clone(self), number, receiver }
    }

    /// Hands a chunk to the thread `number`; gives it back when the thread has ended, or has a full inbox.
    fn hand(&self, number: usize, arrived: ArrivedChunk) -> Result<(), ArrivedChunk> {
        // Sent while the lock is held: a thread that leaves finds all that was sent to it.
        let inboxes = self.inboxes();
        let Some(inbox) = inboxes.get(number).and_then(Option::as_ref) else { return Err(arrived) };
        // Without a wait: two threads with full inboxes that hand to each other would stand still.
        inbox.try_send(arrived).map_err(TrySendError::into_inner)
    }

    fn inboxes(&self) -> MutexGuard<'_, Vec<Option<mpsc::Sender<ArrivedChunk>>>> {
        // A panic leaves nothing half done here: each change is one assignment.
        self.inboxes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl ThreadInbox ===

impl ThreadInbox {
    /// The next chunk that another thread hands over.
    pub(super) async fn receive(&mut self) -> ArrivedChunk {
        match self.receiver.recv().await {
            Some(arrived) => arrived,
            // The sender is kept until the inbox is closed.
            None => std::future::pending().await,
        }
    }

    /// Keeps a chunk on this thread, and gives it back, or hands it over; its destination `is_small` or is not.
    pub(super) fn keep(
        &self,
        arrived: ArrivedChunk,
        is_small: bool,
    ) -> Option<Message<Arc<Chunk>>> {
        let (to, from) = match arrived.from {
            ChunkOrigin::Queue if is_small => {
                let assigned = self.thread_of(&arrived.message.item.envelope.lane);
                (assigned, ChunkOrigin::Thread(self.number))
            }
            ChunkOrigin::Thread(from) if !is_small => (from, ChunkOrigin::AssignedThread),
            ChunkOrigin::Queue | ChunkOrigin::Thread(_) | ChunkOrigin::AssignedThread => {
                return Some(arrived.message);
            }
        };
        // Its own inbox would be a detour, and may be full.
        if to == self.number {
            return Some(arrived.message);
        }
        let handed = self.affinity.hand(to, ArrivedChunk { message: arrived.message, from });
        handed.err().map(|arrived| arrived.message)
    }

    /// All priorities and tenants of a destination have one.
    fn thread_of(&self, lane: &Lane) -> usize {
        // Its keys are fixed, so all threads find the same home.
        let mut hasher = DefaultHasher::new();
        (&lane.channel, &lane.destination).hash(&mut hasher);
        let threads = u64::try_from(self.affinity.threads.max(1)).unwrap_or(1);
        usize::try_from(hasher.finish() % threads).unwrap_or(0)
    }

    /// Closes the inbox: the chunks handed over until now are returned to be sent, and no more arrive.
    pub(super) fn close(mut self) -> Vec<Message<Arc<Chunk>>> {
        // Before the rest is taken out: a thread that hands over holds this lock, and finds the inbox gone afterwards.
        if let Some(inbox) = self.affinity.inboxes().get_mut(self.number) {
            *inbox = None;
        }
        std::iter::from_fn(|| self.receiver.try_recv().ok())
            .map(|arrived| arrived.message)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use notification::sample;
    use std::task::{Context, Waker};

    const fn of(limit: usize, millis: u64) -> DestinationSize {
        DestinationSize { limit, latency: Some(Duration::from_millis(millis)) }
    }

    #[derive(Debug)]
    struct Kept;

    #[async_trait::async_trait]
    impl queue::Acknowledge for Kept {
        async fn acknowledge(&mut self) -> Result<(), queue::QueueError> {
            Ok(())
        }
    }

    /// A chunk from the queue to each of many destinations.
    fn chunks() -> Vec<ArrivedChunk> {
        let chunk = |number: usize| {
            let mut chunk = sample::chunk(notification::Timestamp::from_millis(0), ["a"]);
            chunk.envelope.lane.destination = format!("host {number}").into();
            Message { item: Arc::new(chunk), receipt: queue::Receipt::new(Kept) }
        };
        (0..100)
            .map(chunk)
            .map(|message| ArrivedChunk { message, from: ChunkOrigin::Queue })
            .collect()
    }

    fn received(inbox: &mut ThreadInbox) -> Vec<ArrivedChunk> {
        let mut context = Context::from_waker(Waker::noop());
        std::iter::from_fn(|| match inbox.receiver.poll_recv(&mut context) {
            std::task::Poll::Ready(arrived) => arrived,
            std::task::Poll::Pending => None,
        })
        .collect()
    }

    #[test]
    fn a_destination_is_small_by_its_limit_or_by_its_rate() {
        for (size, is_small) in [
            (of(63, 1), true),
            (of(64, 1), false),
            (of(100, 49), false),
            (of(100, 51), true),
            (of(599, 300), true),
            (of(601, 300), false),
            (of(usize::MAX, 300), false),
            (DestinationSize { limit: 20_000, latency: None }, true),
        ] {
            assert_eq!(size.is_small(), is_small, "{size:?}");
        }
    }

    #[test]
    fn a_small_destination_has_one_thread_and_a_large_one_is_shared() {
        let affinity = ThreadAffinity::new(2);
        let (first, mut second) = (affinity.open_inbox(), affinity.open_inbox());
        let here = chunks().into_iter().filter_map(|arrived| first.keep(arrived, true)).count();
        let there = received(&mut second);
        assert_eq!(here + there.len(), 100);
        assert!((30..=70).contains(&here), "{here}");
        assert!(chunks().into_iter().all(|arrived| first.keep(arrived, false).is_some()));
        // The assigned thread sends chunks of others while its limit is small, and gives them back when that is large.
        let mut first = first;
        for (arrived, is_small) in there.into_iter().zip([true, false].into_iter().cycle()) {
            assert_eq!(arrived.from, ChunkOrigin::Thread(0));
            assert_eq!(second.keep(arrived, is_small).is_some(), is_small);
        }
        let back = received(&mut first);
        assert!(!back.is_empty());
        assert!(back.into_iter().all(|arrived| first.keep(arrived, true).is_some()), "not again");
    }

    #[test]
    fn what_is_handed_to_a_thread_that_ends_is_sent_by_it_or_by_the_other() {
        let affinity = ThreadAffinity::new(2);
        let (first, second) = (affinity.open_inbox(), affinity.open_inbox());
        let kept = chunks().into_iter().filter_map(|arrived| first.keep(arrived, true)).count();
        assert_eq!(second.close().len(), 100 - kept);
        assert!(chunks().into_iter().all(|arrived| first.keep(arrived, true).is_some()));
        let third = affinity.open_inbox();
        assert_eq!(third.number, 1, "in the place of the one that ended");
        drop(third);
        assert!(
            chunks().into_iter().all(|arrived| first.keep(arrived, true).is_some()),
            "it crashed"
        );
    }
}

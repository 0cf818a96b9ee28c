//! Thread affinity: a destination with a small limit, or with one that is learned and new, is sent to by one thread.
//!
//! The threads share a destination's limit, and a small one is not worth to be divided: each part would wait for places of the others,
//! and keep connections of its own. And where it is new, a second thread would wait for the first answer over a connection of its own
//! while the first thread could send. Such a chunk goes to the thread that the destination is assigned to. When the limit has become
//! large meanwhile, that thread gives the chunk back.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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

/// A limit from which on each thread has a part of it that is worth having.
const SHARED_LIMIT_MIN: usize = 64;
/// Attempts that have ended from which on a destination with a learned limit is not new any more: a few round trips, after which there is
/// enough for a second thread to wait for its first answer.
const NEW_ATTEMPTS: usize = 500;

/// True if one thread is to send to a destination with this `limit`, which has learned from so many attempts; `None` where it is a fixed
/// number.
pub(super) fn has_one_thread(limit: usize, learned_from: Option<usize>) -> bool {
    limit < SHARED_LIMIT_MIN || learned_from.is_some_and(|attempts| attempts < NEW_ATTEMPTS)
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

    /// Keeps a chunk on this thread, and gives it back, or hands it over: one thread is to send to its destination, or any.
    pub(super) fn keep(
        &self,
        arrived: ArrivedChunk,
        has_one_thread: bool,
    ) -> Option<Message<Arc<Chunk>>> {
        let (to, from) = match arrived.from {
            ChunkOrigin::Queue if has_one_thread => {
                let assigned = self.thread_of(&arrived.message.item.envelope.lane);
                (assigned, ChunkOrigin::Thread(self.number))
            }
            ChunkOrigin::Thread(from) if !has_one_thread => (from, ChunkOrigin::AssignedThread),
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
    fn a_destination_has_one_thread_by_its_limit_or_while_its_learned_limit_is_new() {
        for (limit, learned_from, one) in [
            (63, Some(1_000_000), true),
            (63, None, true),
            (64, Some(499), true),
            (64, Some(500), false),
            (64, None, false),
            (100_000, Some(0), true),
        ] {
            assert_eq!(has_one_thread(limit, learned_from), one, "{limit}, {learned_from:?}");
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
        for (arrived, has_one_thread) in there.into_iter().zip([true, false].into_iter().cycle()) {
            assert_eq!(arrived.from, ChunkOrigin::Thread(0));
            assert_eq!(second.keep(arrived, has_one_thread).is_some(), has_one_thread);
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

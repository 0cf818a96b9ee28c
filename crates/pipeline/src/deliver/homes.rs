//! The home threads of small destinations.
//!
//! Each sender thread has a limit of its own, so a destination that takes one request at a time would get one from each. A chunk
//! whose limit is learned and small goes to the *home* of its destination, one thread for each. When the limit there is large
//! enough to be shared, home gives the chunk back, and the thread that had it learns a limit, too.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use notification::{Chunk, Lane, limits};
use queue::Message;
use tokio::sync::mpsc::{self, error::TrySendError};

/// The sender threads of a process, as they hand chunks to each other. They share it.
#[derive(Debug)]
pub struct Homes {
    /// Senders of chunks to each thread; `None` before a thread begins and after it ends.
    seats: Mutex<Vec<Option<mpsc::Sender<Arrived>>>>,
    threads: usize,
}

/// Place of one sender thread among the homes.
#[derive(Debug)]
pub(super) struct Seat {
    homes: Arc<Homes>,
    number: usize,
    inbox: mpsc::Receiver<Arrived>,
}

/// A chunk that has come to a thread.
#[derive(Debug)]
pub(super) struct Arrived {
    pub(super) message: Message<Arc<Chunk>>,
    pub(super) from: ChunkOrigin,
}

/// Origin of a chunk that has come to a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChunkOrigin {
    Queue,
    /// The thread with this number, which takes the receiver for home.
    Thread(usize),
    /// The home thread, to which the receiver had handed the chunk.
    Home,
}

/// A limit from which on each thread has a part of it that is worth having.
const SHARED_FROM: usize = 64;

// === impl Homes ===

impl Homes {
    /// The homes of a process with `threads` sender threads.
    pub fn new(threads: usize) -> Arc<Self> {
        let seats = (0..threads).map(|_| None).collect();
        Arc::new(Self { seats: Mutex::new(seats), threads })
    }

    /// The sender threads.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Number of threads that send to a destination with the limit `limit`, which may be learned.
    pub(super) fn threads_at(&self, limit: usize, is_learned: bool) -> usize {
        if is_learned && limit < SHARED_FROM { 1 } else { self.threads }
    }

    /// Seat of one more thread, to which chunks can be handed from now on.
    pub(super) fn sit(self: &Arc<Self>) -> Seat {
        let (sender, inbox) = mpsc::channel(limits::HANDED_CHUNKS);
        let mut seats = self.seats();
        let number = seats.iter().position(Option::is_none).unwrap_or(seats.len());
        match seats.get_mut(number) {
            Some(seat) => *seat = Some(sender),
            None => seats.push(Some(sender)),
        }
        Seat { homes: Arc::clone(self), number, inbox }
    }

    /// Hands a chunk to the thread `number`; gives it back when the thread has ended, or has a full inbox.
    fn hand(&self, number: usize, arrived: Arrived) -> Result<(), Arrived> {
        // Sent while the lock is held: a thread that leaves finds all that was sent to it.
        let seats = self.seats();
        let Some(seat) = seats.get(number).and_then(Option::as_ref) else { return Err(arrived) };
        seat.try_send(arrived).map_err(TrySendError::into_inner)
    }

    fn seats(&self) -> MutexGuard<'_, Vec<Option<mpsc::Sender<Arrived>>>> {
        self.seats.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Seat ===

impl Seat {
    /// The next chunk that another thread hands over.
    pub(super) async fn receive(&mut self) -> Arrived {
        match self.inbox.recv().await {
            Some(arrived) => arrived,
            // This seat holds its sender until it is left.
            None => std::future::pending().await,
        }
    }

    /// Keeps a chunk of a destination with the limit `limit` on this thread, and gives it back, or hands it over.
    pub(super) fn keep(&self, arrived: Arrived, limit: usize) -> Option<Message<Arc<Chunk>>> {
        let is_small = limit < SHARED_FROM;
        let (to, from) = match arrived.from {
            ChunkOrigin::Queue if is_small => {
                let home = self.home_of(&arrived.message.item.envelope.lane);
                (home, ChunkOrigin::Thread(self.number))
            }
            ChunkOrigin::Thread(from) if !is_small => (from, ChunkOrigin::Home),
            ChunkOrigin::Queue | ChunkOrigin::Thread(_) | ChunkOrigin::Home => {
                return Some(arrived.message);
            }
        };
        if to == self.number {
            return Some(arrived.message);
        }
        let handed = self.homes.hand(to, Arrived { message: arrived.message, from });
        handed.err().map(|arrived| arrived.message)
    }

    /// All priorities and tenants of a destination have one.
    fn home_of(&self, lane: &Lane) -> usize {
        let mut hasher = DefaultHasher::new();
        (&lane.channel, &lane.destination).hash(&mut hasher);
        let threads = u64::try_from(self.homes.threads.max(1)).unwrap_or(1);
        usize::try_from(hasher.finish() % threads).unwrap_or(0)
    }

    /// Leaves: the chunks handed over until now are returned to be sent, and no more arrive.
    pub(super) fn leave(mut self) -> Vec<Message<Arc<Chunk>>> {
        if let Some(seat) = self.homes.seats().get_mut(self.number) {
            *seat = None;
        }
        std::iter::from_fn(|| self.inbox.try_recv().ok()).map(|arrived| arrived.message).collect()
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
    fn chunks() -> Vec<Arrived> {
        let chunk = |number: usize| {
            let mut chunk = sample::chunk(notification::Timestamp::from_millis(0), ["a"]);
            chunk.envelope.lane.destination = format!("host {number}").into();
            Message { item: Arc::new(chunk), receipt: queue::Receipt::new(Kept) }
        };
        (0..100).map(chunk).map(|message| Arrived { message, from: ChunkOrigin::Queue }).collect()
    }

    fn inbox(seat: &mut Seat) -> Vec<Arrived> {
        let mut context = Context::from_waker(Waker::noop());
        std::iter::from_fn(|| match seat.inbox.poll_recv(&mut context) {
            std::task::Poll::Ready(arrived) => arrived,
            std::task::Poll::Pending => None,
        })
        .collect()
    }

    #[test]
    fn a_small_destination_has_one_home_and_a_large_one_is_shared() {
        let homes = Homes::new(2);
        let (first, mut second) = (homes.sit(), homes.sit());
        let here = chunks().into_iter().filter_map(|arrived| first.keep(arrived, 1)).count();
        let there = inbox(&mut second);
        assert_eq!(here + there.len(), 100);
        assert!((30..=70).contains(&here), "{here}");
        assert!(chunks().into_iter().all(|arrived| first.keep(arrived, 64).is_some()));
        // Home sends chunks from elsewhere while its limit is small, and gives them back when that is large.
        let mut first = first;
        let sizes = [(63, true), (64, false)].into_iter().cycle();
        for (arrived, (limit, is_kept)) in there.into_iter().zip(sizes) {
            assert_eq!(arrived.from, ChunkOrigin::Thread(0));
            assert_eq!(second.keep(arrived, limit).is_some(), is_kept);
        }
        let back = inbox(&mut first);
        assert!(!back.is_empty());
        assert!(back.into_iter().all(|arrived| first.keep(arrived, 1).is_some()), "not again");
    }

    #[test]
    fn what_is_handed_to_a_thread_that_ends_is_sent_by_it_or_by_the_other() {
        let homes = Homes::new(2);
        let (first, second) = (homes.sit(), homes.sit());
        let kept = chunks().into_iter().filter_map(|arrived| first.keep(arrived, 1)).count();
        assert_eq!(second.leave().len(), 100 - kept);
        assert!(chunks().into_iter().all(|arrived| first.keep(arrived, 1).is_some()));
        let third = homes.sit();
        assert_eq!(third.number, 1, "in the place of the one that ended");
        drop(third);
        assert!(chunks().into_iter().all(|arrived| first.keep(arrived, 1).is_some()), "it crashed");
    }
}

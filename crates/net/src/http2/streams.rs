//! The streams of a connection: a ring of places in the order of their numbers, and slots for those that are in use. An old
//! stream that is still open costs eight bytes for each that was opened behind it, and no slot.

use std::collections::VecDeque;
use std::task::{Context, Poll};

use bytes::Bytes;

use super::answer::{IncomingReply, NoReply};
use super::outcomes::{RequestOutcome, Waiter};
use crate::exchange::Reply;

/// The last number that a stream can have.
const STREAM_MAX: u32 = 0x7fff_ffff;

/// The streams that this client opened: those with odd numbers, each number once.
#[derive(Debug)]
pub(super) struct Streams {
    /// The number of the first in the ring.
    first: u32,
    /// The slots of `first` and those behind it; `None` when the stream is forgotten.
    ring: VecDeque<Option<u32>>,
    slots: Vec<Slot>,
    free: Vec<u32>,
    open: usize,
}

/// A stream whose outcome was not fetched yet.
#[derive(Debug, Default)]
pub(super) struct Slot {
    /// Where its first byte is among those that are written.
    pub(super) begins_at: u64,
    /// The part of the request's body that waits for a window.
    pub(super) rest: Bytes,
    /// Window beyond the initial one of all streams, bytes; negative when some of the initial one is used.
    pub(super) window: i64,
    /// True if it waits its turn for the connection's window.
    pub(super) is_queued: bool,
    progress: RequestProgress,
    waiter: Waiter,
}

#[derive(Debug, Default)]
enum RequestProgress {
    #[default]
    Awaited,
    /// The head has come.
    Answered(Box<IncomingReply>),
    Ended(RequestOutcome),
}

// === impl Streams ===

impl Streams {
    /// None yet; the first will have the number `first`.
    pub(super) const fn new(first: u32) -> Self {
        Self { first, ring: VecDeque::new(), slots: Vec::new(), free: Vec::new(), open: 0 }
    }

    /// The number of the next stream; `None` when there are no more.
    pub(super) fn next(&self) -> Option<u32> {
        let opened = u32::try_from(self.ring.len()).ok()?;
        self.first.checked_add(opened.checked_mul(2)?).filter(|number| *number <= STREAM_MAX)
    }

    /// True if no stream of this number was opened.
    pub(super) fn is_idle(&self, number: u32) -> bool {
        // Even numbers are those that a server opens (section 5.1.1), and it may open none.
        number.is_multiple_of(2) || self.next().is_some_and(|next| number >= next)
    }

    /// How many have no outcome yet.
    pub(super) const fn open(&self) -> usize {
        self.open
    }

    /// Opens the next, if there is one.
    pub(super) fn insert(&mut self, slot: Slot) -> Option<u32> {
        let number = self.next()?;
        let place = match self.free.pop() {
            Some(place) => place,
            None => u32::try_from(self.slots.len()).ok()?,
        };
        match self.slots.get_mut(index(place)) {
            Some(free) => *free = slot,
            None => self.slots.push(slot),
        }
        self.ring.push_back(Some(place));
        self.open += 1;
        Some(number)
    }

    /// The stream `number`, if its outcome was not fetched yet.
    pub(super) fn get_mut(&mut self, number: u32) -> Option<&mut Slot> {
        let place = (*self.ring.get(self.ring_index(number)?)?)?;
        self.slots.get_mut(index(place))
    }

    /// The stream `number`, if it has no outcome yet.
    pub(super) fn open_mut(&mut self, number: u32) -> Option<&mut Slot> {
        self.get_mut(number).filter(|slot| !slot.is_ended())
    }

    /// The numbers of those without an outcome, in their order.
    pub(super) fn open_numbers(&self) -> Vec<u32> {
        let numbers = (self.first..).step_by(2).zip(&self.ring);
        let is_open =
            |place: &u32| self.slots.get(index(*place)).is_some_and(|slot| !slot.is_ended());
        numbers
            .filter(|(_, place)| place.as_ref().is_some_and(is_open))
            .map(|(number, _)| number)
            .collect()
    }

    /// Ends an open stream: with its answer, if the head of that has come, else for the reason `why`.
    pub(super) fn end(&mut self, number: u32, why: NoReply) {
        if !self.complete(number) && self.open_mut(number).is_some() {
            self.conclude(number, RequestOutcome(Err(Box::new(why))));
        }
    }

    /// Ends an open stream whose head has come, with its answer as it is. Says whether it was one.
    pub(super) fn complete(&mut self, number: u32) -> bool {
        let progress = self.open_mut(number).map(|slot| std::mem::take(&mut slot.progress));
        let Some(RequestProgress::Answered(answer)) = progress else { return false };
        self.conclude(number, RequestOutcome(Ok(answer)));
        true
    }

    /// Gives an open stream its outcome. It is forgotten, if that goes elsewhere.
    fn conclude(&mut self, number: u32, outcome: RequestOutcome) {
        self.open -= 1;
        let Some(slot) = self.get_mut(number) else { return };
        match std::mem::take(&mut slot.waiter) {
            Waiter::RequestOutcomes(outcomes, key) => {
                self.remove(number);
                outcomes.put(key, outcome);
            }
            waiter @ (Waiter::Unknown | Waiter::Task(_)) => {
                // The outcome may wait to be fetched for long, and the body is of no more use.
                slot.rest = Bytes::new();
                slot.progress = RequestProgress::Ended(outcome);
                if let Waiter::Task(waker) = waiter {
                    waker.wake();
                }
            }
        }
    }

    /// Fetches the outcome of a stream, which is forgotten then.
    pub(super) fn poll_outcome(
        &mut self,
        number: u32,
        context: &Context<'_>,
    ) -> Poll<Result<Reply, NoReply>> {
        let Some(slot) = self.get_mut(number) else {
            return Poll::Ready(Err(NoReply::Lost("no answer: it was fetched before".to_owned())));
        };
        if slot.is_ended()
            && let RequestProgress::Ended(outcome) = std::mem::take(&mut slot.progress)
        {
            self.remove(number);
            return Poll::Ready(outcome.reply());
        }
        if !matches!(&slot.waiter, Waiter::Task(known) if known.will_wake(context.waker())) {
            slot.waiter = Waiter::Task(context.waker().clone());
        }
        Poll::Pending
    }

    /// Forgets a stream. Says whether it had no outcome.
    pub(super) fn forget(&mut self, number: u32) -> bool {
        let is_open = self.open_mut(number).is_some();
        self.open -= usize::from(is_open);
        self.remove(number);
        is_open
    }

    fn remove(&mut self, number: u32) {
        let place = self.ring_index(number).and_then(|index| self.ring.get_mut(index)?.take());
        if let Some(place) = place {
            if let Some(slot) = self.slots.get_mut(index(place)) {
                // Frees what the slot holds now: it may be long until another stream takes it.
                *slot = Slot::default();
            }
            self.free.push(place);
        }
        // One old stream that is open keeps the places behind it.
        while let Some(None) = self.ring.front() {
            self.ring.pop_front();
            self.first += 2;
        }
    }

    fn ring_index(&self, number: u32) -> Option<usize> {
        let distance =
            number.checked_sub(self.first).filter(|distance| distance.is_multiple_of(2))?;
        usize::try_from(distance / 2).ok()
    }
}

fn index(place: u32) -> usize {
    usize::try_from(place).unwrap_or(usize::MAX)
}

// === impl Slot ===

impl Slot {
    /// The stream of a request whose first byte is at `begins_at`, and whose body is `rest`.
    pub(super) fn new(begins_at: u64, rest: Bytes, waiter: Waiter) -> Self {
        Self { begins_at, rest, waiter, ..Self::default() }
    }

    /// The answer, if its head has come and its end has not.
    pub(super) fn answer_mut(&mut self) -> Option<&mut IncomingReply> {
        if let RequestProgress::Answered(answer) = &mut self.progress { Some(answer) } else { None }
    }

    /// Notes that the head has come.
    pub(super) fn answered(&mut self, answer: IncomingReply) {
        self.progress = RequestProgress::Answered(Box::new(answer));
    }

    const fn is_ended(&self) -> bool {
        matches!(self.progress, RequestProgress::Ended(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Waker;

    fn fetched(streams: &mut Streams, number: u32) -> Poll<Result<Reply, NoReply>> {
        streams.poll_outcome(number, &Context::from_waker(Waker::noop()))
    }

    #[test]
    fn a_stream_is_open_until_its_end_and_kept_until_it_is_fetched() {
        let mut streams = Streams::new(1);
        let numbers: Vec<_> = (0..5).map(|_| streams.insert(Slot::default()).unwrap()).collect();
        assert_eq!(numbers, [1, 3, 5, 7, 9]);
        assert!(!streams.is_idle(9) && streams.is_idle(11) && streams.is_idle(2));
        streams.end(3, NoReply::Http11Required);
        streams.end(3, NoReply::Lost("later".to_owned()));
        assert_eq!((streams.open(), streams.open_numbers()), (4, vec![1, 5, 7, 9]));
        assert!(matches!(fetched(&mut streams, 3), Poll::Ready(Err(NoReply::Http11Required))));
        assert!(matches!(fetched(&mut streams, 3), Poll::Ready(Err(NoReply::Lost(_)))));
        assert!(fetched(&mut streams, 5).is_pending());
        assert!(streams.forget(1) && !streams.forget(1));
        assert_eq!((streams.open(), streams.open_numbers()), (3, vec![5, 7, 9]));
        assert!(
            !streams.is_idle(1) && streams.get_mut(1).is_none() && streams.get_mut(4).is_none()
        );
        assert_eq!(streams.insert(Slot::default()), Some(11));
        assert_eq!(streams.slots.len(), 5, "a slot is used again");
    }

    #[test]
    fn numbers_run_out() {
        let mut streams = Streams::new(STREAM_MAX - 2);
        assert_eq!(streams.insert(Slot::default()), Some(STREAM_MAX - 2));
        assert_eq!(streams.insert(Slot::default()), Some(STREAM_MAX));
        assert_eq!((streams.insert(Slot::default()), streams.open()), (None, 2));
        assert!(!streams.is_idle(STREAM_MAX));
        assert!(streams.forget(STREAM_MAX - 2));
        assert_eq!(streams.insert(Slot::default()), None);
        assert!(streams.forget(STREAM_MAX));
        assert_eq!((streams.insert(Slot::default()), streams.next()), (None, None));
    }
}

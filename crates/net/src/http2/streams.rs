//! The streams of a connection: a ring of places in the order of their numbers, with a slot for each that is in use. An old
//! stream that is still open costs eight bytes for each that was opened behind it, and no slot.

use std::collections::VecDeque;
use std::rc::Rc;

use bytes::Bytes;

use super::answer::{IncomingReply, NoReply};
use super::outcomes::{RequestOutcome, RequestOutcomes};

/// The last number that a stream can have.
const STREAM_MAX: u32 = 0x7fff_ffff;

/// The streams that this client opened: those with odd numbers, each number once.
#[derive(Debug, Default)]
pub(super) struct Streams {
    /// How many there were in front of the ring.
    gone: u32,
    /// `None` when the stream is over.
    ring: VecDeque<Option<Box<Slot>>>,
    open: usize,
}

/// A stream without an outcome. Small, since hundreds of thousands may be open.
#[derive(Debug)]
pub(super) struct Slot {
    /// Where its first byte is among those that are written.
    pub(super) begins_at: u64,
    /// The part of the request's body that waits for a window.
    pub(super) rest: Option<Box<Bytes>>,
    /// Window beyond the initial one of all streams, bytes; negative when some of the initial one is used.
    pub(super) window: i64,
    /// True if it waits its turn for the connection's window.
    pub(super) is_queued: bool,
    /// The answer, if its head has come.
    pub(super) answer: Option<Box<IncomingReply>>,
    /// Where its outcome goes, and the key that it has there.
    outcomes: Rc<RequestOutcomes>,
    key: u16,
}

// === impl Streams ===

impl Streams {
    /// The number of the next stream; `None` when there are no more.
    pub(super) fn next(&self) -> Option<u32> {
        let opened = self.gone + u32::try_from(self.ring.len()).ok()?;
        (opened <= STREAM_MAX / 2).then_some(2 * opened + 1)
    }

    /// True if no stream of this number was opened.
    pub(super) fn is_idle(&self, number: u32) -> bool {
        // Even numbers are those that a server opens (section 5.1.1), and it may open none.
        number.is_multiple_of(2) || self.next().is_some_and(|next| number >= next)
    }

    /// How many are open.
    pub(super) const fn open(&self) -> usize {
        self.open
    }

    /// Opens the next, if there is one, for a request whose first byte is at `begins_at`; its outcome goes where `to` says, under its
    /// key.
    pub(super) fn insert(
        &mut self,
        begins_at: u64,
        (outcomes, key): (&Rc<RequestOutcomes>, u16),
    ) -> Option<u32> {
        let number = self.next()?;
        let outcomes = Rc::clone(outcomes);
        let (rest, window, is_queued, answer) = (None, 0, false, None);
        let slot = Slot { begins_at, rest, window, is_queued, answer, outcomes, key };
        self.ring.push_back(Some(Box::new(slot)));
        self.open += 1;
        Some(number)
    }

    /// The stream `number`, if it is open.
    pub(super) fn get_mut(&mut self, number: u32) -> Option<&mut Slot> {
        self.place(number)?.as_deref_mut()
    }

    /// The numbers of those that are open, in their order.
    pub(super) fn numbers(&self) -> Vec<u32> {
        let places = (self.gone..).zip(&self.ring);
        places.filter_map(|(place, slot)| slot.is_some().then_some(2 * place + 1)).collect()
    }

    /// Ends an open stream: with its answer, if the head of that has come, else for the reason `why`.
    pub(super) fn end(&mut self, number: u32, why: NoReply) {
        let answer = self.get_mut(number).and_then(|slot| slot.answer.take());
        self.conclude(number, RequestOutcome(answer.ok_or_else(|| Box::new(why))));
    }

    /// Ends an open stream with its outcome.
    pub(super) fn conclude(&mut self, number: u32, outcome: RequestOutcome) {
        if let Some(slot) = self.remove(number) {
            slot.outcomes.put(slot.key, outcome);
        }
    }

    /// Forgets a stream, and gives what was known of it, if it was open.
    pub(super) fn remove(&mut self, number: u32) -> Option<Box<Slot>> {
        let slot = self.place(number)?.take()?;
        self.open -= 1;
        // One old stream that is open keeps the places behind it.
        while let Some(None) = self.ring.front() {
            self.ring.pop_front();
            self.gone += 1;
        }
        Some(slot)
    }

    fn place(&mut self, number: u32) -> Option<&mut Option<Box<Slot>>> {
        let place = (number / 2).checked_sub(self.gone).filter(|_| number % 2 == 1)?;
        self.ring.get_mut(usize::try_from(place).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Streams {
        /// None yet; the first will have the number `first`.
        pub(in crate::http2) fn beginning_at(first: u32) -> Self {
            Self { gone: first / 2, ..Self::default() }
        }
    }

    #[test]
    fn a_stream_is_open_until_its_end_and_has_one_outcome() {
        let outcomes = Rc::default();
        let mut streams = Streams::default();
        let numbers: Vec<_> = (0..5).map(|_| streams.insert(0, (&outcomes, 7)).unwrap()).collect();
        assert_eq!(numbers, [1, 3, 5, 7, 9]);
        assert!(!streams.is_idle(9) && streams.is_idle(11) && streams.is_idle(2));
        streams.end(3, NoReply::Http11Required);
        streams.end(3, NoReply::Lost("later".to_owned()));
        assert_eq!((streams.open(), streams.numbers()), (4, vec![1, 5, 7, 9]));
        let (key, outcome) = outcomes.take().unwrap();
        assert_eq!((key, outcome.reply().unwrap_err()), (7, NoReply::Http11Required));
        assert!(streams.remove(1).is_some() && streams.remove(1).is_none());
        assert!(outcomes.take().is_none(), "one that is given up has none, and none has two");
        assert_eq!((streams.open(), streams.numbers()), (3, vec![5, 7, 9]));
        assert!(
            !streams.is_idle(1) && streams.get_mut(1).is_none() && streams.get_mut(4).is_none()
        );
        assert_eq!(streams.insert(0, (&outcomes, 7)), Some(11));
        assert_eq!((streams.ring.len(), size_of_val(&streams.ring[0])), (4, 8));
    }

    #[test]
    fn numbers_run_out() {
        let outcomes = Rc::default();
        let mut streams = Streams::beginning_at(STREAM_MAX - 2);
        assert_eq!(streams.insert(0, (&outcomes, 7)), Some(STREAM_MAX - 2));
        assert_eq!(streams.insert(0, (&outcomes, 7)), Some(STREAM_MAX));
        assert_eq!((streams.insert(0, (&outcomes, 7)), streams.open()), (None, 2));
        assert!(!streams.is_idle(STREAM_MAX));
        assert!(streams.remove(STREAM_MAX - 2).is_some());
        assert_eq!(streams.insert(0, (&outcomes, 7)), None);
        assert!(streams.remove(STREAM_MAX).is_some());
        assert_eq!((streams.insert(0, (&outcomes, 7)), streams.next()), (None, None));
    }
}

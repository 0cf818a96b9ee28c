//! The shards of a stream: which may be read, what of them is under way, and how far each is acknowledged.
//! Without I/O.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use tokio::time::Instant;

use super::positions::{ShardLease, ShardPosition};
use crate::{StreamMessage, StreamReceipt};

/// The shards and the messages that were given of them.
#[derive(Debug, Default)]
pub(super) struct ShardBook {
    shards: BTreeMap<String, ReadShard>,
    next_receipt: u64,
    /// The shard of each message that is not answered for.
    given: BTreeMap<u64, GivenMessage>,
    /// Messages that were given back, to be given first.
    again: VecDeque<StreamMessage>,
    /// Turns of shards, so that a fetch of few messages does not always begin with the same.
    turn: usize,
}

/// A shard as it is read.
#[derive(Debug)]
pub(super) struct ReadShard {
    /// The shards that it came from by a split or a merge.
    parents: Vec<String>,
    /// Where to begin when there is no iterator.
    pub(super) begin: ShardStart,
    /// Where to begin when there is no position either.
    first: ShardStart,
    /// True if this reader has it.
    is_held: bool,
    iterator: Option<String>,
    /// True if it is closed and was read to its end.
    is_read: bool,
    is_finished: bool,
    next_read: Option<Instant>,
    /// Sequence numbers of the records that were given, in order, each with whether it is acknowledged.
    window: VecDeque<(u64, String, bool)>,
    /// The last sequence number of which all before are acknowledged, if it was not saved.
    unsaved: Option<ShardPosition>,
}

/// Where to begin to read a shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ShardStart {
    Oldest,
    Newest,
    After(String),
}

/// A message that was given and is not answered for.
#[derive(Debug)]
struct GivenMessage {
    shard: String,
    message: StreamMessage,
}

/// A shard to read now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DueShard {
    pub(super) shard: String,
    pub(super) iterator: Option<String>,
    pub(super) begin: ShardStart,
}

/// A record that was read.
#[derive(Debug)]
pub(super) struct ReadRecord {
    pub(super) sequence_number: String,
    pub(super) key: Option<String>,
    pub(super) body: Bytes,
}

// === impl ShardBook ===

impl ShardBook {
    /// True if the shard is known.
    pub(super) fn knows(&self, shard: &str) -> bool {
        self.shards.contains_key(shard)
    }

    /// Adds a shard that came from `parents`, and begins with `begin` if it has no position; with `None` it is finished. It is read
    /// once this reader [has](Self::leased) it.
    pub(super) fn add(&mut self, shard: String, parents: Vec<String>, begin: Option<ShardStart>) {
        let is_finished = begin.is_none();
        let first = begin.unwrap_or(ShardStart::Oldest);
        let read = ReadShard {
            parents,
            begin: first.clone(),
            first,
            is_held: false,
            iterator: None,
            is_read: is_finished,
            is_finished,
            next_read: None,
            window: VecDeque::new(),
            unsaved: None,
        };
        self.shards.insert(shard, read);
    }

    /// The names of all shards.
    pub(super) fn names(&self) -> Vec<String> {
        self.shards.keys().cloned().collect()
    }

    /// Goes by `lease` of `shard`. True if another reader has finished it, and its children are to be found.
    pub(super) fn leased(&mut self, shard: &str, lease: ShardLease) -> bool {
        let Some(read) = self.shards.get_mut(shard) else { return false };
        let was_held = std::mem::replace(&mut read.is_held, lease.is_held);
        if was_held && lease.is_held {
            return false;
        }
        if read.is_finished {
            return false;
        }
        (read.iterator, read.next_read, read.unsaved) = (None, None, None);
        read.window.clear();
        read.is_finished = lease.position == Some(ShardPosition::Finished);
        read.is_read = read.is_finished;
        read.begin = match lease.position {
            Some(ShardPosition::After(number)) => ShardStart::After(number),
            Some(ShardPosition::Finished) | None => read.first.clone(),
        };
        // What was given of it before is another reader's now, or comes again to this one.
        self.given.retain(|_, given| given.shard != shard);
        self.again.retain(|message| self.given.contains_key(&message.receipt.0));
        self.shards.get(shard).is_some_and(|read| read.is_finished)
    }

    /// The messages that were given back, up to `messages`.
    pub(super) fn again(&mut self, messages: usize) -> Vec<StreamMessage> {
        let count = messages.min(self.again.len());
        self.again.drain(..count).collect()
    }

    /// Up to `most` shards that may be read at `now`, each after its parents, and the earliest time at which another may be.
    pub(super) fn due(&mut self, now: Instant, most: usize) -> (Vec<DueShard>, Option<Instant>) {
        let may_begin = |shard: &ReadShard| {
            // A parent that is not known is older than what the stream keeps.
            let is_over = |parent| self.shards.get(parent).is_none_or(|parent| parent.is_finished);
            shard.is_held && !shard.is_read && shard.parents.iter().all(is_over)
        };
        let open: Vec<_> = self.shards.iter().filter(|(_, shard)| may_begin(shard)).collect();
        let is_due = |shard: &ReadShard| shard.next_read.is_none_or(|next| next <= now);
        let later =
            open.iter().filter_map(|(_, shard)| shard.next_read).filter(|next| *next > now).min();
        let mut due: Vec<DueShard> = Vec::new();
        let count = open.len();
        for place in 0..count {
            let Some((name, shard)) = open.get((place + self.turn) % count.max(1)) else {
                continue;
            };
            if due.len() < most && is_due(shard) {
                let (iterator, begin) = (shard.iterator.clone(), shard.begin.clone());
                due.push(DueShard { shard: (*name).clone(), iterator, begin });
            }
        }
        self.turn = self.turn.wrapping_add(due.len());
        (due, later)
    }

    /// Takes what was read of `shard`; `iterator` is the next one, `None` at the end of a closed shard. Gives the messages.
    pub(super) fn read(
        &mut self,
        shard: &str,
        records: Vec<ReadRecord>,
        iterator: Option<String>,
        next_read: Instant,
    ) -> Vec<StreamMessage> {
        let Some(read) = self.shards.get_mut(shard) else { return Vec::new() };
        read.next_read = Some(next_read);
        let mut messages = Vec::with_capacity(records.len());
        for record in records {
            let number = self.next_receipt;
            self.next_receipt += 1;
            read.window.push_back((number, record.sequence_number.clone(), false));
            read.begin = ShardStart::After(record.sequence_number.clone());
            let message = StreamMessage {
                id: format!("{shard}:{}", record.sequence_number),
                key: record.key.map(Bytes::from),
                body: Some(record.body),
                receipt: StreamReceipt(number),
            };
            let given = GivenMessage { shard: shard.to_owned(), message: message.clone() };
            self.given.insert(number, given);
            messages.push(message);
        }
        read.is_read = iterator.is_none();
        read.iterator = iterator;
        read.settle();
        messages
    }

    /// The iterator of `shard` is of no more use: it is read on from its last record, at `next_read`.
    pub(super) fn forget_iterator(&mut self, shard: &str, next_read: Instant) {
        if let Some(read) = self.shards.get_mut(shard) {
            (read.iterator, read.next_read) = (None, Some(next_read));
        }
    }

    /// `shard` is read again at `next_read`.
    pub(super) fn postpone(&mut self, shard: &str, next_read: Instant) {
        if let Some(read) = self.shards.get_mut(shard) {
            read.next_read = Some(next_read);
        }
    }

    /// Acknowledges a message; gives its shard, or `None` if it is not held.
    pub(super) fn acknowledge(&mut self, receipt: StreamReceipt) -> Option<String> {
        let shard = self.given.remove(&receipt.0)?.shard;
        if let Some(read) = self.shards.get_mut(&shard) {
            // Receipts rise along the window.
            if let Ok(place) = read.window.binary_search_by_key(&receipt.0, |(number, ..)| *number)
                && let Some((_, _, is_acknowledged)) = read.window.get_mut(place)
            {
                *is_acknowledged = true;
            }
            read.settle();
        }
        Some(shard)
    }

    /// Gives a message again with the next fetch. Its receipt stays.
    pub(super) fn give_back(&mut self, receipt: StreamReceipt) {
        if let Some(given) = self.given.get(&receipt.0) {
            self.again.push_back(given.message.clone());
        }
    }

    /// The positions that are to be saved.
    pub(super) fn unsaved(&self) -> Vec<(String, ShardPosition)> {
        let position =
            |(name, shard): (&String, &ReadShard)| Some((name.clone(), shard.unsaved.clone()?));
        self.shards.iter().filter_map(position).collect()
    }

    /// Notes that `position` of `shard` was saved. True if the shard is finished by that, and its children may be read.
    pub(super) fn saved(&mut self, shard: &str, position: &ShardPosition) -> bool {
        let Some(read) = self.shards.get_mut(shard) else { return false };
        // It may have moved on meanwhile.
        if read.unsaved.as_ref() == Some(position) {
            read.unsaved = None;
        }
        let is_over = *position == ShardPosition::Finished && !read.is_finished;
        read.is_finished |= is_over;
        is_over
    }
}

// === impl ReadShard ===

impl ReadShard {
    /// Moves the position over what is acknowledged without a gap.
    fn settle(&mut self) {
        while let Some((_, _, true)) = self.window.front() {
            if let Some((_, sequence_number, _)) = self.window.pop_front() {
                self.unsaved = Some(ShardPosition::After(sequence_number));
            }
        }
        if self.is_read && self.window.is_empty() && !self.is_finished {
            self.unsaved = Some(ShardPosition::Finished);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn records(numbers: &[u32]) -> Vec<ReadRecord> {
        let record = |number: &u32| ReadRecord {
            sequence_number: number.to_string(),
            key: None,
            body: Bytes::new(),
        };
        numbers.iter().map(record).collect()
    }

    fn names(due: (Vec<DueShard>, Option<Instant>)) -> Vec<String> {
        due.0.into_iter().map(|due| due.shard).collect()
    }

    fn lease(position: Option<ShardPosition>, is_held: bool) -> ShardLease {
        ShardLease { position, is_held }
    }

    fn hold_all(book: &mut ShardBook) {
        for shard in book.names() {
            book.leased(&shard, lease(None, true));
        }
    }

    fn after(number: &str) -> ShardPosition {
        ShardPosition::After(number.to_owned())
    }

    #[tokio::test(start_paused = true)]
    async fn a_position_moves_over_what_is_acknowledged_without_a_gap() {
        let now = flow::Clock::system().monotonic();
        let mut book = ShardBook::default();
        book.add("a".to_owned(), Vec::new(), Some(ShardStart::Oldest));
        hold_all(&mut book);
        let given = book.read("a", records(&[1, 2, 3]), Some("i".to_owned()), now);
        assert_eq!(given[2].id, "a:3");
        assert_eq!(book.acknowledge(given[1].receipt).as_deref(), Some("a"));
        assert_eq!(book.unsaved(), []);
        book.give_back(given[0].receipt);
        book.give_back(given[1].receipt);
        assert_eq!(book.again(9), given[..1]);
        book.acknowledge(given[0].receipt);
        assert_eq!(book.unsaved(), [("a".to_owned(), after("2"))]);
        assert!(!book.saved("a", &after("2")));
        assert_eq!(book.unsaved(), []);
        assert_eq!(book.acknowledge(given[0].receipt), None, "it is answered for");
        book.forget_iterator("a", now);
        assert_eq!(book.due(now, 1).0[0].begin, ShardStart::After("3".to_owned()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_shard_is_read_after_its_parents_are_finished() {
        let now = flow::Clock::system().monotonic();
        let mut book = ShardBook::default();
        book.add("a".to_owned(), vec!["gone".to_owned()], Some(ShardStart::Oldest));
        book.add("b".to_owned(), Vec::new(), Some(ShardStart::Oldest));
        book.add(
            "child".to_owned(),
            vec!["a".to_owned(), "b".to_owned()],
            Some(ShardStart::Oldest),
        );
        book.add("old".to_owned(), Vec::new(), None);
        hold_all(&mut book);
        assert_eq!(names(book.due(now, 9)), ["a", "b"]);
        let given = book.read("a", records(&[1]), None, now);
        book.read("b", Vec::new(), None, now);
        assert_eq!(book.unsaved(), [("b".to_owned(), ShardPosition::Finished)]);
        assert!(book.saved("b", &ShardPosition::Finished));
        assert_eq!(names(book.due(now, 9)), [""; 0], "a message of a parent is not answered for");
        book.acknowledge(given[0].receipt);
        assert!(book.saved("a", &ShardPosition::Finished));
        assert_eq!(names(book.due(now, 9)), ["child"]);
    }

    #[tokio::test(start_paused = true)]
    async fn shards_take_turns_and_rest_between_reads() {
        let now = flow::Clock::system().monotonic();
        let mut book = ShardBook::default();
        for shard in ["a", "b", "c"] {
            book.add(shard.to_owned(), Vec::new(), Some(ShardStart::Newest));
        }
        hold_all(&mut book);
        assert_eq!(names(book.due(now, 2)), ["a", "b"]);
        assert_eq!(names(book.due(now, 2)), ["c", "a"]);
        let later = now + Duration::from_secs(1);
        book.postpone("b", later);
        assert_eq!(book.due(now, 9).1, Some(later));
        assert_eq!(book.due(later, 9).0.len(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn a_shard_that_goes_to_another_reader_and_comes_back_is_read_on_from_its_position() {
        let now = flow::Clock::system().monotonic();
        let mut book = ShardBook::default();
        book.add("a".to_owned(), Vec::new(), Some(ShardStart::Oldest));
        book.add("child".to_owned(), vec!["a".to_owned()], Some(ShardStart::Oldest));
        assert_eq!(names(book.due(now, 9)), [""; 0], "nothing is this reader's");
        hold_all(&mut book);
        let given = book.read("a", records(&[1, 2]), Some("i".to_owned()), now);
        book.give_back(given[1].receipt);
        book.acknowledge(given[0].receipt);
        assert!(!book.leased("a", lease(Some(after("1")), false)));
        assert_eq!((book.unsaved(), book.again(9)), (Vec::new(), Vec::new()));
        assert_eq!(book.acknowledge(given[1].receipt), None, "it is the other reader's");
        assert_eq!(names(book.due(now, 9)), [""; 0]);
        assert!(!book.leased("a", lease(Some(after("7")), true)));
        assert_eq!(book.due(now, 9).0[0].begin, ShardStart::After("7".to_owned()));
        assert!(!book.leased("a", lease(Some(after("7")), false)));
        assert!(book.leased("a", lease(Some(ShardPosition::Finished), false)));
        assert_eq!(names(book.due(now, 9)), ["child"]);
    }
}

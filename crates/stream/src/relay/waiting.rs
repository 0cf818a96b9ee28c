//! The records that wait for a put, and which go next. Without I/O.

use std::collections::{BTreeSet, HashSet, VecDeque};

use bytes::Bytes;
use tokio::time::Instant;

use crate::{BatchLimits, Record, StreamMessage};

/// A message in hand, and the record that it becomes.
#[derive(Debug)]
pub(super) struct RelayItem {
    pub(super) held: HeldMessage,
    pub(super) record: Record,
}

/// A message in hand.
#[derive(Debug)]
pub(super) struct HeldMessage {
    pub(super) message: StreamMessage,
    /// Puts of it that failed.
    pub(super) failures: u16,
    /// When it may be put again.
    pub(super) not_before: Option<Instant>,
    /// True if its source has forgotten it already.
    pub(super) is_acknowledged: bool,
}

/// Records in the order in which they came. Where the target keeps order, no two puts with records of one key are under way at a time,
/// and those of a key wait behind the first of it.
#[derive(Debug)]
pub(super) struct WaitingItems {
    items: VecDeque<RelayItem>,
    keeps_order: bool,
    /// The keys of puts that are under way.
    busy: HashSet<Bytes>,
    /// When items that failed may be put again.
    retries: BTreeSet<Instant>,
    /// True if all that waits has to wait until something changes.
    is_stuck: bool,
}

// === impl HeldMessage ===

impl HeldMessage {
    pub(super) fn new(message: StreamMessage) -> Self {
        Self { message, failures: 0, not_before: None, is_acknowledged: false }
    }

    /// Its bytes: key and content.
    pub(super) fn bytes(&self) -> usize {
        let length = |part: &Option<Bytes>| part.as_ref().map_or(0, Bytes::len);
        length(&self.message.key) + length(&self.message.body)
    }
}

// === impl WaitingItems ===

impl WaitingItems {
    pub(super) fn new(keeps_order: bool) -> Self {
        let (busy, retries) = (HashSet::new(), BTreeSet::new());
        Self { items: VecDeque::new(), keeps_order, busy, retries, is_stuck: false }
    }

    pub(super) fn len(&self) -> usize {
        self.items.len()
    }

    pub(super) fn push(&mut self, item: RelayItem) {
        self.items.push_back(item);
        self.is_stuck = false;
    }

    /// Takes the next batch, all of it within `limits`; empty when all that waits has to wait.
    pub(super) fn take(&mut self, limits: BatchLimits, now: Instant) -> Vec<RelayItem> {
        if self.retries.first().is_some_and(|at| *at <= now) {
            self.retries = self.retries.split_off(&now);
            self.retries.remove(&now);
            self.is_stuck = false;
        }
        let (mut batch, mut bytes) = (Vec::new(), 0);
        if self.is_stuck {
            return batch;
        }
        let (mut behind, mut blocked) = (Vec::new(), HashSet::new());
        while batch.len() < limits.records
            && let Some(item) = self.items.pop_front()
        {
            let key = item.record.key.as_ref().filter(|_| self.keeps_order);
            let must_wait = key.is_some_and(|key| self.busy.contains(key) || blocked.contains(key))
                || item.held.not_before.is_some_and(|at| at > now);
            if must_wait {
                blocked.extend(key.cloned());
                behind.push(item);
                continue;
            }
            let size = item.record.bytes();
            if bytes + size > limits.bytes {
                behind.push(item);
                break;
            }
            bytes += size;
            batch.push(item);
        }
        self.is_stuck = batch.is_empty();
        for item in behind.into_iter().rev() {
            self.items.push_front(item);
        }
        if self.keeps_order {
            self.busy.extend(batch.iter().filter_map(|item| item.record.key.clone()));
        }
        batch
    }

    /// Notes that a put of records with these keys has ended, and takes those of its items back, in order, that are to be put again.
    pub(super) fn put_ended(&mut self, keys: &[Bytes], again: Vec<RelayItem>) {
        for key in keys {
            self.busy.remove(key);
        }
        for item in again.into_iter().rev() {
            self.retries.extend(item.held.not_before);
            // No other of its key was put meanwhile: it is the first of it.
            self.items.push_front(item);
        }
        self.is_stuck = false;
    }

    /// When the next item may be put again that waits for that.
    pub(super) fn next_retry(&self) -> Option<Instant> {
        self.retries.first().copied()
    }

    /// Takes all.
    pub(super) fn drain(&mut self) -> Vec<RelayItem> {
        self.items.drain(..).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use flow::Clock;

    use super::*;
    use crate::StreamReceipt;

    const LIMITS: BatchLimits = BatchLimits { records: 3, bytes: 100, record_bytes: 60 };

    fn item(name: &str, key: Option<&'static str>, bytes: usize) -> RelayItem {
        let key = key.map(|key| Bytes::from_static(key.as_bytes()));
        let body = Bytes::from(vec![0; bytes - key.as_ref().map_or(0, Bytes::len)]);
        let message = StreamMessage {
            id: name.to_owned(),
            key: key.clone(),
            body: Some(body.clone()),
            receipt: StreamReceipt(0),
        };
        RelayItem {
            held: HeldMessage::new(message),
            record: Record { key, body, id: name.to_owned() },
        }
    }

    fn waiting(keeps_order: bool, items: &[(&str, Option<&'static str>, usize)]) -> WaitingItems {
        let mut waiting = WaitingItems::new(keeps_order);
        for (name, key, bytes) in items {
            waiting.push(item(name, *key, *bytes));
        }
        waiting
    }

    fn names(batch: &[RelayItem]) -> String {
        batch.iter().map(|item| item.record.id.as_str()).collect()
    }

    fn now() -> Instant {
        Clock::system().monotonic()
    }

    #[test]
    fn a_batch_has_what_fits_in_order() {
        let mut waiting = waiting(
            false,
            &[("a", Some("x"), 50), ("b", Some("x"), 50), ("c", None, 1), ("d", None, 1)],
        );
        assert_eq!(names(&waiting.take(LIMITS, now())), "ab");
        assert_eq!(names(&waiting.take(LIMITS, now())), "cd");
        assert_eq!(names(&waiting.take(LIMITS, now())), "");
    }

    #[test]
    fn a_key_that_is_under_way_holds_up_its_own_records_alone() {
        let mut waiting = waiting(
            true,
            &[
                ("a", Some("x"), 9),
                ("b", Some("x"), 9),
                ("c", Some("y"), 9),
                ("d", Some("x"), 9),
                ("e", None, 9),
            ],
        );
        let first = waiting.take(LIMITS, now());
        assert_eq!(names(&first), "abc", "one put keeps its order");
        assert_eq!(names(&waiting.take(LIMITS, now())), "e");
        assert_eq!(names(&waiting.take(LIMITS, now())), "");
        let keys: Vec<Bytes> = first.iter().filter_map(|item| item.record.key.clone()).collect();
        waiting.put_ended(&keys, Vec::new());
        assert_eq!(names(&waiting.take(LIMITS, now())), "d");
    }

    #[test]
    fn a_record_that_failed_holds_up_its_key_until_it_may_go_again() {
        for (keeps_order, meanwhile) in [(true, "c"), (false, "bc")] {
            let mut waiting = waiting(keeps_order, &[("a", Some("x"), 9)]);
            let mut first = waiting.take(LIMITS, now());
            let later = now() + Duration::from_mins(1);
            first[0].held.not_before = Some(later);
            waiting.put_ended(&[Bytes::from_static(b"x")], first);
            waiting.push(item("b", Some("x"), 9));
            waiting.push(item("c", Some("y"), 9));
            assert_eq!(names(&waiting.take(LIMITS, now())), meanwhile);
            assert_eq!(waiting.next_retry(), Some(later));
            let then = if keeps_order { "ab" } else { "a" };
            assert_eq!(names(&waiting.take(LIMITS, later)), then);
            assert_eq!(waiting.next_retry(), None);
        }
    }
}

//! Records that wait for a put, and which of them go next.

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use ::stream::{BatchLimits, PutError, Record};
use bytes::Bytes;
use flow::merge::Weighted;
use tokio::sync::oneshot;

/// A record that is to be put, and the place for its outcome.
#[derive(Debug)]
pub(super) struct PutItem {
    pub(super) record: Record,
    pub(super) outcome: oneshot::Sender<PutOutcome>,
}

/// The verdict of the target, and the time of the put that brought it.
#[derive(Debug)]
pub(super) struct PutOutcome {
    pub(super) taken: Result<(), PutError>,
    pub(super) on_wire: Duration,
}

/// Records in the order in which they were handed in. No two puts with records of one key are under way at a time: so the records
/// of a key are put in order.
#[derive(Debug, Default)]
pub(super) struct Pending {
    items: VecDeque<PutItem>,
    /// The keys of puts that are under way.
    busy: HashSet<Bytes>,
}

// === impl PutItem ===

impl Weighted for PutItem {
    fn weight(&self) -> usize {
        self.record.bytes()
    }
}

// === impl Pending ===

impl Pending {
    pub(super) fn extend(&mut self, items: Vec<PutItem>) {
        self.items.extend(items);
    }

    pub(super) fn len(&self) -> usize {
        self.items.len()
    }

    /// Takes the next batch: the first records that fit, but for those whose key is busy. Empty when all that waits has to wait. A record that would never fit is refused.
    pub(super) fn take(&mut self, limits: BatchLimits) -> Vec<PutItem> {
        let (mut batch, mut bytes) = (Vec::new(), 0);
        let mut behind = Vec::new();
        while batch.len() < limits.records
            && let Some(item) = self.items.pop_front()
        {
            let (size, key) = (item.record.bytes(), item.record.key.clone());
            if item.outcome.is_closed() {
                // Its attempt was given up.
                continue;
            }
            if size > limits.record_bytes {
                item.refuse(limits.record_bytes);
                continue;
            }
            if key.as_ref().is_some_and(|key| self.busy.contains(key)) {
                behind.push(item);
                continue;
            }
            if bytes + size > limits.bytes {
                behind.push(item);
                break;
            }
            bytes += size;
            batch.push(item);
        }
        for item in behind.into_iter().rev() {
            self.items.push_front(item);
        }
        self.busy.extend(batch.iter().filter_map(|item| item.record.key.clone()));
        batch
    }

    /// Notes that a put of these keys has ended.
    pub(super) fn release(&mut self, keys: &[Bytes]) {
        for key in keys {
            self.busy.remove(key);
        }
    }
}

impl PutItem {
    fn refuse(self, most: usize) {
        let words = format!("it has more than the {most} bytes of a record there");
        let taken = Err(PutError::Refused(words));
        // Its attempt may have been given up.
        let _told = self.outcome.send(PutOutcome { taken, on_wire: Duration::ZERO });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: BatchLimits = BatchLimits { records: 3, bytes: 100, record_bytes: 60 };

    fn item(name: &str, key: Option<&'static str>, bytes: usize) -> (PutItem, Outcome) {
        let key = key.map(|key| Bytes::from_static(key.as_bytes()));
        let body = vec![0; bytes - key.as_ref().map_or(0, Bytes::len)].into();
        let (outcome, outcomes) = oneshot::channel();
        (PutItem { record: Record { key, body, id: name.to_owned() }, outcome }, outcomes)
    }

    type Outcome = oneshot::Receiver<PutOutcome>;

    /// Records with these names, keys and sizes wait.
    fn pending(records: &[(&str, Option<&'static str>, usize)]) -> (Pending, Vec<Outcome>) {
        let (items, outcomes): (Vec<_>, Vec<_>) =
            records.iter().map(|(name, key, bytes)| item(name, *key, *bytes)).unzip();
        let mut pending = Pending::default();
        pending.extend(items);
        (pending, outcomes)
    }

    fn names(batch: &[PutItem]) -> String {
        batch.iter().map(|item| item.record.id.as_str()).collect()
    }

    #[test]
    fn a_batch_has_what_fits_in_order() {
        let (mut pending, _outcomes) = pending(&[
            ("a", None, 50),
            ("b", None, 50),
            ("c", None, 1),
            ("d", None, 1),
            ("e", None, 1),
            ("f", None, 1),
        ]);
        assert_eq!(names(&pending.take(LIMITS)), "ab");
        assert_eq!(names(&pending.take(LIMITS)), "cde");
        assert_eq!(names(&pending.take(LIMITS)), "f");
        assert_eq!(pending.len(), 0);
    }

    #[test]
    fn a_key_that_is_under_way_holds_up_its_own_records_alone() {
        let (mut pending, _outcomes) = pending(&[
            ("a", Some("x"), 9),
            ("b", Some("x"), 9),
            ("c", Some("y"), 9),
            ("d", Some("x"), 9),
            ("e", None, 9),
        ]);
        assert_eq!(names(&pending.take(LIMITS)), "abc", "one put keeps its order");
        assert_eq!(names(&pending.take(LIMITS)), "e");
        assert_eq!(names(&pending.take(LIMITS)), "");
        pending.release(&[Bytes::from_static(b"y")]);
        assert_eq!(names(&pending.take(LIMITS)), "");
        pending.release(&[Bytes::from_static(b"x")]);
        assert_eq!(names(&pending.take(LIMITS)), "d");
    }

    #[test]
    fn what_is_given_up_is_not_put_and_what_is_too_large_is_refused() {
        let (mut pending, mut outcomes) =
            pending(&[("a", None, 61), ("b", None, 1), ("c", None, 1)]);
        outcomes.remove(1);
        assert_eq!(names(&pending.take(LIMITS)), "c");
        let refused = outcomes.remove(0).try_recv().unwrap();
        assert!(matches!(refused.taken, Err(PutError::Refused(_))), "{refused:?}");
    }
}

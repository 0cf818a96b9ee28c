//! A put as calls of a service whose batches fail in parts.

use std::collections::HashSet;
use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use flow::Clock;

use crate::{PutError, Record};

/// Whether records of one key may overtake each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyOrder {
    /// They may: all records go in one call. If the service takes the second of a key and not the first, the first comes later.
    Free,
    /// They may not: a call has one record of each key at most, and once one is not taken, those of its key that follow are not sent.
    /// It costs as many calls, one after the other, as the most frequent key has records.
    ByKey,
}

/// Time in which calls of a put begin. The last one then has its own time, and both together are less than an attempt may last.
const CALLS_BEGIN: Duration = Duration::from_secs(10);

/// Puts `records` by `call`, which answers for each that it is given, in order. The answers are those of all records, in order. No call
/// begins later than 10 s after the first: a record that there is no time for is not taken.
pub async fn put_in_batches<'r, F>(
    records: &'r [Record],
    ordering: KeyOrder,
    clock: Clock,
    call: impl Fn(Vec<&'r Record>) -> F,
) -> Vec<Result<(), PutError>>
where
    F: Future<Output = Vec<Result<(), PutError>>>,
{
    let silent = || Err(PutError::Unknown("the service did not answer for it".to_owned()));
    let mut answers: Vec<Result<(), PutError>> = records.iter().map(|_record| silent()).collect();
    let mut left: Vec<(usize, &Record)> = records.iter().enumerate().collect();
    let mut stopped: HashSet<&Bytes> = HashSet::new();
    let last_begin = clock.monotonic() + CALLS_BEGIN;
    while !left.is_empty() {
        let batch = match ordering {
            KeyOrder::Free => std::mem::take(&mut left),
            KeyOrder::ByKey => first_of_each_key(&mut left),
        };
        let (held, sent): (Vec<_>, Vec<_>) = batch
            .into_iter()
            .partition(|(_, record)| record.key.as_ref().is_some_and(|key| stopped.contains(key)));
        let held = held.into_iter().map(|(place, _)| (place, Err(overtaken())));
        let taken = if sent.is_empty() {
            Vec::new()
        } else if clock.monotonic() > last_begin {
            vec![Err(too_late()); sent.len()]
        } else {
            call(sent.iter().map(|(_, record)| *record).collect()).await
        };
        for ((_, record), answer) in sent.iter().zip(&taken) {
            if answer.is_err() {
                stopped.extend(&record.key);
            }
        }
        let sent = sent.into_iter().map(|(place, _)| place).zip(taken);
        for (place, answer) in held.chain(sent) {
            if let Some(slot) = answers.get_mut(place) {
                *slot = answer;
            }
        }
    }
    answers
}

/// Takes the first record of each key, and all without one, in order.
fn first_of_each_key<'r>(left: &mut Vec<(usize, &'r Record)>) -> Vec<(usize, &'r Record)> {
    let mut keys: HashSet<&Bytes> = HashSet::new();
    let (first, later) = std::mem::take(left)
        .into_iter()
        .partition(|(_, record)| record.key.as_ref().is_none_or(|key| keys.insert(key)));
    *left = later;
    first
}

fn too_late() -> PutError {
    PutError::NotTaken(
        "there was no time left for it: calls take long, one for each record of its key".to_owned(),
    )
}

fn overtaken() -> PutError {
    PutError::NotTaken("an earlier record of its key was not taken".to_owned())
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use futures_util::FutureExt as _;

    use super::*;

    fn record(key: Option<&'static str>, id: &str) -> Record {
        let key = key.map(|key| Bytes::from_static(key.as_bytes()));
        Record { key, body: Bytes::new(), id: id.to_owned() }
    }

    /// Puts a1 b1 a2 c1 a3 and one without a key; `refused` fail. Gives the calls, and which records were taken.
    fn put(ordering: KeyOrder, refused: &[&str]) -> (Vec<String>, Vec<bool>) {
        let records = [
            record(Some("a"), "a1"),
            record(Some("b"), "b1"),
            record(Some("a"), "a2"),
            record(None, "n1"),
            record(Some("a"), "a3"),
            record(Some("b"), "b2"),
        ];
        let calls = Mutex::new(Vec::new());
        let call = async |batch: Vec<&Record>| {
            let ids: Vec<&str> = batch.iter().map(|record| record.id.as_str()).collect();
            calls.lock().unwrap().push(ids.join(" "));
            let answer = |id: &&str| {
                if refused.contains(id) { Err(PutError::NotTaken(String::new())) } else { Ok(()) }
            };
            ids.iter().map(answer).collect()
        };
        let clock = Clock::system();
        let answers = put_in_batches(&records, ordering, clock, call).now_or_never().unwrap();
        (calls.into_inner().unwrap(), answers.iter().map(Result::is_ok).collect())
    }

    #[test]
    fn free_records_go_in_one_call() {
        let (calls, taken) = put(KeyOrder::Free, &["a1"]);
        assert_eq!(calls, ["a1 b1 a2 n1 a3 b2"]);
        assert_eq!(taken, [false, true, true, true, true, true]);
    }

    #[test]
    fn records_of_a_key_stop_behind_one_that_was_not_taken() {
        assert_eq!(put(KeyOrder::ByKey, &[]).0, ["a1 b1 n1", "a2 b2", "a3"]);
        let (calls, taken) = put(KeyOrder::ByKey, &["a1"]);
        assert_eq!(calls, ["a1 b1 n1", "b2"]);
        assert_eq!(taken, [false, true, false, true, false, true]);
    }
}

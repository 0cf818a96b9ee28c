//! Erasure: what is left of a batch and of its log when recipients and contents of some members are taken out.

use std::collections::BTreeMap;

use notification::{BatchId, ByteString, Bytes, NotificationId, State, Timestamp};

use super::codec::{Items, LogGroup, LogLine, LogRow, decode_log};
use super::labels::BatchLabels;
use super::members::Members;
use super::release::WaitingState;
use super::removal::without_members;
use crate::{Erased, StoreError};

/// A batch of which members are to be erased.
#[derive(Debug)]
pub(crate) struct BatchToErase {
    /// Number of the store that has it: a part of its members' identifiers, like the instant of their acceptance.
    pub(crate) store_id: u16,
    pub(crate) id: BatchId,
    pub(crate) accepted_at: Timestamp,
    pub(crate) count: u16,
    pub(crate) broadcast: Option<i64>,
    /// Number of its parts that were removed.
    pub(crate) removed: u8,
    pub(crate) items: Bytes,
    /// Its column of labels.
    pub(crate) labels: Option<Bytes>,
    /// Set while it is part of a broadcast and has no chunk yet.
    pub(crate) waiting: Option<WaitingState>,
    /// Members that are in chunks.
    pub(crate) pending: Members,
    /// Rows of the log for it, by their numbers: on PostgreSQL that of the transaction first, which is 0 elsewhere.
    pub(crate) log: BTreeMap<(i64, i64), Vec<u8>>,
}

/// A batch without the members that were erased.
#[derive(Debug)]
pub(crate) struct ErasedBatch {
    pub(crate) items: Vec<u8>,
    /// Its column of labels.
    pub(crate) labels: Option<Vec<u8>>,
    /// Number of its members without a recipient now.
    pub(crate) erased: usize,
    /// Rows of the log that say something of these members, without that.
    pub(crate) log: BTreeMap<(i64, i64), Vec<u8>>,
}

/// The word in the place of a recipient in what a provider said.
const ERASED: &str = "(erased)";

// === impl BatchToErase ===

impl BatchToErase {
    /// Answers the requests for this batch; `None` if nothing of it changes.
    pub(crate) fn answer(
        &self,
        asked: &[(usize, NotificationId)],
        answers: &mut [Erased],
    ) -> Result<Option<ErasedBatch>, StoreError> {
        let (waiting, recipients) = (self.waiting()?, self.recipients()?);
        let (mut members, mut addresses) = (Members::default(), Vec::new());
        for &(place, id) in asked {
            let index = id.index();
            // An id also holds the store and the time of acceptance: one that does not fit was never given here.
            let same = NotificationId::new(self.accepted_at, self.store_id, self.id, index);
            let stored = recipients.get(usize::from(index)).filter(|_| same == id);
            let answer = match stored {
                Some(_) if self.pending.contains(index) || waiting.contains(index) => {
                    Erased::Pending
                }
                Some((own, others)) if !own.is_empty() && members.insert(index) => {
                    addresses.push(own.clone());
                    addresses.extend_from_slice(others);
                    Erased::Erased
                }
                _ => Erased::Unknown,
            };
            if let Some(slot) = answers.get_mut(place) {
                *slot = answer;
            }
        }
        if members.is_empty() {
            return Ok(None);
        }
        let before = recipients.iter().zip(0..).filter(|((own, _), _)| own.is_empty());
        before.for_each(|(_, index)| _ = members.insert(index));
        let mut log = BTreeMap::new();
        for (number, row) in &self.log {
            if let Some(row) = without_words(row, &members, &addresses)? {
                log.insert(*number, row);
            }
        }
        let items = without_members(self.items.clone(), self.count, &members)?;
        let mut labels = BatchLabels::decode(self.labels.clone(), self.count.into())?;
        labels.remove(&members);
        Ok(Some(ErasedBatch { items, labels: labels.encode(), erased: members.len(), log }))
    }

    /// Recipients of all members, each with those of its fallbacks.
    fn recipients(&self) -> Result<Vec<(ByteString, Vec<ByteString>)>, StoreError> {
        let mut items = Items::new(self.items.clone())?;
        (0..self.count).map(|_| items.read_recipients()).collect()
    }

    /// Members that wait for their chunk.
    fn waiting(&self) -> Result<Members, StoreError> {
        if self.waiting.map(WaitingState::state) != Some(State::Pending) {
            return Ok(Members::default());
        }
        let mut waiting = Members::all(self.count.into());
        for row in self.log.values() {
            for group in decode_log(row)? {
                group.indexes.iter().for_each(|index| _ = waiting.remove(*index));
            }
        }
        Ok(waiting)
    }
}

/// A row of the log without the words that were said of `erased` members; `None` if there are none in it. Where they were said of
/// others as well, the `addresses` alone are taken out of them.
fn without_words(
    row: &[u8],
    erased: &Members,
    addresses: &[ByteString],
) -> Result<Option<Vec<u8>>, StoreError> {
    let (mut kept, mut is_changed) = (LogRow::new(), false);
    for group in decode_log(row)? {
        let detail = detail_without(&group, erased, addresses);
        is_changed |= detail != group.attempted.detail;
        let attempted = &group.attempted;
        let line = LogLine {
            at: attempted.at,
            attempt: attempted.attempt,
            state: attempted.state,
            status: attempted.status,
            detail: &detail,
        };
        kept.push(&line, group.indexes.iter().copied());
    }
    Ok(is_changed.then(|| kept.as_bytes().to_vec()))
}

fn detail_without(group: &LogGroup, erased: &Members, addresses: &[ByteString]) -> String {
    let detail = &group.attempted.detail;
    let is_erased = |index: &u16| erased.contains(*index);
    // This word is Belfry's own, and says which end was taken back.
    if group.attempted.taken_back().is_some() || !group.indexes.iter().any(is_erased) {
        detail.clone()
    } else if group.indexes.iter().all(is_erased) {
        group.attempted.own_words().to_owned()
    } else {
        addresses.iter().fold(detail.clone(), |text, address| without_address(&text, address))
    }
}

/// `text` without `address`, in whatever case it is written.
pub(crate) fn without_address(text: &str, address: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(next) = rest.chars().next() {
        let found = rest.get(..address.len()).filter(|found| found.eq_ignore_ascii_case(address));
        let (word, length) = match found {
            Some(found) if !found.is_empty() => (ERASED, found.len()),
            _ => (rest.get(..next.len_utf8()).unwrap_or_default(), next.len_utf8()),
        };
        kept.push_str(word);
        rest = rest.get(length..).unwrap_or_default();
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(row: &[u8]) -> Vec<(Vec<u16>, String)> {
        let groups = decode_log(row).unwrap();
        groups.into_iter().map(|group| (group.indexes, group.attempted.detail)).collect()
    }

    #[test]
    fn words_go_with_those_they_were_said_of_and_addresses_from_those_of_others() {
        let mut row = LogRow::new();
        let said = |detail| LogLine {
            detail,
            ..LogLine::unattempted(Timestamp::from_millis(1), State::Refused)
        };
        row.push(&said("no user Ann@host here"), [1].into_iter());
        row.push(&said("of <ANN@HOST>, ann@host and bob@host"), [0, 1].into_iter());
        row.push(&said("bob, not ann@host"), [0].into_iter());
        let requeued = super::super::requeue::log_line(State::Dead, Timestamp::from_millis(2));
        row.push(&requeued, [1].into_iter());
        let (erased, addresses) = (Members::from_iter([1]), ["ann@host".into()]);
        let kept = without_words(row.as_bytes(), &erased, &addresses).unwrap().unwrap();
        let expect = [
            (vec![1], ""),
            (vec![0, 1], "of <(erased)>, (erased) and bob@host"),
            (vec![0], "bob, not ann@host"),
            (vec![1], requeued.detail),
        ];
        assert_eq!(words(&kept), expect.map(|(indexes, detail)| (indexes, detail.to_owned())));
        assert_eq!(without_words(&kept, &erased, &addresses).unwrap(), None);
    }

    #[test]
    fn an_address_is_found_between_characters_of_any_length() {
        assert_eq!(without_address("ä<a@ö>ö", "A@ö"), "ä<(erased)>ö");
        assert_eq!(without_address("ööö", "öö"), "(erased)ö");
        assert_eq!(without_address("text", ""), "text");
    }
}

//! Notices on their way to the writer that claims. Nobody waits to be heard: what finds no room is forgotten, and then
//! everything is looked at.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use notification::Timestamp;
use tokio::sync::mpsc;

use crate::rows::codes::LaneId;

/// Something that another part of the system, here or in another process, should know once it is durable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Notice {
    /// A chunk of the lane is ready, due at this instant.
    Due(LaneId, Timestamp),
    /// So much of what was claimed from the partition in this lane is settled or due again.
    Freed(i16, LaneId, usize),
    /// More happened than can be told: look at everything.
    Everything,
}

/// The end of those who know something.
#[derive(Debug, Clone)]
pub(super) struct Teller {
    notices: mpsc::Sender<Vec<Notice>>,
    is_forgotten: Arc<AtomicBool>,
}

/// The end of the writer that claims.
#[derive(Debug)]
pub(super) struct Hearer {
    notices: mpsc::Receiver<Vec<Notice>>,
    is_forgotten: Arc<AtomicBool>,
}

/// Longest payload of a notification that PostgreSQL takes, bytes.
const PAYLOAD_BYTES: usize = 7_900;
/// Payloads that a transaction may send; more is told as "everything".
const PAYLOADS_MAX: usize = 16;
/// Both ends of a way for `most` batches of notices.
pub(super) fn channel(most: usize) -> (Teller, Hearer) {
    let (sender, receiver) = mpsc::channel(most);
    let is_forgotten = Arc::new(AtomicBool::new(false));
    let teller = Teller { notices: sender, is_forgotten: Arc::clone(&is_forgotten) };
    (teller, Hearer { notices: receiver, is_forgotten })
}

// === impl Teller ===

impl Teller {
    /// Tells; to a writer that is gone, nothing.
    pub(super) fn tell(&self, notices: Vec<Notice>) {
        if let Err(mpsc::error::TrySendError::Full(_)) = self.notices.try_send(notices) {
            self.is_forgotten.store(true, Ordering::Relaxed);
        }
    }
}

// === impl Hearer ===

impl Hearer {
    /// The next that came, if any.
    pub(super) fn next(&mut self) -> Option<Vec<Notice>> {
        if self.is_forgotten.swap(false, Ordering::Relaxed) {
            return Some(vec![Notice::Everything]);
        }
        self.notices.try_recv().ok()
    }
}

/// Notices of `worker` as the payloads of notifications.
pub(super) fn to_payloads(worker: i64, notices: &[Notice]) -> Vec<String> {
    let (mut payloads, mut payload) = (Vec::new(), worker.to_string());
    for notice in notices {
        let word = match notice {
            Notice::Due(lane, at) => format!(" d{lane}:{}", at.millis()),
            Notice::Freed(partition, lane, weight) => format!(" f{partition}:{lane}:{weight}"),
            Notice::Everything => return vec![format!("{worker} *")],
        };
        if payload.len() + word.len() > PAYLOAD_BYTES {
            payloads.push(std::mem::replace(&mut payload, worker.to_string()));
        }
        payload.push_str(&word);
    }
    payloads.push(payload);
    if payloads.len() > PAYLOADS_MAX { vec![format!("{worker} *")] } else { payloads }
}

/// Who sent a payload, and its notices; one that is not understood stands for everything.
pub(super) fn from_payload(payload: &str) -> (Option<i64>, Vec<Notice>) {
    let notice = |word: &str| {
        let (kind, rest) = word.split_at_checked(1)?;
        let mut numbers = rest.split(':');
        match kind {
            "d" => {
                let lane = numbers.next()?.parse().ok()?;
                Some(Notice::Due(lane, Timestamp::from_millis(numbers.next()?.parse().ok()?)))
            }
            "f" => {
                let (partition, lane) =
                    (numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?);
                Some(Notice::Freed(partition, lane, numbers.next()?.parse().ok()?))
            }
            _ => None,
        }
    };
    let mut words = payload.split_whitespace();
    let worker = words.next().and_then(|word| word.parse().ok());
    (worker, words.map(|word| notice(word).unwrap_or(Notice::Everything)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notices_survive_being_sent() {
        let notices = [
            Notice::Due(7, Timestamp::from_millis(1_800_000_000_000)),
            Notice::Freed(63, 8, 1_064),
        ];
        assert_eq!(from_payload(&to_payloads(5, &notices)[0]), (Some(5), notices.to_vec()));
        for payload in ["5 *", "5 x1", "5 d1", "5 d1:x", "5 f1:2", "5 ü"] {
            assert_eq!(from_payload(payload), (Some(5), vec![Notice::Everything]), "{payload}");
        }
        let due = |lane| Notice::Due(lane, Timestamp::from_millis(lane));
        let many: Vec<Notice> = (0..2_000).map(due).collect();
        let payloads = to_payloads(5, &many);
        assert!((2..PAYLOADS_MAX).contains(&payloads.len()), "{}", payloads.len());
        assert!(payloads.iter().all(|payload| payload.len() <= PAYLOAD_BYTES));
        let told: Vec<Notice> =
            payloads.iter().flat_map(|payload| from_payload(payload).1).collect();
        assert_eq!(told, many);
        let too_many: Vec<Notice> = (0..50_000).map(due).collect();
        assert_eq!(to_payloads(5, &too_many), ["5 *"]);
    }

    #[test]
    fn what_finds_no_room_stands_for_everything() {
        let (teller, mut hearer) = channel(1);
        teller.tell(vec![Notice::Freed(1, 2, 3)]);
        teller.tell(vec![Notice::Freed(4, 5, 6)]);
        assert_eq!(hearer.next(), Some(vec![Notice::Everything]));
        assert_eq!(hearer.next(), Some(vec![Notice::Freed(1, 2, 3)]));
        assert_eq!(hearer.next(), None);
    }
}

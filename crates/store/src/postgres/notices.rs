//! Notices of chunks that became ready and room that became free, for the writer that claims and for other processes. Sending
//! never waits: notices that find no room are dropped, and the receiver gets one by which everything is read anew.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use notification::Timestamp;
use tokio::sync::mpsc;

use crate::rows::codes::LaneId;
use crate::rows::evidence::AttemptEvidence;
use crate::rows::room::LaneLoad;

/// A change that another part of the system, in this process or another one, should know once it is durable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Notice {
    /// A chunk of the lane is ready, due at this instant.
    Due(LaneId, Timestamp),
    /// Load that is settled or due again, with its partition and lane.
    Freed(i16, LaneId, LaneLoad),
    /// Evidence of settlements for the lane's destination.
    Tried(LaneId, AttemptEvidence),
    /// More changed than notices can say: read everything anew.
    Everything,
}

/// The sending end, one for each part of the process that has notices.
#[derive(Debug, Clone)]
pub(super) struct NoticeSender {
    notices: mpsc::Sender<Vec<Notice>>,
    has_dropped: Arc<AtomicBool>,
}

/// The receiving end, of the writer that claims.
#[derive(Debug)]
pub(super) struct NoticeReceiver {
    notices: mpsc::Receiver<Vec<Notice>>,
    has_dropped: Arc<AtomicBool>,
}

/// Longest payload of a notification that PostgreSQL takes, bytes.
const PAYLOAD_BYTES: usize = 7_900;
/// Payloads that a transaction may send; more are replaced by "everything".
const PAYLOADS_MAX: usize = 16;
/// A channel for `most` batches of notices.
pub(super) fn channel(most: usize) -> (NoticeSender, NoticeReceiver) {
    let (sender, receiver) = mpsc::channel(most);
    let has_dropped = Arc::new(AtomicBool::new(false));
    let sender = NoticeSender { notices: sender, has_dropped: Arc::clone(&has_dropped) };
    (sender, NoticeReceiver { notices: receiver, has_dropped })
}

// === impl NoticeSender ===

impl NoticeSender {
    /// Sends notices; does nothing when the writer is gone.
    pub(super) fn send(&self, notices: Vec<Notice>) {
        if let Err(mpsc::error::TrySendError::Full(_)) = self.notices.try_send(notices) {
            // The flag orders nothing: what was dropped is read from the database, not from memory that another thread wrote.
            self.has_dropped.store(true, Ordering::Relaxed);
        }
    }
}

// === impl NoticeReceiver ===

impl NoticeReceiver {
    /// The next batch, if there is one.
    pub(super) fn next(&mut self) -> Option<Vec<Notice>> {
        if self.has_dropped.swap(false, Ordering::Relaxed) {
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
            Notice::Freed(partition, lane, LaneLoad { deliveries, weight }) => {
                format!(" f{partition}:{lane}:{weight}:{deliveries}")
            }
            Notice::Tried(lane, attempts) => {
                let AttemptEvidence {
                    at,
                    answered,
                    has_failed,
                    handed_back_until,
                    places,
                    latency,
                    rate_per_minute,
                } = attempts;
                let (at, failed) = (at.millis(), u8::from(*has_failed));
                let back = handed_back_until.map_or(0, Timestamp::millis);
                let micros =
                    latency.map(|latency| latency.as_micros().to_string()).unwrap_or_default();
                let rate = rate_per_minute.map_or(0, NonZeroU32::get);
                format!(" t{lane}:{at}:{answered}:{failed}:{back}:{places}:{micros}:{rate}")
            }
            // No notice has this word, and a process takes an unknown one for everything.
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

/// The worker that sent a payload, and its notices; one that is not understood becomes [`Notice::Everything`].
pub(super) fn from_payload(payload: &str) -> (Option<i64>, Vec<Notice>) {
    let notice = |word: &str| {
        // Checked, since every program that may connect can notify: a payload that is not ASCII must not end the process.
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
                let weight = numbers.next()?.parse().ok()?;
                let deliveries = numbers.next()?.parse().ok()?;
                Some(Notice::Freed(partition, lane, LaneLoad { deliveries, weight }))
            }
            "t" => {
                let lane = numbers.next()?.parse().ok()?;
                let at = Timestamp::from_millis(numbers.next()?.parse().ok()?);
                let answered = numbers.next()?.parse().ok()?;
                let has_failed = numbers.next()? != "0";
                let back: i64 = numbers.next()?.parse().ok()?;
                let handed_back_until = (back != 0).then(|| Timestamp::from_millis(back));
                let places = numbers.next()?.parse().ok()?;
                // Missing where it is not known, and from an older version.
                let latency =
                    numbers.next().and_then(|it| it.parse().ok()).map(Duration::from_micros);
                let rate_per_minute = numbers.next().and_then(|it| it.parse().ok());
                let attempts = AttemptEvidence {
                    at,
                    answered,
                    has_failed,
                    handed_back_until,
                    places,
                    latency,
                    rate_per_minute,
                };
                Some(Notice::Tried(lane, attempts))
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

    const FREED: LaneLoad = LaneLoad { deliveries: 1_000, weight: 1_064 };

    const TRIED: AttemptEvidence = AttemptEvidence {
        at: Timestamp::from_millis(5),
        answered: 7,
        has_failed: true,
        handed_back_until: Some(Timestamp::from_millis(9)),
        places: 32,
        latency: Some(Duration::from_micros(12_345)),
        rate_per_minute: NonZeroU32::new(600),
    };

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    #[test]
    fn notices_survive_being_sent() {
        let notices = [
            Notice::Due(7, at(1_800_000_000_000)),
            Notice::Freed(63, 8, FREED),
            Notice::Tried(9, TRIED),
        ];
        assert_eq!(from_payload(&to_payloads(5, &notices)[0]), (Some(5), notices.to_vec()));
        for payload in ["5 *", "5 x1", "5 d1", "5 d1:x", "5 f1:2:3", "5 t1:2:3:4", "5 ü"] {
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
    fn a_notice_that_finds_no_room_becomes_one_to_read_everything() {
        let (sender, mut receiver) = channel(1);
        sender.send(vec![Notice::Freed(1, 2, FREED)]);
        sender.send(vec![Notice::Freed(4, 5, FREED)]);
        assert_eq!(receiver.next(), Some(vec![Notice::Everything]));
        assert_eq!(receiver.next(), Some(vec![Notice::Freed(1, 2, FREED)]));
        assert_eq!(receiver.next(), None);
    }
}

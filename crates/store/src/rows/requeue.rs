//! Dead notifications that are sent again: what the log says of them, and which may be.

use std::collections::BTreeMap;

use notification::{BatchId, NotificationId, State, Timestamp};

use super::codec::{LogGroup, LogLine, LogRow};
use super::members::Members;
use crate::Requeued;

/// A request by batch: places in the request, and members.
pub(crate) type Asked = BTreeMap<BatchId, Vec<(usize, NotificationId)>>;

/// A batch of which something is to be requeued.
#[derive(Debug)]
pub(crate) struct Owned {
    pub(crate) id: BatchId,
    pub(crate) accepted_at: Timestamp,
    pub(crate) expires_at: Option<Timestamp>,
    pub(crate) count: u16,
    /// Its dead members, by the log.
    pub(crate) dead: Members,
}

/// Members that died and were requeued, counted; a log that is read by several transactions has no order to rely on.
#[derive(Debug, Default)]
pub(crate) struct Deaths {
    balance: BTreeMap<u16, i32>,
}

/// By batch, in the order of the batches.
pub(crate) fn by_batch(ids: &[NotificationId]) -> Asked {
    let mut asked = Asked::new();
    for (place, &id) in ids.iter().enumerate() {
        asked.entry(id.batch()).or_default().push((place, id));
    }
    asked
}

/// The row of the log for requeued members.
pub(crate) fn log_row(members: &Members, now: Timestamp) -> LogRow {
    let mut row = LogRow::new();
    let line = LogLine { detail: "requeued", ..LogLine::unattempted(now, State::Pending) };
    row.push(&line, members.iter());
    row
}

// === impl Owned ===

impl Owned {
    /// Answers what is asked of this batch; returns the members that are pending from now on.
    pub(crate) fn answer(
        &self,
        store_id: u16,
        now: Timestamp,
        asked: &[(usize, NotificationId)],
        answers: &mut [Requeued],
    ) -> Members {
        let mut members = Members::default();
        for &(place, id) in asked {
            let index = id.index();
            let same = NotificationId::new(self.accepted_at, store_id, self.id, index);
            let answer = if same != id || index >= self.count {
                Requeued::Unknown
            } else if !self.dead.contains(index) {
                Requeued::NotDead
            } else if self.expires_at.is_some_and(|expires_at| expires_at <= now) {
                Requeued::Expired
            } else if members.insert(index) {
                Requeued::Requeued
            } else {
                // The second time in one request.
                Requeued::NotDead
            };
            if let Some(slot) = answers.get_mut(place) {
                *slot = answer;
            }
        }
        members
    }
}

// === impl Deaths ===

impl Deaths {
    /// Counts what a line of the log says.
    pub(crate) fn add(&mut self, group: &LogGroup) {
        let change = match (group.attempted.state == State::Dead, group.is_requeue()) {
            (true, _) => 1,
            (false, true) => -1,
            (false, false) => return,
        };
        for &index in &group.indexes {
            *self.balance.entry(index).or_default() += change;
        }
    }

    /// How many times more than it was requeued each member died.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u16, i32)> {
        self.balance.iter().map(|(&index, &deaths)| (index, deaths))
    }

    /// Those that are dead.
    pub(crate) fn members(&self) -> Members {
        self.iter().filter(|(_, deaths)| *deaths > 0).map(|(index, _)| index).collect()
    }
}

// === impl LogGroup ===

impl LogGroup {
    /// Whether an operator sent these again: what is pending after an attempt has the attempt's number.
    pub(crate) fn is_requeue(&self) -> bool {
        self.attempted.state == State::Pending && self.attempted.attempt == 0
    }
}

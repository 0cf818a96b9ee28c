//! The effect of a settlement, or of the end of a lease, on a chunk. Arithmetic only: the backend writes the result.

use notification::{Disposition, OutcomeGroup, Settlement, State, Timestamp};

use super::codec::{LogLine, LogRow};
use super::members::Members;
use super::model::{ChunkRow, NewChunk};

/// The rows to write for a settlement that applies.
#[derive(Debug)]
pub(crate) struct Applied<'a> {
    /// Row of the log; empty when there is no entry.
    pub(crate) log: LogRow,
    /// Number of deliveries that ended, by state.
    pub(crate) ended: Vec<(State, usize)>,
    /// New chunks, of the same batch and lane.
    pub(crate) parts: Vec<NewChunk>,
    /// Groups whose recipients are to be suppressed.
    pub(crate) suppressed: Vec<&'a OutcomeGroup>,
    /// The members that are left in the chunk; empty: the chunk is gone.
    pub(crate) rest: Members,
}

/// The changes of a settlement; `None` when it is stale.
pub(crate) fn apply<'a>(chunk: &ChunkRow, settlement: &'a Settlement) -> Option<Applied<'a>> {
    if chunk.epoch != settlement.epoch || chunk.lease_until.is_none() {
        return None;
    }
    let mut rest = chunk.members();
    let mut indexes = settlement.groups.iter().flat_map(|group| &group.indexes);
    // A member that is settled already, or named twice, makes all of it stale: a part of it must not apply.
    if !indexes.all(|&index| rest.remove(index)) {
        return None;
    }
    let (log, ended, parts, suppressed) = (LogRow::new(), Vec::new(), Vec::new(), Vec::new());
    let mut applied = Applied { log, ended, parts, suppressed, rest };
    for group in &settlement.groups {
        applied.add(chunk, group, settlement.at);
    }
    Some(applied)
}

/// Divides a chunk whose claim is void into the begun at-most-once members, and the rest.
pub(crate) fn begun_and_rest(chunk: &ChunkRow) -> (Members, Members) {
    let mut rest = chunk.members();
    // Only at-most-once chunks are ever marked.
    let Some(through) = chunk.begun_through else { return (Members::default(), rest) };
    let begun: Members = rest.iter().take_while(|&index| index <= through).collect();
    for index in begun.iter() {
        rest.remove(index);
    }
    (begun, rest)
}

// === impl Applied ===

impl<'a> Applied<'a> {
    fn add(&mut self, chunk: &ChunkRow, group: &'a OutcomeGroup, at: Timestamp) {
        let (status, detail) = (group.status, &*group.detail);
        let line = |attempt, state| LogLine { at, attempt, state, status, detail };
        let indexes = || group.indexes.iter().copied();
        match group.disposition {
            Disposition::Ended(state) => {
                // A delivery that is reported as expired was not sent.
                let attempt = if state == State::Expired { 0 } else { chunk.attempt };
                self.log.push(&line(attempt, state), indexes());
                self.ended.push((state, group.indexes.len()));
            }
            Disposition::TooLate => {
                // With the attempt, unlike one that was reported as expired: this one was sent, and its next attempt would come
                // too late.
                self.log.push(&line(chunk.attempt, State::Expired), indexes());
                self.ended.push((State::Expired, group.indexes.len()));
            }
            Disposition::Retry { at: due_at } => {
                self.log.push(&line(chunk.attempt, State::Pending), indexes());
                // It was sent, and the process goes on: all crashes held against it are void.
                let attempt = chunk.attempt.saturating_add(1);
                let part = NewChunk::part(chunk, due_at, Members::default());
                self.due_again(NewChunk { attempt, crashes: 0, ..part }, &group.indexes);
            }
            // It was not sent, so nothing new is known of it.
            Disposition::HandedBack { at: due_at } => {
                let part = NewChunk::part(chunk, due_at, Members::default());
                self.due_again(part, &group.indexes);
            }
        }
        if group.suppress {
            self.suppressed.push(group);
        }
    }

    /// Adds `indexes` to the chunk that is like `empty`: members due at one instant stay together, whatever was answered.
    fn due_again(&mut self, empty: NewChunk, indexes: &[u16]) {
        let is_like = |part: &NewChunk| {
            (part.due_at, part.attempt, part.crashes)
                == (empty.due_at, empty.attempt, empty.crashes)
        };
        let position = self.parts.iter().position(is_like).unwrap_or_else(|| {
            self.parts.push(empty);
            self.parts.len() - 1
        });
        let Some(part) = self.parts.get_mut(position) else { return };
        for &index in indexes {
            part.members.insert(index);
        }
    }
}

//! What a settlement, the end of a lease and a crash do to a chunk. Arithmetic only: the backend writes it down.

use notification::{Disposition, OutcomeGroup, Settlement, State, Timestamp, limits};

use super::codec::{LogLine, LogRow};
use super::members::Members;
use super::model::ChunkRow;

/// What to write for a settlement that applies.
#[derive(Debug)]
pub(crate) struct Applied<'a> {
    /// One row of the log; empty when nothing of it is logged.
    pub(crate) log: LogRow,
    /// How many ended in which state.
    pub(crate) ended: Vec<(State, usize)>,
    /// New chunks, of the same batch and lane.
    pub(crate) parts: Vec<Part>,
    /// Groups whose recipients are to be suppressed.
    pub(crate) suppressed: Vec<&'a OutcomeGroup>,
    /// What the chunk is left with; empty: the chunk is gone.
    pub(crate) rest: Members,
}

/// Members of a chunk that become a chunk of their own, ready.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) due_at: Timestamp,
    pub(crate) attempt: u16,
    pub(crate) crashes: u16,
    pub(crate) members: Members,
}

/// What becomes of a chunk that was in flight when its process ended.
#[derive(Debug)]
pub(crate) enum Crashed {
    /// It is due again.
    Returned {
        /// How many crashes it has seen.
        crashes: u16,
    },
    /// It was in too many: halved, so that the notification that ends the process is found.
    Halved {
        /// What the chunk keeps.
        first: Members,
        /// The other half.
        second: Part,
    },
    /// A single one that was in too many: dead, with these words.
    Quarantined(String),
}

/// What a settlement comes to; `None` when it is stale.
pub(crate) fn apply<'a>(chunk: &ChunkRow, settlement: &'a Settlement) -> Option<Applied<'a>> {
    if chunk.epoch != settlement.epoch || chunk.lease_until.is_none() {
        return None;
    }
    let mut rest = chunk.members();
    let mut indexes = settlement.groups.iter().flat_map(|group| &group.indexes);
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

/// Parts a chunk whose claim is void into what had begun, at most once, and the rest.
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

/// What becomes of `rest`, which is due again after one more crash.
pub(crate) fn crashed(chunk: &ChunkRow, rest: &Members) -> Crashed {
    let crashes = chunk.crashes.saturating_add(1);
    let count = rest.len();
    if count == 1 && crashes >= limits::CRASHES_BEFORE_QUARANTINE {
        return Crashed::Quarantined(format!("quarantined: in flight in {crashes} crashes"));
    }
    if count > 1 && crashes >= limits::CRASHES_BEFORE_SPLIT {
        let first = rest.iter().take(count / 2).collect();
        let members = rest.iter().skip(count / 2).collect();
        // One less, so that the next crash halves it again.
        let (due_at, attempt, crashes) = (chunk.due_at, chunk.attempt, crashes - 1);
        return Crashed::Halved { first, second: Part { due_at, attempt, crashes, members } };
    }
    Crashed::Returned { crashes }
}

// === impl Applied ===

impl<'a> Applied<'a> {
    fn add(&mut self, chunk: &ChunkRow, group: &'a OutcomeGroup, at: Timestamp) {
        let (status, detail) = (group.status, &*group.detail);
        let line = |attempt, state| LogLine { at, attempt, state, status, detail };
        let indexes = || group.indexes.iter().copied();
        let part =
            |due_at, attempt| Part { due_at, attempt, crashes: 0, members: indexes().collect() };
        match group.disposition {
            Disposition::Ended(state) => {
                let attempt = if state == State::Expired { 0 } else { chunk.attempt };
                self.log.push(&line(attempt, state), indexes());
                self.ended.push((state, group.indexes.len()));
            }
            Disposition::Retry { at: due_at } => {
                self.log.push(&line(chunk.attempt, State::Pending), indexes());
                self.parts.push(part(due_at, chunk.attempt.saturating_add(1)));
            }
            // It was not started, so it ended no process.
            Disposition::HandedBack { at: due_at } => self.parts.push(part(due_at, chunk.attempt)),
        }
        if group.suppress {
            self.suppressed.push(group);
        }
    }
}

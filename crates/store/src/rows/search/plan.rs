//! The next step of the index: which runs there are decides what is to be done.

use notification::BatchId;

use crate::StoreError;

/// A row of `search_run`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) id: i64,
    /// 0 for a run that was made of batches, and one more than that of its parts for a merged one.
    pub(crate) level: u8,
    pub(crate) first_batch: BatchId,
    pub(crate) last_batch: BatchId,
    pub(crate) state: RunState,
}

/// The state of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RunState {
    /// It is being merged, and read by none but the merge.
    Unfinished = 0,
    /// It is read, and never changed.
    Complete = 1,
    /// It is read no more, and its blocks are being removed.
    Dropped = 2,
}

/// A merge to be begun or gone on with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MergePlan {
    /// The run that is made, if it was begun.
    pub(crate) output: Option<i64>,
    pub(crate) level: u8,
    pub(crate) first_batch: BatchId,
    pub(crate) last_batch: BatchId,
    /// Runs that it replaces, oldest first.
    pub(crate) inputs: Vec<i64>,
}

/// The kind of the next step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NextStep {
    /// A run of the batches that are not indexed yet, if there are enough of them.
    Index,
    /// A part of a merge.
    Merge(MergePlan),
    /// Some blocks of a run.
    Drop(i64),
}

/// Runs that are merged into one.
pub(crate) const FAN_IN: usize = 8;
/// Runs of a level, or dropped ones, from which on nothing new is indexed until they are fewer.
const ARREARS: usize = 2 * FAN_IN;
/// Batches from which on the next run is made.
pub(crate) const RUN_BATCHES: usize = 1_024;
/// Notifications from which on the next run is made, of fewer batches: 1 MiB of postings in memory.
pub(crate) const RUN_POSTINGS: usize = 65_536;
/// Bytes of batches after which a run ends.
pub(crate) const RUN_BYTES: usize = 8 * 1024 * 1024;
/// Blocks of a dropped run that are removed in one step: half a MiB.
pub(crate) const DROPPED_BLOCKS: usize = 64;

// === impl RunState ===

impl RunState {
    pub(crate) fn from_code(code: i64) -> Result<Self, StoreError> {
        match code {
            0 => Ok(Self::Unfinished),
            1 => Ok(Self::Complete),
            2 => Ok(Self::Dropped),
            _ => Err(StoreError::Damaged(format!("{code} is no state of a run"))),
        }
    }
}

/// The steps that may be next, the most urgent one first. A new run comes before merges, so that what is not indexed stays little;
/// but not before a level that is in arrears, so that the number of runs is bounded however much comes in.
pub(crate) fn next_steps(runs: &[Run]) -> Vec<NextStep> {
    let top = runs.iter().map(|run| run.level).max().unwrap_or(0);
    let dropped: Vec<&Run> = runs.iter().filter(|run| run.state == RunState::Dropped).collect();
    let is_in_arrears = |level: u8| of_level(runs, level).count() >= ARREARS;
    let drop_next = dropped.first().map(|run| NextStep::Drop(run.id));
    let merge_at = |level: u8| merge_of(runs, level).map(NextStep::Merge);
    let mut steps = Vec::new();
    steps.extend(drop_next.clone().filter(|_| dropped.len() >= ARREARS));
    steps.extend((0..=top).rev().filter(|level| is_in_arrears(*level)).filter_map(merge_at));
    if steps.is_empty() {
        steps.push(NextStep::Index);
        steps.extend(drop_next);
        steps.extend((0..=top).filter_map(merge_at));
    }
    steps
}

/// Complete runs of `level`, oldest first.
fn of_level(runs: &[Run], level: u8) -> impl Iterator<Item = &Run> {
    let mut of_level: Vec<&Run> =
        runs.iter().filter(|run| run.level == level && run.state == RunState::Complete).collect();
    of_level.sort_by_key(|run| run.first_batch);
    of_level.into_iter()
}

/// The merge of runs of `level`, if one is under way or there are enough of them.
fn merge_of(runs: &[Run], level: u8) -> Option<MergePlan> {
    let is_output = |run: &&Run| run.level == level + 1 && run.state == RunState::Unfinished;
    if let Some(output) = runs.iter().find(is_output) {
        // Some may have been forgotten since it was begun.
        let is_input = |run: &&Run| run.last_batch <= output.last_batch;
        let inputs = of_level(runs, level).filter(is_input).map(|run| run.id).collect();
        let Run { id, level, first_batch, last_batch, .. } = *output;
        return Some(MergePlan { output: Some(id), level, first_batch, last_batch, inputs });
    }
    let oldest: Vec<&Run> = of_level(runs, level).take(FAN_IN).collect();
    let (first, last) = (oldest.first()?, oldest.last()?);
    (oldest.len() == FAN_IN).then(|| MergePlan {
        output: None,
        level: level + 1,
        first_batch: first.first_batch,
        last_batch: last.last_batch,
        inputs: oldest.iter().map(|run| run.id).collect(),
    })
}

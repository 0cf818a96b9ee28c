//! The index in memory, beside a plain list of everything.

use std::collections::BTreeMap;
use std::ops::Bound;

use notification::BatchId;

use super::block::{Block, BlockWriter};
use super::lookup::{Candidates, FetchedBlocks, Lookup};
use super::merge::merge;
use super::plan::{NextStep, Run, RunState, next_steps};
use super::term::Term;
use super::{BlockKey, Blocks, Posting, at_once};
use crate::{ListOrder, StoreError};

/// Runs and blocks, and all postings as they came.
#[derive(Default)]
struct Model {
    runs: Vec<Run>,
    blocks: BTreeMap<(i64, BlockKey), Block>,
    all: Vec<Posting>,
    last_run: i64,
    /// Batches below are forgotten: what is found of them may be anything.
    forgotten: u64,
}

// === impl Model ===

impl Blocks for Model {
    async fn at_or_before(&self, run: i64, key: BlockKey) -> Result<Option<Block>, StoreError> {
        let range = (run, BlockKey::MIN)..=(run, key);
        Ok(self.blocks.range(range).next_back().map(|(_, block)| block.clone()))
    }

    async fn after(&self, run: i64, key: BlockKey) -> Result<Option<Block>, StoreError> {
        let range = (Bound::Excluded((run, key)), Bound::Included((run, BlockKey::MAX)));
        Ok(self.blocks.range(range).next().map(|(_, block)| block.clone()))
    }
}

impl Model {
    fn add(&mut self, run: i64, blocks: Vec<Block>) {
        for block in blocks {
            assert!(block.postings.len() < 8_100, "a block fits a page");
            assert_eq!(self.blocks.insert((run, block.first), block), None, "no block twice");
        }
    }

    fn begin(&mut self, level: u8, (first_batch, last_batch): (BatchId, BatchId)) -> i64 {
        self.last_run += 1;
        let (id, state) = (self.last_run, RunState::Unfinished);
        self.runs.push(Run { id, level, first_batch, last_batch, state });
        id
    }

    fn set(&mut self, run: i64, state: RunState) {
        self.runs.iter_mut().filter(|it| it.id == run).for_each(|it| it.state = state);
    }

    /// Takes one step; false if there is none. `next` makes the postings of the next batches.
    fn step(&mut self, postings_max: usize, next: &mut impl FnMut() -> Vec<Posting>) -> bool {
        for step in next_steps(&self.runs) {
            match step {
                NextStep::Index => {
                    let mut postings = next();
                    let (Some(first), Some(last)) = (postings.first(), postings.last()) else {
                        continue;
                    };
                    let numbers = (first.batch, last.batch);
                    self.all.extend(&postings);
                    postings.sort_unstable();
                    let mut writer = BlockWriter::new(numbers.0);
                    for posting in postings {
                        writer.push(posting);
                    }
                    let run = self.begin(0, numbers);
                    self.add(run, writer.finish());
                    self.set(run, RunState::Complete);
                }
                NextStep::Drop(run) => {
                    let of_run = (run, BlockKey::MIN)..=(run, BlockKey::MAX);
                    let keys: Vec<_> =
                        self.blocks.range(of_run).map(|(key, _)| *key).take(2).collect();
                    for key in &keys {
                        self.blocks.remove(key);
                    }
                    if keys.len() < 2 {
                        self.runs.retain(|it| it.id != run);
                    }
                }
                NextStep::Merge(plan) => {
                    let numbers = (plan.first_batch, plan.last_batch);
                    let bounds = (plan.first_batch, postings_max);
                    let part = at_once(merge(self, plan.output, &plan.inputs, bounds)).unwrap();
                    let run = plan.output.unwrap_or_else(|| self.begin(plan.level, numbers));
                    self.add(run, part.blocks);
                    if part.is_last {
                        self.set(run, RunState::Complete);
                        for input in plan.inputs {
                            self.set(input, RunState::Dropped);
                        }
                    }
                }
            }
            return true;
        }
        false
    }

    fn complete(&self) -> Vec<Run> {
        let complete = |run: &&Run| run.state == RunState::Complete;
        self.runs.iter().filter(complete).copied().collect()
    }

    /// As much as a look-up reads.
    fn fetch(&self, lookup: &Lookup) -> FetchedBlocks {
        let (mut fetched, from) = (FetchedBlocks::default(), lookup.from());
        for run in self.complete() {
            let before = self.blocks.range((run.id, BlockKey::MIN)..=(run.id, from)).rev().take(2);
            let behind =
                (Bound::Excluded((run.id, from)), Bound::Included((run.id, BlockKey::MAX)));
            let behind = self.blocks.range(behind).take(2);
            let of_term = |(_, block): &(_, &Block)| block.first.term <= from.term;
            for (_, block) in before.chain(behind.filter(of_term)) {
                fetched.add(run.id, block.clone());
            }
        }
        fetched
    }

    /// Compares all that is found of `term`, page by page, with what there is.
    fn check(&self, term: Term, order: ListOrder) {
        let mut expect: Vec<(BatchId, u16)> = self
            .all
            .iter()
            .filter(|it| it.term == term && it.batch >= BatchId(self.forgotten))
            .map(|it| (it.batch, it.index))
            .collect();
        expect.sort_unstable();
        if order == ListOrder::NewestFirst {
            expect.reverse();
        }
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let lookup = Lookup { term, order, after, places_max: 50 };
            let candidates = at_once(lookup.find(self, &self.complete())).unwrap();
            let fetched = self.fetch(&lookup);
            assert_eq!(at_once(lookup.find(&fetched, &self.complete())).unwrap(), candidates);
            let Candidates { places, has_more } = candidates;
            assert!(places.len() <= 50 && (!has_more || !places.is_empty()));
            after = places.last().copied().or(after);
            found.extend(places);
            if !has_more {
                break;
            }
        }
        found.retain(|(batch, _)| *batch >= BatchId(self.forgotten));
        assert_eq!(found, expect, "{term:?} {order:?}");
    }
}

/// Postings of some batches behind `batch`: a few terms have most of them, the rest are of all sizes.
fn postings_of(random: &mut fastrand::Rng, batch: &mut u64) -> Vec<Posting> {
    let mut postings = Vec::new();
    for _ in 0..random.u64(1..4) {
        // Numbers have gaps, and after a restoration a large one.
        *batch += if random.u8(..) == 0 { 1 << 32 } else { random.u64(1..4) };
        for index in 0..random.u16(1..120) {
            let term = if random.u8(0..8) == 0 { random.u64(0..4) } else { random.u64(..) };
            postings.push(Posting { term: Term(term), batch: BatchId(*batch), index });
        }
    }
    postings
}

#[test]
fn what_is_looked_up_is_what_was_indexed_after_every_step() {
    for seed in 0..4 {
        let (mut random, mut model, mut batch) =
            (fastrand::Rng::with_seed(seed), Model::default(), 0);
        for _ in 0..100 {
            let mut gives = random.fork();
            let is_idle = random.u8(0..3) == 0;
            let mut next =
                || if is_idle { Vec::new() } else { postings_of(&mut gives, &mut batch) };
            model.step(random.usize(1..3_000), &mut next);
            if random.u8(0..60) == 0 {
                model.forgotten = random.u64(0..=batch);
                let old: Vec<i64> = (model.complete().iter())
                    .filter(|run| run.last_batch < BatchId(model.forgotten))
                    .map(|run| run.id)
                    .collect();
                for run in old {
                    model.set(run, RunState::Dropped);
                }
            }
            let any = model.all.get(random.usize(0..model.all.len().max(1)));
            for term in [Term(0), Term(3), Term(4), any.map_or(Term(5), |posting| posting.term)] {
                model.check(term, ListOrder::OldestFirst);
                model.check(term, ListOrder::NewestFirst);
            }
        }
        while model.step(1_000, &mut Vec::new) {}
        assert!(
            model.runs.iter().all(|run| run.state == RunState::Complete),
            "nothing is left over"
        );
        let of_runs: Vec<i64> = model.runs.iter().map(|run| run.id).collect();
        assert!(model.blocks.keys().all(|(run, _)| of_runs.contains(run)), "no block is left over");
    }
}

#[test]
fn the_runs_of_many_batches_are_few_although_a_merge_never_ends_in_time() {
    let (mut random, mut model, mut batch) = (fastrand::Rng::with_seed(1), Model::default(), 0u64);
    for _ in 0..5_000 {
        // As much comes in as is asked for, and a merge makes a block at a time.
        model.step(1, &mut || {
            batch += 1;
            (0..40)
                .map(|index| Posting { term: Term(random.u64(..)), batch: BatchId(batch), index })
                .collect()
        });
        assert!(model.runs.len() <= 100, "{}", model.runs.len());
    }
    assert!(model.all.len() > 10_000);
}

#[test]
fn postings_of_one_term_alone_are_found_from_any_place() {
    let mut model = Model::default();
    let mut writer = BlockWriter::new(BatchId(1));
    for batch in 1..=100 {
        for index in 0..1_000 {
            let posting = Posting { term: Term(9), batch: BatchId(batch), index };
            writer.push(posting);
            model.all.push(posting);
        }
    }
    let run = model.begin(0, (BatchId(1), BatchId(100)));
    model.add(run, writer.finish());
    model.set(run, RunState::Complete);
    assert!(model.blocks.len() > 20, "many blocks of one term");
    for (order, after, expect) in [
        (ListOrder::NewestFirst, None, (BatchId(100), 999)),
        (ListOrder::NewestFirst, Some((BatchId(50), 0)), (BatchId(49), 999)),
        (ListOrder::OldestFirst, None, (BatchId(1), 0)),
        (ListOrder::OldestFirst, Some((BatchId(50), 999)), (BatchId(51), 0)),
    ] {
        let lookup = Lookup { term: Term(9), order, after, places_max: 3 };
        let found = at_once(lookup.find(&model, &model.complete())).unwrap();
        let fetched = model.fetch(&lookup);
        assert_eq!(at_once(lookup.find(&fetched, &model.complete())).unwrap(), found);
        assert_eq!((found.places.len(), found.places[0]), (3, expect));
    }
    let empty = Lookup { term: Term(8), order: ListOrder::NewestFirst, after: None, places_max: 3 };
    assert_eq!(at_once(empty.find(&model, &model.complete())).unwrap().places, []);
}

#[test]
fn a_block_that_is_damaged_is_an_error() {
    let posting = Posting { term: Term(7), batch: BatchId(3), index: 1 };
    let mut writer = BlockWriter::new(BatchId(2));
    writer.push(posting);
    let block = writer.finish().remove(0);
    assert_eq!(block.decode().unwrap(), [posting]);
    assert_eq!(Posting::from(block.first), posting);
    for length in [0, 3, block.postings.len() - 1] {
        let cut = Block { postings: block.postings[..length].to_vec(), ..block.clone() };
        assert!(cut.decode().is_err(), "{length}");
    }
    let other = Block { postings: [&[2], &block.postings[1..]].concat(), ..block };
    assert!(other.decode().is_err(), "of another version");
}

//! Lists of notifications: by walking over batches, by the search index, and by the list of batches with bad ends.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;

use futures_util::try_join;
use notification::{BatchId, Name, NotificationId, State};
use tokio_postgres::Row;

use super::columns::{labels_at, signed};
use super::read::{Parameters, Snapshot, instant, unsigned};
use super::search::{block_at, run_at};
use crate::rows::matching::matching_members;
use crate::rows::members::Members;
use crate::rows::places::{
    self, ALL, ListPlace, ListWalk, PAGE_BATCHES, PAGE_CANDIDATES, PAGE_PARTS,
    PAGE_RECIPIENT_BATCHES, PAGE_RECIPIENTS,
};
use crate::rows::search::lookup::{Candidates, FetchedBlocks, Lookup};
use crate::rows::search::term::{Term, TermKey};
use crate::rows::seek::TimeSeek;
use crate::rows::undelivered::{first_of, listed_states};
use crate::{Filter, History, ListOrder, Page, StoreError};

/// A page while it is made.
struct PostgresListing<'a> {
    snapshot: &'a Snapshot<'a>,
    filter: &'a Filter,
    walk: ListWalk,
    items_max: usize,
    /// Batches that may still be read whole.
    batches_left: usize,
    page: Page<History>,
}

/// A batch that may have members of a list.
struct CountedBatch {
    id: BatchId,
    count: usize,
}

const SELECT_PROGRESS: &str = "SELECT key_0, key_1, indexed FROM search_progress WHERE is_one";
/// The last batch that may have had ends before they were listed.
const SELECT_UNLISTED: &str = "SELECT ends_unlisted FROM search_progress WHERE is_one";
const SELECT_RUNS: &str =
    "SELECT id, level, first_batch, last_batch, state FROM search_run WHERE state = 1";
/// As much of each run as a look-up reads of it in either direction.
const AT_OR_BEFORE: &str = "SELECT run.id, block.term, block.place, block.postings FROM unnest($1::int8[]) AS run (id) \
     CROSS JOIN LATERAL (SELECT term, place, postings FROM search_block \
       WHERE search_block.run = run.id AND (term, place) <= ($2, $3) ORDER BY term DESC, place DESC LIMIT 2) AS block";
const AFTER: &str = "SELECT run.id, block.term, block.place, block.postings FROM unnest($1::int8[]) AS run (id) \
     CROSS JOIN LATERAL (SELECT term, place, postings FROM search_block \
       WHERE search_block.run = run.id AND (term, place) > ($2, $3) AND term <= $2 ORDER BY term, place LIMIT 2) AS block";
/// Batches whose recipients are read at once.
const ITEMS_AT_ONCE: usize = 16;

// === impl Snapshot ===

impl Snapshot<'_> {
    pub(super) async fn list(
        &self,
        filter: &Filter,
        after: Option<NotificationId>,
        items: usize,
    ) -> Result<Page<History>, StoreError> {
        let page = Page { items: Vec::new(), next: None };
        let walk = ListWalk::new(filter.order, self.numbers_of(filter).await?, after);
        let mut listing = PostgresListing {
            snapshot: self,
            filter,
            walk,
            items_max: items,
            batches_left: PAGE_BATCHES,
            page,
        };
        let is_at_end = if filter.tenant.is_some() && filter.is_searched() {
            listing.search().await?
        } else if let Some(states) = listed_states(filter) {
            listing.list_undelivered(states).await?
        } else {
            listing.walk_over(ALL).await?
        };
        if is_at_end {
            listing.page.next = None;
        }
        Ok(listing.page)
    }

    /// Numbers of the batches that were accepted when `filter` says, and of its broadcast.
    async fn numbers_of(&self, filter: &Filter) -> Result<Range<u64>, StoreError> {
        let mut ends = [ALL.start, ALL.end];
        for (end, seek) in ends.iter_mut().zip(TimeSeek::ends_of(filter)) {
            let Some(mut seek) = seek else { continue };
            while let Some(probe) = seek.probe() {
                let select = "SELECT id, accepted_at FROM batch WHERE id >= $1 ORDER BY id LIMIT 1";
                let rows = self.rows(select, &[&probe.cast_signed()]).await?;
                let batch = |row| Ok::<_, StoreError>((unsigned(row, 0)?, instant(row, 1)?));
                seek.learn(rows.first().map(batch).transpose()?);
            }
            *end = seek.found();
        }
        let [start, end] = ends;
        let Some(broadcast) = filter.broadcast else { return Ok(start..end) };
        let select = "SELECT (SELECT min(id) FROM batch WHERE broadcast = $1), (SELECT max(id) FROM batch WHERE broadcast = $1)";
        let rows = self.rows(select, &[&broadcast.0.cast_signed()]).await?;
        let number = |column| rows.first().map_or(Ok(None), |row| row.try_get(column));
        let first = number(0)?.map_or(end, i64::cast_unsigned);
        let last = number(1)?.map(i64::cast_unsigned);
        Ok(start.max(first)..end.min(last.map_or(0, |last| last + 1)))
    }

    /// The key of the terms, and the last batch that is indexed.
    async fn index_progress(&self) -> Result<(TermKey, BatchId), StoreError> {
        let rows = self.rows(SELECT_PROGRESS, &[]).await?;
        let damaged = || StoreError::Damaged("the progress of the search index".to_owned());
        let row = rows.first().ok_or_else(damaged)?;
        let key = TermKey([unsigned(row, 0)?, unsigned(row, 1)?]);
        Ok((key, BatchId(unsigned(row, 2)?)))
    }

    /// Finds the places of a term in the index.
    async fn candidates(&self, lookup: &Lookup) -> Result<Candidates, StoreError> {
        let rows = self.rows(SELECT_RUNS, &[]).await?;
        let runs = rows.iter().map(run_at).collect::<Result<Vec<_>, _>>()?;
        let ids: Vec<i64> =
            runs.iter().filter(|run| lookup.may_have(run)).map(|it| it.id).collect();
        let from = lookup.from();
        let parameters: Parameters<'_> = &[&ids, &from.term, &from.place];
        let (before, behind) =
            try_join!(self.rows(AT_OR_BEFORE, parameters), self.rows(AFTER, parameters),)?;
        let mut blocks = FetchedBlocks::default();
        for row in before.iter().chain(&behind) {
            blocks.add(row.try_get(0)?, block_at(row, 1)?);
        }
        lookup.find(&blocks, &runs).await
    }

    /// Those of these batches that are there.
    async fn batches(&self, ids: &[i64]) -> Result<HashMap<BatchId, usize>, StoreError> {
        let select = "SELECT id, count FROM batch WHERE id = ANY($1)";
        let rows = self.rows(select, &[&ids]).await?;
        let batches = rows.iter().map(|row| counted_batch(row).map(|it| (it.id, it.count)));
        batches.collect()
    }

    /// The members of these batches that the search of `filter` is for.
    async fn members_of(
        &self,
        batches: &[CountedBatch],
        filter: &Filter,
    ) -> Result<HashMap<BatchId, Members>, StoreError> {
        let ids: Vec<i64> = batches.iter().map(|batch| batch.id.0.cast_signed()).collect();
        let select = "SELECT id, count, items, labels FROM batch WHERE id = ANY($1)";
        let mut found = HashMap::new();
        for row in self.rows(select, &[&ids]).await? {
            let CountedBatch { id, count } = counted_batch(&row)?;
            let items = row.try_get::<_, Vec<u8>>(2)?.into();
            found.insert(id, matching_members(filter, count, items, labels_at(&row, 3)?)?);
        }
        Ok(found)
    }

    /// Batches with these numbers that may match `filter`, at most `batches_max`, in its order.
    async fn batches_in(
        &self,
        filter: &Filter,
        numbers: &Range<u64>,
        batches_max: usize,
    ) -> Result<Vec<CountedBatch>, StoreError> {
        let select = match filter.order {
            ListOrder::OldestFirst => {
                "SELECT batch.id, count FROM batch JOIN tenant_lane AS lane ON lane.id = batch.lane \
                 LEFT JOIN broadcast ON broadcast.id = batch.broadcast \
                 WHERE batch.id >= $1 AND batch.id < $2 AND (batch.broadcast IS NULL OR sealed_at IS NOT NULL) \
                 AND ($3::text IS NULL OR batch.tenant = $3) AND ($4::text IS NULL OR lane.channel = $4) \
                 AND ($5::int8 IS NULL OR batch.broadcast = $5) ORDER BY batch.id LIMIT $6"
            }
            ListOrder::NewestFirst => {
                "SELECT batch.id, count FROM batch JOIN tenant_lane AS lane ON lane.id = batch.lane \
                 LEFT JOIN broadcast ON broadcast.id = batch.broadcast \
                 WHERE batch.id >= $1 AND batch.id < $2 AND (batch.broadcast IS NULL OR sealed_at IS NOT NULL) \
                 AND ($3::text IS NULL OR batch.tenant = $3) AND ($4::text IS NULL OR lane.channel = $4) \
                 AND ($5::int8 IS NULL OR batch.broadcast = $5) ORDER BY batch.id DESC LIMIT $6"
            }
        };
        let parameters: Parameters<'_> = &[
            &numbers.start.cast_signed(),
            &numbers.end.cast_signed(),
            &filter.tenant.as_ref().map(Name::as_str),
            &filter.channel.as_ref().map(Name::as_str),
            &filter.broadcast.map(|id| id.0.cast_signed()),
            &signed(batches_max),
        ];
        let rows = self.rows(select, parameters).await?;
        rows.iter().map(counted_batch).collect()
    }

    /// Batches with these numbers of which the log has an end in one of `states`, at most `batches_max`, in the order of `filter`.
    async fn undelivered_in(
        &self,
        filter: &Filter,
        states: &BTreeSet<State>,
        numbers: &Range<u64>,
        batches_max: usize,
    ) -> Result<Vec<u64>, StoreError> {
        // Of a tenant by its own index, which alone has rows in this order.
        let select = match (&filter.tenant, filter.order) {
            (Some(_), ListOrder::OldestFirst) => {
                "SELECT DISTINCT ON (tenant, state, batch) batch FROM undelivered \
                 WHERE (tenant, state, batch) >= ($5::text, $1, $2) AND (tenant, state, batch) < ($5, $1, $3) \
                 ORDER BY tenant, state, batch LIMIT $4"
            }
            (Some(_), ListOrder::NewestFirst) => {
                "SELECT DISTINCT ON (tenant, state, batch) batch FROM undelivered \
                 WHERE (tenant, state, batch) >= ($5::text, $1, $2) AND (tenant, state, batch) < ($5, $1, $3) \
                 ORDER BY tenant DESC, state DESC, batch DESC LIMIT $4"
            }
            (None, ListOrder::OldestFirst) => {
                "SELECT DISTINCT batch FROM undelivered WHERE $5::text IS NULL AND state = $1 AND batch >= $2 AND batch < $3 \
                 ORDER BY batch LIMIT $4"
            }
            (None, ListOrder::NewestFirst) => {
                "SELECT DISTINCT batch FROM undelivered WHERE $5::text IS NULL AND state = $1 AND batch >= $2 AND batch < $3 \
                 ORDER BY batch DESC LIMIT $4"
            }
        };
        let tenant = filter.tenant.as_ref().map(Name::as_str);
        let (start, end) = (numbers.start.cast_signed(), numbers.end.cast_signed());
        let mut found = Vec::new();
        for state in states {
            let state = i16::from(state.code());
            let parameters: Parameters<'_> = &[&state, &start, &end, &signed(batches_max), &tenant];
            for row in self.rows(select, parameters).await? {
                found.push(unsigned(&row, 0)?);
            }
        }
        Ok(first_of(filter.order, found, batches_max))
    }

    /// Those of the batches with these numbers that may match `filter`, with their members.
    async fn batches_among(
        &self,
        filter: &Filter,
        numbers: &[u64],
    ) -> Result<HashMap<BatchId, CountedBatch>, StoreError> {
        let ids: Vec<i64> = numbers.iter().map(|number| number.cast_signed()).collect();
        let select = "SELECT batch.id, count FROM batch JOIN tenant_lane AS lane ON lane.id = batch.lane \
             WHERE batch.id = ANY($1) AND ($2::text IS NULL OR lane.channel = $2) AND ($3::int8 IS NULL OR batch.broadcast = $3)";
        let channel = filter.channel.as_ref().map(Name::as_str);
        let broadcast = filter.broadcast.map(|id| id.0.cast_signed());
        let rows = self.rows(select, &[&ids, &channel, &broadcast]).await?;
        let batches = rows.iter().map(|row| counted_batch(row).map(|batch| (batch.id, batch)));
        batches.collect()
    }

    /// The first number of a batch among `numbers` in `order`.
    async fn next_number(
        &self,
        numbers: &Range<u64>,
        order: ListOrder,
    ) -> Result<Option<u64>, StoreError> {
        let select = match order {
            ListOrder::OldestFirst => "SELECT min(id) FROM batch WHERE id >= $1 AND id < $2",
            ListOrder::NewestFirst => "SELECT max(id) FROM batch WHERE id >= $1 AND id < $2",
        };
        let parameters: Parameters<'_> =
            &[&numbers.start.cast_signed(), &numbers.end.cast_signed()];
        let rows = self.rows(select, parameters).await?;
        let number: Option<i64> = rows.first().map_or(Ok(None), |row| row.try_get(0))?;
        Ok(number.map(i64::cast_unsigned))
    }
}

// === impl PostgresListing ===

impl PostgresListing<'_> {
    /// Finds what is indexed, and walks over what is not; true at the end of the list.
    async fn search(&mut self) -> Result<bool, StoreError> {
        let (key, indexed) = self.snapshot.index_progress().await?;
        let rest = indexed.0 + 1..ALL.end;
        let (order, after) = (self.walk.order, self.walk.look_up_after());
        let Some(term) = key.of_filter(self.filter) else { return self.walk_over(ALL).await };
        let lookup = Lookup { term, order, after, places_max: PAGE_CANDIDATES };
        match order {
            ListOrder::OldestFirst => {
                if !self.look_up(&lookup).await? {
                    return Ok(false);
                }
                self.walk_over(rest).await
            }
            ListOrder::NewestFirst => {
                if !self.walk_over(rest).await? {
                    return Ok(false);
                }
                self.look_up(&lookup).await
            }
        }
    }

    /// Finds what ended in one of `states` by the list of such batches, and walks over those that are older than it.
    async fn list_undelivered(&mut self, states: &BTreeSet<State>) -> Result<bool, StoreError> {
        let rows = self.snapshot.rows(SELECT_UNLISTED, &[]).await?;
        let unlisted = rows.first().map_or(Ok(0), |row| unsigned(row, 0))?;
        let (old, listed) = (ALL.start..unlisted + 1, unlisted + 1..ALL.end);
        match self.walk.order {
            ListOrder::OldestFirst => {
                if !self.walk_over(old).await? {
                    return Ok(false);
                }
                self.pass_undelivered(states, listed).await
            }
            ListOrder::NewestFirst => {
                if !self.pass_undelivered(states, listed).await? {
                    return Ok(false);
                }
                self.walk_over(old).await
            }
        }
    }

    /// Adds members that ended in one of `states`, of batches with these `numbers`; true if those are all.
    async fn pass_undelivered(
        &mut self,
        states: &BTreeSet<State>,
        numbers: Range<u64>,
    ) -> Result<bool, StoreError> {
        let numbers = self.walk.behind(numbers);
        let (snapshot, filter) = (self.snapshot, self.filter);
        let found = snapshot.undelivered_in(filter, states, &numbers, PAGE_CANDIDATES).await?;
        let batches = snapshot.batches_among(filter, &found).await?;
        for id in found.iter().copied().map(BatchId) {
            if self.batches_left == 0 {
                return Ok(false);
            }
            if let Some(batch) = batches.get(&id) {
                self.batches_left -= 1;
                if !self.add(id, &self.walk.members(id, batch.count)).await? {
                    return Ok(false);
                }
            }
            self.pass(self.walk.end_of(id));
        }
        Ok(found.len() < PAGE_CANDIDATES)
    }

    /// Adds what the index has; true if that is all.
    async fn look_up(&mut self, lookup: &Lookup) -> Result<bool, StoreError> {
        let found = self.snapshot.candidates(lookup).await?;
        let mut ids: Vec<i64> = found.places.iter().map(|(id, _)| id.0.cast_signed()).collect();
        ids.dedup();
        let batches = self.snapshot.batches(&ids).await?;
        for places in found.places.chunk_by(|one, other| one.0 == other.0) {
            let Some(&(id, last)) = places.last() else { continue };
            if !self.walk.has((id, last)) {
                return Ok(true);
            }
            // A batch that is gone has nothing to show.
            if let Some(&count) = batches.get(&id) {
                let indexes = places.iter().map(|(_, index)| *index);
                let wanted = indexes.filter(|index| usize::from(*index) < count).collect();
                if !self.add(id, &wanted).await? {
                    return Ok(false);
                }
            }
            self.pass((id, last));
        }
        Ok(!found.has_more)
    }

    /// Walks over the batches with these `numbers`; true at the end of them.
    async fn walk_over(&mut self, numbers: Range<u64>) -> Result<bool, StoreError> {
        let mut numbers = self.walk.behind(numbers);
        let mut index = None;
        for _ in 0..PAGE_PARTS {
            let Some(part) = self.next_part(&numbers, index).await? else { return Ok(true) };
            if !self.walk_part(&part).await? {
                return Ok(false);
            }
            // Fewer than a page may have were found in this part: the next page begins behind it.
            let (rest, end) = self.walk.rest(&numbers, &part);
            self.pass(end);
            index = match index {
                Some(index) => Some(index),
                None => self.stretch_index().await?,
            };
            if !index.is_some_and(|(_, indexed)| self.walk.begins_in(&rest, indexed)) {
                let next = self.snapshot.next_number(&rest, self.walk.order).await?;
                return Ok(next.is_none());
            }
            numbers = rest;
        }
        Ok(false)
    }

    /// The term of the stretches that may have a match, and how far the index is; `None` if all may.
    async fn stretch_index(&self) -> Result<Option<(Term, BatchId)>, StoreError> {
        if self.filter.is_searched() {
            return Ok(None);
        }
        let (key, indexed) = self.snapshot.index_progress().await?;
        Ok(key.of_stretches(self.filter).map(|term| (term, indexed)))
    }

    /// The part of `numbers` that is to be walked over next: where `index` has a match, or the next ones; `None` if there is nothing.
    async fn next_part(
        &self,
        numbers: &Range<u64>,
        index: Option<(Term, BatchId)>,
    ) -> Result<Option<Range<u64>>, StoreError> {
        let mut behind = numbers.clone();
        if let Some((term, indexed)) = index {
            let lookup = self.walk.stretch_lookup(term, numbers);
            let found = self.snapshot.candidates(&lookup).await?;
            if let Some(&(first, _)) = found.places.first() {
                let part = ListWalk::part_of_stretch(numbers, first);
                return Ok((!part.is_empty()).then_some(part));
            }
            behind = ListWalk::behind_index(numbers, indexed);
        }
        let next = self.snapshot.next_number(&behind, self.walk.order).await?;
        Ok(next.map(|next| self.walk.stretch(&behind, next)))
    }

    /// Adds what matches of the batches with these `numbers`; false if a page may not look at all of them.
    async fn walk_part(&mut self, numbers: &Range<u64>) -> Result<bool, StoreError> {
        let is_searched = self.filter.is_searched();
        let batches_max = if is_searched { PAGE_RECIPIENT_BATCHES } else { self.batches_left };
        let batches = self.snapshot.batches_in(self.filter, numbers, batches_max).await?;
        let (looked_at_all, mut recipients) = (batches.len() < batches_max, 0);
        for some in batches.chunks(ITEMS_AT_ONCE) {
            if recipients >= PAGE_RECIPIENTS {
                return Ok(false);
            }
            let matching = if is_searched {
                Some(self.snapshot.members_of(some, self.filter).await?)
            } else {
                self.batches_left -= some.len();
                None
            };
            for batch in some {
                let mut wanted = self.walk.members(batch.id, batch.count);
                if let Some(members) = &matching {
                    recipients += batch.count;
                    let members = members.get(&batch.id);
                    let is_its = |index: &u16| members.is_some_and(|it| it.contains(*index));
                    wanted = wanted.iter().filter(is_its).collect();
                }
                if !self.add(batch.id, &wanted).await? {
                    return Ok(false);
                }
                // Even when none of it was left to look at: the next page begins behind it.
                self.pass(self.walk.last_of(batch.id, batch.count));
            }
        }
        Ok(looked_at_all)
    }

    /// Adds those of the `wanted` members that match, if the batch is accepted; false if there was no room for all of them.
    async fn add(&mut self, batch: BatchId, wanted: &Members) -> Result<bool, StoreError> {
        if wanted.is_empty() {
            return Ok(true);
        }
        let Some(history) = self.snapshot.batch_history(batch).await? else { return Ok(true) };
        let ended = listed_states(self.filter).map(|states| history.ended_in(states, wanted));
        let wanted = ended.as_ref().unwrap_or(wanted);
        let mut histories = history.histories(self.snapshot.store_id, wanted)?;
        if self.walk.order == ListOrder::NewestFirst {
            histories.reverse();
        }
        for history in histories {
            // Before the place moves on: the history for which there is no room is the first of the next page.
            if self.page.items.len() == self.items_max {
                return Ok(false);
            }
            // Also past those that do not match, so that no page looks at them again.
            self.page.next = Some(history.id);
            if self.filter.matches(&history) {
                self.page.items.push(self.snapshot.linked(history).await?);
            }
        }
        Ok(true)
    }

    /// Has the next page begin behind a place.
    fn pass(&mut self, place: ListPlace) {
        places::pass(&mut self.page.next, self.snapshot.store_id, place);
    }
}

/// A row that begins with the number of a batch and that of its members.
fn counted_batch(row: &Row) -> Result<CountedBatch, StoreError> {
    let count = usize::try_from(row.try_get::<_, i32>(1)?).unwrap_or(0);
    Ok(CountedBatch { id: BatchId(unsigned(row, 0)?), count })
}

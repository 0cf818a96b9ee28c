//! Lists of notifications: by walking over batches, by the search index, and by states.

use std::ops::Range;

use notification::{BatchId, Name, NotificationId, Timestamp};
use rusqlite::{OptionalExtension, Row, params};

use super::read::{ACCEPTED, Snapshot};
use super::rows::{labels_at, signed};
use crate::rows::codes::LaneId;
use crate::rows::matching::matching_members;
use crate::rows::members::Members;
use crate::rows::places::{
    self, ALL, ListPlace, ListWalk, PAGE_BATCHES_PASSED, PAGE_CANDIDATES, PAGE_PARTS,
    PAGE_RECIPIENT_BATCHES, PAGE_RECIPIENTS, PageRoom,
};
use crate::rows::search::at_once;
use crate::rows::search::lookup::Lookup;
use crate::rows::search::term::Term;
use crate::rows::seek::TimeSeek;
use crate::rows::stretches::StretchIndex;
use crate::rows::undelivered::ListSources;
use crate::{Filter, History, ListOrder, Page, StoreError};

/// A page while it is made.
struct SqliteListing<'a> {
    snapshot: &'a Snapshot,
    filter: &'a Filter,
    walk: ListWalk,
    items_max: usize,
    room: PageRoom,
    page: Page<History>,
}

/// A batch that may have members of a list.
struct ListedBatch {
    id: BatchId,
    lane: LaneId,
    count: usize,
}

// === impl Snapshot ===

impl Snapshot {
    pub(super) fn list(
        &self,
        filter: &Filter,
        after: Option<NotificationId>,
        items: usize,
    ) -> Result<Page<History>, StoreError> {
        let page = Page { items: Vec::new(), next: None };
        let walk = ListWalk::new(filter.order, self.numbers_of(filter)?, after);
        let mut listing = SqliteListing {
            snapshot: self,
            filter,
            walk,
            items_max: items,
            room: PageRoom::ALL,
            page,
        };
        let term = self.term_key()?.and_then(|key| key.of_filter(filter));
        let is_at_end = match (term, ListSources::of(filter)) {
            (Some(term), _) => listing.search(term)?,
            (None, Some(sources)) => listing.list_sources(&sources)?,
            (None, None) => listing.walk_over(ALL)?,
        };
        if is_at_end {
            listing.page.next = None;
        }
        Ok(listing.page)
    }

    /// Numbers of the batches that were accepted when `filter` says, and of its broadcast.
    fn numbers_of(&self, filter: &Filter) -> Result<Range<u64>, StoreError> {
        let mut ends = [ALL.start, ALL.end];
        for (end, seek) in ends.iter_mut().zip(TimeSeek::ends_of(filter)) {
            let Some(mut seek) = seek else { continue };
            let mut select = self.connection.prepare_cached(
                "SELECT id, accepted_at FROM batch WHERE id >= ?1 ORDER BY id LIMIT 1",
            )?;
            while let Some(probe) = seek.probe() {
                let found = select.query_row([probe.cast_signed()], |row| {
                    let accepted_at = Timestamp::from_millis(row.get(1)?);
                    Ok((row.get::<_, i64>(0)?.cast_unsigned(), accepted_at))
                });
                seek.learn(found.optional()?);
            }
            *end = seek.found();
        }
        let [start, end] = ends;
        let Some(broadcast) = filter.broadcast else { return Ok(start..end) };
        let mut select = self.connection.prepare_cached(
            "SELECT (SELECT min(id) FROM batch WHERE broadcast = ?1), (SELECT max(id) FROM batch WHERE broadcast = ?1)",
        )?;
        let (first, last): (Option<i64>, Option<i64>) =
            select.query_row([broadcast.0.cast_signed()], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let number = |id: Option<i64>| id.map(i64::cast_unsigned);
        Ok(start.max(number(first).unwrap_or(end))
            ..end.min(number(last).map_or(0, |last| last + 1)))
    }

    /// The batch `id`, if it is there and accepted.
    fn accepted_batch(&self, id: BatchId) -> Result<Option<ListedBatch>, StoreError> {
        let sql = format!("SELECT lane, count FROM batch WHERE id = ?1 AND {ACCEPTED}");
        let mut select = self.connection.prepare_cached(&sql)?;
        let batch = select.query_row([id.0.cast_signed()], |row| {
            Ok(ListedBatch { id, lane: row.get(0)?, count: usize::from(row.get::<_, u16>(1)?) })
        });
        Ok(batch.optional()?)
    }

    /// Batches with these numbers that may match `filter`, at most `batches_max`, in its order.
    fn batches_in(
        &self,
        filter: &Filter,
        numbers: &Range<u64>,
        batches_max: usize,
    ) -> Result<Vec<ListedBatch>, StoreError> {
        let sql = match filter.order {
            ListOrder::OldestFirst => format!(
                "SELECT batch.id, lane, count FROM batch JOIN tenant_lane AS lane ON lane.id = batch.lane \
                 WHERE batch.id >= ?1 AND batch.id < ?6 AND {ACCEPTED} AND (?2 IS NULL OR batch.tenant = ?2) \
                 AND (?3 IS NULL OR channel = ?3) AND (?4 IS NULL OR broadcast = ?4) \
                 ORDER BY batch.id LIMIT ?5"
            ),
            ListOrder::NewestFirst => format!(
                "SELECT batch.id, lane, count FROM batch JOIN tenant_lane AS lane ON lane.id = batch.lane \
                 WHERE batch.id >= ?1 AND batch.id < ?6 AND {ACCEPTED} AND (?2 IS NULL OR batch.tenant = ?2) \
                 AND (?3 IS NULL OR channel = ?3) AND (?4 IS NULL OR broadcast = ?4) \
                 ORDER BY batch.id DESC LIMIT ?5"
            ),
        };
        let mut select = self.connection.prepare_cached(&sql)?;
        let parameters = params![
            numbers.start.cast_signed(),
            filter.tenant.as_ref().map(Name::as_str),
            filter.channel.as_ref().map(Name::as_str),
            filter.broadcast.map(|id| id.0.cast_signed()),
            signed(batches_max),
            numbers.end.cast_signed(),
        ];
        let rows = select.query_map(parameters, |row| {
            let id = BatchId(row.get::<_, i64>(0)?.cast_unsigned());
            let (lane, count) = (row.get(1)?, usize::from(row.get::<_, u16>(2)?));
            Ok(ListedBatch { id, lane, count })
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// The first number of a batch among `numbers` in `order`.
    fn next_number(
        &self,
        numbers: &Range<u64>,
        order: ListOrder,
    ) -> Result<Option<u64>, StoreError> {
        let sql = match order {
            ListOrder::OldestFirst => "SELECT min(id) FROM batch WHERE id >= ?1 AND id < ?2",
            ListOrder::NewestFirst => "SELECT max(id) FROM batch WHERE id >= ?1 AND id < ?2",
        };
        let mut select = self.connection.prepare_cached(sql)?;
        let parameters = params![numbers.start.cast_signed(), numbers.end.cast_signed()];
        let number: Option<i64> = select.query_row(parameters, |row| row.get(0))?;
        Ok(number.map(i64::cast_unsigned))
    }

    /// The members of a batch that the search of `filter` is for.
    fn members_of(&self, batch: &ListedBatch, filter: &Filter) -> Result<Members, StoreError> {
        let mut select =
            self.connection.prepare_cached("SELECT items, labels FROM batch WHERE id = ?1")?;
        let row = |row: &Row<'_>| Ok((row.get::<_, Vec<u8>>(0)?, labels_at(row, 1)?));
        let (items, labels) = select.query_row([batch.id.0.cast_signed()], row)?;
        matching_members(filter, batch.count, items.into(), labels)
    }
}

// === impl SqliteListing ===

impl SqliteListing<'_> {
    /// Finds what is indexed, and walks over what is not; true at the end of the list.
    fn search(&mut self, term: Term) -> Result<bool, StoreError> {
        let indexed = self.snapshot.search_cursor()?;
        let (order, after) = (self.walk.order, self.walk.look_up_after());
        let lookup = Lookup { term, order, after, places_max: PAGE_CANDIDATES };
        let rest = indexed.0 + 1..ALL.end;
        match order {
            ListOrder::OldestFirst => {
                if !self.look_up(&lookup)? {
                    return Ok(false);
                }
                self.walk_over(rest)
            }
            ListOrder::NewestFirst => {
                if !self.walk_over(rest)? {
                    return Ok(false);
                }
                self.look_up(&lookup)
            }
        }
    }

    /// Finds what `sources` have, and walks over batches that are older than these.
    fn list_sources(&mut self, sources: &ListSources) -> Result<bool, StoreError> {
        let unlisted = sources.unlisted(self.snapshot.unlisted()?);
        let (old, listed) = (ALL.start..unlisted + 1, unlisted + 1..ALL.end);
        match self.walk.order {
            ListOrder::OldestFirst => {
                if !self.walk_over(old)? {
                    return Ok(false);
                }
                self.pass_sources(sources, listed)
            }
            ListOrder::NewestFirst => {
                if !self.pass_sources(sources, listed)? {
                    return Ok(false);
                }
                self.walk_over(old)
            }
        }
    }

    /// Adds what matches of the batches with these `numbers` that `sources` have; true if those are all.
    fn pass_sources(
        &mut self,
        sources: &ListSources,
        numbers: Range<u64>,
    ) -> Result<bool, StoreError> {
        let numbers = self.walk.behind(numbers);
        let found = self.snapshot.found_in(self.filter, sources, &numbers)?;
        for number in found.batches() {
            let one = number..number + 1;
            for batch in &self.snapshot.batches_in(self.filter, &one, 1)? {
                if !self.room.take(batch.count)
                    || !self.add(batch, &self.walk.members(batch.id, batch.count))?
                {
                    return Ok(false);
                }
            }
            self.pass(self.walk.end_of(BatchId(number)));
        }
        match found.rest(&numbers) {
            Some(rest) => self.skip(&rest),
            None => Ok(true),
        }
    }

    /// Has the next page begin where the search index has the next match among `numbers`; true if there is none.
    fn skip(&mut self, numbers: &Range<u64>) -> Result<bool, StoreError> {
        let mut index = self.stretch_index()?;
        let Some(index) = index.as_mut().filter(|it| it.has_next_of(numbers, &self.walk)) else {
            return Ok(false);
        };
        let Some(part) = self.next_part(numbers, index)? else { return Ok(true) };
        if let Some(place) = self.walk.place_before(&part) {
            self.pass(place);
        }
        Ok(false)
    }

    /// Adds what the index has; true if that is all.
    fn look_up(&mut self, lookup: &Lookup) -> Result<bool, StoreError> {
        let runs = self.snapshot.complete_runs()?;
        let found = at_once(lookup.find(self.snapshot, &runs))?;
        for places in found.places.chunk_by(|one, other| one.0 == other.0) {
            let Some(&(id, last)) = places.last() else { continue };
            if !self.walk.has((id, last)) {
                return Ok(true);
            }
            // A batch that is gone, or not accepted, has nothing to show.
            if let Some(batch) = self.snapshot.accepted_batch(id)? {
                let indexes = places.iter().map(|(_, index)| *index);
                let wanted = indexes.filter(|index| usize::from(*index) < batch.count).collect();
                if !self.room.take(batch.count) || !self.add(&batch, &wanted)? {
                    return Ok(false);
                }
            }
            self.pass((id, last));
        }
        Ok(!found.has_more)
    }

    /// Walks over the batches with these `numbers`; true at the end of them.
    fn walk_over(&mut self, numbers: Range<u64>) -> Result<bool, StoreError> {
        let mut numbers = self.walk.behind(numbers);
        let Some(next) = self.snapshot.next_number(&numbers, self.walk.order)? else {
            return Ok(true);
        };
        let mut index = self.stretch_index()?;
        let mut part = StretchIndex::first_part(index.as_ref(), &numbers, next, &self.walk);
        // The first one, and those of the index.
        for _ in 0..=PAGE_PARTS {
            if !self.walk_part(&part)? {
                return Ok(false);
            }
            // Fewer than a page may have were found in this part: the next page begins behind it.
            let (rest, end) = self.walk.rest(&numbers, &part);
            self.pass(end);
            let Some(index) = index.as_mut().filter(|it| it.has_next_of(&rest, &self.walk)) else {
                let next = self.snapshot.next_number(&rest, self.walk.order)?;
                return Ok(next.is_none());
            };
            numbers = rest;
            match self.next_part(&numbers, index)? {
                Some(next) => part = next,
                None => return Ok(true),
            }
        }
        Ok(false)
    }

    /// The stretches that may have a match; `None` if all may.
    fn stretch_index(&self) -> Result<Option<StretchIndex>, StoreError> {
        let key = self.snapshot.term_key()?.filter(|_| !self.filter.is_searched());
        let Some(term) = key.and_then(|key| key.of_stretches(self.filter)) else { return Ok(None) };
        Ok(Some(StretchIndex::new(term, self.snapshot.search_cursor()?)))
    }

    /// The part of `numbers` that is to be walked over next: where `index` has a match, or behind all that it knows; `None` if there is
    /// nothing.
    fn next_part(
        &self,
        numbers: &Range<u64>,
        index: &mut StretchIndex,
    ) -> Result<Option<Range<u64>>, StoreError> {
        let part = index.next_part(numbers);
        if part.is_some() {
            return Ok(part);
        }
        let lookup = index.lookup(numbers, &self.walk);
        if index.learn(&at_once(lookup.find(self.snapshot, &self.snapshot.complete_runs()?))?) {
            return Ok(index.next_part(numbers));
        }
        let behind = index.behind(numbers);
        let next = self.snapshot.next_number(&behind, self.walk.order)?;
        Ok(next.map(|next| self.walk.stretch(&behind, next, PAGE_BATCHES_PASSED)))
    }

    /// Adds what matches of the batches with these `numbers`; false if a page may not look at all of them.
    fn walk_part(&mut self, numbers: &Range<u64>) -> Result<bool, StoreError> {
        let is_searched = self.filter.is_searched();
        let batches_max = if is_searched { PAGE_RECIPIENT_BATCHES } else { self.room.batches() };
        let batches = self.snapshot.batches_in(self.filter, numbers, batches_max)?;
        let (looked_at_all, mut recipients) = (batches.len() < batches_max, 0);
        for batch in batches {
            let mut wanted = self.walk.members(batch.id, batch.count);
            if is_searched {
                if recipients >= PAGE_RECIPIENTS {
                    return Ok(false);
                }
                recipients += batch.count;
                let matching = self.snapshot.members_of(&batch, self.filter)?;
                wanted = wanted.iter().filter(|index| matching.contains(*index)).collect();
            } else if !self.room.take(batch.count) {
                return Ok(false);
            }
            if !self.add(&batch, &wanted)? {
                return Ok(false);
            }
            // Even when none of it was left to look at: the next page begins behind it.
            self.pass(self.walk.last_of(batch.id, batch.count));
        }
        Ok(looked_at_all)
    }

    /// Adds those of the `wanted` members that match; false if there was no room for all of them.
    fn add(&mut self, batch: &ListedBatch, wanted: &Members) -> Result<bool, StoreError> {
        if wanted.is_empty() {
            return Ok(true);
        }
        let batch_history = self.snapshot.batch_history(batch.id, batch.lane)?;
        let narrowed = batch_history.narrowed(self.filter, wanted);
        let wanted = narrowed.as_ref().unwrap_or(wanted);
        let mut histories = batch_history.histories(self.snapshot.store_id, wanted)?;
        if self.filter.order == ListOrder::NewestFirst {
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
                self.page.items.push(self.snapshot.linked(history)?);
            }
        }
        Ok(true)
    }

    /// Has the next page begin behind a place.
    fn pass(&mut self, place: ListPlace) {
        places::pass(&mut self.page.next, self.snapshot.store_id, place);
    }
}

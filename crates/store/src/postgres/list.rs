//! Lists of notifications: by walking over batches, by the search index, and by states.

use std::ops::Range;

use notification::{BatchId, NotificationId, limits};

use super::list_batches::CountedBatch;
use super::read::Snapshot;
use crate::rows::members::Members;
use crate::rows::model::BatchHistory;
use crate::rows::places::{
    self, ALL, ListPlace, ListWalk, PAGE_BATCHES_PASSED, PAGE_CANDIDATES, PAGE_PARTS,
    PAGE_RECIPIENT_BATCHES, PAGE_RECIPIENTS, PageRoom,
};
use crate::rows::search::lookup::Lookup;
use crate::rows::stretches::StretchIndex;
use crate::rows::undelivered::ListSources;
use crate::{Filter, History, ListOrder, Page, StoreError};

/// A page while it is made.
struct PostgresListing<'a> {
    snapshot: &'a Snapshot<'a>,
    filter: &'a Filter,
    walk: ListWalk,
    items_max: usize,
    room: PageRoom,
    /// How many more members than there is room for are read at once. It doubles, for the more were read the fewer match.
    surplus: usize,
    page: Page<History>,
}

/// A batch that a page looks at.
struct LookedAtBatch {
    id: BatchId,
    /// All members that it has.
    count: usize,
    wanted: Members,
    /// The place behind what is wanted of it.
    place: ListPlace,
}

/// About how many recipients are read at once.
const RECIPIENTS_AT_ONCE: usize = 8_192;
/// Batches that are read at once, and about how many members these have if everything is read.
const BATCHES_AT_ONCE: usize = 64;
const MEMBERS_AT_ONCE: usize = 16_384;

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
        let sources = ListSources::of(filter);
        let mut listing = PostgresListing {
            snapshot: self,
            filter,
            walk,
            items_max: items,
            room: PageRoom::ALL,
            surplus: sources.as_ref().map_or(1, ListSources::surplus),
            page,
        };
        let is_at_end = if filter.tenant.is_some() && filter.is_searched() {
            listing.search().await?
        } else if let Some(sources) = &sources {
            listing.list_sources(sources).await?
        } else {
            listing.walk_over(ALL).await?
        };
        if is_at_end {
            listing.page.next = None;
        }
        self.link(&mut listing.page.items).await?;
        Ok(listing.page)
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

    /// Finds what `sources` have, and walks over batches that are older than these.
    async fn list_sources(&mut self, sources: &ListSources) -> Result<bool, StoreError> {
        let unlisted = sources.unlisted(self.snapshot.unlisted().await?);
        let (old, listed) = (ALL.start..unlisted + 1, unlisted + 1..ALL.end);
        match self.walk.order {
            ListOrder::OldestFirst => {
                if !self.walk_over(old).await? {
                    return Ok(false);
                }
                self.pass_sources(sources, listed).await
            }
            ListOrder::NewestFirst => {
                if !self.pass_sources(sources, listed).await? {
                    return Ok(false);
                }
                self.walk_over(old).await
            }
        }
    }

    /// Adds what matches of the batches with these `numbers` that `sources` have; true if those are all.
    async fn pass_sources(
        &mut self,
        sources: &ListSources,
        numbers: Range<u64>,
    ) -> Result<bool, StoreError> {
        let numbers = self.walk.behind(numbers);
        let (snapshot, filter) = (self.snapshot, self.filter);
        let found = snapshot.found_in(filter, sources, &numbers).await?;
        let found_batches = found.batches();
        let batches = snapshot.batches_among(filter, &found_batches).await?;
        let mut listed = Vec::with_capacity(found_batches.len());
        for id in found_batches.iter().copied().map(BatchId) {
            let count = batches.get(&id).map_or(0, |batch| batch.count);
            if count > 0 && !self.room.take(count) {
                self.add_all(&listed).await?;
                return Ok(false);
            }
            let (wanted, place) = (self.walk.members(id, count), self.walk.end_of(id));
            listed.push(LookedAtBatch { id, count, wanted, place });
        }
        if !self.add_all(&listed).await? {
            return Ok(false);
        }
        match found.rest(&numbers) {
            Some(rest) => self.skip(&rest).await,
            None => Ok(true),
        }
    }

    /// Has the next page begin where the search index has the next match among `numbers`; true if there is none.
    async fn skip(&mut self, numbers: &Range<u64>) -> Result<bool, StoreError> {
        let mut index = self.stretch_index().await?;
        let Some(index) = index.as_mut().filter(|it| it.has_next_of(numbers, &self.walk)) else {
            return Ok(false);
        };
        let Some(part) = self.next_part(numbers, index).await? else { return Ok(true) };
        if let Some(place) = self.walk.place_before(&part) {
            self.pass(place);
        }
        Ok(false)
    }

    /// Adds what the index has; true if that is all.
    async fn look_up(&mut self, lookup: &Lookup) -> Result<bool, StoreError> {
        let found = self.snapshot.candidates(lookup).await?;
        let mut ids: Vec<i64> = found.places.iter().map(|(id, _)| id.0.cast_signed()).collect();
        ids.dedup();
        let batches = self.snapshot.batches(&ids).await?;
        let (mut listed, mut is_behind) = (Vec::with_capacity(batches.len()), false);
        for places in found.places.chunk_by(|one, other| one.0 == other.0) {
            let Some(&place) = places.last() else { continue };
            is_behind = !self.walk.has(place);
            if is_behind {
                break;
            }
            // A batch that is gone has nothing to show.
            let (id, count) = (place.0, batches.get(&place.0).copied().unwrap_or(0));
            let indexes = places.iter().map(|(_, index)| *index);
            let wanted = indexes.filter(|index| usize::from(*index) < count).collect();
            if count > 0 && !self.room.take(count) {
                self.add_all(&listed).await?;
                return Ok(false);
            }
            listed.push(LookedAtBatch { id, count, wanted, place });
        }
        Ok(self.add_all(&listed).await? && (is_behind || !found.has_more))
    }

    /// Walks over the batches with these `numbers`; true at the end of them.
    async fn walk_over(&mut self, numbers: Range<u64>) -> Result<bool, StoreError> {
        let mut numbers = self.walk.behind(numbers);
        let Some(next) = self.snapshot.next_number(&numbers, self.walk.order).await? else {
            return Ok(true);
        };
        let mut index = self.stretch_index().await?;
        let mut part = StretchIndex::first_part(index.as_ref(), &numbers, next, &self.walk);
        // The first one, and those of the index.
        for _ in 0..=PAGE_PARTS {
            if !self.walk_part(&part).await? {
                return Ok(false);
            }
            // Fewer than a page may have were found in this part: the next page begins behind it.
            let (rest, end) = self.walk.rest(&numbers, &part);
            self.pass(end);
            let Some(index) = index.as_mut().filter(|it| it.has_next_of(&rest, &self.walk)) else {
                let next = self.snapshot.next_number(&rest, self.walk.order).await?;
                return Ok(next.is_none());
            };
            numbers = rest;
            match self.next_part(&numbers, index).await? {
                Some(next) => part = next,
                None => return Ok(true),
            }
        }
        Ok(false)
    }

    /// The stretches that may have a match; `None` if all may.
    async fn stretch_index(&self) -> Result<Option<StretchIndex>, StoreError> {
        if self.filter.is_searched() {
            return Ok(None);
        }
        let (key, indexed) = self.snapshot.index_progress().await?;
        Ok(key.of_stretches(self.filter).map(|term| StretchIndex::new(term, indexed)))
    }

    /// The part of `numbers` that is to be walked over next: where `index` has a match, or behind all that it knows; `None` if there is
    /// nothing.
    async fn next_part(
        &self,
        numbers: &Range<u64>,
        index: &mut StretchIndex,
    ) -> Result<Option<Range<u64>>, StoreError> {
        let part = index.next_part(numbers);
        if part.is_some() {
            return Ok(part);
        }
        let lookup = index.lookup(numbers, &self.walk);
        if index.learn(&self.snapshot.candidates(&lookup).await?) {
            return Ok(index.next_part(numbers));
        }
        let behind = index.behind(numbers);
        let next = self.snapshot.next_number(&behind, self.walk.order).await?;
        Ok(next.map(|next| self.walk.stretch(&behind, next, PAGE_BATCHES_PASSED)))
    }

    /// Adds what matches of the batches with these `numbers`; false if a page may not look at all of them.
    async fn walk_part(&mut self, numbers: &Range<u64>) -> Result<bool, StoreError> {
        let is_searched = self.filter.is_searched();
        let batches_max = if is_searched { PAGE_RECIPIENT_BATCHES } else { self.room.batches() };
        let batches = self.snapshot.batches_in(self.filter, numbers, batches_max).await?;
        let (looked_at_all, mut recipients) = (batches.len() < batches_max, 0);
        let mut rest = batches.as_slice();
        while !rest.is_empty() {
            let (some, others) = rest.split_at(compared_at_once(rest));
            rest = others;
            if recipients >= PAGE_RECIPIENTS {
                return Ok(false);
            }
            let matching = if is_searched {
                Some(self.snapshot.members_of(some, self.filter).await?)
            } else {
                None
            };
            let mut listed = Vec::with_capacity(some.len());
            for &CountedBatch { id, count } in some {
                if !is_searched && !self.room.take(count) {
                    self.add_all(&listed).await?;
                    return Ok(false);
                }
                let mut wanted = self.walk.members(id, count);
                if let Some(members) = &matching {
                    recipients += count;
                    let members = members.get(&id);
                    let is_its = |index: &u16| members.is_some_and(|it| it.contains(*index));
                    wanted = wanted.iter().filter(is_its).collect();
                }
                // Even when none of it is left to look at: the next page begins behind it.
                listed.push(LookedAtBatch {
                    id,
                    count,
                    wanted,
                    place: self.walk.last_of(id, count),
                });
            }
            if !self.add_all(&listed).await? {
                return Ok(false);
            }
        }
        Ok(looked_at_all)
    }

    /// Adds those of the wanted members that match, if their batch is accepted; false if there was no room for all of them.
    async fn add_all(&mut self, listed: &[LookedAtBatch]) -> Result<bool, StoreError> {
        let mut rest = listed;
        while !rest.is_empty() {
            let (some, others) = rest.split_at(self.read_at_once(rest));
            let wanted = some.iter().filter(|batch| !batch.wanted.is_empty());
            let ids: Vec<BatchId> = wanted.map(|batch| batch.id).collect();
            let histories = self.snapshot.batch_histories(&ids).await?;
            for LookedAtBatch { id, wanted, place, .. } in some {
                if let Some(history) = histories.get(id)
                    && !self.add(history, wanted)?
                {
                    return Ok(false);
                }
                self.pass(*place);
            }
            if !ids.is_empty() {
                self.surplus = limits::BATCH_ITEMS.min(self.surplus * 2);
            }
            rest = others;
        }
        Ok(true)
    }

    /// How many of these batches are read at once: at first no more than the page may have room for, if all that is wanted of them
    /// matches.
    fn read_at_once(&self, batches: &[LookedAtBatch]) -> usize {
        // One more tells that there is no room for it.
        let room = self.items_max - self.page.items.len() + 1;
        let (mut members, mut wanted) = (0, 0);
        let is_room = |batch: &&LookedAtBatch| {
            let is_room = members < MEMBERS_AT_ONCE && wanted < room * self.surplus;
            members += batch.count;
            wanted += batch.wanted.len();
            is_room
        };
        batches.iter().take(BATCHES_AT_ONCE).take_while(is_room).count()
    }

    /// Adds those of the `wanted` members that match; false if there was no room for all of them.
    fn add(&mut self, batch: &BatchHistory, wanted: &Members) -> Result<bool, StoreError> {
        let narrowed = batch.narrowed(self.filter, wanted);
        let wanted = narrowed.as_ref().unwrap_or(wanted);
        let mut histories = batch.histories(self.snapshot.store_id, wanted)?;
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
                self.page.items.push(history);
            }
        }
        Ok(true)
    }

    /// Has the next page begin behind a place.
    fn pass(&mut self, place: ListPlace) {
        places::pass(&mut self.page.next, self.snapshot.store_id, place);
    }
}

/// How many of these batches are looked at at once: a walk compares the recipients of many small ones, or of a few large ones.
fn compared_at_once(batches: &[CountedBatch]) -> usize {
    let mut recipients = 0;
    let is_room = |batch: &&CountedBatch| {
        let is_room = recipients < RECIPIENTS_AT_ONCE;
        recipients += batch.count;
        is_room
    };
    batches.iter().take(BATCHES_AT_ONCE).take_while(is_room).count()
}

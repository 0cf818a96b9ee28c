//! Batches that lists look at, by their numbers and by the search index.

use std::collections::HashMap;
use std::ops::Range;

use futures_util::try_join;
use notification::{BatchId, Name};
use tokio_postgres::Row;

use super::columns::{labels_at, signed};
use super::read::{Parameters, Snapshot, instant, unsigned};
use super::search::{block_at, run_at};
use crate::rows::matching::matching_members;
use crate::rows::members::Members;
use crate::rows::places::ALL;
use crate::rows::search::lookup::{Candidates, FetchedBlocks, Lookup};
use crate::rows::search::term::TermKey;
use crate::rows::seek::TimeSeek;
use crate::{Filter, ListOrder, StoreError};

/// A batch that may have members of a list.
pub(super) struct CountedBatch {
    pub(super) id: BatchId,
    pub(super) count: usize,
}

const SELECT_PROGRESS: &str = "SELECT key_0, key_1, indexed FROM search_progress WHERE is_one";
const SELECT_RUNS: &str =
    "SELECT id, level, first_batch, last_batch, state FROM search_run WHERE state = 1";
/// As much of each run as a look-up reads of it in either direction.
const AT_OR_BEFORE: &str = "SELECT run.id, block.term, block.place, block.postings FROM unnest($1::int8[]) AS run (id) \
     CROSS JOIN LATERAL (SELECT term, place, postings FROM search_block \
       WHERE search_block.run = run.id AND (term, place) <= ($2, $3) ORDER BY term DESC, place DESC LIMIT 2) AS block";
const AFTER: &str = "SELECT run.id, block.term, block.place, block.postings FROM unnest($1::int8[]) AS run (id) \
     CROSS JOIN LATERAL (SELECT term, place, postings FROM search_block \
       WHERE search_block.run = run.id AND (term, place) > ($2, $3) AND term <= $2 ORDER BY term, place LIMIT 2) AS block";
// === impl Snapshot ===

impl Snapshot<'_> {
    /// Numbers of the batches that were accepted when `filter` says, and of its broadcast.
    pub(super) async fn numbers_of(&self, filter: &Filter) -> Result<Range<u64>, StoreError> {
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
    pub(super) async fn index_progress(&self) -> Result<(TermKey, BatchId), StoreError> {
        let rows = self.rows(SELECT_PROGRESS, &[]).await?;
        let damaged = || StoreError::Damaged("the progress of the search index".to_owned());
        let row = rows.first().ok_or_else(damaged)?;
        let key = TermKey([unsigned(row, 0)?, unsigned(row, 1)?]);
        Ok((key, BatchId(unsigned(row, 2)?)))
    }

    /// Finds the places of a term in the index.
    pub(super) async fn candidates(&self, lookup: &Lookup) -> Result<Candidates, StoreError> {
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
    pub(super) async fn batches(&self, ids: &[i64]) -> Result<HashMap<BatchId, usize>, StoreError> {
        let select = "SELECT id, count FROM batch WHERE id = ANY($1)";
        let rows = self.rows(select, &[&ids]).await?;
        let batches = rows.iter().map(|row| counted_batch(row).map(|it| (it.id, it.count)));
        batches.collect()
    }

    /// The members of these batches that the search of `filter` is for.
    pub(super) async fn members_of(
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
    pub(super) async fn batches_in(
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

    /// Those of the batches with these numbers that may match `filter`, with their members.
    pub(super) async fn batches_among(
        &self,
        filter: &Filter,
        numbers: &[u64],
    ) -> Result<HashMap<BatchId, CountedBatch>, StoreError> {
        let ids: Vec<i64> = numbers.iter().map(|number| number.cast_signed()).collect();
        let select = "SELECT batch.id, count FROM batch JOIN tenant_lane AS lane ON lane.id = batch.lane \
             WHERE batch.id = ANY($1) AND ($2::text IS NULL OR lane.channel = $2) AND ($3::int8 IS NULL OR batch.broadcast = $3) \
             AND ($4::text IS NULL OR batch.tenant = $4)";
        let tenant = filter.tenant.as_ref().map(Name::as_str);
        let channel = filter.channel.as_ref().map(Name::as_str);
        let broadcast = filter.broadcast.map(|id| id.0.cast_signed());
        let rows = self.rows(select, &[&ids, &channel, &broadcast, &tenant]).await?;
        let batches = rows.iter().map(|row| counted_batch(row).map(|batch| (batch.id, batch)));
        batches.collect()
    }

    /// The first number of a batch among `numbers` in `order`.
    pub(super) async fn next_number(
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

/// A row that begins with the number of a batch and that of its members.
fn counted_batch(row: &Row) -> Result<CountedBatch, StoreError> {
    let count = usize::try_from(row.try_get::<_, i32>(1)?).unwrap_or(0);
    Ok(CountedBatch { id: BatchId(unsigned(row, 0)?), count })
}

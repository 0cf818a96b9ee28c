//! Batches of lists by state: those with ends that the log has, those with chunks, and those that wait for theirs.

use std::ops::Range;

use notification::{Name, State};
use rusqlite::params;

use super::read::Snapshot;
use super::rows::signed;
use crate::rows::places::PAGE_CANDIDATES;
use crate::rows::undelivered::{ChunkSource, FoundBatches, ListSources, Unlisted};
use crate::{Filter, ListOrder, StoreError};

// === impl Snapshot ===

impl Snapshot {
    /// The last batches that may have ended before their ends were listed.
    pub(super) fn unlisted(&self) -> Result<Unlisted, StoreError> {
        let number = |key| Ok::<_, StoreError>(self.meta(key)?.unwrap_or(0).cast_unsigned());
        Ok(Unlisted { ends: number("ends_unlisted")?, all: number("cancelled_unlisted")? })
    }

    /// The next batches with these numbers that `sources` have, some of which may match `filter`.
    pub(super) fn found_in(
        &self,
        filter: &Filter,
        sources: &ListSources,
        numbers: &Range<u64>,
    ) -> Result<FoundBatches, StoreError> {
        let mut found = FoundBatches::new(filter.order);
        for state in &sources.ends {
            found.add(self.ended_in(filter, *state, numbers)?, PAGE_CANDIDATES);
        }
        match sources.chunks {
            ChunkSource::None => {}
            ChunkSource::Leased => {
                let leased = self.leased()?.into_iter();
                found.add_all(leased.filter(|number| numbers.contains(number)));
            }
            ChunkSource::All => {
                let batches_max = ListSources::chunks_max(filter);
                let with_chunks = self.with_chunks(filter.order, numbers, batches_max)?;
                found.add(with_chunks, batches_max);
            }
        }
        if sources.has_waiting {
            self.find_waiting(filter, false, numbers, &mut found)?;
        }
        if sources.has_withdrawn {
            self.find_waiting(filter, true, numbers, &mut found)?;
        }
        Ok(found)
    }

    /// The first batches with these numbers of which the log has an end in `state`.
    fn ended_in(
        &self,
        filter: &Filter,
        state: State,
        numbers: &Range<u64>,
    ) -> Result<Vec<u64>, StoreError> {
        let sql = match (&filter.tenant, filter.order) {
            (Some(_), ListOrder::OldestFirst) => {
                "SELECT batch FROM undelivered WHERE tenant = ?5 AND state = ?1 AND batch >= ?2 AND batch < ?3 \
                 ORDER BY batch LIMIT ?4"
            }
            (Some(_), ListOrder::NewestFirst) => {
                "SELECT batch FROM undelivered WHERE tenant = ?5 AND state = ?1 AND batch >= ?2 AND batch < ?3 \
                 ORDER BY batch DESC LIMIT ?4"
            }
            (None, ListOrder::OldestFirst) => {
                "SELECT batch FROM undelivered WHERE ?5 IS NULL AND state = ?1 AND batch >= ?2 AND batch < ?3 \
                 ORDER BY batch LIMIT ?4"
            }
            (None, ListOrder::NewestFirst) => {
                "SELECT batch FROM undelivered WHERE ?5 IS NULL AND state = ?1 AND batch >= ?2 AND batch < ?3 \
                 ORDER BY batch DESC LIMIT ?4"
            }
        };
        let parameters = params![
            state.code(),
            numbers.start.cast_signed(),
            numbers.end.cast_signed(),
            signed(PAGE_CANDIDATES),
            filter.tenant.as_ref().map(Name::as_str),
        ];
        self.batch_numbers(sql, parameters)
    }

    /// The batches that have a claimed chunk, in any order, some of them several times.
    fn leased(&self) -> Result<Vec<u64>, StoreError> {
        let sql = "SELECT batch FROM chunk INDEXED BY chunk_leased WHERE lease_until IS NOT NULL";
        self.batch_numbers(sql, params![])
    }

    /// The first batches with these numbers that have a chunk.
    fn with_chunks(
        &self,
        order: ListOrder,
        numbers: &Range<u64>,
        batches_max: usize,
    ) -> Result<Vec<u64>, StoreError> {
        let sql = match order {
            ListOrder::OldestFirst => {
                "SELECT DISTINCT batch FROM chunk WHERE batch >= ?1 AND batch < ?2 ORDER BY batch LIMIT ?3"
            }
            ListOrder::NewestFirst => {
                "SELECT DISTINCT batch FROM chunk WHERE batch >= ?1 AND batch < ?2 ORDER BY batch DESC LIMIT ?3"
            }
        };
        let (start, end) = (numbers.start.cast_signed(), numbers.end.cast_signed());
        self.batch_numbers(sql, params![start, end, signed(batches_max)])
    }

    /// Adds the next batches that wait for their chunk, of broadcasts that match `filter`; of those that were withdrawn, or of the
    /// others.
    fn find_waiting(
        &self,
        filter: &Filter,
        is_withdrawn: bool,
        numbers: &Range<u64>,
        found: &mut FoundBatches,
    ) -> Result<(), StoreError> {
        // In this order: there are few that wait.
        let mut select = self.connection.prepare_cached(
            "SELECT waiting.broadcast, passed FROM unreleased AS waiting \
             CROSS JOIN broadcast ON broadcast.id = waiting.broadcast \
             WHERE passed IS NOT NULL AND (withdrawn_at IS NOT NULL) = ?1 AND (?2 IS NULL OR tenant = ?2) \
             AND (?3 IS NULL OR channel = ?3) AND (?4 IS NULL OR waiting.broadcast = ?4)",
        )?;
        let parameters = params![
            is_withdrawn,
            filter.tenant.as_ref().map(Name::as_str),
            filter.channel.as_ref().map(Name::as_str),
            filter.broadcast.map(|id| id.0.cast_signed()),
        ];
        let waiting = select
            .query_map(parameters, |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?)))?;
        // The index is named: by the order alone SQLite might take the table, and walk over the batches of all others.
        let sql = match filter.order {
            ListOrder::OldestFirst => {
                "SELECT id FROM batch INDEXED BY batch_of_broadcast \
                 WHERE broadcast = ?1 AND id >= ?2 AND id < ?3 ORDER BY id LIMIT ?4"
            }
            ListOrder::NewestFirst => {
                "SELECT id FROM batch INDEXED BY batch_of_broadcast \
                 WHERE broadcast = ?1 AND id >= ?2 AND id < ?3 ORDER BY id DESC LIMIT ?4"
            }
        };
        for one in waiting {
            let (broadcast, passed) = one?;
            let start = numbers.start.cast_signed().max(passed + 1);
            let end = numbers.end.cast_signed();
            let batches =
                self.batch_numbers(sql, params![broadcast, start, end, signed(PAGE_CANDIDATES)])?;
            found.add(batches, PAGE_CANDIDATES);
        }
        Ok(())
    }

    /// Numbers of batches, which the rows of `sql` begin with.
    fn batch_numbers(
        &self,
        sql: &str,
        parameters: impl rusqlite::Params,
    ) -> Result<Vec<u64>, StoreError> {
        let mut select = self.connection.prepare_cached(sql)?;
        let numbers = select.query_map(parameters, |row| row.get::<_, i64>(0))?;
        Ok(numbers.map(|number| number.map(i64::cast_unsigned)).collect::<Result<_, _>>()?)
    }
}

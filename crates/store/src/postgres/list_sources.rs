//! Batches of lists by state: those with ends that the log has, those with chunks, and those that wait for theirs.

use std::ops::Range;

use futures_util::future::try_join_all;
use notification::{Name, State};

use super::columns::signed;
use super::read::{Parameters, Snapshot, unsigned};
use crate::rows::places::PAGE_CANDIDATES;
use crate::rows::undelivered::{ChunkSource, FoundBatches, ListSources, Unlisted};
use crate::{Filter, ListOrder, StoreError};

// === impl Snapshot ===

impl Snapshot<'_> {
    /// The last batches that may have ended before their ends were listed.
    pub(super) async fn unlisted(&self) -> Result<Unlisted, StoreError> {
        let select = "SELECT ends_unlisted, cancelled_unlisted FROM search_progress WHERE is_one";
        let rows = self.rows(select, &[]).await?;
        let Some(row) = rows.first() else { return Ok(Unlisted::default()) };
        Ok(Unlisted { ends: unsigned(row, 0)?, all: unsigned(row, 1)? })
    }

    /// The next batches with these numbers that `sources` have, some of which may match `filter`.
    pub(super) async fn found_in(
        &self,
        filter: &Filter,
        sources: &ListSources,
        numbers: &Range<u64>,
    ) -> Result<FoundBatches, StoreError> {
        let mut found = FoundBatches::new(filter.order);
        let ended = sources.ends.iter().map(|state| self.ended_in(filter, *state, numbers));
        for batches in try_join_all(ended).await? {
            found.add(batches, PAGE_CANDIDATES);
        }
        match sources.chunks {
            ChunkSource::None => {}
            ChunkSource::Leased => {
                let leased = self.leased().await?.into_iter();
                found.add_all(leased.filter(|number| numbers.contains(number)));
            }
            ChunkSource::All => {
                let batches_max = ListSources::chunks_max(filter);
                let with_chunks = self.with_chunks(filter.order, numbers, batches_max).await?;
                found.add(with_chunks, batches_max);
            }
        }
        if sources.has_waiting {
            found.add(self.waiting_in(filter, false, numbers).await?, PAGE_CANDIDATES);
        }
        if sources.has_withdrawn {
            found.add(self.waiting_in(filter, true, numbers).await?, PAGE_CANDIDATES);
        }
        Ok(found)
    }

    /// The first batches with these numbers of which the log has an end in `state`.
    async fn ended_in(
        &self,
        filter: &Filter,
        state: State,
        numbers: &Range<u64>,
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
        let parameters: Parameters<'_> = &[
            &i16::from(state.code()),
            &numbers.start.cast_signed(),
            &numbers.end.cast_signed(),
            &signed(PAGE_CANDIDATES),
            &filter.tenant.as_ref().map(Name::as_str),
        ];
        self.batch_numbers(select, parameters).await
    }

    /// The batches that have a claimed chunk, in any order, some of them several times. Claimed chunks are selected as a span of
    /// leases: of a span the planner knows that it is small, before it knows anything.
    async fn leased(&self) -> Result<Vec<u64>, StoreError> {
        let select = "SELECT batch FROM chunk WHERE lease_until BETWEEN 0 AND 9223372036854775807";
        self.batch_numbers(select, &[]).await
    }

    /// The first batches with these numbers that have a chunk.
    async fn with_chunks(
        &self,
        order: ListOrder,
        numbers: &Range<u64>,
        batches_max: usize,
    ) -> Result<Vec<u64>, StoreError> {
        let select = match order {
            ListOrder::OldestFirst => {
                "SELECT DISTINCT batch FROM chunk WHERE batch >= $1 AND batch < $2 ORDER BY batch LIMIT $3"
            }
            ListOrder::NewestFirst => {
                "SELECT DISTINCT batch FROM chunk WHERE batch >= $1 AND batch < $2 ORDER BY batch DESC LIMIT $3"
            }
        };
        let (start, end) = (numbers.start.cast_signed(), numbers.end.cast_signed());
        self.batch_numbers(select, &[&start, &end, &signed(batches_max)]).await
    }

    /// The first batches with these numbers that wait for their chunk, of broadcasts that match `filter`; of those that were
    /// withdrawn, or of the others.
    async fn waiting_in(
        &self,
        filter: &Filter,
        is_withdrawn: bool,
        numbers: &Range<u64>,
    ) -> Result<Vec<u64>, StoreError> {
        // Broadcast by broadcast: there are few that wait.
        let select = match filter.order {
            ListOrder::OldestFirst => {
                "SELECT its.id FROM unreleased AS waiting CROSS JOIN LATERAL (SELECT id FROM batch \
                   WHERE batch.broadcast = waiting.broadcast AND id >= greatest($1, passed + 1) AND id < $2 \
                   ORDER BY id LIMIT $3) AS its \
                 WHERE passed IS NOT NULL AND (withdrawn_at IS NOT NULL) = $4 AND EXISTS (SELECT FROM broadcast \
                   WHERE broadcast.id = waiting.broadcast AND ($5::text IS NULL OR tenant = $5) \
                   AND ($6::text IS NULL OR channel = $6) AND ($7::int8 IS NULL OR broadcast.id = $7) OFFSET 0) \
                 ORDER BY its.id LIMIT $3"
            }
            ListOrder::NewestFirst => {
                "SELECT its.id FROM unreleased AS waiting CROSS JOIN LATERAL (SELECT id FROM batch \
                   WHERE batch.broadcast = waiting.broadcast AND id >= greatest($1, passed + 1) AND id < $2 \
                   ORDER BY id DESC LIMIT $3) AS its \
                 WHERE passed IS NOT NULL AND (withdrawn_at IS NOT NULL) = $4 AND EXISTS (SELECT FROM broadcast \
                   WHERE broadcast.id = waiting.broadcast AND ($5::text IS NULL OR tenant = $5) \
                   AND ($6::text IS NULL OR channel = $6) AND ($7::int8 IS NULL OR broadcast.id = $7) OFFSET 0) \
                 ORDER BY its.id DESC LIMIT $3"
            }
        };
        let parameters: Parameters<'_> = &[
            &numbers.start.cast_signed(),
            &numbers.end.cast_signed(),
            &signed(PAGE_CANDIDATES),
            &is_withdrawn,
            &filter.tenant.as_ref().map(Name::as_str),
            &filter.channel.as_ref().map(Name::as_str),
            &filter.broadcast.map(|id| id.0.cast_signed()),
        ];
        self.batch_numbers(select, parameters).await
    }

    /// Numbers of batches, which the rows of `select` begin with.
    async fn batch_numbers(
        &self,
        select: &'static str,
        parameters: Parameters<'_>,
    ) -> Result<Vec<u64>, StoreError> {
        let rows = self.rows(select, parameters).await?;
        rows.iter().map(|row| unsigned(row, 0)).collect()
    }
}

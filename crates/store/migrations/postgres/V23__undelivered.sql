-- Batches with members that ended undelivered (rows/undelivered.rs), by which these are listed (decision 0059). A row says that there
-- was such an end, and stays when that is taken back. Two of one kind are harmless: a unique index would have transactions wait for
-- each other.
CREATE TABLE IF NOT EXISTS undelivered (
    batch  bigint   NOT NULL,
    state  smallint NOT NULL,
    tenant text     NOT NULL
);
CREATE INDEX IF NOT EXISTS undelivered_of_batch ON undelivered (batch, state);
CREATE INDEX IF NOT EXISTS undelivered_of_state ON undelivered (state, batch);
CREATE INDEX IF NOT EXISTS undelivered_of_tenant ON undelivered (tenant, state, batch);
-- Batches up to this number had ends before there was the table: all numbers that were drawn, in blocks of 64.
ALTER TABLE search_progress ADD COLUMN IF NOT EXISTS ends_unlisted bigint;
UPDATE search_progress SET ends_unlisted = (SELECT CASE WHEN is_called THEN last_value + 63 ELSE 0 END FROM batch_number)
    WHERE ends_unlisted IS NULL;

-- The search index has terms of tenants and channels now: it is made anew, and until it is, lists walk.
TRUNCATE search_block, search_run;
UPDATE search_progress SET indexed = 0;

-- Batches with members that ended undelivered (rows/undelivered.rs), by which these are listed (decision 0059). A row says that there
-- was such an end, and stays when that is taken back.
CREATE TABLE undelivered (
    batch  INTEGER NOT NULL,
    state  INTEGER NOT NULL,
    tenant TEXT    NOT NULL,
    PRIMARY KEY (batch, state)
) STRICT, WITHOUT ROWID;
CREATE INDEX undelivered_of_state ON undelivered (state, batch);
CREATE INDEX undelivered_of_tenant ON undelivered (tenant, state, batch);
-- Batches up to this number had ends before there was the table.
INSERT OR REPLACE INTO meta (key, value) SELECT 'ends_unlisted', coalesce(max(id), 0) FROM batch;

-- The search index has terms of tenants and channels now: it is made anew, and until it is, lists walk.
DELETE FROM search_block;
DELETE FROM search_run;
DELETE FROM meta WHERE key = 'search_cursor';

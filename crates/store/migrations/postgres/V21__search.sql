-- The index by recipient (decision 0053): runs of postings, each over a stretch of batch numbers. Nothing is lost when both tables
-- are empty and `indexed` is 0: the index is made anew.
CREATE TABLE IF NOT EXISTS search_run (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    level       smallint NOT NULL,
    first_batch bigint   NOT NULL,
    last_batch  bigint   NOT NULL,
    state       smallint NOT NULL   -- 0: being merged, 1: complete, 2: its blocks are being removed
);

-- Blocks of a run, each under its first posting. A block fits a page with its row, so it is stored there and nowhere else.
CREATE TABLE IF NOT EXISTS search_block (
    run      bigint NOT NULL,
    term     bigint NOT NULL,
    place    bigint NOT NULL,       -- batch number * 65536 + index
    postings bytea  NOT NULL,
    PRIMARY KEY (run, term, place)
);
ALTER TABLE search_block ALTER COLUMN postings SET STORAGE PLAIN;

-- How far the index is. Numbers of batches are drawn by all processes and committed in any order. A transaction that begins after
-- a number was announced gives none up to it; once those that had begun are over, none up to it can be written any more: it is closed.
CREATE TABLE IF NOT EXISTS search_progress (
    is_one    boolean PRIMARY KEY DEFAULT true CHECK (is_one),
    key_0     bigint NOT NULL,
    key_1     bigint NOT NULL,
    announced bigint NOT NULL DEFAULT 0,
    closed    bigint NOT NULL DEFAULT 0,
    indexed   bigint NOT NULL DEFAULT 0
);
-- The key of the terms: 62 random bits each.
INSERT INTO search_progress (key_0, key_1)
    SELECT ('x' || right(replace(gen_random_uuid()::text, '-', ''), 16))::bit(64)::bigint,
           ('x' || right(replace(gen_random_uuid()::text, '-', ''), 16))::bit(64)::bigint
    ON CONFLICT DO NOTHING;

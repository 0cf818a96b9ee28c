-- The index by recipient (decision 0053): runs of postings, each over a stretch of batch numbers. Nothing is lost when both tables
-- are empty and `search_cursor` is gone from `meta`: the index is made anew.
CREATE TABLE search_run (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    level       INTEGER NOT NULL,
    first_batch INTEGER NOT NULL,
    last_batch  INTEGER NOT NULL,
    state       INTEGER NOT NULL   -- 0: being merged, 1: complete, 2: its blocks are being removed
) STRICT;

-- Blocks of a run, each under its first posting. A block is smaller than a page.
CREATE TABLE search_block (
    id       INTEGER PRIMARY KEY,
    run      INTEGER NOT NULL,
    term     INTEGER NOT NULL,
    place    INTEGER NOT NULL,     -- batch number * 65536 + index
    postings BLOB    NOT NULL
) STRICT;
CREATE UNIQUE INDEX search_block_of_run ON search_block (run, term, place);

-- The transactions of writers that were committed last (decision 0024): a transaction has its row here if and only if it was
-- committed, whatever became of the server meanwhile. A session removes its own rows but the last few hundred.
CREATE TABLE IF NOT EXISTS commit_token (
    session uuid        NOT NULL,  -- a connection of a writer; never used again
    number  bigint      NOT NULL,  -- of a transaction in it
    at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (session, number)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

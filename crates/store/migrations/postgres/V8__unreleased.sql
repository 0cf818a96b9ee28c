-- Broadcasts of which not all batches have their chunks (decision 0023): one that is open, and a sealed one while its
-- chunks are made slice by slice. A broadcast that is not here has all of them.
CREATE TABLE IF NOT EXISTS unreleased (
    broadcast    bigint PRIMARY KEY,
    recipients   bigint NOT NULL DEFAULT 0,  -- all it has
    waiting      bigint NOT NULL DEFAULT 0,  -- of them, once it is sealed, those that have no chunk and no line in the log
    passed       bigint,                     -- batches up to this one have theirs; NULL while it is open
    withdrawn_at bigint                      -- since when those that wait are cancelled
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
CREATE INDEX IF NOT EXISTS unreleased_sealed ON unreleased (waiting, broadcast) WHERE passed IS NOT NULL;

-- A slice is the next batches of a broadcast in order of their numbers.
CREATE INDEX IF NOT EXISTS batch_in_broadcast ON batch (broadcast, id) WHERE broadcast IS NOT NULL;
DROP INDEX IF EXISTS batch_of_broadcast;

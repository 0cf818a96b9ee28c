-- Broadcasts of which not all batches have their chunks (decision 0023): one that is open, and a sealed one while its
-- chunks are made slice by slice. A broadcast that is not here has all of them.
CREATE TABLE unreleased (
    broadcast    INTEGER PRIMARY KEY,
    recipients   INTEGER NOT NULL DEFAULT 0, -- all it has
    waiting      INTEGER NOT NULL DEFAULT 0, -- of them, once it is sealed, those that have no chunk and no line in the log
    passed       INTEGER,                    -- batches up to this one have theirs; NULL while it is open
    withdrawn_at INTEGER                     -- since when those that wait are cancelled
) STRICT;

-- Broadcasts that were paused and are resumed (decision 0029): their chunks that were put away are made due again slice by slice.
CREATE TABLE resuming (
    broadcast INTEGER PRIMARY KEY,
    passed    INTEGER NOT NULL -- what batches up to this one have is due again
) STRICT;

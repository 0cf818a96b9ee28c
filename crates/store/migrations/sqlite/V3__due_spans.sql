-- Finds the lanes with something due, without a look at those that wait: spans of 2^14 ms in order, within a span the
-- lanes, of a lane its earliest chunk.
ALTER TABLE chunk ADD COLUMN span INTEGER GENERATED ALWAYS AS (due_at >> 14) VIRTUAL;
CREATE INDEX chunk_due ON chunk (span, lane, due_at) WHERE lease_until IS NULL;

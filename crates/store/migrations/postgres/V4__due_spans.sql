-- Finds the lanes with something due, without a look at those that wait: spans of 2^14 ms in order, within a span the
-- lanes, of a lane its earliest chunk.
CREATE INDEX IF NOT EXISTS chunk_due ON chunk ((due_at >> 14), lane, due_at) WHERE lease_until IS NULL;

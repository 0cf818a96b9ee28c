-- The trace of the request that the members of a batch come from, and the span in it: 24 bytes (notification/src/trace.rs). NULL where
-- nothing is traced. Of a broadcast a few recipients have it, in batches of their own (decision 0082).
ALTER TABLE batch ADD COLUMN IF NOT EXISTS trace bytea;

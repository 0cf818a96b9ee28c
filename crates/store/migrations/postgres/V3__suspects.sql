-- The server's process behind a worker's last beat, and what the worker said of its end, if it could: 'in order' or
-- 'by a fault'.
ALTER TABLE worker ADD COLUMN IF NOT EXISTS backend integer, ADD COLUMN IF NOT EXISTS ended text;

-- Suspects with something held against them: a crash without them clears them, and must not look through all chunks.
CREATE INDEX IF NOT EXISTS chunk_suspect ON chunk (id) WHERE crashes > 3;

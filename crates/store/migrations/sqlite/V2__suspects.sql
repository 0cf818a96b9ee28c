-- Suspects with something held against them: a crash without them clears them, and must not look through all chunks.
CREATE INDEX chunk_suspect ON chunk (crashes) WHERE crashes > 3;

-- What was added to the suppression list lately, by the number of the transaction that told of it: each writer keeps a filter of the
-- list in memory (decision 0061).
CREATE INDEX IF NOT EXISTS suppression_changed ON suppression (txid);

-- The table `undelivered` also has the batches with cancelled members, and with delivered ones of which the log has words (decision
-- 0063). Batches up to this number had such ends before.
INSERT OR REPLACE INTO meta (key, value) SELECT 'cancelled_unlisted', coalesce(max(id), 0) FROM batch;

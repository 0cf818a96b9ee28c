-- The table `undelivered` also has the batches with cancelled members, and with delivered ones of which the log has words (decision
-- 0063). Batches up to this number had such ends before: all numbers that were drawn, in blocks of 64.
ALTER TABLE search_progress ADD COLUMN IF NOT EXISTS cancelled_unlisted bigint;
UPDATE search_progress SET cancelled_unlisted = (SELECT CASE WHEN is_called THEN last_value + 63 ELSE 0 END FROM batch_number)
    WHERE cancelled_unlisted IS NULL;

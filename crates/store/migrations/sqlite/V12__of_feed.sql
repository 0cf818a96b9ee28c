-- 1 for a batch of notifications by which a feed hands events on: their outcomes are events of no feed. NULL for all others, which
-- takes no bytes of a row.
ALTER TABLE batch ADD COLUMN of_feed INTEGER;

-- True for a batch of notifications by which a feed hands events on: their outcomes are events of no feed. NULL for all others.
ALTER TABLE batch ADD COLUMN IF NOT EXISTS of_feed boolean;

-- When a lane may be removed (decision 0062): no batch of it has a number above `kept_through`, and of those up to there that retention
-- has passed and left, none is of it. Lanes that a process of an earlier version makes are kept for ever, and it may write another 2^24
-- batches to those that are there.
ALTER TABLE tenant_lane ADD COLUMN IF NOT EXISTS kept_through bigint NOT NULL DEFAULT 9223372036854775807;
UPDATE tenant_lane SET kept_through = (SELECT last_value FROM batch_number) + 16777216
    WHERE kept_through = 9223372036854775807;
-- Without a default: retention of an earlier version, which does not note the lane, fails.
ALTER TABLE retention_later ADD COLUMN IF NOT EXISTS lane integer;
UPDATE retention_later SET lane = coalesce((SELECT batch.lane FROM batch WHERE batch.id = retention_later.batch), 0)
    WHERE lane IS NULL;
ALTER TABLE retention_later ALTER COLUMN lane SET NOT NULL;
CREATE INDEX IF NOT EXISTS retention_later_of_lane ON retention_later (lane) WHERE part = 2;

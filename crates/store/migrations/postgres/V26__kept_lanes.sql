-- When a lane may be removed (decision 0062): no batch of it has a number above `kept_through`, and of those up to there that retention
-- has passed and left, none is of it. A process of an earlier version may write another 2^24 batches to the lanes that are there, and
-- those that it makes are kept for ever. By defaults, which rewrite no row.
DO $$ BEGIN
    EXECUTE format('ALTER TABLE tenant_lane ADD COLUMN IF NOT EXISTS kept_through bigint NOT NULL DEFAULT %s',
        (SELECT last_value + 16777216 FROM batch_number));
END $$;
ALTER TABLE tenant_lane ALTER COLUMN kept_through SET DEFAULT 9223372036854775807;
-- Of the notes about outcomes; no other is looked up. Without a default from then on: retention of an earlier version, which does not
-- note the lane, fails.
ALTER TABLE retention_later ADD COLUMN IF NOT EXISTS lane integer NOT NULL DEFAULT 0;
UPDATE retention_later SET lane = batch.lane FROM batch WHERE batch.id = retention_later.batch AND part = 2 AND retention_later.lane = 0;
ALTER TABLE retention_later ALTER COLUMN lane DROP DEFAULT;
CREATE INDEX IF NOT EXISTS retention_later_of_lane ON retention_later (lane) WHERE part = 2;

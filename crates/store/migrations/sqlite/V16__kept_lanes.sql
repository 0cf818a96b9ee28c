-- When a lane may be removed (decision 0062): no batch of it has a number above `kept_through`, and of those up to there that retention
-- has passed and left, none is of it.
ALTER TABLE tenant_lane ADD COLUMN kept_through INTEGER NOT NULL DEFAULT 9223372036854775807;
UPDATE tenant_lane SET kept_through = (SELECT coalesce(max(id), 0) FROM batch);
-- Of the notes about outcomes; no other is looked up.
ALTER TABLE retention_later ADD COLUMN lane INTEGER NOT NULL DEFAULT 0;
UPDATE retention_later SET lane = coalesce((SELECT batch.lane FROM batch WHERE batch.id = retention_later.batch), 0) WHERE part = 2;
CREATE INDEX retention_later_of_lane ON retention_later (lane) WHERE part = 2;

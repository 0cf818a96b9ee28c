-- A lane belongs to a tenant (decision 0027). Those that are there become lanes of the tenant `default`, with whatever other
-- tenants have waiting in them. The table has a new name so that a process of an older version ends: it would take a lane of
-- one tenant for a lane of another, or of another channel.
ALTER TABLE IF EXISTS lane RENAME TO tenant_lane;
ALTER TABLE tenant_lane ADD COLUMN IF NOT EXISTS tenant text COLLATE "C" NOT NULL DEFAULT 'default';
ALTER TABLE tenant_lane ALTER COLUMN tenant DROP DEFAULT;
CREATE UNIQUE INDEX IF NOT EXISTS tenant_lane_key ON tenant_lane (channel, destination, priority, tenant);
ALTER TABLE tenant_lane DROP CONSTRAINT IF EXISTS lane_channel_destination_priority_key;

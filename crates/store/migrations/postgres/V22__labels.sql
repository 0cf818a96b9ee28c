-- Labels of the members of a batch (rows/labels.rs): external ids, tags, metadata. NULL when none of them has any.
ALTER TABLE batch ADD COLUMN IF NOT EXISTS labels bytea;
-- Those of a broadcast, as of a batch with one member.
ALTER TABLE broadcast ADD COLUMN IF NOT EXISTS labels bytea;

-- The broadcasts of a tenant, as they are listed.
CREATE INDEX IF NOT EXISTS broadcast_of_tenant ON broadcast (tenant, id) WHERE sealed_at IS NOT NULL;

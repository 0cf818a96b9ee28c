-- Labels of the members of a batch (rows/labels.rs): external ids, tags, metadata. NULL when none of them has any.
ALTER TABLE batch ADD COLUMN labels BLOB;
-- Those of a broadcast, as of a batch with one member.
ALTER TABLE broadcast ADD COLUMN labels BLOB;

-- The broadcasts of a tenant, as they are listed.
CREATE INDEX broadcast_of_tenant ON broadcast (tenant, id) WHERE sealed_at IS NOT NULL;

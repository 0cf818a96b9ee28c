-- Totals by tenant (decision 0077). Rows without a tenant are of processes of an earlier version, which write and fold them: an audit
-- counts what they have, and an assignment gives it to the tenants.
ALTER TABLE totals_delta ADD COLUMN IF NOT EXISTS tenant text COLLATE "C";
-- The number of assignments.
INSERT INTO meta (key, value) VALUES ('totals_assigned', 0) ON CONFLICT DO NOTHING;
-- Batches up to this number may be of other tenants than their lane, if that is one of `default`: it may be older than lanes of
-- tenants. All numbers that were drawn, in blocks of 64.
INSERT INTO meta (key, value) SELECT 'mixed_lanes_through', CASE WHEN is_called THEN last_value + 63 ELSE 0 END FROM batch_number
    ON CONFLICT DO NOTHING;

-- How many notifications of a tenant stand in which state (decision 0077); the state 0 counts all that are pending. What is counted so
-- far is without its tenant, which is the empty text, until an audit says whose it is.
CREATE TABLE tenant_totals (
    tenant TEXT    NOT NULL,
    state  INTEGER NOT NULL,
    count  INTEGER NOT NULL,
    PRIMARY KEY (tenant, state)
) STRICT, WITHOUT ROWID;
INSERT INTO tenant_totals (tenant, state, count) SELECT '', state, count FROM totals WHERE count <> 0;
DROP TABLE totals;
ALTER TABLE tenant_totals RENAME TO totals;

-- The last batch that may be older than lanes of tenants (decision 0027), and so may be in a lane of another tenant.
INSERT INTO meta (key, value) SELECT 'mixed_batches_through', coalesce(max(id), 0) FROM batch;
-- Number of times that what was without its tenant was given to the tenants.
INSERT INTO meta (key, value) VALUES ('totals_generation', 0);

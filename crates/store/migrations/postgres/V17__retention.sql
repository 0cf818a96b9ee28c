-- How much retention has removed of a batch (decision 0051): 0 nothing, 1 its contents, 2 its recipients as well.
ALTER TABLE batch ADD COLUMN IF NOT EXISTS removed smallint NOT NULL DEFAULT 0;

-- All recipients that a broadcast was sealed with, and those of them whose contents are removed.
ALTER TABLE broadcast ADD COLUMN IF NOT EXISTS recipients bigint NOT NULL DEFAULT 0, ADD COLUMN IF NOT EXISTS without_content bigint NOT NULL DEFAULT 0;
UPDATE broadcast SET recipients = (SELECT coalesce(sum(count), 0) FROM batch WHERE batch.broadcast = broadcast.id)
    WHERE sealed_at IS NOT NULL;

-- Notifications whose rows are gone, by the state in which they ended.
CREATE TABLE IF NOT EXISTS tombstone (
    tenant  text COLLATE "C" NOT NULL,
    channel text COLLATE "C" NOT NULL,
    state   smallint         NOT NULL,
    count   bigint           NOT NULL,
    PRIMARY KEY (tenant, channel, state)
);

-- Those of a broadcast of which other rows are left.
CREATE TABLE IF NOT EXISTS broadcast_tombstone (
    broadcast bigint   NOT NULL,
    state     smallint NOT NULL,
    count     bigint   NOT NULL,
    PRIMARY KEY (broadcast, state)
);

-- How far each walk of retention has come: batches by number, idempotency keys by tenant and key.
CREATE TABLE IF NOT EXISTS retention_walk (
    name     text COLLATE "C" PRIMARY KEY,
    batch    bigint NOT NULL DEFAULT 0,
    tenant   text COLLATE "C" NOT NULL DEFAULT '',
    key      text COLLATE "C" NOT NULL DEFAULT '',
    begun_at bigint NOT NULL DEFAULT 0
);

-- Batches of which a walk had to leave something, and when to look again.
CREATE TABLE IF NOT EXISTS retention_later (
    part  smallint NOT NULL,
    at    bigint   NOT NULL,
    batch bigint   NOT NULL,
    PRIMARY KEY (part, at, batch)
);

-- Rows are removed from the front, a few at a time: their room is found early, and taken by the rows that follow.
ALTER TABLE batch SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
ALTER TABLE log SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

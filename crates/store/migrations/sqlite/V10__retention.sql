-- How much retention has removed of a batch (decision 0051): 0 nothing, 1 its contents, 2 its recipients as well.
ALTER TABLE batch ADD COLUMN removed INTEGER NOT NULL DEFAULT 0;

-- All recipients that a broadcast was sealed with, and those of them whose contents are removed.
ALTER TABLE broadcast ADD COLUMN recipients INTEGER NOT NULL DEFAULT 0;
ALTER TABLE broadcast ADD COLUMN without_content INTEGER NOT NULL DEFAULT 0;
UPDATE broadcast SET recipients = (SELECT coalesce(sum(count), 0) FROM batch WHERE batch.broadcast = broadcast.id)
    WHERE sealed_at IS NOT NULL;

-- Notifications whose rows are gone, by the state in which they ended.
CREATE TABLE tombstone (
    tenant  TEXT    NOT NULL,
    channel TEXT    NOT NULL,
    state   INTEGER NOT NULL,
    count   INTEGER NOT NULL,
    PRIMARY KEY (tenant, channel, state)
) STRICT, WITHOUT ROWID;

-- Those of a broadcast of which other rows are left.
CREATE TABLE broadcast_tombstone (
    broadcast INTEGER NOT NULL,
    state     INTEGER NOT NULL,
    count     INTEGER NOT NULL,
    PRIMARY KEY (broadcast, state)
) STRICT, WITHOUT ROWID;

-- How far each walk of retention has come: batches by number, idempotency keys by tenant and key.
CREATE TABLE retention_walk (
    name     TEXT    NOT NULL PRIMARY KEY,
    batch    INTEGER NOT NULL DEFAULT 0,
    tenant   TEXT    NOT NULL DEFAULT '',
    key      TEXT    NOT NULL DEFAULT '',
    begun_at INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

-- Batches of which a walk had to leave something, and when to look again.
CREATE TABLE retention_later (
    part  INTEGER NOT NULL,
    at    INTEGER NOT NULL,
    batch INTEGER NOT NULL,
    PRIMARY KEY (part, at, batch)
) STRICT, WITHOUT ROWID;

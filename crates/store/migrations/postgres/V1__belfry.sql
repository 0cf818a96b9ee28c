-- Instants of notifications are milliseconds since the Unix epoch, as in the other store; those of workers are the
-- database's own. Codes are those of the `notification` crate. Blobs are described in src/rows/codec.rs.
-- Everything lives in the schema `belfry`, which the connection's search_path names first.

CREATE TABLE meta (key text PRIMARY KEY, value bigint NOT NULL);

CREATE TABLE lane (
    id          integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    channel     text COLLATE "C" NOT NULL,
    destination text COLLATE "C" NOT NULL,
    priority    smallint         NOT NULL,
    UNIQUE (channel, destination, priority)
);

CREATE TABLE broadcast (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant      text     NOT NULL,
    channel     text     NOT NULL,
    priority    smallint NOT NULL,
    guarantee   smallint NOT NULL,
    due_at      bigint   NOT NULL,
    expires_at  bigint,
    sealed_at   bigint,                      -- NULL while it is open
    worker      bigint,                      -- who has it open
    key         text,
    fingerprint bytea,
    options     bytea    NOT NULL,
    payload     bytea    NOT NULL
);
CREATE INDEX broadcast_open ON broadcast (worker) WHERE sealed_at IS NULL;

-- Written once, never changed. Numbers are drawn from the sequence in blocks.
CREATE SEQUENCE batch_number INCREMENT BY 64;
CREATE TABLE batch (
    id          bigint   PRIMARY KEY,
    lane        integer  NOT NULL,
    guarantee   smallint NOT NULL,
    accepted_at bigint   NOT NULL,
    due_at      bigint   NOT NULL,
    expires_at  bigint,
    broadcast   bigint,
    count       integer  NOT NULL,
    tenant      text     NOT NULL,
    options     bytea,                       -- content of all members, NULL when it is elsewhere
    payload     bytea,
    items       bytea    NOT NULL
);
-- Device tokens do not compress; trying costs more than writing them.
ALTER TABLE batch ALTER COLUMN items SET STORAGE EXTERNAL, ALTER COLUMN payload SET STORAGE EXTERNAL;
CREATE INDEX batch_of_broadcast ON batch (broadcast) WHERE broadcast IS NOT NULL;

-- What is pending. Ready while lease_until is NULL. A row stands for up to 1,000 notifications, so its few
-- versions are a few per thousand; scans start behind what was claimed, so dead ones are not walked over.
CREATE TABLE chunk (
    id            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    batch         bigint   NOT NULL,
    lane          integer  NOT NULL,
    partition     smallint NOT NULL,
    due_at        bigint   NOT NULL,
    attempt       integer  NOT NULL,
    epoch         bigint   NOT NULL DEFAULT 0,
    crashes       integer  NOT NULL DEFAULT 0,
    lease_until   bigint,
    worker        bigint,                    -- who claimed it
    is_ticket     boolean  NOT NULL DEFAULT false, -- claimed to be published, not taken by a consumer yet
    begun_through integer,
    count         integer  NOT NULL,
    members       bytea                      -- NULL: all of the batch
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
        autovacuum_vacuum_cost_delay = 0);
CREATE INDEX chunk_ready ON chunk (lane, due_at, id) WHERE lease_until IS NULL;
CREATE INDEX chunk_leased ON chunk (lease_until) WHERE lease_until IS NOT NULL;
CREATE INDEX chunk_of_worker ON chunk (worker) WHERE worker IS NOT NULL;
CREATE INDEX chunk_of_batch ON chunk (batch);

-- Read in the order of transactions that are known to be complete: a number drawn early may be committed late.
CREATE TABLE log (
    txid    xid8   NOT NULL DEFAULT pg_current_xact_id(),
    id      bigint GENERATED ALWAYS AS IDENTITY,
    batch   bigint NOT NULL,
    entries bytea  NOT NULL,
    PRIMARY KEY (txid, id)
);
CREATE INDEX log_of_batch ON log (batch);

CREATE TABLE idempotency (
    tenant       text COLLATE "C" NOT NULL,
    key          text COLLATE "C" NOT NULL,
    fingerprint  bytea NOT NULL,
    notification uuid,
    broadcast    bigint,
    PRIMARY KEY (tenant, key)
);

CREATE TABLE suppression (
    channel   text COLLATE "C" NOT NULL,
    recipient text COLLATE "C" NOT NULL,
    reason    text   NOT NULL,
    since     bigint NOT NULL,
    PRIMARY KEY (channel, recipient)
);

-- Changes of how many notifications stand in which state (0 counts all that are pending); folded now and then.
CREATE TABLE totals_delta (state smallint NOT NULL, change bigint NOT NULL);

-- The processes of the cluster. Alive while alive_until is ahead.
CREATE TABLE worker (
    id                 bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name               text        NOT NULL,
    version            text        NOT NULL,
    produces           boolean     NOT NULL,
    consumes           boolean     NOT NULL,
    listen             text,
    started_at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    alive_until        timestamptz NOT NULL,
    is_leaving         boolean     NOT NULL DEFAULT false,
    claimed            bigint      NOT NULL DEFAULT 0,
    settled            bigint      NOT NULL DEFAULT 0,
    settled_per_second real        NOT NULL DEFAULT 0
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

CREATE TABLE partition (id smallint PRIMARY KEY, epoch bigint NOT NULL DEFAULT 0, owner bigint);
INSERT INTO partition (id) SELECT generate_series(0, 63);

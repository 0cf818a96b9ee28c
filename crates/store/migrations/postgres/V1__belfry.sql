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
    reason    text    NOT NULL,
    status    integer NOT NULL,
    since     bigint  NOT NULL,
    txid      xid8    NOT NULL DEFAULT pg_current_xact_id(),
    PRIMARY KEY (channel, recipient)
);

-- Who came back: a provider's word of an instant up to this one is out of date.
CREATE TABLE suppression_lift (
    channel   text COLLATE "C" NOT NULL,
    recipient text COLLATE "C" NOT NULL,
    lifted_at bigint NOT NULL,
    txid      xid8   NOT NULL DEFAULT pg_current_xact_id(),
    PRIMARY KEY (channel, recipient)
);

-- Every change of the list; without `since`, a recipient was taken off. Read like the log.
CREATE TABLE suppression_event (
    txid      xid8    NOT NULL DEFAULT pg_current_xact_id(),
    id        bigint  GENERATED ALWAYS AS IDENTITY,
    at        bigint  NOT NULL,
    channel   text    NOT NULL,
    recipient text    NOT NULL,
    reason    text,
    status    integer,
    since     bigint,
    PRIMARY KEY (txid, id)
);

-- How far somebody who hands these changes on has come, the end of what is being handed on, and how often that was in vain.
CREATE TABLE feed (
    name       text COLLATE "C" PRIMARY KEY,
    txid       bigint NOT NULL DEFAULT 0,
    event      bigint NOT NULL DEFAULT 0,
    until_txid bigint,
    until      bigint,
    tries      bigint NOT NULL DEFAULT 0
);

-- Changes of one recipient must be read in the order in which they happened, which is the order of the rows' versions and
-- not always that of the transactions' numbers. True when this transaction comes after `earlier`; otherwise it fails as
-- one does that cannot be put in order, and is done again with a later number.
CREATE FUNCTION comes_after(earlier xid8) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF earlier > pg_current_xact_id() THEN
        RAISE EXCEPTION 'a later transaction changed the suppression first' USING ERRCODE = 'serialization_failure';
    END IF;
    RETURN true;
END
$$;

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
    is_standing_by     boolean     NOT NULL DEFAULT false,
    settled            bigint      NOT NULL DEFAULT 0,
    settled_per_second real        NOT NULL DEFAULT 0
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

CREATE TABLE partition (id smallint PRIMARY KEY, epoch bigint NOT NULL DEFAULT 0, owner bigint);
INSERT INTO partition (id) SELECT generate_series(0, 63);

-- Every transaction that writes to the log takes the lock (4782301, 1), shared, before it gets a number. So whoever
-- follows the log can tell how far it is complete: what runs without that lock, however long, writes no log. A running
-- transaction whose locks cannot be seen yet, or any more, counts as one that writes, but that is not sure: who asks again
-- knows more. What is below is complete in the snapshot of the transaction that asks, because locks are looked at after
-- it was taken.
CREATE FUNCTION log_horizon(OUT horizon xid8, OUT is_sure boolean) LANGUAGE sql STABLE AS $$
    WITH held AS MATERIALIZED (
        SELECT locktype, virtualtransaction AS holder, transactionid AS xid
        FROM pg_locks
        WHERE (locktype = 'transactionid' AND mode = 'ExclusiveLock' AND granted)
           OR (locktype = 'advisory' AND classid = 4782301 AND objid = 1 AND objsubid = 2
               AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))
    )
    (SELECT running, EXISTS (SELECT FROM held WHERE held.xid = running::xid)
     FROM pg_snapshot_xip(pg_current_snapshot()) AS running
     WHERE NOT EXISTS (
         SELECT FROM held AS own
         WHERE own.xid = running::xid
           AND NOT EXISTS (SELECT FROM held AS writer
                           WHERE writer.locktype = 'advisory' AND writer.holder = own.holder))
     UNION ALL SELECT pg_snapshot_xmax(pg_current_snapshot()), true)
    ORDER BY 1 LIMIT 1
$$;

-- The outbox: applications insert here within their own transactions (docs/outbox.md is the contract). Rows are never
-- updated and never deleted. A drain takes those whose transactions ended since the last one, which it tells by their
-- numbers; a slot of the table whose rows are all taken is truncated. So nothing is left for vacuum.
CREATE FUNCTION outbox_slot() RETURNS smallint LANGUAGE sql VOLATILE AS $$
    SELECT (floor(extract(epoch FROM clock_timestamp()) / 300)::bigint % 4)::smallint
$$;

CREATE TABLE outbox (
    slot            smallint    NOT NULL DEFAULT outbox_slot(),
    txid            xid8        NOT NULL DEFAULT pg_current_xact_id(),
    id              bigint      GENERATED ALWAYS AS IDENTITY,
    tenant          text        NOT NULL DEFAULT 'default',
    channel         text        NOT NULL,
    recipient       text        NOT NULL,
    content         json        NOT NULL,
    options         json,
    priority        text        NOT NULL DEFAULT 'normal',
    guarantee       text        NOT NULL DEFAULT 'at_least_once',
    send_at         timestamptz,
    expires_at      timestamptz,
    idempotency_key text,
    CONSTRAINT "tenant is 1 to 64 of a-z, 0-9, - and _" CHECK (tenant ~ '^[a-z0-9][a-z0-9_-]{0,63}$'),
    CONSTRAINT "channel is 1 to 64 of a-z, 0-9, - and _" CHECK (channel ~ '^[a-z0-9][a-z0-9_-]{0,63}$'),
    CONSTRAINT "recipient has 1 to 2048 bytes" CHECK (octet_length(recipient) BETWEEN 1 AND 2048),
    CONSTRAINT "content has at most 262144 bytes" CHECK (octet_length(content::text) <= 262144),
    CONSTRAINT "options have at most 4096 bytes" CHECK (octet_length(options::text) <= 4096),
    CONSTRAINT "options are an object" CHECK (json_typeof(options) = 'object'),
    CONSTRAINT "priority is urgent, normal or bulk" CHECK (priority IN ('urgent', 'normal', 'bulk')),
    CONSTRAINT "guarantee is at_least_once or at_most_once" CHECK (guarantee IN ('at_least_once', 'at_most_once')),
    CONSTRAINT "send_at is an instant" CHECK (isfinite(send_at)),
    CONSTRAINT "expires_at is an instant" CHECK (isfinite(expires_at)),
    CONSTRAINT "expires_at is after send_at" CHECK (expires_at > send_at),
    CONSTRAINT "idempotency_key has 1 to 255 bytes" CHECK (octet_length(idempotency_key) BETWEEN 1 AND 255)
) PARTITION BY LIST (slot);
CREATE TABLE outbox_0 PARTITION OF outbox FOR VALUES IN (0) WITH (autovacuum_enabled = false);
CREATE TABLE outbox_1 PARTITION OF outbox FOR VALUES IN (1) WITH (autovacuum_enabled = false);
CREATE TABLE outbox_2 PARTITION OF outbox FOR VALUES IN (2) WITH (autovacuum_enabled = false);
CREATE TABLE outbox_3 PARTITION OF outbox FOR VALUES IN (3) WITH (autovacuum_enabled = false);
CREATE INDEX outbox_in_order ON outbox (txid, id);

CREATE FUNCTION outbox_notify() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_catalog.pg_notify('belfry_outbox', '');
    RETURN NULL;
END
$$;
CREATE TRIGGER outbox_notify AFTER INSERT ON outbox FOR EACH STATEMENT EXECUTE FUNCTION outbox_notify();

-- What was taken: all rows of the transactions that the snapshot shows, and of one more the rows up to an id.
CREATE TABLE outbox_position (
    is_only  boolean     PRIMARY KEY DEFAULT true CHECK (is_only),
    snapshot pg_snapshot NOT NULL,
    txid     xid8,
    id       bigint
) WITH (fillfactor = 10);
INSERT INTO outbox_position (snapshot) VALUES (pg_current_snapshot());

-- Rows that could not become notifications, and why.
CREATE TABLE outbox_rejected (
    id              bigint      PRIMARY KEY,
    rejected_at     timestamptz NOT NULL DEFAULT now(),
    reason          text        NOT NULL,
    tenant          text        NOT NULL,
    channel         text        NOT NULL,
    recipient       text        NOT NULL,
    content         json        NOT NULL,
    options         json,
    priority        text        NOT NULL,
    guarantee       text        NOT NULL,
    send_at         timestamptz,
    expires_at      timestamptz,
    idempotency_key text
);

-- Rows of a span of transactions behind a place, in order, as far as the snapshot shows them. The way through the
-- index is laid down: a plan must not depend on how full the table was when it was made.
CREATE FUNCTION outbox_page(first xid8, last xid8, after_txid xid8, after_id bigint, seen pg_snapshot, rows integer)
RETURNS SETOF outbox LANGUAGE sql STABLE SET enable_seqscan = off SET enable_bitmapscan = off AS $$
    SELECT * FROM outbox
    WHERE txid >= $1 AND txid <= $2 AND (txid, id) > ($3, $4) AND pg_visible_in_snapshot(txid, $5)
    ORDER BY txid, id LIMIT $6
$$;

-- Which of these transactions have left rows.
CREATE FUNCTION outbox_writers(xids xid8[])
RETURNS SETOF xid8 LANGUAGE sql STABLE SET enable_seqscan = off SET enable_bitmapscan = off AS $$
    SELECT xid FROM unnest(xids) AS xid WHERE EXISTS (SELECT FROM outbox WHERE txid = xid)
$$;

-- Whether something was committed that was not taken. Locks nothing, writes nothing.
CREATE FUNCTION outbox_waits()
RETURNS boolean LANGUAGE sql STABLE SET enable_seqscan = off SET enable_bitmapscan = off AS $$
    SELECT EXISTS (SELECT FROM outbox_position WHERE txid IS NOT NULL)
        OR EXISTS (SELECT FROM outbox WHERE txid >= (SELECT pg_snapshot_xmax(snapshot) FROM outbox_position))
        OR EXISTS (SELECT FROM outbox_position, pg_snapshot_xip(snapshot) AS late
                   WHERE EXISTS (SELECT FROM outbox WHERE outbox.txid = late))
$$;

-- Empties the slots that nobody writes to and whose rows are all taken; gives how many. Waits for nobody.
CREATE FUNCTION outbox_rotate() RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    used     text[] := ARRAY(SELECT format('outbox_%s', slot) FROM generate_series(0, 3) AS slot
                             WHERE slot <> outbox_slot() AND pg_relation_size(format('outbox_%s', slot)) > 0);
    part     text;
    taken    pg_snapshot;
    is_ahead boolean;
    emptied  integer := 0;
BEGIN
    IF cardinality(used) > 0 THEN
        SELECT snapshot INTO taken FROM outbox_position FOR UPDATE SKIP LOCKED;
    END IF;
    FOREACH part IN ARRAY used LOOP
        CONTINUE WHEN taken IS NULL;
        BEGIN
            EXECUTE format('LOCK TABLE %I IN ACCESS EXCLUSIVE MODE NOWAIT', part);
            EXECUTE format('SELECT EXISTS (SELECT FROM %I WHERE txid >= $1 OR txid = ANY($2))', part)
                INTO is_ahead USING pg_snapshot_xmax(taken), ARRAY(SELECT pg_snapshot_xip(taken));
            IF NOT is_ahead THEN
                EXECUTE format('TRUNCATE %I', part);
                emptied := emptied + 1;
            END IF;
        EXCEPTION WHEN lock_not_available THEN
            -- Somebody writes to it, or reads it: another time.
        END;
    END LOOP;
    RETURN emptied;
END
$$;

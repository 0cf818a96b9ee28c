SET statement_timeout = 0;
SET lock_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SELECT pg_catalog.set_config('search_path', '', false);
SET check_function_bodies = false;
SET xmloption = content;
SET client_min_messages = warning;
SET row_security = off;
CREATE SCHEMA belfry;
CREATE FUNCTION belfry.comes_after(earlier bigint) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
BEGIN
    IF earlier > transaction_number() THEN
        RAISE EXCEPTION 'a later transaction changed the suppression first' USING ERRCODE = 'serialization_failure';
    END IF;
    RETURN true;
END
$$;
CREATE FUNCTION belfry.log_horizon(OUT horizon bigint, OUT is_sure boolean) RETURNS record
    LANGUAGE sql STABLE
    AS $$
    WITH held AS MATERIALIZED (
        SELECT locktype, virtualtransaction AS holder, transactionid AS xid
        FROM pg_locks
        WHERE (locktype = 'transactionid' AND mode = 'ExclusiveLock' AND granted)
           OR (locktype = 'advisory' AND classid = 4782301 AND objid = 1 AND objsubid = 2
               AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))
    )
    SELECT first.running::text::bigint + (SELECT value FROM meta WHERE key = 'transaction_shift'), first.is_sure FROM (
    (SELECT running, EXISTS (SELECT FROM held WHERE held.xid = running::xid)
     FROM pg_snapshot_xip(pg_current_snapshot()) AS running
     WHERE NOT EXISTS (
         SELECT FROM held AS own
         WHERE own.xid = running::xid
           AND NOT EXISTS (SELECT FROM held AS writer
                           WHERE writer.locktype = 'advisory' AND writer.holder = own.holder))
     UNION ALL SELECT pg_snapshot_xmax(pg_current_snapshot()), true)
    ORDER BY 1 LIMIT 1) AS first (running, is_sure)
$$;
CREATE FUNCTION belfry.outbox_notify() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    PERFORM pg_catalog.pg_notify('belfry_outbox', '');
    RETURN NULL;
END
$$;
CREATE FUNCTION belfry.outbox_slot() RETURNS smallint
    LANGUAGE sql
    AS $$
    SELECT (floor(extract(epoch FROM clock_timestamp()) / 300)::bigint % 4)::smallint
$$;
SET default_tablespace = '';
CREATE TABLE belfry.outbox (
    slot smallint DEFAULT belfry.outbox_slot() NOT NULL,
    txid xid8 DEFAULT pg_current_xact_id() NOT NULL,
    id bigint NOT NULL,
    tenant text DEFAULT 'default'::text NOT NULL,
    channel text NOT NULL,
    recipient text NOT NULL,
    content json,
    options json,
    priority text DEFAULT 'normal'::text NOT NULL,
    guarantee text DEFAULT 'at_least_once'::text NOT NULL,
    send_at timestamp with time zone,
    expires_at timestamp with time zone,
    idempotency_key text,
    template text,
    variables json,
    fallback json,
    CONSTRAINT "channel is 1 to 64 of a-z, 0-9, - and _" CHECK ((channel ~ '^[a-z0-9][a-z0-9_-]{0,63}$'::text)),
    CONSTRAINT "content has at most 262144 bytes" CHECK ((octet_length((content)::text) <= 262144)),
    CONSTRAINT "expires_at is after send_at" CHECK ((expires_at > send_at)),
    CONSTRAINT "expires_at is an instant" CHECK (isfinite(expires_at)),
    CONSTRAINT "guarantee is at_least_once or at_most_once" CHECK ((guarantee = ANY (ARRAY['at_least_once'::text, 'at_most_once'::text]))),
    CONSTRAINT "idempotency_key has 1 to 255 bytes" CHECK (((octet_length(idempotency_key) >= 1) AND (octet_length(idempotency_key) <= 255))),
    CONSTRAINT "options are an object" CHECK ((json_typeof(options) = 'object'::text)),
    CONSTRAINT "options have at most 4096 bytes" CHECK ((octet_length((options)::text) <= 4096)),
    CONSTRAINT "priority is urgent, normal or bulk" CHECK ((priority = ANY (ARRAY['urgent'::text, 'normal'::text, 'bulk'::text]))),
    CONSTRAINT "recipient has 1 to 2048 bytes" CHECK (((octet_length(recipient) >= 1) AND (octet_length(recipient) <= 2048))),
    CONSTRAINT "send_at is an instant" CHECK (isfinite(send_at)),
    CONSTRAINT "tenant is 1 to 64 of a-z, 0-9, - and _" CHECK ((tenant ~ '^[a-z0-9][a-z0-9_-]{0,63}$'::text))
)
PARTITION BY LIST (slot);
CREATE FUNCTION belfry.outbox_page(first xid8, last xid8, after_txid xid8, after_id bigint, seen pg_snapshot, rows integer) RETURNS SETOF belfry.outbox
    LANGUAGE sql STABLE
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $_$
    SELECT * FROM outbox
    WHERE txid >= $1 AND txid <= $2 AND (txid, id) > ($3, $4) AND pg_visible_in_snapshot(txid, $5)
    ORDER BY txid, id LIMIT $6
$_$;
CREATE FUNCTION belfry.outbox_rotate() RETURNS integer
    LANGUAGE plpgsql
    AS $_$
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
            EXECUTE format('SELECT EXISTS (SELECT FROM (SELECT txid FROM %1$I ORDER BY txid DESC, id DESC LIMIT 1) AS last
                                           WHERE txid >= $1)
                                OR EXISTS (SELECT FROM unnest($2) AS late
                                           CROSS JOIN LATERAL (SELECT FROM %1$I WHERE txid = late ORDER BY txid, id LIMIT 1)
                                             AS its)', part)
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
$_$;
CREATE FUNCTION belfry.outbox_waits() RETURNS boolean
    LANGUAGE sql STABLE
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
    SELECT EXISTS (SELECT FROM outbox_position WHERE txid IS NOT NULL)
        OR EXISTS (SELECT FROM outbox WHERE txid >= (SELECT pg_snapshot_xmax(snapshot) FROM outbox_position))
        OR EXISTS (SELECT FROM outbox_position, pg_snapshot_xip(snapshot) AS late
                   WHERE EXISTS (SELECT FROM outbox WHERE outbox.txid = late))
$$;
CREATE FUNCTION belfry.outbox_writers(xids xid8[]) RETURNS SETOF xid8
    LANGUAGE sql STABLE
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
    SELECT xid FROM unnest(xids) AS xid WHERE EXISTS (SELECT FROM outbox WHERE txid = xid)
$$;
CREATE FUNCTION belfry.transaction_number() RETURNS bigint
    LANGUAGE plpgsql
    AS $$
BEGIN
    RETURN pg_current_xact_id()::text::bigint + (SELECT value FROM meta WHERE key = 'transaction_shift');
END
$$;
SET default_table_access_method = heap;
CREATE TABLE belfry.batch (
    id bigint NOT NULL,
    lane integer NOT NULL,
    guarantee smallint NOT NULL,
    accepted_at bigint NOT NULL,
    due_at bigint NOT NULL,
    expires_at bigint,
    broadcast bigint,
    count integer NOT NULL,
    tenant text NOT NULL,
    options bytea,
    payload bytea,
    items bytea NOT NULL
);
ALTER TABLE ONLY belfry.batch ALTER COLUMN payload SET STORAGE EXTERNAL;
ALTER TABLE ONLY belfry.batch ALTER COLUMN items SET STORAGE EXTERNAL;
CREATE SEQUENCE belfry.batch_number
    START WITH 1
    INCREMENT BY 64
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
CREATE TABLE belfry.broadcast (
    id bigint NOT NULL,
    tenant text NOT NULL,
    channel text NOT NULL,
    priority smallint NOT NULL,
    guarantee smallint NOT NULL,
    due_at bigint NOT NULL,
    expires_at bigint,
    sealed_at bigint,
    worker bigint,
    key text,
    fingerprint bytea,
    options bytea NOT NULL,
    payload bytea NOT NULL
);
ALTER TABLE belfry.broadcast ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME belfry.broadcast_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE belfry.chunk (
    id bigint NOT NULL,
    batch bigint NOT NULL,
    lane integer NOT NULL,
    partition smallint NOT NULL,
    due_at bigint NOT NULL,
    attempt integer NOT NULL,
    epoch bigint DEFAULT 0 NOT NULL,
    crashes integer DEFAULT 0 NOT NULL,
    lease_until bigint,
    worker bigint,
    is_ticket boolean DEFAULT false NOT NULL,
    begun_through integer,
    count integer NOT NULL,
    members bytea,
    weight integer DEFAULT 0 NOT NULL
)
WITH (fillfactor='70', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='5000', autovacuum_vacuum_cost_delay='0');
ALTER TABLE belfry.chunk ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME belfry.chunk_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE belfry.commit_token (
    session uuid NOT NULL,
    number bigint NOT NULL,
    at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='5000');
CREATE TABLE belfry.feed (
    name text NOT NULL COLLATE pg_catalog."C",
    txid bigint DEFAULT 0 NOT NULL,
    event bigint DEFAULT 0 NOT NULL,
    until_txid bigint,
    until bigint,
    tries bigint DEFAULT 0 NOT NULL
);
CREATE TABLE belfry.idempotency (
    tenant text NOT NULL COLLATE pg_catalog."C",
    key text NOT NULL COLLATE pg_catalog."C",
    fingerprint bytea NOT NULL,
    notification uuid,
    broadcast bigint
);
CREATE TABLE belfry.tenant_lane (
    id integer NOT NULL,
    channel text NOT NULL COLLATE pg_catalog."C",
    destination text NOT NULL COLLATE pg_catalog."C",
    priority smallint NOT NULL,
    tenant text NOT NULL COLLATE pg_catalog."C"
);
ALTER TABLE belfry.tenant_lane ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME belfry.lane_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE belfry.learned_rate (
    key text NOT NULL,
    found double precision NOT NULL,
    climbed bigint NOT NULL,
    generation bigint NOT NULL,
    began_at bigint NOT NULL,
    refused_at bigint NOT NULL,
    booked_until bigint NOT NULL,
    paused_until bigint NOT NULL,
    rests_until bigint NOT NULL,
    until bigint NOT NULL
)
WITH (fillfactor='50', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='5000');
CREATE TABLE belfry.log (
    txid bigint DEFAULT belfry.transaction_number() NOT NULL,
    id bigint NOT NULL,
    batch bigint NOT NULL,
    entries bytea NOT NULL
);
ALTER TABLE belfry.log ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME belfry.log_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE belfry.meta (
    key text NOT NULL,
    value bigint NOT NULL
);
CREATE TABLE belfry.outbox_0 (
    slot smallint DEFAULT belfry.outbox_slot() NOT NULL,
    txid xid8 DEFAULT pg_current_xact_id() NOT NULL,
    id bigint NOT NULL,
    tenant text DEFAULT 'default'::text NOT NULL,
    channel text NOT NULL,
    recipient text NOT NULL,
    content json,
    options json,
    priority text DEFAULT 'normal'::text NOT NULL,
    guarantee text DEFAULT 'at_least_once'::text NOT NULL,
    send_at timestamp with time zone,
    expires_at timestamp with time zone,
    idempotency_key text,
    template text,
    variables json,
    fallback json,
    CONSTRAINT "channel is 1 to 64 of a-z, 0-9, - and _" CHECK ((channel ~ '^[a-z0-9][a-z0-9_-]{0,63}$'::text)),
    CONSTRAINT "content has at most 262144 bytes" CHECK ((octet_length((content)::text) <= 262144)),
    CONSTRAINT "expires_at is after send_at" CHECK ((expires_at > send_at)),
    CONSTRAINT "expires_at is an instant" CHECK (isfinite(expires_at)),
    CONSTRAINT "guarantee is at_least_once or at_most_once" CHECK ((guarantee = ANY (ARRAY['at_least_once'::text, 'at_most_once'::text]))),
    CONSTRAINT "idempotency_key has 1 to 255 bytes" CHECK (((octet_length(idempotency_key) >= 1) AND (octet_length(idempotency_key) <= 255))),
    CONSTRAINT "options are an object" CHECK ((json_typeof(options) = 'object'::text)),
    CONSTRAINT "options have at most 4096 bytes" CHECK ((octet_length((options)::text) <= 4096)),
    CONSTRAINT "priority is urgent, normal or bulk" CHECK ((priority = ANY (ARRAY['urgent'::text, 'normal'::text, 'bulk'::text]))),
    CONSTRAINT "recipient has 1 to 2048 bytes" CHECK (((octet_length(recipient) >= 1) AND (octet_length(recipient) <= 2048))),
    CONSTRAINT "send_at is an instant" CHECK (isfinite(send_at)),
    CONSTRAINT "tenant is 1 to 64 of a-z, 0-9, - and _" CHECK ((tenant ~ '^[a-z0-9][a-z0-9_-]{0,63}$'::text))
)
WITH (autovacuum_enabled='false');
CREATE TABLE belfry.outbox_1 (
    slot smallint DEFAULT belfry.outbox_slot() NOT NULL,
    txid xid8 DEFAULT pg_current_xact_id() NOT NULL,
    id bigint NOT NULL,
    tenant text DEFAULT 'default'::text NOT NULL,
    channel text NOT NULL,
    recipient text NOT NULL,
    content json,
    options json,
    priority text DEFAULT 'normal'::text NOT NULL,
    guarantee text DEFAULT 'at_least_once'::text NOT NULL,
    send_at timestamp with time zone,
    expires_at timestamp with time zone,
    idempotency_key text,
    template text,
    variables json,
    fallback json,
    CONSTRAINT "channel is 1 to 64 of a-z, 0-9, - and _" CHECK ((channel ~ '^[a-z0-9][a-z0-9_-]{0,63}$'::text)),
    CONSTRAINT "content has at most 262144 bytes" CHECK ((octet_length((content)::text) <= 262144)),
    CONSTRAINT "expires_at is after send_at" CHECK ((expires_at > send_at)),
    CONSTRAINT "expires_at is an instant" CHECK (isfinite(expires_at)),
    CONSTRAINT "guarantee is at_least_once or at_most_once" CHECK ((guarantee = ANY (ARRAY['at_least_once'::text, 'at_most_once'::text]))),
    CONSTRAINT "idempotency_key has 1 to 255 bytes" CHECK (((octet_length(idempotency_key) >= 1) AND (octet_length(idempotency_key) <= 255))),
    CONSTRAINT "options are an object" CHECK ((json_typeof(options) = 'object'::text)),
    CONSTRAINT "options have at most 4096 bytes" CHECK ((octet_length((options)::text) <= 4096)),
    CONSTRAINT "priority is urgent, normal or bulk" CHECK ((priority = ANY (ARRAY['urgent'::text, 'normal'::text, 'bulk'::text]))),
    CONSTRAINT "recipient has 1 to 2048 bytes" CHECK (((octet_length(recipient) >= 1) AND (octet_length(recipient) <= 2048))),
    CONSTRAINT "send_at is an instant" CHECK (isfinite(send_at)),
    CONSTRAINT "tenant is 1 to 64 of a-z, 0-9, - and _" CHECK ((tenant ~ '^[a-z0-9][a-z0-9_-]{0,63}$'::text))
)
WITH (autovacuum_enabled='false');
CREATE TABLE belfry.outbox_2 (
    slot smallint DEFAULT belfry.outbox_slot() NOT NULL,
    txid xid8 DEFAULT pg_current_xact_id() NOT NULL,
    id bigint NOT NULL,
    tenant text DEFAULT 'default'::text NOT NULL,
    channel text NOT NULL,
    recipient text NOT NULL,
    content json,
    options json,
    priority text DEFAULT 'normal'::text NOT NULL,
    guarantee text DEFAULT 'at_least_once'::text NOT NULL,
    send_at timestamp with time zone,
    expires_at timestamp with time zone,
    idempotency_key text,
    template text,
    variables json,
    fallback json,
    CONSTRAINT "channel is 1 to 64 of a-z, 0-9, - and _" CHECK ((channel ~ '^[a-z0-9][a-z0-9_-]{0,63}$'::text)),
    CONSTRAINT "content has at most 262144 bytes" CHECK ((octet_length((content)::text) <= 262144)),
    CONSTRAINT "expires_at is after send_at" CHECK ((expires_at > send_at)),
    CONSTRAINT "expires_at is an instant" CHECK (isfinite(expires_at)),
    CONSTRAINT "guarantee is at_least_once or at_most_once" CHECK ((guarantee = ANY (ARRAY['at_least_once'::text, 'at_most_once'::text]))),
    CONSTRAINT "idempotency_key has 1 to 255 bytes" CHECK (((octet_length(idempotency_key) >= 1) AND (octet_length(idempotency_key) <= 255))),
    CONSTRAINT "options are an object" CHECK ((json_typeof(options) = 'object'::text)),
    CONSTRAINT "options have at most 4096 bytes" CHECK ((octet_length((options)::text) <= 4096)),
    CONSTRAINT "priority is urgent, normal or bulk" CHECK ((priority = ANY (ARRAY['urgent'::text, 'normal'::text, 'bulk'::text]))),
    CONSTRAINT "recipient has 1 to 2048 bytes" CHECK (((octet_length(recipient) >= 1) AND (octet_length(recipient) <= 2048))),
    CONSTRAINT "send_at is an instant" CHECK (isfinite(send_at)),
    CONSTRAINT "tenant is 1 to 64 of a-z, 0-9, - and _" CHECK ((tenant ~ '^[a-z0-9][a-z0-9_-]{0,63}$'::text))
)
WITH (autovacuum_enabled='false');
CREATE TABLE belfry.outbox_3 (
    slot smallint DEFAULT belfry.outbox_slot() NOT NULL,
    txid xid8 DEFAULT pg_current_xact_id() NOT NULL,
    id bigint NOT NULL,
    tenant text DEFAULT 'default'::text NOT NULL,
    channel text NOT NULL,
    recipient text NOT NULL,
    content json,
    options json,
    priority text DEFAULT 'normal'::text NOT NULL,
    guarantee text DEFAULT 'at_least_once'::text NOT NULL,
    send_at timestamp with time zone,
    expires_at timestamp with time zone,
    idempotency_key text,
    template text,
    variables json,
    fallback json,
    CONSTRAINT "channel is 1 to 64 of a-z, 0-9, - and _" CHECK ((channel ~ '^[a-z0-9][a-z0-9_-]{0,63}$'::text)),
    CONSTRAINT "content has at most 262144 bytes" CHECK ((octet_length((content)::text) <= 262144)),
    CONSTRAINT "expires_at is after send_at" CHECK ((expires_at > send_at)),
    CONSTRAINT "expires_at is an instant" CHECK (isfinite(expires_at)),
    CONSTRAINT "guarantee is at_least_once or at_most_once" CHECK ((guarantee = ANY (ARRAY['at_least_once'::text, 'at_most_once'::text]))),
    CONSTRAINT "idempotency_key has 1 to 255 bytes" CHECK (((octet_length(idempotency_key) >= 1) AND (octet_length(idempotency_key) <= 255))),
    CONSTRAINT "options are an object" CHECK ((json_typeof(options) = 'object'::text)),
    CONSTRAINT "options have at most 4096 bytes" CHECK ((octet_length((options)::text) <= 4096)),
    CONSTRAINT "priority is urgent, normal or bulk" CHECK ((priority = ANY (ARRAY['urgent'::text, 'normal'::text, 'bulk'::text]))),
    CONSTRAINT "recipient has 1 to 2048 bytes" CHECK (((octet_length(recipient) >= 1) AND (octet_length(recipient) <= 2048))),
    CONSTRAINT "send_at is an instant" CHECK (isfinite(send_at)),
    CONSTRAINT "tenant is 1 to 64 of a-z, 0-9, - and _" CHECK ((tenant ~ '^[a-z0-9][a-z0-9_-]{0,63}$'::text))
)
WITH (autovacuum_enabled='false');
ALTER TABLE belfry.outbox ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME belfry.outbox_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE belfry.outbox_position (
    is_only boolean DEFAULT true NOT NULL,
    snapshot pg_snapshot NOT NULL,
    txid xid8,
    id bigint,
    CONSTRAINT outbox_position_is_only_check CHECK (is_only)
)
WITH (fillfactor='10');
CREATE TABLE belfry.outbox_rejected (
    id bigint NOT NULL,
    rejected_at timestamp with time zone DEFAULT now() NOT NULL,
    reason text NOT NULL,
    tenant text NOT NULL,
    channel text NOT NULL,
    recipient text NOT NULL,
    content json,
    options json,
    priority text NOT NULL,
    guarantee text NOT NULL,
    send_at timestamp with time zone,
    expires_at timestamp with time zone,
    idempotency_key text,
    template text,
    variables json,
    fallback json
);
CREATE TABLE belfry.partition (
    id smallint NOT NULL,
    epoch bigint DEFAULT 0 NOT NULL,
    owner bigint
);
CREATE TABLE belfry.pause (
    tenant text NOT NULL COLLATE pg_catalog."C",
    scope text NOT NULL COLLATE pg_catalog."C",
    since bigint NOT NULL
);
CREATE TABLE belfry.quota_share (
    key text NOT NULL,
    holder bigint NOT NULL,
    number bigint NOT NULL,
    wants bigint NOT NULL,
    held bigint NOT NULL,
    until timestamp with time zone NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='5000');
CREATE TABLE belfry.refinery_schema_history (
    version integer NOT NULL,
    name character varying(255),
    applied_on character varying(255),
    checksum character varying(255)
);
CREATE TABLE belfry.resuming (
    broadcast bigint NOT NULL,
    passed bigint NOT NULL
);
CREATE TABLE belfry.source_shard (
    source text NOT NULL,
    shard text NOT NULL,
    "position" text NOT NULL,
    reader bigint NOT NULL,
    until bigint NOT NULL
)
WITH (fillfactor='50', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='5000');
CREATE TABLE belfry.suppression (
    channel text NOT NULL COLLATE pg_catalog."C",
    recipient text NOT NULL COLLATE pg_catalog."C",
    reason text NOT NULL,
    status integer NOT NULL,
    since bigint NOT NULL,
    txid bigint DEFAULT belfry.transaction_number() NOT NULL
);
CREATE TABLE belfry.suppression_event (
    txid bigint DEFAULT belfry.transaction_number() NOT NULL,
    id bigint NOT NULL,
    at bigint NOT NULL,
    channel text NOT NULL,
    recipient text NOT NULL,
    reason text,
    status integer,
    since bigint
);
ALTER TABLE belfry.suppression_event ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME belfry.suppression_event_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE belfry.suppression_lift (
    channel text NOT NULL COLLATE pg_catalog."C",
    recipient text NOT NULL COLLATE pg_catalog."C",
    lifted_at bigint NOT NULL,
    txid bigint DEFAULT belfry.transaction_number() NOT NULL
);
CREATE TABLE belfry.totals_delta (
    state smallint NOT NULL,
    change bigint NOT NULL
);
CREATE TABLE belfry.unreleased (
    broadcast bigint NOT NULL,
    recipients bigint DEFAULT 0 NOT NULL,
    waiting bigint DEFAULT 0 NOT NULL,
    passed bigint,
    withdrawn_at bigint
)
WITH (fillfactor='50', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='1000');
CREATE TABLE belfry.worker (
    id bigint NOT NULL,
    name text NOT NULL,
    version text NOT NULL,
    produces boolean NOT NULL,
    consumes boolean NOT NULL,
    listen text,
    started_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    alive_until timestamp with time zone NOT NULL,
    is_standing_by boolean DEFAULT false NOT NULL,
    settled bigint DEFAULT 0 NOT NULL,
    settled_per_second real DEFAULT 0 NOT NULL,
    backend integer,
    ended text,
    pauses bigint DEFAULT 0 NOT NULL
)
WITH (fillfactor='50', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='1000');
ALTER TABLE belfry.worker ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME belfry.worker_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
ALTER TABLE ONLY belfry.outbox ATTACH PARTITION belfry.outbox_0 FOR VALUES IN ('0');
ALTER TABLE ONLY belfry.outbox ATTACH PARTITION belfry.outbox_1 FOR VALUES IN ('1');
ALTER TABLE ONLY belfry.outbox ATTACH PARTITION belfry.outbox_2 FOR VALUES IN ('2');
ALTER TABLE ONLY belfry.outbox ATTACH PARTITION belfry.outbox_3 FOR VALUES IN ('3');
INSERT INTO belfry.batch VALUES (1, 1, 0, 1795816933572, 1795816933000, NULL, NULL, 1, 'default', '\x', '\x7b226e223a317d', '\x01000673656e742d31');
INSERT INTO belfry.batch VALUES (2, 1, 0, 1795816933597, 1795816933000, NULL, NULL, 1, 'default', '\x', '\x7b226e223a327d', '\x01000673656e742d32');
INSERT INTO belfry.batch VALUES (3, 1, 0, 1795816933614, 1795816933000, NULL, NULL, 1, 'default', '\x', '\x7b226e223a337d', '\x01000673656e742d33');
INSERT INTO belfry.batch VALUES (4, 1, 0, 1795816933630, 1795816933000, NULL, NULL, 1, 'default', '\x', '\x7b226e223a347d', '\x0100056b65796564');
INSERT INTO belfry.batch VALUES (5, 2, 0, 1795816933646, 1795817400000, NULL, NULL, 1, 'default', '\x', '\x7b226e223a317d', '\x0100076c617465722d31');
INSERT INTO belfry.batch VALUES (6, 2, 0, 1795816933661, 1795817400000, NULL, NULL, 1, 'default', '\x', '\x7b226e223a327d', '\x0100076c617465722d32');
INSERT INTO belfry.batch VALUES (7, 2, 0, 1795816933676, 1795817400000, NULL, NULL, 1, 'default', '\x', '\x7b226e223a337d', '\x0100076c617465722d33');
INSERT INTO belfry.batch VALUES (8, 1, 1, 1795816933691, 1795817400000, NULL, NULL, 1, 'default', '\x', '\x7b226e223a317d', '\x0100046f6e6365');
INSERT INTO belfry.batch VALUES (9, 1, 0, 1795816933706, 1795817400000, NULL, NULL, 1, 'default', NULL, NULL, '\x010302077b226e223a317d00077b226e223a327d000d776974682d66616c6c6261636b00170003647279076472792d72756e0866616c6c6261636b01');
INSERT INTO belfry.batch VALUES (10, 3, 0, 1795816933721, 1795816933000, NULL, NULL, 1, 'default', '\x', '\x7b226e223a357d', '\x010017687474703a2f2f3132372e302e302e313a392f686f6f6b');
INSERT INTO belfry.batch VALUES (11, 1, 0, 1795816933739, 1795817400000, 1811923200000, NULL, 1, 'default', '\x', '\x7b226e223a367d', '\x01000765787069726573');
INSERT INTO belfry.batch VALUES (12, 1, 0, 1795816933757, 1795817400000, NULL, NULL, 1, 'default', '\x', '\x7b7d', '\x01000963616e63656c6c6564');
INSERT INTO belfry.batch VALUES (13, 1, 0, 1795816933933, 1795816933000, NULL, NULL, 1, 'default', '\x', '\x7b7d', '\x01000a6c6566742d616c6f6e65');
INSERT INTO belfry.batch VALUES (14, 4, 0, 1795816933950, 1795816933000, NULL, 1, 30, 'default', NULL, NULL, '\x010003622d3103622d3203622d3303622d3403622d3503622d3603622d3703622d3803622d3904622d313004622d313104622d313204622d313304622d313404622d313504622d313604622d313704622d313804622d313904622d323004622d323104622d323204622d323304622d323404622d323504622d323604622d323704622d323804622d323904622d3330');
INSERT INTO belfry.batch VALUES (15, 1, 0, 1795816933976, 1795817400000, NULL, 2, 20, 'default', NULL, NULL, '\x010003632d3103632d3203632d3303632d3403632d3503632d3603632d3703632d3803632d3904632d313004632d313104632d313204632d313304632d313404632d313504632d313604632d313704632d313804632d313904632d3230');
INSERT INTO belfry.broadcast OVERRIDING SYSTEM VALUE VALUES (1, 'default', 'dry', 2, 0, 1795816933000, NULL, 1795816933954, NULL, 'campaign', '\x1e4e2ffd4355b1a2e2661d4c65eeb2c36f86e22d60b438521901543729dc8292', '\x', '\x7b22616c6c223a317d');
INSERT INTO belfry.broadcast OVERRIDING SYSTEM VALUE VALUES (2, 'default', 'dry', 1, 0, 1795817400000, NULL, 1795816933977, NULL, NULL, NULL, '\x', '\x7b22616c6c223a327d');
INSERT INTO belfry.chunk OVERRIDING SYSTEM VALUE VALUES (5, 5, 2, 21, 1795817400000, 1, 0, 0, NULL, NULL, false, NULL, 1, NULL, 0);
INSERT INTO belfry.chunk OVERRIDING SYSTEM VALUE VALUES (6, 6, 2, 21, 1795817400000, 1, 0, 0, NULL, NULL, false, NULL, 1, NULL, 0);
INSERT INTO belfry.chunk OVERRIDING SYSTEM VALUE VALUES (7, 7, 2, 21, 1795817400000, 1, 0, 0, NULL, NULL, false, NULL, 1, NULL, 0);
INSERT INTO belfry.chunk OVERRIDING SYSTEM VALUE VALUES (8, 8, 1, 21, 1795817400000, 1, 0, 0, NULL, NULL, false, NULL, 1, NULL, 0);
INSERT INTO belfry.chunk OVERRIDING SYSTEM VALUE VALUES (9, 9, 1, 21, 1795817400000, 1, 0, 0, NULL, NULL, false, NULL, 1, NULL, 0);
INSERT INTO belfry.chunk OVERRIDING SYSTEM VALUE VALUES (11, 11, 1, 21, 1795817400000, 1, 0, 0, NULL, NULL, false, NULL, 1, NULL, 0);
INSERT INTO belfry.chunk OVERRIDING SYSTEM VALUE VALUES (16, 15, 1, 21, 1795817400000, 1, 0, 0, NULL, NULL, false, NULL, 20, NULL, 0);
INSERT INTO belfry.commit_token VALUES ('33ab1e09-d696-4900-957d-3712bad2aaf1', 3, '2026-11-27 22:02:13.582654+00');
INSERT INTO belfry.commit_token VALUES ('4122e282-0ab3-4c88-8beb-7abf744294e3', 4, '2026-11-27 22:02:13.592555+00');
INSERT INTO belfry.commit_token VALUES ('4122e282-0ab3-4c88-8beb-7abf744294e3', 5, '2026-11-27 22:02:13.597324+00');
INSERT INTO belfry.commit_token VALUES ('33ab1e09-d696-4900-957d-3712bad2aaf1', 4, '2026-11-27 22:02:13.6+00');
INSERT INTO belfry.commit_token VALUES ('4122e282-0ab3-4c88-8beb-7abf744294e3', 7, '2026-11-27 22:02:13.60662+00');
INSERT INTO belfry.commit_token VALUES ('4122e282-0ab3-4c88-8beb-7abf744294e3', 8, '2026-11-27 22:02:13.609788+00');
INSERT INTO belfry.commit_token VALUES ('33ab1e09-d696-4900-957d-3712bad2aaf1', 5, '2026-11-27 22:02:13.6168+00');
INSERT INTO belfry.commit_token VALUES ('4122e282-0ab3-4c88-8beb-7abf744294e3', 10, '2026-11-27 22:02:13.622112+00');
INSERT INTO belfry.commit_token VALUES ('4122e282-0ab3-4c88-8beb-7abf744294e3', 11, '2026-11-27 22:02:13.625098+00');
INSERT INTO belfry.commit_token VALUES ('33ab1e09-d696-4900-957d-3712bad2aaf1', 6, '2026-11-27 22:02:13.633787+00');
INSERT INTO belfry.commit_token VALUES ('4122e282-0ab3-4c88-8beb-7abf744294e3', 13, '2026-11-27 22:02:13.637801+00');
INSERT INTO belfry.commit_token VALUES ('4122e282-0ab3-4c88-8beb-7abf744294e3', 14, '2026-11-27 22:02:13.640112+00');
INSERT INTO belfry.commit_token VALUES ('33ab1e09-d696-4900-957d-3712bad2aaf1', 7, '2026-11-27 22:02:13.649028+00');
INSERT INTO belfry.commit_token VALUES ('33ab1e09-d696-4900-957d-3712bad2aaf1', 8, '2026-11-27 22:02:13.66351+00');
INSERT INTO belfry.commit_token VALUES ('33ab1e09-d696-4900-957d-3712bad2aaf1', 9, '2026-11-27 22:02:13.67932+00');
INSERT INTO belfry.commit_token VALUES ('33ab1e09-d696-4900-957d-3712bad2aaf1', 10, '2026-11-27 22:02:13.693764+00');
INSERT INTO belfry.commit_token VALUES ('33ab1e09-d696-4900-957d-3712bad2aaf1', 11, '2026-11-27 22:02:13.708624+00');
INSERT INTO belfry.commit_token VALUES ('33ab1e09-d696-4900-957d-3712bad2aaf1', 12, '2026-11-27 22:02:13.725011+00');
INSERT INTO belfry.commit_token VALUES ('4122e282-0ab3-4c88-8beb-7abf744294e3', 21, '2026-11-27 22:02:13.73034+00');
INSERT INTO belfry.commit_token VALUES ('33ab1e09-d696-4900-957d-3712bad2aaf1', 13, '2026-11-27 22:02:13.741277+00');
INSERT INTO belfry.commit_token VALUES ('4122e282-0ab3-4c88-8beb-7abf744294e3', 22, '2026-11-27 22:02:13.741973+00');
INSERT INTO belfry.commit_token VALUES ('33ab1e09-d696-4900-957d-3712bad2aaf1', 14, '2026-11-27 22:02:13.760117+00');
INSERT INTO belfry.commit_token VALUES ('4122e282-0ab3-4c88-8beb-7abf744294e3', 26, '2026-11-27 22:02:13.886317+00');
INSERT INTO belfry.commit_token VALUES ('4122e282-0ab3-4c88-8beb-7abf744294e3', 27, '2026-11-27 22:02:13.900085+00');
INSERT INTO belfry.commit_token VALUES ('4122e282-0ab3-4c88-8beb-7abf744294e3', 29, '2026-11-27 22:02:13.912716+00');
INSERT INTO belfry.commit_token VALUES ('33ab1e09-d696-4900-957d-3712bad2aaf1', 15, '2026-11-27 22:02:13.935354+00');
INSERT INTO belfry.commit_token VALUES ('4122e282-0ab3-4c88-8beb-7abf744294e3', 32, '2026-11-27 22:02:13.940859+00');
INSERT INTO belfry.commit_token VALUES ('33ab1e09-d696-4900-957d-3712bad2aaf1', 16, '2026-11-27 22:02:13.949342+00');
INSERT INTO belfry.commit_token VALUES ('33ab1e09-d696-4900-957d-3712bad2aaf1', 17, '2026-11-27 22:02:13.953458+00');
INSERT INTO belfry.commit_token VALUES ('33ab1e09-d696-4900-957d-3712bad2aaf1', 18, '2026-11-27 22:02:13.957318+00');
INSERT INTO belfry.commit_token VALUES ('4122e282-0ab3-4c88-8beb-7abf744294e3', 34, '2026-11-27 22:02:13.962315+00');
INSERT INTO belfry.commit_token VALUES ('4122e282-0ab3-4c88-8beb-7abf744294e3', 35, '2026-11-27 22:02:13.965558+00');
INSERT INTO belfry.commit_token VALUES ('4122e282-0ab3-4c88-8beb-7abf744294e3', 36, '2026-11-27 22:02:13.968734+00');
INSERT INTO belfry.commit_token VALUES ('4122e282-0ab3-4c88-8beb-7abf744294e3', 37, '2026-11-27 22:02:13.970968+00');
INSERT INTO belfry.commit_token VALUES ('33ab1e09-d696-4900-957d-3712bad2aaf1', 19, '2026-11-27 22:02:13.97542+00');
INSERT INTO belfry.commit_token VALUES ('33ab1e09-d696-4900-957d-3712bad2aaf1', 20, '2026-11-27 22:02:13.97749+00');
INSERT INTO belfry.commit_token VALUES ('33ab1e09-d696-4900-957d-3712bad2aaf1', 21, '2026-11-27 22:02:13.979679+00');
INSERT INTO belfry.commit_token VALUES ('4122e282-0ab3-4c88-8beb-7abf744294e3', 40, '2026-11-27 22:02:16.998852+00');
INSERT INTO belfry.idempotency VALUES ('default', 'order 4', '\x59c0bc328e151a4f43775ad12c713cfd220d364eb4af4fc81f5a1c460847a7a0', '01a21f07-c8fe-8877-8000-000000040000', NULL);
INSERT INTO belfry.idempotency VALUES ('default', 'campaign', '\x1e4e2ffd4355b1a2e2661d4c65eeb2c36f86e22d60b438521901543729dc8292', NULL, 1);
INSERT INTO belfry.log OVERRIDING SYSTEM VALUE VALUES (752, 1, 1, '\x01d9919ff8a1340103c80100010000');
INSERT INTO belfry.log OVERRIDING SYSTEM VALUE VALUES (755, 2, 2, '\x01e8919ff8a1340103c80100010000');
INSERT INTO belfry.log OVERRIDING SYSTEM VALUE VALUES (758, 3, 3, '\x01f7919ff8a1340103c80100010000');
INSERT INTO belfry.log OVERRIDING SYSTEM VALUE VALUES (761, 4, 4, '\x0186929ff8a1340103c80100010000');
INSERT INTO belfry.log OVERRIDING SYSTEM VALUE VALUES (770, 5, 10, '\x01eb929ff8a1340109004763616e6e6f7420636f6e6e65637420746f20687474703a2f2f3132372e302e302e313a393a20436f6e6e656374696f6e207265667573656420286f73206572726f722031313129010000');
INSERT INTO belfry.log OVERRIDING SYSTEM VALUE VALUES (772, 6, 12, '\x01fb939ff8a13400060000010000');
INSERT INTO belfry.log OVERRIDING SYSTEM VALUE VALUES (776, 7, 13, '\x01b0949ff8a13400070034737570707265737365643a2061736b65642075732c2073696e636520323032362d31312d32375432323a30323a31332e3839365a010000');
INSERT INTO belfry.log OVERRIDING SYSTEM VALUE VALUES (781, 8, 14, '\x01cb949ff8a1340103c8010001000f');
INSERT INTO belfry.log OVERRIDING SYSTEM VALUE VALUES (783, 9, 14, '\x01d1949ff8a1340103c8010001100d');
INSERT INTO belfry.meta VALUES ('transaction_shift', 0);
INSERT INTO belfry.meta VALUES ('realm', 2167);
INSERT INTO belfry.meta VALUES ('pauses', 2);
INSERT INTO belfry.outbox_position VALUES (true, '727:727:', NULL, NULL);
INSERT INTO belfry.partition VALUES (0, 1, 1);
INSERT INTO belfry.partition VALUES (1, 1, 1);
INSERT INTO belfry.partition VALUES (2, 1, 1);
INSERT INTO belfry.partition VALUES (3, 1, 1);
INSERT INTO belfry.partition VALUES (4, 1, 1);
INSERT INTO belfry.partition VALUES (5, 1, 1);
INSERT INTO belfry.partition VALUES (6, 1, 1);
INSERT INTO belfry.partition VALUES (7, 1, 1);
INSERT INTO belfry.partition VALUES (8, 1, 1);
INSERT INTO belfry.partition VALUES (9, 1, 1);
INSERT INTO belfry.partition VALUES (10, 1, 1);
INSERT INTO belfry.partition VALUES (11, 1, 1);
INSERT INTO belfry.partition VALUES (12, 1, 1);
INSERT INTO belfry.partition VALUES (13, 1, 1);
INSERT INTO belfry.partition VALUES (14, 1, 1);
INSERT INTO belfry.partition VALUES (15, 1, 1);
INSERT INTO belfry.partition VALUES (16, 1, 1);
INSERT INTO belfry.partition VALUES (17, 1, 1);
INSERT INTO belfry.partition VALUES (18, 1, 1);
INSERT INTO belfry.partition VALUES (19, 1, 1);
INSERT INTO belfry.partition VALUES (20, 1, 1);
INSERT INTO belfry.partition VALUES (21, 1, 1);
INSERT INTO belfry.partition VALUES (22, 1, 1);
INSERT INTO belfry.partition VALUES (23, 1, 1);
INSERT INTO belfry.partition VALUES (24, 1, 1);
INSERT INTO belfry.partition VALUES (25, 1, 1);
INSERT INTO belfry.partition VALUES (26, 1, 1);
INSERT INTO belfry.partition VALUES (27, 1, 1);
INSERT INTO belfry.partition VALUES (28, 1, 1);
INSERT INTO belfry.partition VALUES (29, 1, 1);
INSERT INTO belfry.partition VALUES (30, 1, 1);
INSERT INTO belfry.partition VALUES (31, 1, 1);
INSERT INTO belfry.partition VALUES (32, 1, 1);
INSERT INTO belfry.partition VALUES (33, 1, 1);
INSERT INTO belfry.partition VALUES (34, 1, 1);
INSERT INTO belfry.partition VALUES (35, 1, 1);
INSERT INTO belfry.partition VALUES (36, 1, 1);
INSERT INTO belfry.partition VALUES (37, 1, 1);
INSERT INTO belfry.partition VALUES (38, 1, 1);
INSERT INTO belfry.partition VALUES (39, 1, 1);
INSERT INTO belfry.partition VALUES (40, 1, 1);
INSERT INTO belfry.partition VALUES (41, 1, 1);
INSERT INTO belfry.partition VALUES (42, 1, 1);
INSERT INTO belfry.partition VALUES (43, 1, 1);
INSERT INTO belfry.partition VALUES (44, 1, 1);
INSERT INTO belfry.partition VALUES (45, 1, 1);
INSERT INTO belfry.partition VALUES (46, 1, 1);
INSERT INTO belfry.partition VALUES (47, 1, 1);
INSERT INTO belfry.partition VALUES (48, 1, 1);
INSERT INTO belfry.partition VALUES (49, 1, 1);
INSERT INTO belfry.partition VALUES (50, 1, 1);
INSERT INTO belfry.partition VALUES (51, 1, 1);
INSERT INTO belfry.partition VALUES (52, 1, 1);
INSERT INTO belfry.partition VALUES (53, 1, 1);
INSERT INTO belfry.partition VALUES (54, 1, 1);
INSERT INTO belfry.partition VALUES (55, 1, 1);
INSERT INTO belfry.partition VALUES (56, 1, 1);
INSERT INTO belfry.partition VALUES (57, 1, 1);
INSERT INTO belfry.partition VALUES (58, 1, 1);
INSERT INTO belfry.partition VALUES (59, 1, 1);
INSERT INTO belfry.partition VALUES (60, 1, 1);
INSERT INTO belfry.partition VALUES (61, 1, 1);
INSERT INTO belfry.partition VALUES (62, 1, 1);
INSERT INTO belfry.partition VALUES (63, 1, 1);
INSERT INTO belfry.pause VALUES ('default', 'broadcast/bc_2', 1795816936994);
INSERT INTO belfry.refinery_schema_history VALUES (1, 'belfry', '2026-11-27T22:02:13.288913065Z', '14523215031029506290');
INSERT INTO belfry.refinery_schema_history VALUES (2, 'outbox_content', '2026-11-27T22:02:13.363444754Z', '616881835663510003');
INSERT INTO belfry.refinery_schema_history VALUES (3, 'suspects', '2026-11-27T22:02:13.370721228Z', '8040156051634960171');
INSERT INTO belfry.refinery_schema_history VALUES (4, 'due_spans', '2026-11-27T22:02:13.37321678Z', '17917442698341948416');
INSERT INTO belfry.refinery_schema_history VALUES (6, 'chunk_weight', '2026-11-27T22:02:13.375235536Z', '11340574985151178807');
INSERT INTO belfry.refinery_schema_history VALUES (7, 'outbox_rotate', '2026-11-27T22:02:13.37669182Z', '5371469315739179731');
INSERT INTO belfry.refinery_schema_history VALUES (8, 'unreleased', '2026-11-27T22:02:13.378137879Z', '245692398407247538');
INSERT INTO belfry.refinery_schema_history VALUES (9, 'commit_token', '2026-11-27T22:02:13.383166768Z', '10562892680052779102');
INSERT INTO belfry.refinery_schema_history VALUES (10, 'tenant_lanes', '2026-11-27T22:02:13.386027926Z', '1134420578993750805');
INSERT INTO belfry.refinery_schema_history VALUES (11, 'pauses', '2026-11-27T22:02:13.389278374Z', '15581334201517256053');
INSERT INTO belfry.refinery_schema_history VALUES (12, 'resuming', '2026-11-27T22:02:13.393092486Z', '12860438210019819291');
INSERT INTO belfry.refinery_schema_history VALUES (13, 'lanes_of_tenants', '2026-11-27T22:02:13.395747208Z', '11760787856203500972');
INSERT INTO belfry.refinery_schema_history VALUES (14, 'quota_share', '2026-11-27T22:02:13.398042283Z', '2359800100197608931');
INSERT INTO belfry.refinery_schema_history VALUES (15, 'source_shard', '2026-11-27T22:02:13.40238358Z', '15007326606139608224');
INSERT INTO belfry.refinery_schema_history VALUES (16, 'learned_rate', '2026-11-27T22:02:13.407333768Z', '169156199037711086');
INSERT INTO belfry.suppression VALUES ('dry', 'left-alone', 'asked us', 0, 1795816933896, 773);
INSERT INTO belfry.suppression_event OVERRIDING SYSTEM VALUE VALUES (773, 1, 1795816933896, 'dry', 'left-alone', 'asked us', 0, 1795816933896);
INSERT INTO belfry.suppression_event OVERRIDING SYSTEM VALUE VALUES (773, 2, 1795816933896, 'dry', 'lifted', 'asked us', 0, 1795816933896);
INSERT INTO belfry.suppression_event OVERRIDING SYSTEM VALUE VALUES (774, 3, 1795816933910, 'dry', 'lifted', NULL, NULL, NULL);
INSERT INTO belfry.suppression_lift VALUES ('dry', 'lifted', 1795816933910, 774);
INSERT INTO belfry.tenant_lane OVERRIDING SYSTEM VALUE VALUES (1, 'dry', 'dry-run', 1, 'default');
INSERT INTO belfry.tenant_lane OVERRIDING SYSTEM VALUE VALUES (2, 'dry', 'dry-run', 0, 'default');
INSERT INTO belfry.tenant_lane OVERRIDING SYSTEM VALUE VALUES (3, 'gone', 'http://127.0.0.1:9', 1, 'default');
INSERT INTO belfry.tenant_lane OVERRIDING SYSTEM VALUE VALUES (4, 'dry', 'dry-run', 2, 'default');
INSERT INTO belfry.totals_delta VALUES (0, 1);
INSERT INTO belfry.totals_delta VALUES (0, -1);
INSERT INTO belfry.totals_delta VALUES (3, 1);
INSERT INTO belfry.totals_delta VALUES (0, 1);
INSERT INTO belfry.totals_delta VALUES (0, -1);
INSERT INTO belfry.totals_delta VALUES (3, 1);
INSERT INTO belfry.totals_delta VALUES (0, 1);
INSERT INTO belfry.totals_delta VALUES (0, -1);
INSERT INTO belfry.totals_delta VALUES (3, 1);
INSERT INTO belfry.totals_delta VALUES (0, 1);
INSERT INTO belfry.totals_delta VALUES (0, -1);
INSERT INTO belfry.totals_delta VALUES (3, 1);
INSERT INTO belfry.totals_delta VALUES (0, 1);
INSERT INTO belfry.totals_delta VALUES (0, 1);
INSERT INTO belfry.totals_delta VALUES (0, 1);
INSERT INTO belfry.totals_delta VALUES (0, 1);
INSERT INTO belfry.totals_delta VALUES (0, 1);
INSERT INTO belfry.totals_delta VALUES (0, 1);
INSERT INTO belfry.totals_delta VALUES (0, 1);
INSERT INTO belfry.totals_delta VALUES (0, -1);
INSERT INTO belfry.totals_delta VALUES (9, 1);
INSERT INTO belfry.totals_delta VALUES (0, 1);
INSERT INTO belfry.totals_delta VALUES (0, -1);
INSERT INTO belfry.totals_delta VALUES (6, 1);
INSERT INTO belfry.totals_delta VALUES (0, 1);
INSERT INTO belfry.totals_delta VALUES (0, -1);
INSERT INTO belfry.totals_delta VALUES (7, 1);
INSERT INTO belfry.totals_delta VALUES (0, 30);
INSERT INTO belfry.totals_delta VALUES (0, -16);
INSERT INTO belfry.totals_delta VALUES (3, 16);
INSERT INTO belfry.totals_delta VALUES (0, -14);
INSERT INTO belfry.totals_delta VALUES (3, 14);
INSERT INTO belfry.totals_delta VALUES (0, 20);
INSERT INTO belfry.worker OVERRIDING SYSTEM VALUE VALUES (1, 'vm-27298', '0.1.0', true, true, '127.0.0.1:18475', '2026-11-27 22:02:13.435319+00', '2026-11-27 22:02:27.006955+00', false, 35, 0, 27310, NULL, 2);
SELECT pg_catalog.setval('belfry.batch_number', 1, true);
SELECT pg_catalog.setval('belfry.broadcast_id_seq', 2, true);
SELECT pg_catalog.setval('belfry.chunk_id_seq', 16, true);
SELECT pg_catalog.setval('belfry.lane_id_seq', 4, true);
SELECT pg_catalog.setval('belfry.log_id_seq', 9, true);
SELECT pg_catalog.setval('belfry.outbox_id_seq', 1, false);
SELECT pg_catalog.setval('belfry.suppression_event_id_seq', 3, true);
SELECT pg_catalog.setval('belfry.worker_id_seq', 1, true);
ALTER TABLE ONLY belfry.batch
    ADD CONSTRAINT batch_pkey PRIMARY KEY (id);
ALTER TABLE ONLY belfry.broadcast
    ADD CONSTRAINT broadcast_pkey PRIMARY KEY (id);
ALTER TABLE ONLY belfry.chunk
    ADD CONSTRAINT chunk_pkey PRIMARY KEY (id);
ALTER TABLE ONLY belfry.commit_token
    ADD CONSTRAINT commit_token_pkey PRIMARY KEY (session, number);
ALTER TABLE belfry.outbox
    ADD CONSTRAINT "content or template is given, and one of them only" CHECK ((num_nonnulls(content, template) = 1)) NOT VALID;
ALTER TABLE belfry.outbox
    ADD CONSTRAINT "fallback has at most 262144 bytes" CHECK ((octet_length((fallback)::text) <= 262144)) NOT VALID;
ALTER TABLE belfry.outbox
    ADD CONSTRAINT "fallback is an array of at most 3" CHECK (
CASE json_typeof(fallback)
    WHEN 'array'::text THEN (json_array_length(fallback) <= 3)
    ELSE (fallback IS NULL)
END) NOT VALID;
ALTER TABLE ONLY belfry.feed
    ADD CONSTRAINT feed_pkey PRIMARY KEY (name);
ALTER TABLE ONLY belfry.idempotency
    ADD CONSTRAINT idempotency_pkey PRIMARY KEY (tenant, key);
ALTER TABLE ONLY belfry.tenant_lane
    ADD CONSTRAINT lane_pkey PRIMARY KEY (id);
ALTER TABLE ONLY belfry.learned_rate
    ADD CONSTRAINT learned_rate_pkey PRIMARY KEY (key);
ALTER TABLE ONLY belfry.log
    ADD CONSTRAINT log_pkey PRIMARY KEY (txid, id);
ALTER TABLE ONLY belfry.meta
    ADD CONSTRAINT meta_pkey PRIMARY KEY (key);
ALTER TABLE belfry.outbox
    ADD CONSTRAINT "options are part of the template" CHECK (((template IS NULL) OR (options IS NULL))) NOT VALID;
ALTER TABLE ONLY belfry.outbox_position
    ADD CONSTRAINT outbox_position_pkey PRIMARY KEY (is_only);
ALTER TABLE ONLY belfry.outbox_rejected
    ADD CONSTRAINT outbox_rejected_pkey PRIMARY KEY (id);
ALTER TABLE ONLY belfry.partition
    ADD CONSTRAINT partition_pkey PRIMARY KEY (id);
ALTER TABLE ONLY belfry.pause
    ADD CONSTRAINT pause_pkey PRIMARY KEY (scope, tenant);
ALTER TABLE ONLY belfry.quota_share
    ADD CONSTRAINT quota_share_pkey PRIMARY KEY (key, holder);
ALTER TABLE ONLY belfry.refinery_schema_history
    ADD CONSTRAINT refinery_schema_history_pkey PRIMARY KEY (version);
ALTER TABLE ONLY belfry.resuming
    ADD CONSTRAINT resuming_pkey PRIMARY KEY (broadcast);
ALTER TABLE ONLY belfry.source_shard
    ADD CONSTRAINT source_shard_pkey PRIMARY KEY (source, shard);
ALTER TABLE ONLY belfry.suppression_event
    ADD CONSTRAINT suppression_event_pkey PRIMARY KEY (txid, id);
ALTER TABLE ONLY belfry.suppression_lift
    ADD CONSTRAINT suppression_lift_pkey PRIMARY KEY (channel, recipient);
ALTER TABLE ONLY belfry.suppression
    ADD CONSTRAINT suppression_pkey PRIMARY KEY (channel, recipient);
ALTER TABLE belfry.outbox
    ADD CONSTRAINT "template is 1 to 64 of a-z, 0-9, - and _" CHECK ((template ~ '^[a-z0-9][a-z0-9_-]{0,63}$'::text)) NOT VALID;
ALTER TABLE ONLY belfry.unreleased
    ADD CONSTRAINT unreleased_pkey PRIMARY KEY (broadcast);
ALTER TABLE belfry.outbox
    ADD CONSTRAINT "variables are an object" CHECK ((json_typeof(variables) = 'object'::text)) NOT VALID;
ALTER TABLE belfry.outbox
    ADD CONSTRAINT "variables have at most 65536 bytes" CHECK ((octet_length((variables)::text) <= 65536)) NOT VALID;
ALTER TABLE ONLY belfry.worker
    ADD CONSTRAINT worker_pkey PRIMARY KEY (id);
CREATE INDEX batch_in_broadcast ON belfry.batch USING btree (broadcast, id) WHERE (broadcast IS NOT NULL);
CREATE INDEX broadcast_open ON belfry.broadcast USING btree (worker) WHERE (sealed_at IS NULL);
CREATE INDEX chunk_due ON belfry.chunk USING btree (((due_at >> 14)), lane, due_at) WHERE (lease_until IS NULL);
CREATE INDEX chunk_leased ON belfry.chunk USING btree (lease_until) WHERE (lease_until IS NOT NULL);
CREATE INDEX chunk_of_batch ON belfry.chunk USING btree (batch);
CREATE INDEX chunk_of_worker ON belfry.chunk USING btree (worker) WHERE (worker IS NOT NULL);
CREATE INDEX chunk_ready ON belfry.chunk USING btree (lane, due_at, id) WHERE (lease_until IS NULL);
CREATE INDEX chunk_suspect ON belfry.chunk USING btree (id) WHERE (crashes > 3);
CREATE INDEX learned_rate_until ON belfry.learned_rate USING btree (until);
CREATE INDEX log_of_batch ON belfry.log USING btree (batch);
CREATE INDEX outbox_in_order ON ONLY belfry.outbox USING btree (txid, id);
CREATE INDEX outbox_0_txid_id_idx ON belfry.outbox_0 USING btree (txid, id);
CREATE INDEX outbox_1_txid_id_idx ON belfry.outbox_1 USING btree (txid, id);
CREATE INDEX outbox_2_txid_id_idx ON belfry.outbox_2 USING btree (txid, id);
CREATE INDEX outbox_3_txid_id_idx ON belfry.outbox_3 USING btree (txid, id);
CREATE INDEX quota_share_until ON belfry.quota_share USING btree (until);
CREATE INDEX tenant_lane_by_channel ON belfry.tenant_lane USING btree ((((tenant || '/'::text) || channel)), id);
CREATE UNIQUE INDEX tenant_lane_key ON belfry.tenant_lane USING btree (channel, destination, priority, tenant);
CREATE INDEX unreleased_sealed ON belfry.unreleased USING btree (waiting, broadcast) WHERE (passed IS NOT NULL);
ALTER INDEX belfry.outbox_in_order ATTACH PARTITION belfry.outbox_0_txid_id_idx;
ALTER INDEX belfry.outbox_in_order ATTACH PARTITION belfry.outbox_1_txid_id_idx;
ALTER INDEX belfry.outbox_in_order ATTACH PARTITION belfry.outbox_2_txid_id_idx;
ALTER INDEX belfry.outbox_in_order ATTACH PARTITION belfry.outbox_3_txid_id_idx;
CREATE TRIGGER outbox_notify AFTER INSERT ON belfry.outbox FOR EACH STATEMENT EXECUTE FUNCTION belfry.outbox_notify();

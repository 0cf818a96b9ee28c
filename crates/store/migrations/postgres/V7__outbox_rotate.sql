-- As before, but for how a slot is asked whether something of it was not taken: by the last entry of its index and by the
-- transactions that were running, and not row by row.
CREATE OR REPLACE FUNCTION outbox_rotate() RETURNS integer LANGUAGE plpgsql AS $$
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
$$;

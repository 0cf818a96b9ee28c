-- When a row of the outbox was inserted, so that it can be told how far the outbox is behind. Rows that are there have no instant: the
-- default comes after the column, so that the table is not rewritten.
ALTER TABLE outbox ADD COLUMN IF NOT EXISTS inserted_at timestamptz;
ALTER TABLE outbox ALTER COLUMN inserted_at SET DEFAULT clock_timestamp();

-- How many rows wait to be taken, counted to a bound, and when the first of these was inserted. The transactions that have ended are gone
-- through between those that run: an index leads to the rows of these as well, and one of them may have written a million. Those that were
-- running when the outbox was last drained come first. In the one that was taken in part the search begins behind that part, for the same
-- reason. The way through the index is laid down as in outbox_page, and compiling would take longer than what is compiled.
CREATE OR REPLACE FUNCTION outbox_waiting(most integer, OUT waiting bigint, OUT oldest timestamptz)
LANGUAGE sql STABLE SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
    WITH taken AS (SELECT snapshot, txid, id FROM outbox_position),
    -- The ends of the spans of transactions with new numbers: those that run, and the first without a number.
    bounds AS (
        SELECT bound FROM taken, pg_snapshot_xip(pg_current_snapshot()) AS bound WHERE bound >= pg_snapshot_xmax(snapshot)
        UNION ALL SELECT pg_snapshot_xmax(pg_current_snapshot())
    ),
    spans AS (SELECT bound, lag(bound) OVER (ORDER BY bound) AS after FROM bounds)
    SELECT count(*), min(inserted_at) FROM (
        (SELECT late.inserted_at
         FROM taken CROSS JOIN pg_snapshot_xip(taken.snapshot) AS ended
         CROSS JOIN LATERAL (SELECT inserted_at FROM outbox
                             WHERE txid = ended AND id > CASE ended WHEN taken.txid THEN taken.id ELSE 0 END
                             ORDER BY txid, id LIMIT most) AS late
         WHERE pg_visible_in_snapshot(ended, pg_current_snapshot())
         LIMIT most)
        UNION ALL
        (SELECT new.inserted_at
         FROM taken CROSS JOIN spans
         CROSS JOIN LATERAL (SELECT inserted_at FROM outbox
                             WHERE (txid, id) > (coalesce(after, pg_snapshot_xmax(taken.snapshot)),
                                                 CASE WHEN after IS NULL THEN 0 ELSE 9223372036854775807 END)
                               AND txid < bound
                             ORDER BY txid, id LIMIT most) AS new
         LIMIT most)
        LIMIT most
    ) AS counted
$$;

-- When a row of the outbox was inserted, so that it can be told how far the outbox is behind. Rows that are there have no instant: the
-- default comes after the column, so that the table is not rewritten.
ALTER TABLE outbox ADD COLUMN IF NOT EXISTS inserted_at timestamptz;
ALTER TABLE outbox ALTER COLUMN inserted_at SET DEFAULT clock_timestamp();

-- How many rows wait to be taken, counted to a bound, and when the first of these was inserted. Rows of transactions that ended late come
-- first. In a transaction that was taken in part the search begins behind that part: it may have a million rows. The way through the
-- index is laid down as in outbox_page.
CREATE OR REPLACE FUNCTION outbox_waiting(most integer, OUT waiting bigint, OUT oldest timestamptz)
LANGUAGE sql STABLE SET enable_seqscan = off SET enable_bitmapscan = off AS $$
    SELECT count(*), min(inserted_at) FROM (
        (SELECT late.inserted_at
         FROM outbox_position AS taken
         CROSS JOIN pg_snapshot_xip(taken.snapshot) AS running
         CROSS JOIN LATERAL (SELECT inserted_at FROM outbox
                             WHERE txid = running AND id > CASE running WHEN taken.txid THEN taken.id ELSE 0 END
                             ORDER BY txid, id LIMIT most) AS late
         LIMIT most)
        UNION ALL
        (SELECT inserted_at FROM outbox
         WHERE txid >= (SELECT pg_snapshot_xmax(snapshot) FROM outbox_position)
         ORDER BY txid, id LIMIT most)
        LIMIT most
    ) AS counted
$$;

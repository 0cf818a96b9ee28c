-- What of a tenant's is not sent until it is resumed (decision 0029).
CREATE TABLE IF NOT EXISTS pause (
    tenant text   COLLATE "C" NOT NULL,
    scope  text   COLLATE "C" NOT NULL,  -- as `notification::PauseScope` writes it
    since  bigint NOT NULL,
    PRIMARY KEY (scope, tenant)
);
-- Rises with every change of the pauses, and each worker says which version it goes by.
INSERT INTO meta (key, value) VALUES ('pauses', 1) ON CONFLICT DO NOTHING;
ALTER TABLE worker ADD COLUMN IF NOT EXISTS pauses bigint NOT NULL DEFAULT 0;

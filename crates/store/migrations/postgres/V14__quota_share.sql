-- The parts of quotas that processes go by (decision 0036): a row for each quota and process, while it counts.
CREATE TABLE IF NOT EXISTS quota_share (
    key    text        NOT NULL,  -- of the quota
    holder bigint      NOT NULL,  -- a process, by a number that it drew
    number bigint      NOT NULL,  -- messages per minute, by its configuration
    wants  bigint      NOT NULL,  -- thousandths of a message per minute that it could use
    held   bigint      NOT NULL,  -- thousandths of a message per minute that it may go by
    until  timestamptz NOT NULL,  -- it counts until then
    PRIMARY KEY (key, holder)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
CREATE INDEX IF NOT EXISTS quota_share_until ON quota_share (until);

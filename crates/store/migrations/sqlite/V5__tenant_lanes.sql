-- A lane belongs to a tenant (decision 0027). Those that are there become lanes of the tenant `default`, with whatever other
-- tenants have waiting in them.
CREATE TABLE tenant_lane (
    id          INTEGER PRIMARY KEY,
    channel     TEXT    NOT NULL,
    destination TEXT    NOT NULL,
    priority    INTEGER NOT NULL,
    tenant      TEXT    NOT NULL,
    UNIQUE (channel, destination, priority, tenant)
) STRICT;
INSERT INTO tenant_lane (id, channel, destination, priority, tenant)
    SELECT id, channel, destination, priority, 'default' FROM lane;
DROP TABLE lane;

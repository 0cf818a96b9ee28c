-- What of a tenant's is not sent until it is resumed (decision 0029).
CREATE TABLE pause (
    tenant TEXT    NOT NULL,
    scope  TEXT    NOT NULL, -- as `notification::PauseScope` writes it
    since  INTEGER NOT NULL,
    PRIMARY KEY (scope, tenant)
) STRICT, WITHOUT ROWID;

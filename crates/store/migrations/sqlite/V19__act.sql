-- What callers have changed: who, what, when, and what came of it (decision 0070).
CREATE TABLE act (
    id       INTEGER PRIMARY KEY AUTOINCREMENT,
    at       INTEGER NOT NULL,
    request  TEXT    NOT NULL, -- the identifier that its answer and the log have
    key      TEXT,             -- of the caller, if any are configured
    caller   TEXT    NOT NULL, -- the tenant of the key
    tenant   TEXT    NOT NULL, -- the tenant that it concerns
    call     TEXT    NOT NULL,
    asked    TEXT    NOT NULL,
    ended_at INTEGER,
    status   INTEGER,
    answer   TEXT
) STRICT;
CREATE INDEX act_of_tenant ON act (tenant, id);

-- What callers have changed: who, what, when, and what came of it (decision 0070).
CREATE TABLE IF NOT EXISTS act (
    id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at       bigint   NOT NULL,
    request  text     NOT NULL, -- the identifier that its answer and the log have
    key      text     COLLATE "C",          -- of the caller, if any are configured
    caller   text     COLLATE "C" NOT NULL, -- the tenant of the key
    tenant   text     COLLATE "C" NOT NULL, -- the tenant that it concerns
    call     text     NOT NULL,
    asked    text     NOT NULL,
    ended_at bigint,
    status   smallint,
    answer   text
);
CREATE INDEX IF NOT EXISTS act_of_tenant ON act (tenant, id);

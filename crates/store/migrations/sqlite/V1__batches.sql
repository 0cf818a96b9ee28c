-- Instants are milliseconds since the Unix epoch. Codes are those of the `notification` crate.
-- Blobs are described in src/sqlite/codec.rs; they stand last, so that reading a row's other columns does
-- not touch the pages they overflow to.

CREATE TABLE meta (key TEXT NOT NULL PRIMARY KEY, value INTEGER NOT NULL) STRICT, WITHOUT ROWID;

CREATE TABLE lane (
    id          INTEGER PRIMARY KEY,
    channel     TEXT    NOT NULL,
    destination TEXT    NOT NULL,
    priority    INTEGER NOT NULL,
    UNIQUE (channel, destination, priority)
) STRICT;

CREATE TABLE broadcast (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant      TEXT    NOT NULL,
    channel     TEXT    NOT NULL,
    priority    INTEGER NOT NULL,
    guarantee   INTEGER NOT NULL,
    due_at      INTEGER NOT NULL,
    expires_at  INTEGER,
    sealed_at   INTEGER,                     -- NULL while it is open
    key         TEXT,
    fingerprint BLOB,
    options     BLOB    NOT NULL,
    payload     BLOB    NOT NULL
) STRICT;
CREATE INDEX broadcast_open ON broadcast (id) WHERE sealed_at IS NULL;

-- Written once, never changed.
CREATE TABLE batch (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    lane        INTEGER NOT NULL,
    guarantee   INTEGER NOT NULL,
    accepted_at INTEGER NOT NULL,
    due_at      INTEGER NOT NULL,
    expires_at  INTEGER,
    broadcast   INTEGER,
    count       INTEGER NOT NULL,
    tenant      TEXT    NOT NULL,
    options     BLOB,                        -- content of all members, NULL when it is elsewhere
    payload     BLOB,
    items       BLOB    NOT NULL
) STRICT;
CREATE INDEX batch_of_broadcast ON batch (broadcast) WHERE broadcast IS NOT NULL;

-- What is pending. Ready while lease_until is NULL.
CREATE TABLE chunk (
    id            INTEGER PRIMARY KEY AUTOINCREMENT,
    batch         INTEGER NOT NULL,
    lane          INTEGER NOT NULL,
    due_at        INTEGER NOT NULL,
    attempt       INTEGER NOT NULL,
    epoch         INTEGER NOT NULL,
    crashes       INTEGER NOT NULL,
    lease_until   INTEGER,
    begun_through INTEGER,
    count         INTEGER NOT NULL,
    members       BLOB                       -- NULL: all of the batch
) STRICT;
CREATE INDEX chunk_ready ON chunk (lane, due_at) WHERE lease_until IS NULL;
CREATE INDEX chunk_leased ON chunk (lease_until) WHERE lease_until IS NOT NULL;
CREATE INDEX chunk_of_batch ON chunk (batch);

CREATE TABLE log (
    id      INTEGER PRIMARY KEY,
    batch   INTEGER NOT NULL,
    entries BLOB    NOT NULL
) STRICT;
CREATE INDEX log_of_batch ON log (batch);

CREATE TABLE idempotency (
    tenant       TEXT    NOT NULL,
    key          TEXT    NOT NULL,
    fingerprint  BLOB    NOT NULL,
    notification BLOB,
    broadcast    INTEGER,
    PRIMARY KEY (tenant, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE suppression (
    channel   TEXT    NOT NULL,
    recipient TEXT    NOT NULL,
    reason    TEXT    NOT NULL,
    status    INTEGER NOT NULL,
    since     INTEGER NOT NULL,
    PRIMARY KEY (channel, recipient)
) STRICT, WITHOUT ROWID;

-- Who came back: a provider's word of an instant up to this one is out of date.
CREATE TABLE suppression_lift (
    channel   TEXT    NOT NULL,
    recipient TEXT    NOT NULL,
    lifted_at INTEGER NOT NULL,
    PRIMARY KEY (channel, recipient)
) STRICT, WITHOUT ROWID;

-- Every change of the list; without `since`, a recipient was taken off.
CREATE TABLE suppression_event (
    id        INTEGER PRIMARY KEY,
    at        INTEGER NOT NULL,
    channel   TEXT    NOT NULL,
    recipient TEXT    NOT NULL,
    reason    TEXT,
    status    INTEGER,
    since     INTEGER
) STRICT;

-- How far somebody who hands these changes on has come, the end of what is being handed on, and how often that was in vain.
CREATE TABLE feed (
    name  TEXT    NOT NULL PRIMARY KEY,
    event INTEGER NOT NULL,
    until INTEGER,
    tries INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- How many notifications stand in which state; the state 0 counts all that are pending.
CREATE TABLE totals (state INTEGER PRIMARY KEY, count INTEGER NOT NULL) STRICT;

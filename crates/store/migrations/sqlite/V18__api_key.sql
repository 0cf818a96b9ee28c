-- API keys that calls made (decision 0067). The keys themselves are stored nowhere.
CREATE TABLE api_key (
    name         TEXT    NOT NULL PRIMARY KEY,
    tenant       TEXT    NOT NULL,
    sha256       BLOB    NOT NULL,
    former       BLOB,             -- SHA-256 of the key before the rotation
    former_until INTEGER,          -- and the last instant at which it is good
    grants       TEXT    NOT NULL, -- in the words of the API
    made_at      INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
